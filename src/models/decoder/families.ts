// The families of decoders, by `model_type`. A row holds what differs from Llama around attention: RMS norms before attention
// and MLP, a gated MLP with SiLU, and a head of its own. What differs in attention is in ../hf/decoders.ts.

import type { Fields } from "../hf/config-fields.ts";
import { DEEPSEEK_MOE, DEEPSEEK_V3_MOE, GPT_OSS_MOE, MIXTRAL_MOE, QWEN2_MOE, QWEN3_MOE } from "./experts.ts";
import type { Family, Names } from "./family.ts";

export const LLAMA_NAMES: Names = {
  roots: ["model.", "", "language_model.model.", "model.language_model."],
  embed: "embed_tokens",
  embedNorm: "embed_norm",
  positions: "embed_positions",
  projectIn: "project_in",
  projectOut: "project_out",
  layers: "layers",
  attention: "self_attn",
  projections: ["q_proj", "k_proj", "v_proj", "o_proj"],
  norms: { attentionPre: "input_layernorm", mlpPre: "post_attention_layernorm" },
  mlpAt: "mlp",
  mlp: { gate: "gate_proj", up: "up_proj", down: "down_proj" },
  finalNorm: "norm",
  head: "lm_head",
};

const COHERE_NORMS: Family["headNorm"] = { flag: "use_qk_norm", q: "q_norm", k: "k_norm", each: "together" };
const LAYER_NORMS = { flag: "qk_layernorm", q: "q_layernorm", k: "k_layernorm" };
const FUSED_MLP = { gate: "gate_up_proj", down: "down_proj" };
const LAYER_NORM = { kind: "layer", eps: 1e-5, field: "layer_norm_eps" } as const;
const LAYER_NORM_EPSILON = { ...LAYER_NORM, field: "layer_norm_epsilon" } as const;
const GEMMA_ACTIVATION = { fields: ["hidden_activation", "hidden_act"], word: "gelu_pytorch_tanh" };
const always = () => true;
const SHARED_NORM: Pick<Family, "names" | "parallel"> = {
  names: { norms: { attentionPre: "input_layernorm" } },
  parallel: always,
};

/** Norms on the outputs of branches as well. */
const SANDWICH_NORMS: Names["norms"] = {
  attentionPre: "input_layernorm",
  attentionPost: "post_attention_layernorm",
  mlpPre: "pre_feedforward_layernorm",
  mlpPost: "post_feedforward_layernorm",
};

const GEMMA: Family = {
  norm: { onePlus: true },
  activation: GEMMA_ACTIVATION,
  embed: (_file, dModel) => ({ scale: Math.sqrt(dModel) }),
  tied: true,
};

/** The final softcap of Gemma, `otherwise` if the file does not state it. */
const finalSoftcap = (otherwise: number) => (file: Fields) => ({
  softcap: file.has("final_logit_softcapping") ? (file.number("final_logit_softcapping") ?? 0) : otherwise,
});

const OLMO2: Family = {
  names: { norms: { attentionPost: "post_attention_layernorm", mlpPost: "post_feedforward_layernorm" } },
};

const GPT2_MLP = (file: Fields, dModel: number) => file.count("n_inner", 4 * dModel);
const SUMMARY = ["activation", "first_dropout", "proj_to_labels", "type", "use_proj"].map((name) => `summary_${name}`);

const GPT2: Family = {
  names: {
    roots: ["transformer.", ""],
    embed: "wte",
    positions: "wpe",
    layers: "h",
    attention: "attn",
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
  attention: "self_attention",
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

export const FAMILIES: Readonly<Record<string, Family>> = {
  llama: {},
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
  cohere: {
    ...SHARED_NORM,
    norm: LAYER_NORM,
    headNorm: COHERE_NORMS,
    head: (file) => ({ scale: file.number("logit_scale") ?? 0.0625 }),
    tied: true,
  },
  cohere2: {
    ...SHARED_NORM,
    norm: LAYER_NORM,
    head: (file) => ({ scale: file.number("logit_scale") ?? 0.0625 }),
    tied: true,
  },
  deepseek_v2: { moe: DEEPSEEK_MOE.read, moeNames: DEEPSEEK_MOE.names },
  deepseek_v3: { moe: DEEPSEEK_V3_MOE.read, moeNames: DEEPSEEK_V3_MOE.names, ignored: ["num_nextn_predict_layers"] },
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
  gemma: { ...GEMMA, activation: { ...GEMMA_ACTIVATION, fields: ["hidden_activation"] }, ignored: ["hidden_act"] },
  gemma2: { ...GEMMA, names: { norms: SANDWICH_NORMS }, head: finalSoftcap(30) },
  gemma3_text: { ...GEMMA, names: { norms: SANDWICH_NORMS }, head: finalSoftcap(0) },
  glm: { names: { mlp: FUSED_MLP } },
  glm4: {
    names: {
      mlp: FUSED_MLP,
      norms: {
        attentionPre: "input_layernorm",
        attentionPost: "post_self_attn_layernorm",
        mlpPre: "post_attention_layernorm",
        mlpPost: "post_mlp_layernorm",
      },
    },
  },
  gpt2: GPT2,
  gpt_neox: {
    names: {
      roots: ["gpt_neox.", ""],
      embed: "embed_in",
      attention: "attention",
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
  gpt_oss: {
    names: { sinks: "sinks" },
    moe: GPT_OSS_MOE.read,
    moeNames: GPT_OSS_MOE.names,
    ignored: ["initial_context_length", "experts_per_token", "swiglu_limit"],
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
  granite: {
    scale: (file) => file.number("residual_multiplier") ?? 1,
    embed: (file) => ({ scale: file.number("embedding_multiplier") ?? 1 }),
    head: (file) => ({ scale: 1 / (file.number("logits_scaling") ?? 1) }),
  },
  mistral: {},
  ministral: {},
  mixtral: { moe: MIXTRAL_MOE.read, moeNames: MIXTRAL_MOE.names, activation: {} },
  mpt: {
    names: {
      roots: ["transformer.", ""],
      embed: "wte",
      layers: "blocks",
      attention: "attn",
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
  olmo2: OLMO2,
  olmo3: OLMO2,
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
  phi3: { names: { mlp: FUSED_MLP, projections: ["qkv_proj", "o_proj"] } },
  qwen2: {},
  qwen2_moe: { moe: QWEN2_MOE.read, moeNames: QWEN2_MOE.names, ignored: ["intermediate_size"] },
  qwen3: {},
  qwen3_moe: { moe: QWEN3_MOE.read, moeNames: QWEN3_MOE.names, ignored: ["intermediate_size"] },
  smollm3: {},
  stablelm: {
    namesOf: (file) => (file.flag("use_parallel_residual", false) ? (SHARED_NORM.names ?? {}) : {}),
    norm: LAYER_NORM,
    headNorm: { ...LAYER_NORMS, each: "apart" },
    parallel: (file) => file.flag("use_parallel_residual", false),
  },
  starcoder2: {
    names: { mlp: { up: "c_fc", down: "c_proj" } },
    norm: { kind: "layer", eps: 1e-5, field: "norm_epsilon" },
    activation: { word: "gelu_pytorch_tanh" },
    plain: true,
    tied: true,
  },
};
