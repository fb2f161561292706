// The probabilities of next tokens.

import { exp } from "../util/math.ts";

/** The softmax of logits. */
export function probabilitiesOf(logits: Float32Array): Float64Array {
  const most = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const shares = Float64Array.from(logits, (logit) => exp(logit - most));
  const sum = shares.reduce((total, share) => total + share, 0);
  return shares.map((share) => share / sum);
}

/** The ids of the largest values, of equal ones the lower first. */
export function largestIds(values: Float32Array | Float64Array, count: number): number[] {
  const order = Array.from(values.keys()).sort((a, b) => values[b]! - values[a]! || a - b);
  return order.slice(0, count);
}
