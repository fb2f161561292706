import { BLOCK, ROUNDED, SIGNED } from "../layout";
import { factor_of, is_non_finite, largest_lane, magnitude, magnitudes, rounded, scale_of } from "../math/rounding";
import { load_first } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { BLOCK_SHIFT } from "./block_layout";
import { FAST, PATH_I16, path_of } from "./int_dot";
import { DIGIT, DIGIT_BIAS, DIGIT_BITS } from "./int_dot_i8";

// Rows of activations as integers: what linear_q8 and linear_q4 read for x.

/** Largest integers of 14 bits that lie evenly around 0, and of a signed byte. */
const MOST_EXACT: f32 = 8191;
const MOST_SIGNED: f32 = 127;
/** Half of the steps from the least to the largest of 7 bits: both may be rounded away from each other, by one step in all. */
const MOST_FAST: f32 = 63;
/** 64 · 127: multiples of 1/127 of the largest one are integers then. */
const MOST_ROUNDED: f32 = 8128;

/** Bytes before the integers of a row: its scale, and room that keeps them aligned. */
export const ROW_HEAD: usize = 16;

/**
 * Rows begin..end of x [rows, k] as integers. Row r of out lies r · row_bytes behind the first: the scale, a float, then from byte 16 on
 * the integers, in the form of the path that bits 1 and 2 of `mode` name (int_dot.ts), zeros from k to K, which is k rounded up to 32.
 * Integers have 14 bits and x[r] is about scale[r] · integers: scale = max |x| / 8191, or 8128 with ROUNDED, where round_rows_f32 has
 * made x, whose integers are exact then.
 * Where bit 0 is set, each `block` inputs, a multiple of 32, have a scale of their own, and the row's is 1. With SIGNED, integers have 8
 * bits: scale = max |x| / 127. Else they have 7: scale = (largest - least) / 126, where 0 counts, too, and bytes are raised by what
 * makes the least one 0. 2K bytes behind the first integer stand scale and raise of each 32 inputs.
 * What has a NaN or an infinity has the scale NaN and integers 0, and what is below 2^-110 both 0. Rows of x lie xStride floats apart.
 * out is 16-byte aligned and overlaps nothing.
 */
export function quantize_rows(
  out: U8Ptr,
  x: F32Ptr,
  k: i32,
  xStride: i32,
  block: i32,
  mode: i32,
  begin: i32,
  end: i32,
): void {
  assert(k > 0 && xStride >= k, "quantize_rows: the stride must hold a row");
  assert(!(mode & FAST) || (block > 0 && block % BLOCK == 0), "quantize_rows: a block must be whole blocks of 32");
  const length = padded(k);
  const most = mode & ROUNDED ? MOST_ROUNDED : MOST_EXACT;
  const path = path_of(mode);
  for (let r = begin; r < end; r++) {
    const from = x + ((<usize>r * xStride) << 2);
    const to = out + <usize>r * row_bytes(k);
    if (mode & FAST) {
      store<f32>(to, 1);
      for (let i = 0; i < k; i += block) quantize_block(to, from, i, min(block, k - i), length, path, (mode & SIGNED) != 0);
      continue;
    }
    const largest = magnitude(from, k);
    store<f32>(to, scale_of(largest, most));
    quantize_row(to + ROW_HEAD, from, k, length, factor_of(largest, most), path, 2, 0);
  }
}

/** A block of a fast row of `length` integers: `count` inputs from x[i] on, zeros up to a multiple of 32. */
function quantize_block(row: U8Ptr, x: F32Ptr, i: i32, count: i32, length: i32, path: i32, signed: bool): void {
  const from = x + (<usize>i << 2);
  let bits = i32x4.splat(0);
  let largest = f32x4.splat(0);
  let least = f32x4.splat(0);
  for (let j = 0; j < count; j += 4) {
    const four = load_first(from + (<usize>j << 2), count - j, 0);
    bits = i32x4.max_u(bits, magnitudes(four));
    largest = f32x4.pmax(largest, four);
    least = f32x4.pmin(least, four);
  }
  let size = largest_lane(bits);
  const most = signed ? MOST_SIGNED : MOST_FAST;
  let below: f32 = 0;
  if (!signed && !is_non_finite(size)) {
    // Of what is at least 0, floats are in the order of their bits.
    const above = reinterpret<f32>(largest_lane(largest));
    below = reinterpret<f32>(largest_lane(magnitudes(least)));
    // Half of the way from the least to the largest: all of it may be infinite.
    size = reinterpret<u32>(above * <f32>0.5 + below * <f32>0.5);
  }
  const factor = factor_of(size, most);
  const raise = i32x4.extract_lane(rounded(f32x4.splat(below), f32x4.splat(factor), i32x4.splat(-1)), 0);
  let to = row + ROW_HEAD + (<usize>length << 1) + (<usize>i >> BLOCK_SHIFT);
  for (let j = 0; j < count; j += BLOCK) {
    store<f32>(to, scale_of(size, most));
    store<i32>(to, raise, 4);
    to += BLOCK >> BLOCK_SHIFT;
  }
  const integers = row + ROW_HEAD + (<usize>i << (path == PATH_I16 ? 1 : 0));
  quantize_row(integers, from, count, padded(count), factor, path, 1, raise);
}

/** The length of a row of integers. */
// @ts-ignore: decorator
@inline
export function padded(k: i32): i32 {
  return (k + BLOCK - 1) & -BLOCK;
}

/** Bytes of a row: its scale, integers, and the scales of its blocks. */
// @ts-ignore: decorator
@inline
export function row_bytes(k: i32): usize {
  const length = <usize>padded(k);
  return ROW_HEAD + (length << 1) + (((length >> BLOCK_SHIFT) + 15) & ~15);
}

/** Where the first row of x has the scales of its blocks, if it is a fast one: else 0. */
// @ts-ignore: decorator
@inline
export function blocks_of(x: U8Ptr, k: i32, mode: i32): usize {
  return mode & FAST ? x + ROW_HEAD + (<usize>padded(k) << 1) : 0;
}

/** Eight floats times `factor`, which is not 0, as i16. */
// @ts-ignore: decorator
@inline
export function rounded_eight(a: v128, b: v128, factor: v128): v128 {
  const all = i32x4.splat(-1);
  return i16x8.narrow_i32x4_s(rounded(a, factor, all), rounded(b, factor, all));
}

/**
 * Stores eight integers in the form of a path: at `to`, and where there are two planes, their lower digits `plane` bytes behind. A
 * single plane is raised by `raise`.
 */
// @ts-ignore: decorator
@inline
function store_integers(to: U8Ptr, integers: v128, path: i32, planes: i32, raise: v128, plane: usize): void {
  if (path == PATH_I16) return v128.store(to, integers);
  if (planes == 1) {
    const bytes = i16x8.add(integers, raise);
    // The lower byte of each: it is signed or not.
    v128.store_lane<u64>(to, i8x16.shuffle(bytes, bytes, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14), 0);
    return;
  }
  const upper = i16x8.add(i16x8.shr_s(integers, DIGIT_BITS), i16x8.splat(<i16>DIGIT_BIAS));
  v128.store_lane<u64>(to, i8x16.narrow_i16x8_u(upper, upper), 0);
  const lower = v128.and(integers, i16x8.splat(<i16>DIGIT));
  v128.store_lane<u64>(to + plane, i8x16.narrow_i16x8_u(lower, lower), 0);
}

/**
 * The integers of x[:n] · factor, |x · factor| <= 8191.5, in the form of a path, zeros up to `length`, a multiple of 8.
 * Nothing beyond x[n - 1] is read. A factor of 0 makes zeros, whatever x holds.
 */
function quantize_row(to: U8Ptr, x: F32Ptr, n: i32, length: i32, factor: f32, path: i32, planes: i32, raise: i32): void {
  const step: usize = path == PATH_I16 ? 16 : 8;
  const plane = <usize>length;
  const factor_f32x4 = f32x4.splat(factor);
  const raise_i16x8 = i16x8.splat(<i16>raise);
  const zero = f32x4.splat(0);
  const count = factor == 0 ? 0 : n;
  let i = 0;
  for (; i + 8 <= count; i += 8) {
    store_integers(to, rounded_eight(v128.load(x), v128.load(x, 16), factor_f32x4), path, planes, raise_i16x8, plane);
    x += 32;
    to += step;
  }
  if (i < count) {
    const left = count - i;
    const a = load_first(x, left, 0);
    const b = left > 4 ? load_first(x + 16, left - 4, 0) : zero;
    store_integers(to, rounded_eight(a, b, factor_f32x4), path, planes, raise_i16x8, plane);
    to += step;
    i += 8;
  }
  for (; i < length; i += 8) {
    store_integers(to, zero, path, planes, raise_i16x8, plane);
    to += step;
  }
}
