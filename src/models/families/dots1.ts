// dots.llm1: norms of heads, windows, and experts as in DeepSeek-V3.

import type { AttentionRules } from "./attention-rules.ts";
import { DEEPSEEK_EXPERTS, readDeepSeek, sigmoidRouter } from "./deepseek.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "dots1",
  gguf: {},
  qkNorm: { kind: "per-head" },
  window: { tokens: 4096, from: 62 },
};

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: { renormalise: false },
    moe: readDeepSeek(
      (file) => ({
        ...sigmoidRouter(file, { scale: 1, groups: 1, keepGroups: 1 }),
        renormalise: file.flag("norm_topk_prob", false),
      }),
      { dim: 1408, shared: 0, first: 0 },
    ),
    moeNames: DEEPSEEK_EXPERTS,
    only: { scoring_func: ["noaux_tc", "sigmoid"], topk_method: ["noaux_tc"] },
    biases: (facts) => (facts.flag("attention_bias", false) ? ["qkv", "o"] : []),
  },
];
