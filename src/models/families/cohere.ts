// Command R and R7B: layer norms, one for both branches, which run side by side; a factor on logits.

import type { AttentionRules } from "./attention-rules.ts";
import { type Family, LAYER_NORM, ONE_NORM } from "./family.ts";

const attention: AttentionRules = {
  types: "cohere",
  gguf: { names: "command-r" },
  rope: { pairing: "interleaved" },
  layerNormFlag: "use_qk_norm",
};

/** Windows in three of four layers, which alone rotate. */
const attention2: AttentionRules = {
  types: "cohere2",
  gguf: { assumesWindow: true },
  rope: { pairing: "interleaved" },
  layerNormFlag: "use_qk_norm",
  window: { tokens: 4096, period: 4, patterned: true },
  rotates: (_layer, windowed) => windowed,
};

export const layers: readonly AttentionRules[] = [attention, attention2];

const cohere = (own: Pick<Family, "attention" | "headNorm">): Family => ({
  ...own,
  gguf: {},
  names: { norms: ONE_NORM },
  norm: LAYER_NORM,
  parallel: () => true,
  head: (facts) => ({ scale: facts.factor("logit_scale") ?? 0.0625 }),
  tied: true,
});

export const decoders = (): Family[] => [
  cohere({ attention, headNorm: { flag: "use_qk_norm", q: "q_norm", k: "k_norm", each: "together" } }),
  cohere({ attention: attention2 }),
];
