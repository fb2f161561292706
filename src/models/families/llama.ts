// Llama, which all others are compared with: GQA, RoPE that pairs the halves of a head, causality, no window, no norms of heads, a
// scale of 1/√headDim; RMS norms before attention and MLP, a gated MLP with SiLU, and a head of its own.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = { types: "llama", gguf: { permuted: true } };

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [{ attention, gguf: {} }];
