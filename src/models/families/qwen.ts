// Qwen 2 and 3: biases of queries, keys and values, then norms of heads instead; windows that a file must ask for; experts.

import type { AttentionRules } from "./attention-rules.ts";
import { countExperts, expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Fields } from "./facts.ts";
import { type BiasPart, type Family, GATED_MLP, type MoeNames } from "./family.ts";

const attention2: AttentionRules = {
  types: "qwen2",
  gguf: {},
  window: { tokens: 4096, optIn: true, from: 28 },
};
const attention2Moe: AttentionRules = {
  types: "qwen2_moe",
  gguf: { names: "qwen2moe" },
  window: {
    tokens: 4096,
    optIn: true,
    slides: (layer, file) => layer % 2 === 0 && layer < file.count("max_window_layers", 28),
  },
};
const attention3: AttentionRules = {
  types: "qwen3",
  gguf: {},
  defaults: { headDim: 128 },
  window: { tokens: 4096, optIn: true, from: 28 },
  qkNorm: { kind: "per-head" },
};
const attention3Moe: AttentionRules = {
  types: "qwen3_moe",
  gguf: { names: "qwen3moe" },
  window: { tokens: 4096, optIn: true },
  qkNorm: { kind: "per-head" },
};

export const layers: readonly AttentionRules[] = [attention2, attention2Moe, attention3, attention3Moe];

// Text models of those that see images.
const attention2Vision: AttentionRules = {
  types: "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text",
  gguf: { names: "qwen2vl", wholeKeys: "rope.dimension_sections" },
  window: { tokens: 4096, optIn: true, from: 80 },
  rope: { theta: 1_000_000, axes: true },
};
const attention3Vision: AttentionRules = {
  types: "qwen3_vl_text",
  gguf: { names: "qwen3vl", wholeKeys: "rope.dimension_sections" },
  defaults: { headDim: 128 },
  qkNorm: { kind: "per-head" },
  rope: { theta: 500_000, axes: true },
};
const attention3VisionMoe: AttentionRules = {
  types: "qwen3_vl_moe_text",
  gguf: { names: "qwen3vlmoe", wholeKeys: "rope.dimension_sections" },
  qkNorm: { kind: "per-head" },
  rope: { theta: 500_000, axes: true },
};

/** Whether a layer has experts: not those of a list, and else every n-th. */
function isSparse(file: Fields, layer: number): boolean {
  const step = file.count("decoder_sparse_step", 1);
  return !(file.list("mlp_only_layers") ?? []).includes(layer) && (layer + 1) % step === 0;
}

/** Reads experts: what absent fields stand for, the field of their width, and with `shared` that of the one every token takes. */
export function readQwen(absent: {
  readonly experts: number;
  readonly topK: number;
  readonly dim: number;
  readonly field?: string;
  readonly shared?: number;
  readonly renormalises?: true;
  /** All layers have experts, whose weights are divided by their sum, whatever the file says. */
  readonly always?: true;
}): ReadExperts {
  return (file, layer, mlp) => {
    const experts = countExperts(file, ["num_experts", "num_local_experts"], absent.experts);
    const sharedDim = absent.shared && file.count("shared_expert_intermediate_size", absent.shared);
    const spec = {
      kind: "moe",
      experts,
      topK: file.count("num_experts_per_tok", absent.topK, experts),
      expert: mlp(file.count(absent.field ?? "moe_intermediate_size", absent.dim)),
      ...(sharedDim && { shared: { mlp: mlp(sharedDim), gated: true } }),
      router: { ...SOFTMAX, renormalise: absent.always ?? file.flag("norm_topk_prob", absent.renormalises ?? false) },
    } as const;
    return absent.always || isSparse(file, layer) ? spec : undefined;
  };
}

export const QWEN_EXPERTS: MoeNames = {
  router: "mlp.gate",
  expert: /* @__PURE__ */ expertsOf("mlp.experts"),
  mlp: GATED_MLP,
};

const biases = (): readonly BiasPart[] => ["qkv"];

export const decoders = (): Family[] => [
  { attention: attention2, gguf: {}, biases },
  {
    attention: attention2Moe,
    gguf: { renormalise: false },
    moe: readQwen({ experts: 60, topK: 4, dim: 1408, shared: 5632 }),
    moeNames: { ...QWEN_EXPERTS, shared: "mlp.shared_expert", sharedGate: "mlp.shared_expert_gate" },
    ignored: ["intermediate_size"],
    biases,
  },
  { attention: attention3, gguf: {} },
  {
    attention: attention3Moe,
    gguf: {},
    moe: readQwen({ experts: 128, topK: 8, dim: 768 }),
    moeNames: QWEN_EXPERTS,
    ignored: ["intermediate_size"],
  },
  {
    attention: attention2Vision,
    gguf: {},
    norm: { eps: 1e-5 },
    hasTowers: true,
    ignored: ["vision_config", "vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"],
    biases,
  },
  { attention: attention3Vision, gguf: {} },
  {
    attention: attention3VisionMoe,
    gguf: {},
    // Weights are always divided by their sum.
    moe: readQwen({ experts: 60, topK: 4, dim: 1408, renormalises: true }),
    moeNames: {
      router: "mlp.gate",
      expert: "stacked",
      unsuffixed: true,
      mlp: { gate: "mlp.experts.gate_up_proj", down: "mlp.experts.down_proj" },
    },
    ignored: ["intermediate_size"],
  },
];
