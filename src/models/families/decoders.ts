// The families of decoders, by `model_type`: what differs from Llama around attention, and how the tensors of experts are
// called.

import type { MoeSpec, RouterSpec } from "../spec/spec.ts";
import {
  type Family,
  LAYER_NORM,
  LAYER_NORM_EPSILON,
  LAYER_NORMS,
  type MlpNames,
  type MoeNames,
  type Names,
} from "./family.ts";
import type { Fields } from "./fields.ts";

// Mixtures of experts of each family: what config.json says of them, and how their tensors are called.

interface MoeFamily {
  readonly read: NonNullable<Family["moe"]>;
  readonly names: MoeNames;
}

const LLAMA_MLP: MlpNames = { gate: "gate_proj", up: "up_proj", down: "down_proj" };
const expertsOf = (prefix: string) => (expert: number) => `${prefix}.${expert}`;

const SOFTMAX: RouterSpec = {
  score: "softmax",
  correction: false,
  renormalise: true,
  scale: 1,
  groups: 1,
  keepGroups: 1,
  pairs: false,
};

/** The number of experts, under the first of these names that the file has. */
function countExperts(file: Fields, names: readonly string[], otherwise: number): number {
  const name = names.find((each) => file.raw(each) !== undefined) ?? (names[0] as string);
  return file.count(name, otherwise);
}

const MIXTRAL_MOE: MoeFamily = {
  read(file, _layer, mlp): MoeSpec {
    const experts = countExperts(file, ["num_local_experts", "num_experts"], 8);
    const expert = mlp(file.count("intermediate_size"));
    return { kind: "moe", experts, topK: file.count("num_experts_per_tok", 2, experts), expert, router: SOFTMAX };
  },
  names: {
    router: "block_sparse_moe.gate",
    expert: expertsOf("block_sparse_moe.experts"),
    mlp: { gate: "w1", up: "w3", down: "w2" },
  },
};

/** Whether a layer of Qwen has experts: not those of a list, and else every n-th. */
function isSparse(file: Fields, layer: number): boolean {
  const step = file.count("decoder_sparse_step", 1);
  return !(file.list("mlp_only_layers") ?? []).includes(layer) && (layer + 1) % step === 0;
}

/** Reads Qwen's mixtures: what absent fields stand for, with `shared` if every token takes an expert of that width. */
function readQwen(absent: { experts: number; topK: number; dim: number; shared?: number }): MoeFamily["read"] {
  return (file, layer, mlp) => {
    const experts = countExperts(file, ["num_experts", "num_local_experts"], absent.experts);
    const sharedDim = absent.shared && file.count("shared_expert_intermediate_size", absent.shared);
    const spec: MoeSpec = {
      kind: "moe",
      experts,
      topK: file.count("num_experts_per_tok", absent.topK, experts),
      expert: mlp(file.count("moe_intermediate_size", absent.dim)),
      ...(sharedDim && { shared: { mlp: mlp(sharedDim), gated: true } }),
      router: { ...SOFTMAX, renormalise: file.flag("norm_topk_prob", false) },
    };
    return isSparse(file, layer) ? spec : undefined;
  };
}

const QWEN3_MOE: MoeFamily = {
  read: readQwen({ experts: 128, topK: 8, dim: 768 }),
  names: { router: "mlp.gate", expert: expertsOf("mlp.experts"), mlp: LLAMA_MLP },
};

const QWEN2_MOE: MoeFamily = {
  read: readQwen({ experts: 60, topK: 4, dim: 1408, shared: 5632 }),
  names: { ...QWEN3_MOE.names, shared: "mlp.shared_expert", sharedGate: "mlp.shared_expert_gate" },
};

const GPT_OSS_MOE: MoeFamily = {
  read(file, _layer, mlp): MoeSpec {
    const experts = countExperts(file, ["num_local_experts", "num_experts"], 128);
    const { dim } = mlp(file.count("intermediate_size", 2880));
    const activation = { kind: "swish", alpha: 1.702, limit: 7 } as const;
    return {
      kind: "moe",
      experts,
      topK: file.count("num_experts_per_tok", 4, experts),
      expert: { kind: "mlp", dim, gated: true, activation },
      // A softmax over the chosen logits is one over all, divided by the sum of the chosen.
      router: SOFTMAX,
    };
  },
  names: {
    router: "mlp.router",
    expert: "interleaved",
    mlp: { gate: "mlp.experts.gate_up_proj", down: "mlp.experts.down_proj" },
  },
};

/** Throws unless groups of experts have the same size, and those that take part have enough experts. */
function expectGroups(file: Fields, { experts, topK, router }: MoeSpec): void {
  const { groups, keepGroups, pairs } = router;
  const size = experts / groups;
  if (!Number.isInteger(size)) throw file.refusal("n_group", `a divisor of the ${experts} experts`, groups);
  if (pairs && size < 2) throw file.refusal("n_group", `groups of at least 2 of the ${experts} experts`, groups);
  if (keepGroups > groups) throw file.refusal("topk_group", `at most the ${groups} groups of n_group`, keepGroups);
  if (topK > keepGroups * size)
    throw file.refusal("num_experts_per_tok", `at most the ${keepGroups * size} experts of topk_group groups`, topK);
}

function readDeepSeek(
  router: (file: Fields) => RouterSpec,
  absent = { experts: 64, dim: 1407, shared: 0 },
): MoeFamily["read"] {
  return (file, layer, mlp) => {
    const experts = countExperts(file, ["n_routed_experts", "num_local_experts"], absent.experts);
    const dim = file.count("moe_intermediate_size", absent.dim);
    const shared = file.raw("n_shared_experts") === undefined ? absent.shared : file.count("n_shared_experts");
    const first = file.raw("first_k_dense_replace") === 0 ? 0 : file.count("first_k_dense_replace", 1);
    const spec: MoeSpec = {
      kind: "moe",
      experts,
      topK: file.count("num_experts_per_tok", 8, experts),
      expert: mlp(dim),
      ...(shared > 0 && { shared: { mlp: mlp(shared * dim), gated: false } }),
      router: router(file),
    };
    file.only("moe_layer_freq", 1);
    // The width of dense layers, which are not always there.
    file.raw("intermediate_size");
    expectGroups(file, spec);
    return layer >= first ? spec : undefined;
  };
}

const DEEPSEEK_NAMES: MoeNames = {
  router: "mlp.gate",
  expert: expertsOf("mlp.experts"),
  mlp: LLAMA_MLP,
  shared: "mlp.shared_experts",
};

const DEEPSEEK_MOE: MoeFamily = {
  read: readDeepSeek((file) => {
    file.only("topk_method", "greedy", "group_limited_greedy");
    file.only("scoring_func", "softmax");
    // transformers never divides these weights by their sum, whatever the field says.
    file.flag("norm_topk_prob", false);
    const grouped = file.raw("topk_method") === "group_limited_greedy";
    const [groups, keepGroups] = [file.count("n_group", 1), file.count("topk_group", 1)];
    return {
      ...SOFTMAX,
      renormalise: false,
      scale: file.factor("routed_scaling_factor") ?? 1,
      groups: grouped ? groups : 1,
      keepGroups: grouped ? keepGroups : 1,
    };
  }),
  names: DEEPSEEK_NAMES,
};

const DEEPSEEK_V3_MOE: MoeFamily = {
  read: readDeepSeek((file) => {
    file.only("topk_method", "noaux_tc");
    file.only("scoring_func", "sigmoid");
    return {
      score: "sigmoid",
      correction: true,
      renormalise: file.flag("norm_topk_prob", true),
      scale: file.factor("routed_scaling_factor") ?? 2.5,
      groups: file.count("n_group", 8),
      keepGroups: file.count("topk_group", 4),
      pairs: true,
    };
  }),
  names: { ...DEEPSEEK_NAMES, correction: "mlp.gate.e_score_correction_bias" },
};

/** GLM-4.5: scores, groups and experts as in DeepSeek-V3, with other values for absent fields. */
const GLM4_MOE: MoeFamily = {
  read: readDeepSeek(
    (file) => ({
      score: "sigmoid",
      correction: true,
      renormalise: file.flag("norm_topk_prob", true),
      scale: file.factor("routed_scaling_factor") ?? 1,
      groups: file.count("n_group", 1),
      keepGroups: file.count("topk_group", 1),
      pairs: true,
    }),
    { experts: 128, dim: 1408, shared: 1 },
  ),
  names: DEEPSEEK_V3_MOE.names,
};

/** MiniMax-M2: experts as in Mixtral, chosen by sigmoids with a correction. */
const MINIMAX_M2_MOE: MoeFamily = {
  read(file, _layer, mlp): MoeSpec {
    file.only("scoring_func", "sigmoid");
    file.only("use_routing_bias", true);
    const kinds = file.list("attn_type_list");
    if (kinds?.some((kind) => kind !== 1)) throw file.refusal("attn_type_list", "1 for each layer, or none", kinds);
    const experts = countExperts(file, ["num_local_experts", "num_experts"], 256);
    return {
      kind: "moe",
      experts,
      topK: file.count("num_experts_per_tok", 8, experts),
      expert: mlp(file.count("intermediate_size")),
      router: { ...SOFTMAX, score: "sigmoid", correction: true },
    };
  },
  names: { ...MIXTRAL_MOE.names, correction: "block_sparse_moe.e_score_correction_bias" },
};

// Families whose MLPs have no gate: two projections and an activation, mostly with layer norms and biases.

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

const PLAIN_FAMILIES: Readonly<Record<string, Family>> = {
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

// The families of decoders, by `model_type`. A row holds what differs from Llama around attention: RMS norms before attention
// and MLP, a gated MLP with SiLU, and a head of its own. What differs in attention is in ../hf/decoders.ts.

const COHERE_NORMS: Family["headNorm"] = { flag: "use_qk_norm", q: "q_norm", k: "k_norm", each: "together" };
const FUSED_MLP = { gate: "gate_up_proj", down: "down_proj" };
const GEMMA_ACTIVATION = { fields: ["hidden_activation", "hidden_act"], word: "gelu_pytorch_tanh" };
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
  softcap: file.has("final_logit_softcapping") ? (file.factor("final_logit_softcapping") ?? 0) : otherwise,
});

const OLMO2: Family = {
  names: { norms: { attentionPost: "post_attention_layernorm", mlpPost: "post_feedforward_layernorm" } },
};

export const FAMILIES: Readonly<Record<string, Family>> = {
  ...PLAIN_FAMILIES,
  llama: {},
  cohere: {
    ...SHARED_NORM,
    norm: LAYER_NORM,
    headNorm: COHERE_NORMS,
    head: (file) => ({ scale: file.factor("logit_scale") ?? 0.0625 }),
    tied: true,
  },
  cohere2: {
    ...SHARED_NORM,
    norm: LAYER_NORM,
    head: (file) => ({ scale: file.factor("logit_scale") ?? 0.0625 }),
    tied: true,
  },
  deepseek_v2: { moe: DEEPSEEK_MOE.read, moeNames: DEEPSEEK_MOE.names },
  deepseek_v3: { moe: DEEPSEEK_V3_MOE.read, moeNames: DEEPSEEK_V3_MOE.names, ignored: ["num_nextn_predict_layers"] },
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
  glm4_moe: { moe: GLM4_MOE.read, moeNames: GLM4_MOE.names, ignored: ["num_nextn_predict_layers", "use_qk_norm"] },
  gpt_oss: {
    names: { sinks: "sinks" },
    moe: GPT_OSS_MOE.read,
    moeNames: GPT_OSS_MOE.names,
    ignored: ["initial_context_length", "experts_per_token", "swiglu_limit"],
  },
  granite: {
    scale: (file) => file.factor("residual_multiplier") ?? 1,
    embed: (file) => ({ scale: file.factor("embedding_multiplier") ?? 1 }),
    head: (file) => ({ scale: 1 / (file.factor("logits_scaling") ?? 1) }),
  },
  minimax_m2: {
    moe: MINIMAX_M2_MOE.read,
    moeNames: MINIMAX_M2_MOE.names,
    only: { qk_norm_type: ["per_layer"], shared_intermediate_size: [0] },
    ignored: ["mtp_transformer_layers", "num_mtp_modules", "use_mtp"],
  },
  mistral: {},
  ministral: {},
  mixtral: { moe: MIXTRAL_MOE.read, moeNames: MIXTRAL_MOE.names, activation: {} },
  olmo2: OLMO2,
  olmo3: OLMO2,
  phi3: { names: { mlp: FUSED_MLP, projections: ["qkv_proj", "o_proj"] } },
  qwen2: {},
  qwen2_moe: { moe: QWEN2_MOE.read, moeNames: QWEN2_MOE.names, ignored: ["intermediate_size"] },
  qwen3: {},
  qwen3_moe: { moe: QWEN3_MOE.read, moeNames: QWEN3_MOE.names, ignored: ["intermediate_size"] },
  smollm3: { tied: true },
  stablelm: {
    namesOf: (file) => (file.flag("use_parallel_residual", false) ? (SHARED_NORM.names ?? {}) : {}),
    norm: LAYER_NORM,
    headNorm: { ...LAYER_NORMS, each: "apart" },
    parallel: (file) => file.flag("use_parallel_residual", false),
  },
};
