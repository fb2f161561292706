import { add_pairs, scaled_x8 } from "./int_dot_i16";
import { dot_bytes, dot_bytes_split } from "../math/simd";
import { F32Ptr, I32Ptr, U8Ptr } from "../types";

// The roads of bytes (integers.ts): x is planes of 7-bit digits, and four k are multiplied at a time.

/** By the engine's product of four, which takes five instructions where the CPU has none, and in three. */
export const BYTES: i32 = 1;
export const BYTES_SPLIT: i32 = 2;

/** Bits of a digit, and what is added to the upper digit of a signed number. */
export const DIGIT_BITS: i32 = 7;
export const DIGIT_BIAS: i32 = 64;

/** Bytes of the sums of 8 columns. */
export const STARTS_BYTES: usize = 32;

/** Four k of the columns 0 to 3 from two pairs of all columns; the other half of them has columns 4 to 7. */
// @ts-ignore: decorator
@inline
function fours_low(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
}

// @ts-ignore: decorator
@inline
function fours_high(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
}

// @ts-ignore: decorator
@inline
function add_fours(road: i32, w: v128, x: v128, sum: v128): v128 {
  return road == BYTES ? dot_bytes(w, x, sum) : dot_bytes_split(w, x, sum);
}

/** The same on a road of bytes, which is a constant; `starts` and planes as products_x8 has them. */
// @ts-ignore: decorator
@inline
export function bytes_x8(
  road: i32,
  rows: i32,
  planes: i32,
  starts: I32Ptr,
  out: F32Ptr,
  outStride: usize,
  from: F32Ptr,
  fromStride: usize,
  scales: F32Ptr,
  x: U8Ptr,
  xStride: usize,
  plane: usize,
  w: U8Ptr,
  k: i32,
  group: i32,
  gap: usize,
): void {
  let v: v128;
  for (; k > 0; k -= group) {
    let sum00 = v128.load(starts);
    let sum01 = v128.load(starts, 16);
    let sum10 = sum00;
    let sum11 = sum01;
    let sum20 = sum00;
    let sum21 = sum01;
    let sum30 = sum00;
    let sum31 = sum01;
    const end = w + (<usize>min(group, k) << 3);
    let upper = x;
    for (let left = planes; ; ) {
      let x0 = upper;
      let x1 = x0 + xStride;
      let x2 = x1 + xStride;
      let x3 = x2 + xStride;
      let at = w;
      do {
        const a = v128.load(at);
        const b = v128.load(at, 16);
        const w0 = fours_low(a, b);
        const w1 = fours_high(a, b);
        v = v128.load32_splat(x0);
        sum00 = add_fours(road, w0, v, sum00);
        sum01 = add_fours(road, w1, v, sum01);
        if (rows > 1) {
          v = v128.load32_splat(x1);
          sum10 = add_fours(road, w0, v, sum10);
          sum11 = add_fours(road, w1, v, sum11);
        }
        if (rows > 2) {
          v = v128.load32_splat(x2);
          sum20 = add_fours(road, w0, v, sum20);
          sum21 = add_fours(road, w1, v, sum21);
        }
        if (rows > 3) {
          v = v128.load32_splat(x3);
          sum30 = add_fours(road, w0, v, sum30);
          sum31 = add_fours(road, w1, v, sum31);
        }
        x0 += 4;
        x1 += 4;
        x2 += 4;
        x3 += 4;
        at += 32;
      } while (at < end);
      if (--left == 0) break;
      upper += plane;
      sum00 = i32x4.shl(sum00, DIGIT_BITS);
      sum01 = i32x4.shl(sum01, DIGIT_BITS);
      if (rows > 1) {
        sum10 = i32x4.shl(sum10, DIGIT_BITS);
        sum11 = i32x4.shl(sum11, DIGIT_BITS);
      }
      if (rows > 2) {
        sum20 = i32x4.shl(sum20, DIGIT_BITS);
        sum21 = i32x4.shl(sum21, DIGIT_BITS);
      }
      if (rows > 3) {
        sum30 = i32x4.shl(sum30, DIGIT_BITS);
        sum31 = i32x4.shl(sum31, DIGIT_BITS);
      }
    }
    scaled_x8(rows, out, outStride, from, fromStride, scales, sum00, sum01, sum10, sum11, sum20, sum21, sum30, sum31);
    from = out;
    fromStride = outStride;
    if (gap) scales = end;
    w = end + gap;
    x += group;
    starts += STARTS_BYTES;
  }
}

/** starts[8] = -DIGIT_BIAS · the sums of w over each group of k: what products_x8 wants of signed numbers. */
export function start_sums(starts: I32Ptr, w: U8Ptr, k: i32, group: i32, gap: usize): void {
  const bias = i16x8.splat(<i16>-DIGIT_BIAS);
  for (; k > 0; k -= group) {
    let sum0 = i32x4.splat(0);
    let sum1 = i32x4.splat(0);
    for (const end = w + (<usize>min(group, k) << 3); w < end; w += 16) {
      sum0 = add_pairs(bias, v128.load8x8_s(w), sum0);
      sum1 = add_pairs(bias, v128.load8x8_s(w, 8), sum1);
    }
    v128.store(starts, sum0);
    v128.store(starts, sum1, 16);
    starts += STARTS_BYTES;
    w += gap;
  }
}
