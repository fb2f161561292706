// Nemotron and Minitron: layer norms whose gains are stored less 1, the square of ReLU without a gate, half of a head rotates.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = { types: "nemotron", gguf: {}, rope: { share: 0.5 } };

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    norm: { kind: "layer", eps: 1e-5, field: "norm_eps", onePlus: true },
    activation: { word: "relu2" },
    plain: true,
    biases: (facts) => [
      "norm",
      ...(facts.flag("attention_bias", false) ? (["qkv", "o"] as const) : []),
      ...(facts.flag("mlp_bias", false) ? (["mlp"] as const) : []),
    ],
  },
];
