// Nomic BERT: BERT with RoPE, gates with SiLU, and no positions by a table.

import type { AttentionRules } from "./attention-rules.ts";
import { types } from "./bert.ts";
import type { Fields } from "./facts.ts";
import { type Family, SUMMARY } from "./family.ts";

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

export const layers: readonly AttentionRules[] = [attention];

/** The name of the first of these fields that the file has. */
const present = (file: Fields, ...names: readonly [string, ...string[]]): string =>
  names.find((name) => file.raw(name) !== undefined) ?? names[0];

export const encoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: {
      roots: ["bert.", ""],
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
      ...["scale_attn_weights", "use_flash_attn", "use_xentropy", ...SUMMARY],
    ],
    ignoredTensors: /(^|\.)(position_ids|(pooler|cls)\..*)$/,
  },
];
