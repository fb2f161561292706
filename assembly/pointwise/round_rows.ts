import { factor_of, is_non_finite, magnitude, rounded } from "../math/rounding";
import { load_first, store_first } from "../math/simd";
import { F32Ptr } from "../types";

/** Smaller rows are rounded as if their largest number was this. */
const LEAST: f32 = 1e-5;

/**
 * x[r, i] = scale · nearest(x[r, i] / scale), halves to even, with scale = max(|x[r]|, 1e-5) / 127, for i < n, in rows begin..end,
 * which lie `stride` floats apart. Rows with a NaN or an infinity become NaN.
 */
export function round_rows_f32(x: F32Ptr, n: i32, stride: i32, begin: i32, end: i32): void {
  assert(stride >= n, "round_rows_f32: stride must be at least n");
  const all = i32x4.splat(-1);
  for (let r = begin; r < end; r++) {
    let at = x + ((<usize>r * stride) << 2);
    const top = magnitude(at, n);
    const least = reinterpret<u32>(LEAST);
    const largest = top < least ? least : top;
    const factor = f32x4.splat(factor_of(largest, 127));
    const scale = f32x4.splat(is_non_finite(top) ? f32.NaN : reinterpret<f32>(largest) / 127);
    for (let left = n; left > 0; left -= 4) {
      const integers = rounded(load_first(at, left, 0), factor, all);
      store_first(at, left, f32x4.mul(f32x4.convert_i32x4_s(integers), scale));
      at += 16;
    }
  }
}
