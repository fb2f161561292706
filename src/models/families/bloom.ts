// BLOOM: ALiBi instead of RoPE, layer norms, a norm behind the embeddings, biases throughout.

import type { AttentionRules } from "./attention-rules.ts";
import { ALL_BIASES, type Family, LAYER_NORM_EPSILON, type Names } from "./family.ts";

const attention: AttentionRules = {
  types: "bloom",
  gguf: {},
  names: {
    dModel: ["hidden_size", "n_embed"],
    numHeads: ["n_head", "num_attention_heads"],
    layers: ["n_layer", "num_hidden_layers"],
  },
  rope: false,
  alibi: true,
  fused: "grouped",
};

export const layers: readonly AttentionRules[] = [attention];

/** Falcon has the same. */
export const BLOOM_NAMES: Partial<Names> = {
  roots: ["transformer.", ""],
  embed: "word_embeddings",
  embedNorm: "word_embeddings_layernorm",
  layers: "h",
  attention: "self_attention.",
  projections: ["query_key_value", "dense"],
  mlp: { up: "dense_h_to_4h", down: "dense_4h_to_h" },
  finalNorm: "ln_f",
};

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: BLOOM_NAMES,
    norm: LAYER_NORM_EPSILON,
    activation: { fields: [], word: "gelu_pytorch_tanh" },
    plain: true,
    mlpDim: (_file, dModel) => 4 * dModel,
    addsToNormed: (file) => file.flag("apply_residual_connection_post_layernorm", false),
    embed: (_facts, _dModel, norm) => ({ norm }),
    lengthField: "seq_length",
    tied: true,
    ignored: [
      "slow_but_exact",
      "offset_alibi",
      "attention_softmax_in_fp32",
      "masked_softmax_fusion",
      "bias_dropout_fusion",
    ],
    biases: ALL_BIASES,
  },
];
