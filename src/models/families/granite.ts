// Granite: factors on embeddings, branches, scores and logits. Of those with experts, GGUF files are read whole.

import type { AttentionRules } from "./attention-rules.ts";
import type { Fields } from "./facts.ts";
import type { Family } from "./family.ts";

/** Without the field, Granite's class multiplies scores by 1. */
const scaleOf = (file: Fields): number => file.factor("attention_multiplier") ?? 1;

const attention: AttentionRules = {
  types: "granite",
  gguf: { permuted: true },
  scale: scaleOf,
};
const attentionMoe: AttentionRules = {
  types: "granitemoe granitemoeshared",
  gguf: { names: "granitemoe", permuted: true },
  scale: scaleOf,
};

export const layers: readonly AttentionRules[] = [attention, attentionMoe];

const granite = (own: Pick<Family, "attention" | "gguf">): Family => ({
  ...own,
  scale: (facts) => facts.factor("residual_multiplier") ?? 1,
  embed: (facts) => ({ scale: facts.factor("embedding_multiplier") ?? 1 }),
  head: (facts) => ({ scale: 1 / (facts.factor("logits_scaling") ?? 1) }),
});

export const decoders = (): Family[] => [
  granite({ attention, gguf: {} }),
  granite({ attention: attentionMoe, gguf: { alone: true } }),
];
