import { ex2_f32x4 } from "../math/exp";
import { F32Ptr } from "../types";

const LOG2E = memory.data<f32>([1.4426950408889634]);

/**
 * out[r] = largest, Σ exp(x[r, i] - largest) over i < n, for rows begin..end of x, which lie `stride` floats apart: of logits
 * they give each token's probability and its logarithm. The sum is of 4 lanes in float64, by i & 3. -Infinity adds 0, and NaN
 * or Infinity gives NaN. No alignment is needed.
 */
export function softmax_sums_f32(out: F32Ptr, x: F32Ptr, n: i32, stride: i32, begin: i32, end: i32): void {
  assert(n > 0 && stride >= n, "softmax_sums_f32: stride must be at least n");
  const bytes = <usize>n << 2;
  const whole = <usize>(n & ~3) << 2;
  for (let r = begin; r < end; r++) {
    const row = x + ((<usize>r * stride) << 2);
    const largest = largest_of(row, whole, bytes);
    const largest_f32x4 = f32x4.splat(largest);
    const log2e = v128.load32_splat(LOG2E);
    let low = f64x2.splat(0);
    let high = f64x2.splat(0);
    for (let at: usize = 0; at < whole; at += 16) {
      const e = ex2_f32x4(f32x4.mul(f32x4.sub(v128.load(row + at), largest_f32x4), log2e));
      low = f64x2.add(low, f64x2.promote_low_f32x4(e));
      high = f64x2.add(high, f64x2.promote_low_f32x4(i8x16.shuffle(e, e, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15)));
    }
    const sums = f64x2.add(low, high);
    let sum = f64x2.extract_lane(sums, 0) + f64x2.extract_lane(sums, 1);
    for (let at = whole; at < bytes; at += 4) {
      const t = f32x4.mul(f32x4.sub(v128.load32_splat(row + at), largest_f32x4), log2e);
      sum += <f64>f32x4.extract_lane(ex2_f32x4(t), 0);
    }
    const to = out + ((<usize>r) << 3);
    store<f32>(to, largest);
    store<f32>(to, <f32>sum, 4);
  }
}

/** The largest float of a row, of which `whole` bytes are in vectors; NaN if one is. */
function largest_of(row: F32Ptr, whole: usize, bytes: usize): f32 {
  let most = f32x4.splat(-Infinity);
  for (let at: usize = 0; at < whole; at += 16) most = f32x4.max(most, v128.load(row + at));
  let largest = max<f32>(
    max<f32>(f32x4.extract_lane(most, 0), f32x4.extract_lane(most, 1)),
    max<f32>(f32x4.extract_lane(most, 2), f32x4.extract_lane(most, 3)),
  );
  for (let at = whole; at < bytes; at += 4) largest = max<f32>(largest, load<f32>(row + at));
  return largest;
}
