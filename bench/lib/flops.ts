// Useful floating-point operations: what the formula needs, without RoPE, softmax, copies and padding.

import type { LayerShape } from "./shapes.ts";

/** Pairs of a query and a key that it attends, for `tokens` causal queries after `past` keys. */
export function causalPairs(tokens: number, past: number): number {
  return tokens * past + (tokens * (tokens + 1)) / 2;
}

/** Operations of a layer for `tokens` tokens after `past`: four projections, and two products for each attended pair. */
export function layerFlops({ dModel, numHeads, numKvHeads }: LayerShape, tokens: number, past = 0): number {
  const outputs = 2 * dModel + (2 * dModel * numKvHeads) / numHeads;
  return tokens * 2 * dModel * outputs + 4 * dModel * causalPairs(tokens, past);
}
