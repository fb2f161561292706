// Mixtures of experts of each family: what config.json says of them, and how their tensors are called.

import type { Fields } from "../hf/config-fields.ts";
import type { Family, MlpNames, MoeNames } from "./family.ts";
import type { MoeSpec, RouterSpec } from "./spec.ts";

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

export const MIXTRAL_MOE: MoeFamily = {
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

export const QWEN3_MOE: MoeFamily = {
  read: readQwen({ experts: 128, topK: 8, dim: 768 }),
  names: { router: "mlp.gate", expert: expertsOf("mlp.experts"), mlp: LLAMA_MLP },
};

export const QWEN2_MOE: MoeFamily = {
  read: readQwen({ experts: 60, topK: 4, dim: 1408, shared: 5632 }),
  names: { ...QWEN3_MOE.names, shared: "mlp.shared_expert", sharedGate: "mlp.shared_expert_gate" },
};

export const GPT_OSS_MOE: MoeFamily = {
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

export const DEEPSEEK_MOE: MoeFamily = {
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

export const DEEPSEEK_V3_MOE: MoeFamily = {
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
export const GLM4_MOE: MoeFamily = {
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
export const MINIMAX_M2_MOE: MoeFamily = {
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
