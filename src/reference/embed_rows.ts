import { PANEL, WEIGHT_BF16, WEIGHT_F16, WEIGHT_F32, WEIGHT_Q8 } from "../../assembly/layout.ts";
import type { EmbedShape, Plain, Reference } from "../wasm/abi.ts";
import { widenBf16, widenF16 } from "./half.ts";
import { minOf, packedQ4, packedQ8 } from "./integers.ts";

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
