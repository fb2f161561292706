import { factor_of, scale_of } from "../math/rounding";
import { FAST } from "./int_dot";
import { magnitude, MOST_EXACT, MOST_FAST, padded, quantize_row, ROW_HEAD, row_bytes } from "./quantize_rows";
import { F32Ptr, U8Ptr } from "../types";

/**
 * Rows begin..end of x [rows, k] as integers of 14 bits, or of 7 where bit 0 of `mode` is set: x[r] is about
 * scale[r] · integers. The other bits of `mode` are the road (integers.ts). Row r of out lies r · (16 + 2 · K) bytes behind
 * the first, K being k rounded up to whole blocks: the scale, a float, then from byte 16 on the integers, zeros from k to K.
 * scale = max |x| / 8191, or 63; a row with a NaN or an infinity has the scale NaN and integers 0, and one below 2^-110
 * both 0. Rows of x lie xStride floats apart. out is 16-byte aligned and overlaps nothing.
 */
export function quantize_rows(
  out: U8Ptr,
  x: F32Ptr,
  k: i32,
  xStride: i32,
  mode: i32,
  begin: i32,
  end: i32,
): void {
  assert(k > 0 && xStride >= k, "quantize_rows: the stride must hold a row");
  const length = padded(k);
  const fast = (mode & FAST) != 0;
  const most = fast ? MOST_FAST : MOST_EXACT;
  for (let r = begin; r < end; r++) {
    const from = x + ((<usize>r * xStride) << 2);
    const to = out + <usize>r * row_bytes(k);
    const largest = magnitude(from, k);
    store<f32>(to, scale_of(largest, most));
    quantize_row(to + ROW_HEAD, from, k, length, factor_of(largest, most), mode >> 1, fast);
  }
}
