// Qwen3-Next and Qwen3.5: gated delta nets between layers of attention whose outputs are gated, and experts.

import { MOST_HEADS } from "../../base/util/arguments.ts";
import { type RecurrentConfig, type ScanConfig, scanSizes } from "../../layers/recurrent/config.ts";
import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { Family } from "./family.ts";
import { QWEN_EXPERTS, readQwen } from "./qwen.ts";
import { expectSilu, type OwnNames, ownTensors, partsInOrder, type RecurrentTensor } from "./recurrent.ts";

/** What is added below the root of the sum of squares that queries and keys are divided by. */
const UNIT_EPS = 1e-6;

/** What all gated delta nets have in common. */
export const DELTA: Omit<ScanConfig, "numHeads" | "numKeyHeads" | "keyDim" | "valueDim" | "norm" | "scale"> = {
  turns: false,
  order: "qkv",
  delta: true,
  decay: "head",
  steps: [0, Infinity],
  write: "sigmoid",
  unitEps: UNIT_EPS,
  skip: false,
  gate: "silu",
  gateRank: 0,
  stepRank: 0,
  gateScale: 1,
  stepScale: 1,
};

/** A layer with a scan. */
type ScanLayer = RecurrentConfig & { readonly scan: ScanConfig };

/** The scan of a gated delta net, by the fields that all its families have. */
export function readDelta(facts: Facts, more: Partial<ScanConfig> = {}): ScanLayer {
  expectSilu(facts, "hidden_act");
  const numHeads = facts.count("linear_num_value_heads", 32, MOST_HEADS);
  const numKeyHeads = facts.count("linear_num_key_heads", 16, MOST_HEADS);
  if (numHeads % numKeyHeads !== 0)
    throw facts.refusal("linear_num_key_heads", `a divisor of linear_num_value_heads, ${numHeads}`, numKeyHeads);
  const keyDim = facts.count("linear_key_head_dim", 128);
  const scan: ScanConfig = {
    ...DELTA,
    ...{ numHeads, numKeyHeads, keyDim, valueDim: facts.count("linear_value_head_dim", 128) },
    scale: 1 / Math.sqrt(keyDim),
    norm: { eps: facts.number("rms_norm_eps") ?? 1e-6, groups: numHeads, shared: true, gateFirst: false },
    ...more,
  };
  return { dModel: facts.count("hidden_size"), taps: facts.count("linear_conv_kernel_dim", 4, 16), scan };
}

/** What the tensors of both have in common. */
const OWN = { conv: "conv1d.weight", stepBias: "dt_bias", rate: "A_log", norm: "norm.weight", out: "out_proj.weight" };

/** Queries, keys, values and gates of the heads that share a key follow each other, and so do their factors and steps. */
function joined(config: ScanLayer): readonly [whole: RecurrentTensor, factors: RecurrentTensor] {
  const { dModel, scan } = config;
  const { numHeads, numKeyHeads, keyDim, valueDim } = scan;
  const group = numHeads / numKeyHeads;
  const { q, k, v, values, channels } = scanSizes(scan);
  const each = Array.from({ length: numKeyHeads }, (_, head) => head);
  const own = group * valueDim;
  return [
    {
      ...{ name: "in_proj_qkvz.weight", shape: [channels + values, dModel] },
      parts: each.flatMap((head) => [
        { of: "in" as const, rows: keyDim, to: q + head * keyDim },
        { of: "in" as const, rows: keyDim, to: k + head * keyDim },
        { of: "in" as const, rows: own, to: v + head * own },
        { of: "gate" as const, rows: own, to: head * own },
      ]),
    },
    {
      ...{ name: "in_proj_ba.weight", shape: [2 * numHeads, dModel] },
      parts: partsInOrder(each.flatMap(() => [["write", group] as const, ["step", group] as const])),
    },
  ];
}

const joinedDelta: RecurrentRules = {
  kind: "recurrent",
  read(facts) {
    const config = readDelta(facts);
    return { kind: "recurrent", config, at: "linear_attn.", tensors: [...joined(config), ...ownTensors(config, OWN)] };
  },
};

const delta: RecurrentRules = {
  kind: "recurrent",
  read(facts) {
    const config = readDelta(facts);
    const [all, gate] = ["in_proj_qkv.weight", "in_proj_z.weight"];
    const names = { in: all, gate, write: "in_proj_b.weight", step: "in_proj_a.weight", ...OWN };
    return { kind: "recurrent", config, at: "linear_attn.", tensors: ownTensors(config, names) };
  },
};

/** The rules of layers that do not attend: of a list, or three of four. */
export const linearLayers =
  (rules: RecurrentRules) =>
  (facts: Facts, layer: number): RecurrentRules | undefined => {
    const kinds = facts.list("layer_types");
    const interval = facts.count("full_attention_interval", 4);
    const kind = kinds ? kinds[layer] : (layer + 1) % interval === 0 ? "full_attention" : "linear_attention";
    if (kind === "full_attention") return undefined;
    if (kind === "linear_attention") return rules;
    throw facts.refusal("layer_types", '"linear_attention" or "full_attention" for each layer', kinds);
  };

// GGUF files.

/** What a layer of GGUF files is; undefined for one that attends. */
function ggufDelta(isJoined: boolean): NonNullable<NonNullable<Family["gguf"]>["recurrent"]> {
  return (keys, has) => {
    const at = keys.layer ?? 0;
    const isListed = keys.has("attention.recurrent_layers");
    const interval = keys.count("full_attention_interval", 4);
    if (isListed ? keys.countOrNone("attention.recurrent_layers") === 0 : (at + 1) % interval === 0) return undefined;
    const inner = keys.count("ssm.inner_size");
    const numHeads = keys.count("ssm.time_step_rank", undefined, MOST_HEADS);
    const numKeyHeads = keys.count("ssm.group_count", undefined, MOST_HEADS);
    if (numHeads % numKeyHeads !== 0)
      throw keys.refusal("ssm.group_count", `a divisor of ssm.time_step_rank, ${numHeads}`, numKeyHeads);
    if (inner % numHeads !== 0) throw keys.refusal("ssm.time_step_rank", `a divisor of ${inner}`, numHeads);
    const keyDim = keys.count("ssm.state_size");
    const eps = keys.number("attention.layer_norm_rms_epsilon") ?? 1e-6;
    const scan: ScanConfig = {
      ...DELTA,
      ...{ numHeads, numKeyHeads, keyDim, valueDim: inner / numHeads, turns: !isJoined, scale: 1 / Math.sqrt(keyDim) },
      norm: { eps, groups: numHeads, shared: true, gateFirst: false },
    };
    const config = { dModel: keys.count("embedding_length"), taps: keys.count("ssm.conv_kernel", undefined, 16), scan };
    // The first files of Qwen3-Next have what the other ones have in two tensors in one.
    const isWhole = isJoined && has("ssm_in.weight");
    const own: OwnNames = {
      ...(!isWhole && { in: "attn_qkv.weight", gate: "attn_gate.weight" }),
      ...{
        conv: "ssm_conv1d.weight",
        stepBias: "ssm_dt.bias",
        rate: "ssm_a",
        norm: "ssm_norm.weight",
        out: "ssm_out.weight",
      },
      ...(!isJoined && { write: "ssm_beta.weight", step: "ssm_alpha.weight" }),
    };
    const tensors = ownTensors(config, own, undefined, true);
    if (isJoined) {
      const [whole, both] = joined(config);
      tensors.push({ ...both, name: "ssm_ba.weight" }, ...(isWhole ? [{ ...whole, name: "ssm_in.weight" }] : []));
    }
    return { kind: "recurrent", config, at: "", tensors };
  };
}

// Whole models.

const attentionOf = (types: string, names: string): AttentionRules => ({
  types,
  gguf: { names, wholeKeys: "ssm.state_size full_attention_interval rope.dimension_sections" },
  defaults: { headDim: 256 },
  qkNorm: { kind: "per-head", onePlus: true },
  rope: { theta: 10_000, share: 0.25, axes: true },
  beside: ["linear_num_key_heads", "attn_output_gate"],
});

const attentionNext = /* @__PURE__ */ attentionOf("qwen3_next", "qwen3next");
const attention35 = /* @__PURE__ */ attentionOf("qwen3_5_text", "qwen35");
const attention35Moe = /* @__PURE__ */ attentionOf("qwen3_5_moe_text", "qwen35moe");

const experts = (own: { readonly always?: true } = {}): Partial<Family> => ({
  moe: readQwen({ experts: 512, topK: 10, dim: 512, shared: 512, renormalises: true, ...own }),
  moeNames: { ...QWEN_EXPERTS, shared: "mlp.shared_expert", sharedGate: "mlp.shared_expert_gate" },
});

const family = (
  attention: AttentionRules,
  rules: RecurrentRules,
  isJoined: boolean,
  more: Partial<Family> = {},
): Family => ({
  attention,
  gguf: { recurrent: ggufDelta(isJoined), norms: { attentionPre: "attn_norm", mlpPre: "post_attention_norm" } },
  mixer: linearLayers(rules),
  gatedQueries: true,
  heads: () => ({ gated: true }),
  norm: { onePlus: true },
  ignoredTensors: /^mtp\./,
  ...more,
  ignored: [
    ...["full_attention_interval", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads"],
    ...["linear_num_value_heads", "linear_value_head_dim", "mamba_ssm_dtype", "mtp_num_hidden_layers"],
    ...[
      "intermediate_size",
      "mtp_use_dedicated_embeddings",
      "norm_topk_prob",
      "decoder_sparse_step",
      "mlp_only_layers",
    ],
  ],
});

export const decoders = (): Family[] => [
  family(attentionNext, joinedDelta, true, experts()),
  family(attention35, delta, false),
  family(attention35Moe, delta, false, experts({ always: true })),
];
