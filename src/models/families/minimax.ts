// MiniMax: linear attention with a constant decay of each head between layers of attention; branches and what they are added to have
// factors; experts as in Mixtral. MiniMax-M2: norms over all heads, a part of which rotates; experts chosen by sigmoids with a
// correction.

import { MOST_HEADS } from "../../base/util/arguments.ts";
import { exp, pow } from "../../base/util/math.ts";
import { type ScanConfig, scanSizes } from "../../layers/recurrent/config.ts";
import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import { countExperts, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Facts } from "./facts.ts";
import type { Family } from "./family.ts";
import { MIXTRAL_EXPERTS, readMixtral } from "./mistral.ts";
import { ownTensors, type RecurrentTensor } from "./recurrent.ts";

const attention: AttentionRules = {
  types: "minimax",
  defaults: { numKvHeads: 8 },
  rope: { theta: 1_000_000 },
  // All layers that attend have the window, whatever their list calls them.
  more: (file) =>
    file.raw("sliding_window") === undefined ? {} : { window: { left: file.count("sliding_window") - 1 } },
};
const attentionM2: AttentionRules = {
  types: "minimax_m2",
  gguf: { names: "minimax-m2" },
  defaults: { headDim: 128 },
  qkNorm: { kind: "full" },
  only: { use_qk_norm: [true] },
  rope: { theta: 5_000_000, dimField: "rotary_dim" },
};

export const layers: readonly AttentionRules[] = [attention, attentionM2];

/** The decays of a layer's heads: e^-slope, with slopes like those of ALiBi that become smaller with each layer. */
function decaysOf(numHeads: number, layer: number, layers: number): number[] {
  const factor = 1 - layer / (layers - 1 + 1e-5) + 1e-5;
  return Array.from({ length: numHeads }, (_, head) => exp(-pow(2, (-8 * (head + 1)) / numHeads) * factor));
}

const linear: RecurrentRules = {
  kind: "recurrent",
  read(facts, layer) {
    const [dModel, numHeads] = [facts.count("hidden_size"), facts.count("num_attention_heads", undefined, MOST_HEADS)];
    const size = facts.count("head_dim", dModel / numHeads);
    const scan: ScanConfig = {
      ...{ numHeads, numKeyHeads: numHeads, turns: false, keyDim: size, valueDim: size, order: "qkv", delta: false },
      ...{ decay: "constant", steps: [0, 1], write: "whole", unitEps: undefined, scale: 1, skip: false },
      ...{ gate: "sigmoid", gateRank: 0, stepRank: 0, gateScale: 1, stepScale: 1 },
      norm: { eps: 1e-6, groups: 1, shared: false, gateFirst: false },
    };
    const config = { dModel, taps: 0, scan };
    const { k, v, channels } = scanSizes(scan);
    // Queries, keys and values of a head follow each other.
    const joined: RecurrentTensor = {
      ...{ name: "qkv_proj.weight", shape: [channels, dModel] },
      parts: Array.from({ length: numHeads }, (_, head) =>
        [0, k, v].map((first) => ({ of: "in" as const, rows: size, to: first + head * size })),
      ).flat(),
    };
    const names = { gate: "output_gate.weight", norm: "norm.weight", out: "out_proj.weight" };
    return {
      ...{ kind: "recurrent", config, at: "self_attn.", tensors: [joined, ...ownTensors(config, names)] },
      constants: { rate: decaysOf(numHeads, layer, facts.count("num_hidden_layers")) },
    };
  },
};

/** Whether a layer attends: as a list says, or every other one. */
function attends(facts: Facts, layer: number): boolean {
  const kinds = facts.list("layer_types");
  const kind = kinds ? kinds[layer] : layer % 2 === 0 ? "full_attention" : "linear_attention";
  if (kind === "full_attention" || kind === "linear_attention") return kind === "full_attention";
  throw facts.refusal("layer_types", '"full_attention" or "linear_attention" for each layer', kinds);
}

const readExperts: ReadExperts = (file, _layer, mlp) => {
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
};

export const decoders = (): Family[] => [
  {
    attention,
    mixer: (facts, layer) => (attends(facts, layer) ? undefined : linear),
    norm: { eps: 1e-5 },
    addsToNormed: () => true,
    factors(facts, layer) {
      const of = (branch: string) => ({
        added: facts.factor(`${branch}_beta_factor`) ?? 1,
        kept: facts.factor(`${branch}_alpha_factor`) ?? 1,
      });
      return { attention: of(attends(facts, layer) ? "full_attn" : "linear_attn"), mlp: of("mlp") };
    },
    moe: readMixtral,
    moeNames: MIXTRAL_EXPERTS,
    // Linear attention applies it, too.
    only: { hidden_act: ["silu", "swish"] },
    ignored: [
      ...["block_size", "full_attn_alpha_factor", "full_attn_beta_factor"],
      ...["linear_attn_alpha_factor", "linear_attn_beta_factor"],
    ],
    // Powers of the decays.
    ignoredTensors: /\.self_attn\.(slope_rate|query_decay|key_decay|diagonal_decay)$/,
  },
  {
    attention: attentionM2,
    gguf: {},
    moe: readExperts,
    moeNames: { ...MIXTRAL_EXPERTS, correction: "block_sparse_moe.e_score_correction_bias" },
    only: { qk_norm_type: ["per_layer"], shared_intermediate_size: [0] },
    ignored: ["mtp_transformer_layers", "num_mtp_modules", "use_mtp"],
  },
];
