// OLMo 1: layer norms without weights, and a limit of queries, keys and values. OLMo 2 and 3: norms on the outputs of branches instead
// of before them, and over all heads. OLMoE has Llama's norms, and experts.

import type { AttentionRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { Family, Names } from "./family.ts";
import { QWEN_EXPERTS, readQwen } from "./qwen.ts";

const attention1: AttentionRules = {
  types: "olmo",
  gguf: { permuted: true, wholeKeys: "attention.clamp_kqv" },
  limitField: "clip_qkv",
};
const attention2: AttentionRules = { types: "olmo2", qkNorm: { kind: "full", eps: 1e-5 } };
const attention3: AttentionRules = {
  types: "olmo3",
  // And OLMo 2, whose files have no window.
  gguf: { names: "olmo2" },
  qkNorm: { kind: "full", eps: 1e-5 },
  window: { tokens: 4096, period: 4 },
  rope: { localUnscaled: true },
};
const attentionMoe: AttentionRules = {
  types: "olmoe",
  gguf: {},
  qkNorm: { kind: "full", eps: 1e-5 },
  limitField: "clip_qkv",
};

export const layers: readonly AttentionRules[] = [attention1, attention2, attention3, attentionMoe];

/** Norms on the outputs of branches alone. */
export const OUTPUT_NORMS: Names["norms"] = {
  attentionPost: "post_attention_layernorm",
  mlpPost: "post_feedforward_layernorm",
};

const heads = (facts: Facts) => ({ limit: facts.factor("clip_qkv") });

export const decoders = (): Family[] => [
  { attention: attention1, gguf: {}, norm: { kind: "layer", eps: 1e-5, field: "", bare: true }, heads },
  { attention: attention2, names: { norms: OUTPUT_NORMS } },
  { attention: attention3, gguf: {}, names: { norms: OUTPUT_NORMS } },
  {
    attention: attentionMoe,
    gguf: { renormalise: false },
    heads,
    moe: readQwen({ experts: 64, topK: 8, field: "intermediate_size", dim: 2048 }),
    moeNames: QWEN_EXPERTS,
  },
];
