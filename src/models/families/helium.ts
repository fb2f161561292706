// Helium: Llama with interleaved pairs.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "helium",
  defaults: { headDim: 128 },
  rope: { pairing: "interleaved", theta: 100_000 },
};

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    norm: { eps: 1e-8 },
    biases: (facts) => [
      ...(facts.flag("attention_bias", false) ? (["qkv"] as const) : []),
      ...(facts.flag("mlp_bias", false) ? (["mlp"] as const) : []),
    ],
  },
];
