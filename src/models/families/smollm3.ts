// SmolLM3: Llama with layers that do not rotate: those of a list, or else the last of each interval.

import type { AttentionRules } from "./attention-rules.ts";
import { type Facts, refusal } from "./facts.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "smollm3",
  gguf: { permuted: true },
  rope: { theta: 2_000_000 },
  rotates: (layer, _windowed, _windows, facts) => rotates(layer, facts),
  window: { optIn: true, slides: (layer, file) => !rotates(layer, file) },
};

export const layers: readonly AttentionRules[] = [attention];

/** Whether a layer rotates. */
export function rotates(layer: number, facts: Facts): boolean {
  const list = facts.list("no_rope_layers");
  const interval = facts.count("no_rope_layer_interval", 4);
  const own = list?.[layer];
  if (list !== undefined && own !== 0 && own !== 1) throw refusal(`no_rope_layers of layer ${layer}`, "0 or 1", own);
  return own === undefined ? (layer + 1) % interval !== 0 : own === 1;
}

export const decoders = (): Family[] => [{ attention, gguf: {}, tied: true }];
