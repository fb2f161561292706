import type { Reference } from "../wasm/abi.ts";

/** out[h, t] = x[t, h] for tokens t in begin..end; x [rows, numHeads, headDim]. */
export const split_heads_f32: Reference["split_heads_f32"] = (out, x, rows, numHeads, headDim, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < numHeads; h++)
      for (let d = 0; d < headDim; d++) out[(h * rows + t) * headDim + d] = x[(t * numHeads + h) * headDim + d]!;
};

/** out[t, h] = x[h, t] for tokens t in begin..end; x [numHeads, rows, headDim]. */
export const merge_heads_f32: Reference["merge_heads_f32"] = (out, x, rows, numHeads, headDim, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < numHeads; h++)
      for (let d = 0; d < headDim; d++) out[(t * numHeads + h) * headDim + d] = x[(h * rows + t) * headDim + d]!;
};
