import { largest_lane, magnitudes, rounded } from "../math/rounding";
import { PAIRS } from "./int_dot";
import { DIGIT_BIAS, DIGIT_BITS } from "./int_dot_i8";
import { BLOCK } from "../layout";
import { load_first } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";

/** Largest integers of 14 and of 7 bits that lie evenly around 0. */
export const MOST_EXACT: f32 = 8191;
export const MOST_FAST: f32 = 63;

/** Bytes before the integers of a row: its scale, and room that keeps them aligned. */
export const ROW_HEAD: usize = 16;

/** The bits of the lower digit. */
const DIGIT: i32 = (1 << DIGIT_BITS) - 1;

/** The length of a row of integers. */
// @ts-ignore: decorator
@inline
export function padded(k: i32): i32 {
  return (k + BLOCK - 1) & -BLOCK;
}

/** Bytes of a row: its scale and integers. */
// @ts-ignore: decorator
@inline
export function row_bytes(k: i32): usize {
  return ROW_HEAD + (<usize>padded(k) << 1);
}

/** The bits of max |x[i]|, of NaN if any x is NaN. */
export function magnitude(x: F32Ptr, n: i32): u32 {
  let most = i32x4.splat(0);
  for (; n >= 4; n -= 4) {
    most = i32x4.max_u(most, magnitudes(v128.load(x)));
    x += 16;
  }
  if (n > 0) most = i32x4.max_u(most, magnitudes(load_first(x, n, 0)));
  return largest_lane(most);
}

/** Eight floats times `factor`, which is not 0, as i16. */
// @ts-ignore: decorator
@inline
export function rounded_eight(a: v128, b: v128, factor: v128): v128 {
  const all = i32x4.splat(-1);
  return i16x8.narrow_i32x4_s(rounded(a, factor, all), rounded(b, factor, all));
}

/** Stores eight integers in the form of a road: at `to`, and where there are lower digits, `plane` bytes behind. */
// @ts-ignore: decorator
@inline
function store_integers(to: U8Ptr, integers: v128, road: i32, fast: bool, plane: usize): void {
  if (road == PAIRS) return v128.store(to, integers);
  const bias = i16x8.splat(<i16>DIGIT_BIAS);
  const upper = i16x8.add(fast ? integers : i16x8.shr_s(integers, DIGIT_BITS), bias);
  v128.store_lane<u64>(to, i8x16.narrow_i16x8_u(upper, upper), 0);
  if (fast) return;
  const lower = v128.and(integers, i16x8.splat(<i16>DIGIT));
  v128.store_lane<u64>(to + plane, i8x16.narrow_i16x8_u(lower, lower), 0);
}

/**
 * The integers of x[:n] · factor, |x · factor| <= 8191.5, in the form of a road, zeros up to `length`, a multiple of 8.
 * Nothing beyond x[n - 1] is read. A factor of 0 makes zeros, whatever x holds.
 */
export function quantize_row(to: U8Ptr, x: F32Ptr, n: i32, length: i32, factor: f32, road: i32, fast: bool): void {
  const step: usize = road == PAIRS ? 16 : 8;
  const plane = <usize>length;
  const factor_f32x4 = f32x4.splat(factor);
  const zero = f32x4.splat(0);
  const count = factor == 0 ? 0 : n;
  let i = 0;
  for (; i + 8 <= count; i += 8) {
    store_integers(to, rounded_eight(v128.load(x), v128.load(x, 16), factor_f32x4), road, fast, plane);
    x += 32;
    to += step;
  }
  if (i < count) {
    const left = count - i;
    const a = load_first(x, left, 0);
    const b = left > 4 ? load_first(x + 16, left - 4, 0) : zero;
    store_integers(to, rounded_eight(a, b, factor_f32x4), road, fast, plane);
    to += step;
    i += 8;
  }
  for (; i < length; i += 8) {
    store_integers(to, zero, road, fast, plane);
    to += step;
  }
}
