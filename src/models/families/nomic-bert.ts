// Relatives of BERT with RoPE, and no positions by a table. Nomic BERT has gates with SiLU, GTE gates with GELU, and Jina's third
// embeddings no gates.

import type { AttentionRules } from "./attention-rules.ts";
import { ignoredOfEncoders, types } from "./bert.ts";
import type { Fields } from "./facts.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "nomic_bert",
  gguf: { names: "nomic-bert" },
  reader: "loadEncoder",
  names: {
    dModel: ["hidden_size", "n_embd"],
    numHeads: ["num_attention_heads", "n_head"],
    layers: ["num_hidden_layers", "n_layer"],
  },
  causal: false,
  only: { causal: [false], rotary_emb_interleaved: [false], rotary_emb_scale_base: [] },
  rope: { theta: 1000, thetaField: "rotary_emb_base", shareField: "rotary_emb_fraction" },
};

const gte: AttentionRules = { types: "gte", reader: "loadEncoder", causal: false, rope: { theta: 160_000 } };
/** What Alibaba publishes. */
const gteNew: AttentionRules = {
  ...{ types: "new", reader: "loadEncoder", causal: false },
  rope: { theta: 10_000, grown: true },
  only: { position_embedding_type: ["rope"], logn_attention_scale: [false], logn_attention_clip1: [false] },
};
const jina: AttentionRules = {
  ...{ types: "jina_embeddings_v3", gguf: { names: "jina-bert-v3" }, reader: "loadEncoder", causal: false },
  rope: { theta: 20_000 },
};

export const layers: readonly AttentionRules[] = [attention, gte, gteNew, jina];

/** The name of the first of these fields that the file has. */
const present = (file: Fields, ...names: readonly [string, ...string[]]): string =>
  names.find((name) => file.raw(name) !== undefined) ?? names[0];

const gteFamily = (attention: AttentionRules): Family => ({
  attention,
  names: {
    roots: ["gte.", "new.", ""],
    embed: "embeddings.word_embeddings",
    embedNorm: "embeddings.LayerNorm",
    types: "embeddings.token_type_embeddings",
    layers: "encoder.layer",
    attention: "attention.",
    projections: ["qkv_proj", "o_proj"],
    norms: { attentionAfter: "attn_ln", mlpAfter: "mlp_ln" },
    mlp: { gate: "up_gate_proj", down: "down_proj", gateLast: true },
    head: "lm_head.decoder",
    transform: { dense: "lm_head.dense", norm: "lm_head.norm" },
  },
  norm: { kind: "layer", eps: 1e-12, field: "layer_norm_eps" },
  activation: { word: "gelu" },
  embed: (facts, _dModel, norm) => ({ norm, ...types(facts, 1) }),
  finalNorm: () => false,
  tied: true,
  only: { tie_word_embeddings: [true], layer_norm_type: ["layer_norm"], pack_qkv: [true] },
  ignored: ["unpad_inputs", "use_memory_efficient_attention"],
  ignoredTensors: ignoredOfEncoders(),
});

export const encoders = (): Family[] => [
  gteFamily(gte),
  gteFamily(gteNew),
  {
    attention: jina,
    gguf: {},
    names: {
      roots: ["roberta.", ""],
      embed: "embeddings.word_embeddings",
      embedNorm: "emb_ln",
      types: "embeddings.token_type_embeddings",
      layers: "encoder.layers",
      attention: "mixer.",
      projections: ["Wqkv", "out_proj"],
      norms: { attentionAfter: "norm1", mlpAfter: "norm2" },
      mlp: { up: "fc1", down: "fc2" },
      head: "lm_head",
      transform: { dense: "lm_head.dense", norm: "lm_head.layer_norm" },
    },
    norm: { kind: "layer", eps: 1e-5, field: "layer_norm_eps" },
    activation: { word: "gelu" },
    plain: true,
    embed: (facts, _dModel, norm) => ({ norm, ...types(facts, 1) }),
    finalNorm: () => false,
    tied: true,
    only: { tie_word_embeddings: [true] },
    ignoredTensors: ignoredOfEncoders(),
  },
  {
    attention,
    gguf: {},
    names: {
      roots: ["bert.", "nomic_bert.", ""],
      embed: "embeddings.word_embeddings",
      embedNorm: "emb_ln",
      types: "embeddings.token_type_embeddings",
      layers: "encoder.layers",
      attention: "attn.",
      projections: ["Wqkv", "out_proj"],
      norms: { attentionAfter: "norm1", mlpAfter: "norm2" },
      mlp: { gate: "fc12", up: "fc11", down: "fc2" },
    },
    norm: { kind: "layer", eps: 1e-12, field: "layer_norm_eps", otherField: "layer_norm_epsilon" },
    activation: { word: "silu" },
    mlpDim: (file) => file.count(present(file, "intermediate_size", "n_inner")),
    embed: (facts, _dModel, norm) => ({ norm, ...types(facts) }),
    finalNorm: () => false,
    tied: true,
    only: {
      activation_function: ["swiglu"],
      parallel_block: [false],
      prenorm: [false],
      rotary_scaling_factor: [],
      use_rms_norm: [false],
    },
    ignored: [
      ...["dense_seq_output", "parallel_block_tied_norm", "fused_bias_fc", "fused_dropout_add_ln"],
      ...["last_layer_subset", "max_trained_positions", "n_positions", "pad_vocab_size_multiple", "qkv_proj_bias"],
      ...["mlp_fc1_bias", "mlp_fc2_bias", "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx"],
      ...["scale_attn_weights", "use_flash_attn", "use_xentropy"],
    ],
    ignoredTensors: /(^|\.)(position_ids|(pooler|cls|classifier)\..*)$/,
  },
];
