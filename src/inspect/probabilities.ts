// The probabilities of next tokens.

import { exp } from "../util/math.ts";

/** The softmax of logits. */
export function probabilitiesOf(logits: Float32Array): Float64Array {
  const most = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const shares = Float64Array.from(logits, (logit) => exp(logit - most));
  const sum = shares.reduce((total, share) => total + share, 0);
  return shares.map((share) => share / sum);
}

/** The ids of the largest values, of equal ones the lower first. One pass over them, because vocabularies are large. */
export function largestIds(values: Float32Array | Float64Array, count: number): number[] {
  const best: number[] = [];
  for (let id = 0; id < values.length; id++) {
    const value = values[id]!;
    if (best.length === count && !(value > values[best[count - 1]!]!)) continue;
    const at = best.findIndex((each) => values[each]! < value);
    best.splice(at < 0 ? best.length : at, 0, id);
    best.length = Math.min(best.length, count);
  }
  return best;
}
