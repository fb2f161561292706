// Persimmon: GPT-NeoX' joint projection, layer norms of heads, half of a head rotates, the square of ReLU without a gate.

import type { AttentionRules } from "./attention-rules.ts";
import { type Family, HEAD_NORMS, LAYER_NORM } from "./family.ts";

const attention: AttentionRules = {
  types: "persimmon",
  rope: { share: 0.5 },
  layerNormFlag: "qk_layernorm",
  fused: "grouped",
};

export const decoders = (): Family[] => [
  {
    attention,
    names: {
      projections: ["query_key_value", "dense"],
      mlp: { up: "dense_h_to_4h", down: "dense_4h_to_h" },
      finalNorm: "final_layernorm",
    },
    norm: LAYER_NORM,
    headNorm: { ...HEAD_NORMS, otherwise: true },
    activation: { word: "relu2" },
    plain: true,
    biases: () => ["qkv", "o", "mlp", "norm", "headNorm"],
  },
];
