// Families whose MLPs have no gate: two projections and an activation, mostly with layer norms and biases.

import type { Fields } from "../hf/config-fields.ts";
import type { Family, Names } from "./family.ts";
import { LAYER_NORM, LAYER_NORM_EPSILON, LAYER_NORMS } from "./norms.ts";

const always = () => true;

const GPT2_MLP = (file: Fields, dModel: number) => file.count("n_inner", 4 * dModel);
const SUMMARY = ["activation", "first_dropout", "proj_to_labels", "type", "use_proj"].map((name) => `summary_${name}`);

const GPT2: Family = {
  names: {
    roots: ["transformer.", ""],
    embed: "wte",
    positions: "wpe",
    layers: "h",
    attention: "attn.",
    projections: ["c_attn", "c_proj"],
    norms: { attentionPre: "ln_1", mlpPre: "ln_2" },
    mlp: { up: "c_fc", down: "c_proj" },
    finalNorm: "ln_f",
  },
  layout: "in-out",
  norm: LAYER_NORM_EPSILON,
  activation: { fields: ["activation_function"], word: "gelu_new" },
  plain: true,
  mlpDim: GPT2_MLP,
  embed: (file) => ({ positions: { offset: 0, rows: file.count("n_positions", 1024) } }),
  lengthField: "n_positions",
  tied: true,
  only: { add_cross_attention: [false] },
  ignored: ["n_ctx", "reorder_and_upcast_attn", "task_specific_params", ...SUMMARY],
};

const BLOOM_NAMES: Partial<Names> = {
  roots: ["transformer.", ""],
  embed: "word_embeddings",
  embedNorm: "word_embeddings_layernorm",
  layers: "h",
  attention: "self_attention.",
  projections: ["query_key_value", "dense"],
  mlp: { up: "dense_h_to_4h", down: "dense_4h_to_h" },
  finalNorm: "ln_f",
};

/** Falcon's norms: one, two side by side, or as in Llama. */
function falconNorms(file: Fields): Partial<Names> {
  const grouped = file.flag("new_decoder_architecture", false);
  const count = file.raw("num_ln_in_parallel_attn") === undefined ? 2 : file.count("num_ln_in_parallel_attn");
  if (grouped && count === 2) return { norms: { attentionPre: "ln_attn", mlpPre: "ln_mlp" } };
  return grouped || file.flag("parallel_attn", true) ? { norms: { attentionPre: "input_layernorm" } } : {};
}

/** OPT's norms: before the branches, or after they were added. */
function optNames(file: Fields): Partial<Names> {
  const [attention, mlp] = ["self_attn_layer_norm", "final_layer_norm"];
  const before = file.flag("do_layer_norm_before", true);
  return {
    norms: before ? { attentionPre: attention, mlpPre: mlp } : { attentionAfter: attention, mlpAfter: mlp },
  };
}

export const PLAIN_FAMILIES: Readonly<Record<string, Family>> = {
  arcee: { activation: { word: "relu2" }, plain: true, names: { mlp: { up: "up_proj", down: "down_proj" } } },
  bloom: {
    names: BLOOM_NAMES,
    norm: LAYER_NORM_EPSILON,
    activation: { fields: [], word: "gelu_pytorch_tanh" },
    plain: true,
    mlpDim: (_file, dModel) => 4 * dModel,
    addsToNormed: (file) => file.flag("apply_residual_connection_post_layernorm", false),
    embed: (file) => ({ norm: { kind: "layer", eps: file.number("layer_norm_epsilon") ?? 1e-5 } }),
    lengthField: "seq_length",
    tied: true,
    ignored: [
      "slow_but_exact",
      "offset_alibi",
      "attention_softmax_in_fp32",
      "masked_softmax_fusion",
      "bias_dropout_fusion",
    ],
  },
  falcon: {
    names: { ...BLOOM_NAMES, mlpAt: "mlp" },
    namesOf: falconNorms,
    norm: LAYER_NORM_EPSILON,
    activation: { fields: ["activation"], word: "gelu" },
    plain: true,
    mlpDim: (file, dModel) => file.count("ffn_hidden_size", 4 * dModel),
    parallel: (file) => file.flag("new_decoder_architecture", false) || file.flag("parallel_attn", true),
    tied: true,
    ignored: ["multi_query", "num_ln_in_parallel_attn", "parallel_attn"],
  },
  gpt2: GPT2,
  gpt_neox: {
    names: {
      roots: ["gpt_neox.", ""],
      embed: "embed_in",
      attention: "attention.",
      projections: ["query_key_value", "dense"],
      mlp: { up: "dense_h_to_4h", down: "dense_4h_to_h" },
      finalNorm: "final_layer_norm",
      head: "embed_out",
    },
    norm: LAYER_NORM,
    activation: { word: "gelu" },
    plain: true,
    parallel: (file) => file.flag("use_parallel_residual", true),
  },
  gptj: {
    names: {
      ...GPT2.names,
      positions: "embed_positions",
      projections: ["q_proj", "k_proj", "v_proj", "out_proj"],
      norms: { attentionPre: "ln_1" },
      mlp: { up: "fc_in", down: "fc_out" },
    },
    norm: LAYER_NORM_EPSILON,
    activation: { fields: ["activation_function"], word: "gelu_new" },
    plain: true,
    mlpDim: GPT2_MLP,
    parallel: always,
    lengthField: "n_positions",
    ignored: ["n_ctx", "rotary", "scale_attn_weights", "task_specific_params", ...SUMMARY],
  },
  mpt: {
    names: {
      roots: ["transformer.", ""],
      embed: "wte",
      layers: "blocks",
      attention: "attn.",
      projections: ["Wqkv", "out_proj"],
      norms: { attentionPre: "norm_1", mlpPre: "norm_2" },
      mlpAt: "ffn",
      mlp: { up: "up_proj", down: "down_proj" },
      finalNorm: "norm_f",
    },
    norm: LAYER_NORM_EPSILON,
    activation: { fields: [], word: "gelu" },
    plain: true,
    mlpDim: (_file, dModel) => 4 * dModel,
    lengthField: "max_seq_len",
    tied: true,
    only: { logit_scale: [], no_bias: [true], norm_type: ["low_precision_layernorm"] },
    ignored: [
      "attn_config",
      "emb_pdrop",
      "embedding_fraction",
      "expansion_ratio",
      "init_device",
      "learned_pos_emb",
      "verbose",
    ],
  },
  opt: {
    names: {
      roots: ["model.decoder.", "decoder.", ""],
      projections: ["q_proj", "k_proj", "v_proj", "out_proj"],
      mlpAt: "",
      mlp: { up: "fc1", down: "fc2" },
      finalNorm: "final_layer_norm",
    },
    namesOf: optNames,
    norm: { kind: "layer", eps: 1e-5, field: "" },
    activation: { fields: ["activation_function"], word: "relu" },
    plain: true,
    mlpDim: (file) => file.count("ffn_dim"),
    embed: (file, dModel) => ({
      dim: file.count("word_embed_proj_dim", dModel),
      positions: { offset: 2, rows: file.count("max_position_embeddings", 2048) + 2 },
    }),
    finalNorm: (file) => file.flag("do_layer_norm_before", true) && !file.flag("_remove_final_layer_norm", false),
    tied: true,
    only: { enable_bias: [true], layer_norm_elementwise_affine: [true] },
    ignored: ["prefix", "init_std", "layerdrop"],
  },
  phi: {
    names: {
      projections: ["q_proj", "k_proj", "v_proj", "dense"],
      norms: { attentionPre: "input_layernorm" },
      mlp: { up: "fc1", down: "fc2" },
      finalNorm: "final_layernorm",
    },
    norm: LAYER_NORM,
    activation: { word: "gelu_new" },
    plain: true,
    headNorm: LAYER_NORMS,
    parallel: always,
  },
  starcoder2: {
    names: { mlp: { up: "c_fc", down: "c_proj" } },
    norm: { kind: "layer", eps: 1e-5, field: "norm_epsilon" },
    activation: { word: "gelu_pytorch_tanh" },
    plain: true,
    tied: true,
  },
};
