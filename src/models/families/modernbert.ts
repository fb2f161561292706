// ModernBERT: RoPE with a theta of its own in layers with a window on both sides, norms before the branches, GELU with gates. EuroBERT: Llama
// whose queries attend later keys, too.

import type { AttentionRules } from "./attention-rules.ts";
import { ignoredOfEncoders } from "./bert.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "modernbert",
  reader: "loadEncoder",
  causal: false,
  window: {
    tokens: 128,
    field: "local_attention",
    bothSides: true,
    slides: (layer, file) => layer % file.count("global_attn_every_n_layers", 3) !== 0,
  },
  rope: { theta: 160_000, thetaField: "global_rope_theta", local: { field: "local_rope_theta", theta: 10_000 } },
};

const eurobert: AttentionRules = { types: "eurobert", gguf: {}, reader: "loadEncoder", causal: false };

export const layers: readonly AttentionRules[] = [attention, eurobert];

export const encoders = (): Family[] => [
  {
    attention,
    names: {
      embed: "embeddings.tok_embeddings",
      embedNorm: "embeddings.norm",
      attention: "attn.",
      projections: ["Wqkv", "Wo"],
      norms: { attentionPre: "attn_norm", mlpPre: "mlp_norm" },
      mlp: { gate: "Wi", down: "Wo" },
      finalNorm: "final_norm",
      head: "decoder",
      transform: { dense: "head.dense", norm: "head.norm", activation: "classifier_activation" },
    },
    norm: { kind: "layer", eps: 1e-5, field: "norm_eps" },
    activation: { fields: ["hidden_activation"], word: "gelu" },
    embed: (_facts, _dModel, norm) => ({ norm }),
    // The first layer reads what the norm of the embeddings gives.
    lacks: (layer) => (layer === 0 ? ["attentionPre"] : []),
    tied: true,
    only: { tie_word_embeddings: [true] },
    ignored: [
      ...["classifier_bias", "classifier_pooling", "decoder_bias", "deterministic_flash_attn", "embedding_dropout"],
      ...["global_attn_every_n_layers", "gradient_checkpointing", "layer_norm_eps", "norm_bias"],
      ...["position_embedding_type", "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index"],
      ...["sparse_prediction"],
    ],
    ignoredTensors: ignoredOfEncoders(),
  },
  {
    attention: eurobert,
    gguf: {},
    norm: { eps: 1e-5 },
    ignored: ["classifier_pooling", "clf_pooling"],
    // The head for classes begins with a matrix of this name.
    ignoredTensors: new RegExp(`${ignoredOfEncoders().source}|^dense\\.`),
  },
];
