import type { Reference } from "../wasm/abi.ts";
import { integerOf, magnitude, padded, scaleOf, writeRow } from "./integers.ts";

/** Quantises rows begin..end as x[r] ≈ scale[r]·integers[r]: to 14 bits, or to 7 if mode is odd. */
export const quantize_rows: Reference["quantize_rows"] = (out, x, k, xStride, mode, begin, end) => {
  const most = mode & 1 ? 63 : 8191;
  for (let r = begin; r < end; r++) {
    const row = x.subarray(r * xStride, r * xStride + k);
    const { scale, factor } = scaleOf(magnitude(row), most);
    const integers = Array.from({ length: padded(k) }, (_, i) => (i < k ? integerOf(row[i]!, factor) : 0));
    writeRow(out, r, mode, scale, integers);
  }
};
