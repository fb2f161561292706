import { BLOCK, ROUNDED } from "../layout";
import { factor_of, magnitude, rounded, scale_of } from "../math/rounding";
import { load_first } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { FAST, PATH_I16 } from "./int_dot";
import { DIGIT, DIGIT_BIAS, DIGIT_BITS } from "./int_dot_i8";

// Rows of activations as integers: what linear_q8 and linear_q4 read for x.

/** Largest integers of 14 and of 7 bits that lie evenly around 0. */
const MOST_EXACT: f32 = 8191;
const MOST_FAST: f32 = 63;
/** 64 · 127: multiples of 1/127 of the largest one are integers then. */
const MOST_ROUNDED: f32 = 8128;

/** Bytes before the integers of a row: its scale, and room that keeps them aligned. */
export const ROW_HEAD: usize = 16;

/**
 * Rows begin..end of x [rows, k] as integers of 14 bits, or of 7 where bit 0 of `mode` is set: x[r] is about
 * scale[r] · integers. The other bits of `mode` are the path (int_dot.ts), and ROUNDED where round_rows_f32 has made x, whose
 * integers of 14 bits are exact then. Row r of out lies r · (16 + 2 · K) bytes behind
 * the first, K being k rounded up to whole blocks: the scale, a float, then from byte 16 on the integers, zeros from k to K.
 * scale = max |x| / 8191, or 63, or 8128 of rounded rows; a row with a NaN or an infinity has the scale NaN and integers 0, and one below 2^-110
 * both 0. Rows of x lie xStride floats apart. out is 16-byte aligned and overlaps nothing.
 */
export function quantize_rows(out: U8Ptr, x: F32Ptr, k: i32, xStride: i32, mode: i32, begin: i32, end: i32): void {
  assert(k > 0 && xStride >= k, "quantize_rows: the stride must hold a row");
  const length = padded(k);
  const fast = (mode & FAST) != 0;
  const most = fast ? MOST_FAST : mode & ROUNDED ? MOST_ROUNDED : MOST_EXACT;
  const path = (mode & (ROUNDED - 1)) >> 1;
  for (let r = begin; r < end; r++) {
    const from = x + ((<usize>r * xStride) << 2);
    const to = out + <usize>r * row_bytes(k);
    const largest = magnitude(from, k);
    store<f32>(to, scale_of(largest, most));
    quantize_row(to + ROW_HEAD, from, k, length, factor_of(largest, most), path, fast);
  }
}

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

/** Eight floats times `factor`, which is not 0, as i16. */
// @ts-ignore: decorator
@inline
export function rounded_eight(a: v128, b: v128, factor: v128): v128 {
  const all = i32x4.splat(-1);
  return i16x8.narrow_i32x4_s(rounded(a, factor, all), rounded(b, factor, all));
}

/** Stores eight integers in the form of a path: at `to`, and where there are lower digits, `plane` bytes behind. */
// @ts-ignore: decorator
@inline
function store_integers(to: U8Ptr, integers: v128, path: i32, fast: bool, plane: usize): void {
  if (path == PATH_I16) return v128.store(to, integers);
  const bias = i16x8.splat(<i16>DIGIT_BIAS);
  const upper = i16x8.add(fast ? integers : i16x8.shr_s(integers, DIGIT_BITS), bias);
  v128.store_lane<u64>(to, i8x16.narrow_i16x8_u(upper, upper), 0);
  if (fast) return;
  const lower = v128.and(integers, i16x8.splat(<i16>DIGIT));
  v128.store_lane<u64>(to + plane, i8x16.narrow_i16x8_u(lower, lower), 0);
}

/**
 * The integers of x[:n] · factor, |x · factor| <= 8191.5, in the form of a path, zeros up to `length`, a multiple of 8.
 * Nothing beyond x[n - 1] is read. A factor of 0 makes zeros, whatever x holds.
 */
function quantize_row(to: U8Ptr, x: F32Ptr, n: i32, length: i32, factor: f32, path: i32, fast: bool): void {
  const step: usize = path == PATH_I16 ? 16 : 8;
  const plane = <usize>length;
  const factor_f32x4 = f32x4.splat(factor);
  const zero = f32x4.splat(0);
  const count = factor == 0 ? 0 : n;
  let i = 0;
  for (; i + 8 <= count; i += 8) {
    store_integers(to, rounded_eight(v128.load(x), v128.load(x, 16), factor_f32x4), path, fast, plane);
    x += 32;
    to += step;
  }
  if (i < count) {
    const left = count - i;
    const a = load_first(x, left, 0);
    const b = left > 4 ? load_first(x + 16, left - 4, 0) : zero;
    store_integers(to, rounded_eight(a, b, factor_f32x4), path, fast, plane);
    to += step;
    i += 8;
  }
  for (; i < length; i += 8) {
    store_integers(to, zero, path, fast, plane);
    to += step;
  }
}
