// Rows of heads and of tokens, and the largest elements of a row.

import { PANEL, WEIGHT_BF16, WEIGHT_F16, WEIGHT_F32, WEIGHT_Q8 } from "../../assembly/layout.ts";
import type { EmbedShape, Plain, Reference } from "../wasm/abi.ts";
import { widenBf16, widenF16 } from "./half.ts";
import { minOf, packedQ4, packedQ8 } from "./integers.ts";

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

/** w[n, i] of packed panels. */
function reader(
  w: Uint8Array,
  mins: Float32Array | null,
  { format, k, block }: Plain<EmbedShape>,
): (n: number, i: number) => number {
  const view = new DataView(w.buffer, w.byteOffset, w.byteLength);
  const at = (n: number, i: number) => (Math.floor(n / PANEL) * k + i) * PANEL + (n % PANEL);
  if (format === WEIGHT_F32) return (n, i) => view.getFloat32(4 * at(n, i), true);
  if (format === WEIGHT_F16) return (n, i) => widenF16(view.getUint16(2 * at(n, i), true));
  if (format === WEIGHT_BF16) return (n, i) => widenBf16(view.getUint16(2 * at(n, i), true));
  const packed = format === WEIGHT_Q8 ? packedQ8(w, k, block) : packedQ4(w, k, mins ? 0 : 8);
  return (n, i) => {
    const product = Math.fround(packed.scale(n, i) * packed.weight(n, i));
    return mins ? Math.fround(product - minOf(mins, k, packed.block, n, i)) : product;
  };
}

/** out[t, i] = scale · w[ids[t], i], for tokens begin..end: rows of a table in the panels of a projection. */
export const embed_rows: Reference["embed_rows"] = (out, ids, w, mins, shape, begin, end) => {
  const read = reader(w, mins, shape);
  for (let t = begin; t < end; t++)
    for (let i = 0; i < shape.k; i++) out[t * shape.k + i] = read(ids[t]!, i) * shape.scale;
};

/** The places of the k largest, descending; of equal ones the lower first, NaN behind all numbers. */
export function largestOf(x: readonly number[], k: number): number[] {
  const order = (i: number, j: number) => {
    const [a, b] = [x[i]!, x[j]!];
    if (a !== b && !(Number.isNaN(a) && Number.isNaN(b))) return Number.isNaN(a) || a < b ? 1 : -1;
    return i - j;
  };
  return [...x.keys()].sort(order).slice(0, k);
}

/** values[r, :k] and ids[r, :k] are the k largest of x[r, :n] and where they are, for rows begin..end. */
export const top_k_f32: Reference["top_k_f32"] = (values, ids, x, n, stride, k, begin, end) => {
  for (let r = begin; r < end; r++) {
    const row = [...x.subarray(r * stride, r * stride + n)];
    for (const [j, i] of largestOf(row, k).entries()) {
      values[r * k + j] = row[i]!;
      ids[r * k + j] = i;
    }
  }
};
