// Kimi-Linear: delta nets whose decays are of each component of a key, between layers of latent attention that does not rotate, and
// experts.

import type { RecurrentConfig, ScanConfig } from "../../layers/recurrent/config.ts";
import type { LatentRules, RecurrentRules } from "./attention-rules.ts";
import { countExperts, expectGroups, type ReadExperts } from "./experts.ts";
import { type Facts, type Fields, fieldsOf, refusal } from "./facts.ts";
import type { Family } from "./family.ts";
import { MIXTRAL_EXPERTS } from "./mistral.ts";
import { DELTA } from "./qwen-next.ts";
import { ownTensors, projectionsApart, type RecurrentTensor } from "./recurrent.ts";

const attention: LatentRules = { types: "kimi_linear", kind: "latent", unrotated: true };

/** Published files have the sizes of these layers, and which layers they are, in an object. */
function ownFields(facts: Facts): Fields | undefined {
  const own = facts.raw("linear_attn_config");
  return own === undefined ? undefined : fieldsOf("linear_attn_config", own);
}

const delta: RecurrentRules = {
  kind: "recurrent",
  read(facts) {
    const own = ownFields(facts);
    const sizeOf = (published: string, name: string, otherwise: number, most?: number) =>
      own?.has(published) ? own.count(published, undefined, most) : facts.count(name, otherwise, most);
    const numHeads = sizeOf("num_heads", "linear_num_heads", 32);
    const dim = sizeOf("head_dim", "linear_head_dim", 128);
    const scan: ScanConfig = {
      ...DELTA,
      ...{ numHeads, numKeyHeads: numHeads, keyDim: dim, valueDim: dim, scale: 1 / Math.sqrt(dim) },
      ...{ decay: "channel", stepRank: dim, gate: "sigmoid", gateRank: dim },
      norm: { eps: facts.number("rms_norm_eps") ?? 1e-5, groups: numHeads, shared: true, gateFirst: false },
    };
    const taps = sizeOf("short_conv_kernel_size", "linear_conv_kernel_dim", 4, 16);
    const config: RecurrentConfig = { dModel: facts.count("hidden_size"), taps, scan };
    const tensors = ownTensors(config, {
      ...{ gateDown: "g_a_proj.weight", gate: "g_b_proj.weight", stepDown: "f_a_proj.weight", step: "f_b_proj.weight" },
      ...{ write: "b_proj.weight", stepBias: "dt_bias", norm: "o_norm.weight", out: "o_proj.weight" },
    });
    const rate: RecurrentTensor = {
      ...{ name: "A_log", shape: [1, 1, numHeads, 1], parts: [{ of: "rate", rows: numHeads, to: 0 }], form: "log" },
    };
    return { kind: "recurrent", config, at: "self_attn.", tensors: [...projectionsApart(config), ...tensors, rate] };
  },
};

/** The kind of a layer: of a list, of published lists that count from 1, or by default each fourth but the first attends. */
function mixer(facts: Facts, layer: number): RecurrentRules | undefined {
  const own = ownFields(facts);
  const kinds = facts.list("layer_types");
  const [full, linear] = [own?.list("full_attn_layers"), own?.list("kda_layers")];
  if (kinds) {
    if (kinds[layer] === "linear_attention") return delta;
    if (kinds[layer] === "full_attention") return undefined;
    throw facts.refusal("layer_types", '"linear_attention" or "full_attention" for each layer', kinds);
  }
  if (!full || !linear) return layer > 0 && layer % 4 === 0 ? undefined : delta;
  if (linear.includes(layer + 1) !== full.includes(layer + 1)) return linear.includes(layer + 1) ? delta : undefined;
  throw refusal("kda_layers", `layer ${layer + 1} in it or in full_attn_layers`, linear);
}

const readExperts: ReadExperts = (file, layer, mlp) => {
  const nameOf = (...names: readonly [string, ...string[]]) =>
    names.find((name) => file.raw(name) !== undefined) ?? names[0];
  const experts = countExperts(file, ["num_experts", "num_local_experts"], 256);
  const dim = file.count("moe_intermediate_size", 1024);
  const sharedDim = dim * file.count(nameOf("num_shared_experts", "n_shared_experts"), 1);
  const spec = {
    kind: "moe",
    experts,
    topK: file.count(nameOf("num_experts_per_token", "num_experts_per_tok"), 8, experts),
    expert: mlp(dim),
    shared: { mlp: mlp(sharedDim), gated: false },
    router: {
      ...({ score: "sigmoid", correction: true, pairs: true } as const),
      renormalise: file.flag(nameOf("moe_renormalize", "norm_topk_prob"), true),
      scale: file.factor("routed_scaling_factor") ?? 2.446,
      groups: file.count(nameOf("num_expert_group", "n_group"), 1),
      keepGroups: file.count("topk_group", 1),
    },
  } as const;
  expectGroups(file, spec);
  const kinds = file.list("mlp_layer_types");
  const first = file.countOrNone("first_k_dense_replace", 1);
  const kind = kinds ? kinds[layer] : layer < first ? "dense" : "sparse";
  if (kind !== "dense" && kind !== "sparse")
    throw file.refusal("mlp_layer_types", '"dense" or "sparse" for each layer', kinds);
  return kind === "sparse" ? spec : undefined;
};

export const decoders = (): Family[] => [
  {
    attention,
    mixer,
    // Saved by other programs, dense layers have the name of experts.
    names: { otherMlpAt: "block_sparse_moe" },
    norm: { eps: 1e-5 },
    tied: "never",
    moe: readExperts,
    moeNames: {
      ...MIXTRAL_EXPERTS,
      correction: "block_sparse_moe.gate.e_score_correction_bias",
      shared: "block_sparse_moe.shared_experts",
      sharedMlp: { gate: "gate_proj", up: "up_proj", down: "down_proj" },
    },
    lengthField: "model_max_length",
    only: { mla_use_nope: [true], moe_router_activation_func: ["sigmoid"], moe_layer_freq: [1] },
    ignored: [
      ...["intermediate_size", "num_nextn_predict_layers", "use_grouped_topk"],
      ...["linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"],
    ],
    absent: { q_lora_rank: null, kv_lora_rank: 512, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128 },
  },
];
