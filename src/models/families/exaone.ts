// EXAONE 4: norms on the outputs of branches, norms of heads, and RoPE in layers with the window alone, where there are any.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";
import { OUTPUT_NORMS } from "./olmo.ts";

const attention: AttentionRules = {
  types: "exaone4",
  gguf: { assumesWindow: true, windowLayers: 64 },
  qkNorm: { kind: "per-head", eps: 1e-5 },
  window: { tokens: 4096, period: 4, patterned: true },
  rotates: (_layer, windowed, windows) => windowed || !windows,
};

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [{ attention, gguf: {}, names: { norms: OUTPUT_NORMS }, norm: { eps: 1e-5 } }];
