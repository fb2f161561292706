// Arcee: Llama with an MLP without gate, and squared ReLU.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = { types: "arcee", gguf: { permuted: true } };

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: { mlp: { up: "up_proj", down: "down_proj" } },
    activation: { word: "relu2" },
    plain: true,
  },
];
