// Granite: factors on embeddings, branches, scores and logits; experts, and an MLP that all tokens take, in joint matrices. Granite 4
// rotates only if the file says so.

import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import { type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Facts, Fields } from "./facts.ts";
import type { Family, MlpNames, MoeNames } from "./family.ts";
import { HYBRID_FIELDS, readGgufMamba, readMamba } from "./mamba.ts";

/** Without the field, Granite's class multiplies scores by 1. */
const scaleOf = (file: Fields): number => file.factor("attention_multiplier") ?? 1;

const attention: AttentionRules = {
  types: "granite",
  // Also stated by files of Granite 4 without such layers.
  gguf: { permuted: true, wholeKeys: "ssm.state_size" },
  scale: scaleOf,
};
const attentionMoe: AttentionRules = {
  types: "granitemoe granitemoeshared",
  gguf: { names: "granitemoe", permuted: true },
  scale: scaleOf,
};

const attention4: AttentionRules = {
  types: "granitemoehybrid",
  gguf: { names: "granitehybrid", permuted: true, wholeKeys: "ssm.state_size" },
  scale: scaleOf,
  // GGUF files state it as those of all Granite do.
  rotates: (_layer, _windowed, _windows, facts) =>
    facts.layer !== undefined || facts.raw("position_embedding_type") === "rope",
  // Also stated where no layer has any.
  more: (file) => {
    file.raw("mamba_d_state");
    return {};
  },
};

export const layers: readonly AttentionRules[] = [attention, attentionMoe];

const scan: RecurrentRules = {
  kind: "recurrent",
  read: (facts) => readMamba(facts, "mamba.", HYBRID_FIELDS, { heads: 128, headDim: 64, state: 256, groups: 1 }),
};

/** The rules of layers that do not attend. */
function mixer(facts: Facts, layer: number): RecurrentRules | undefined {
  const kind = facts.list("layer_types")?.[layer];
  return kind === "mamba" || kind === "linear_attention" ? scan : undefined;
}

const JOINT: MlpNames = { gate: "input_linear", down: "output_linear" };

/** Experts, and the MLP that all tokens take, of which a file may have either. */
const readExperts: ReadExperts = (file, _layer, mlp) => {
  const experts = file.raw("num_local_experts") === 0 ? 0 : file.count("num_local_experts", 8);
  if (experts === 0) return undefined;
  // Only the hybrid class has one that files need not state.
  const dim = file.raw("shared_intermediate_size");
  const has = dim === undefined ? file.raw("model_type") === "granitemoehybrid" : dim !== 0;
  const shared = has && { shared: { mlp: mlp(file.count("shared_intermediate_size", 1024)), gated: false } };
  const topK = file.count("num_experts_per_tok", 2, experts);
  return {
    ...({ kind: "moe", experts, topK, router: SOFTMAX } as const),
    ...{ expert: mlp(file.count("intermediate_size", 11_008)), ...shared },
  };
};

const moeNames: MoeNames = {
  router: "block_sparse_moe.router.layer",
  expert: "stacked",
  mlp: { gate: "block_sparse_moe.input_linear", down: "block_sparse_moe.output_linear" },
  shared: "shared_mlp",
  sharedMlp: JOINT,
};

const granite = (own: Partial<Family> & Pick<Family, "attention">): Family => ({
  ...own,
  scale: (facts) => facts.factor("residual_multiplier") ?? 1,
  embed: (facts) => ({ scale: facts.factor("embedding_multiplier") ?? 1 }),
  head: (facts) => ({ scale: 1 / (facts.factor("logits_scaling") ?? 1) }),
});

export const decoders = (): Family[] => [
  granite({ attention, gguf: {} }),
  granite({ attention: attentionMoe, gguf: {}, moe: readExperts, moeNames }),
  granite({
    attention: attention4,
    mixer,
    gguf: { recurrent: (keys) => (keys.countOrNone("attention.head_count_kv") > 0 ? undefined : readGgufMamba(keys)) },
    moe: readExperts,
    moeNames,
    names: { mlpAt: "shared_mlp", mlp: JOINT },
    mlpDim: (file) => file.count("shared_intermediate_size", 1024),
    ignored: [
      ...["intermediate_size", "num_experts_per_tok", "position_embedding_type", "time_step_limit"],
      ...["mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv", "mamba_d_head", "mamba_d_state", "mamba_expand"],
      ...["mamba_n_groups", "mamba_n_heads", "mamba_proj_bias", "normalization_function", "init_method"],
    ],
  }),
];
