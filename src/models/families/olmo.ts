// OLMo 2 and 3: norms on the outputs of branches instead of before them, and over all heads. OLMoE has Llama's norms, and experts.
// Of OLMo 1, whose norms have no weights, single layers are read.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";
import { QWEN_EXPERTS, readQwen } from "./qwen.ts";

const attention1: AttentionRules = {
  types: "olmo",
  gguf: { permuted: true },
  only: { clip_qkv: [] },
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
  only: { clip_qkv: [] },
};

export const layers: readonly AttentionRules[] = [attention1, attention2, attention3, attentionMoe];

const norms = { attentionPost: "post_attention_layernorm", mlpPost: "post_feedforward_layernorm" };

export const decoders = (): Family[] => [
  { attention: attention2, names: { norms } },
  { attention: attention3, gguf: {}, names: { norms } },
  {
    attention: attentionMoe,
    gguf: { renormalise: false },
    moe: readQwen({ experts: 64, topK: 8, field: "intermediate_size", dim: 2048 }),
    moeNames: QWEN_EXPERTS,
  },
];
