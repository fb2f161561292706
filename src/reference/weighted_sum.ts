import type { Reference } from "../wasm/abi.ts";
import { valueAt } from "./cache.ts";
import { countColumns, mayAttend } from "./scores.ts";

/**
 * out[t] = Σ_j weights[t, j]·v[j] of one head, for queries t in begin..end. Excluded keys, whose weight is 0, are left out,
 * so that a NaN in their value has no effect. A weight of 0 for a key that may be attended takes part.
 */
export const weighted_sum_f32: Reference["weighted_sum_f32"] = (out, weights, pages, shape, head, begin, end) => {
  const columns = countColumns(shape);
  const kvHead = Math.floor(head / (shape.numHeads / shape.numKvHeads));
  for (let t = begin; t < end; t++)
    for (let c = 0; c < shape.valueDim; c++) {
      let sum = 0;
      for (let j = 0; j < shape.kvLen; j++) {
        const weight = weights[t * columns + j]!;
        if (weight !== 0 || mayAttend(shape, head, t, j)) sum += weight * valueAt(pages, shape, kvHead, j, c);
      }
      if (shape.extraKey) sum += weights[t * columns + shape.kvLen]! * shape.extraValue![kvHead * shape.valueDim + c]!;
      out[t * shape.outStride + head * shape.outHeadStride + c] = sum;
    }
};
