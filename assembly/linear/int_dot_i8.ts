import { PAIR_BYTES } from "../layout";
import { dot_i8, dot_i8_emulated, dot_i16 } from "../math/simd";
import { F32Ptr, I32Ptr, U8Ptr } from "../types";
import { add_scaled_nx8 } from "./int_dot_i16";

// The paths of i8 (int_dot.ts): A is planes of 7-bit digits, and four k are multiplied at a time. Strides are in bytes.

/** By the engine's product of four, which takes five instructions where the CPU has none; emulated in three. */
export const PATH_I8: i32 = 1;
export const PATH_I8_EMULATED: i32 = 2;

/** Bits of a digit, and what is added to the upper digit of a signed number. */
export const DIGIT_BITS: i32 = 7;
export const DIGIT_BIAS: i32 = 64;
/** The bits of the lower digit. */
export const DIGIT: i32 = (1 << DIGIT_BITS) - 1;

/** Bytes of the sums of 8 columns. */
export const STARTS_BYTES: usize = 32;

/** Four k of the columns 0 to 3 from two pairs of all columns. */
// @ts-ignore: decorator
@inline
function fours_low(pairs0: v128, pairs1: v128): v128 {
  return i8x16.shuffle(pairs0, pairs1, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
}

/** Of the columns 4 to 7. */
// @ts-ignore: decorator
@inline
function fours_high(pairs0: v128, pairs1: v128): v128 {
  return i8x16.shuffle(pairs0, pairs1, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
}

// @ts-ignore: decorator
@inline
function dot_fours(path: i32, x: v128, w: v128, sum: v128): v128 {
  return path == PATH_I8 ? dot_i8(x, w, sum) : dot_i8_emulated(x, w, sum);
}

/**
 * C[rows, 8] = init[rows, 8] + Σ scales[8] · (A[rows] · B[8] over a group of k), as int_dot_nx8 has it. `path` and `rows`, 1
 * or 4, are constants.
 *
 * 4x8 tile, 11 v128: acc00..acc31 = 8 | b0 b1 = 2 | a0 = 1
 * A `planes` planes [rows][k] of digits, row stride aStride · B [k/2][8][2] int8 · C, init [rows][8] by their strides
 * k not unrolled, four a product · sums of a group are exact · groups are added in ascending order
 */
// @ts-ignore: decorator
@inline
export function int_dot_i8_nx8(
  path: i32,
  rows: i32,
  planes: i32,
  starts: I32Ptr,
  cPtr0: F32Ptr,
  cStride: usize,
  initPtr: F32Ptr,
  initStride: usize,
  scales: F32Ptr,
  aPtr: U8Ptr,
  aStride: usize,
  plane: usize,
  bPtr: U8Ptr,
  k: i32,
  group: i32,
  gap: usize,
): void {
  let a0: v128;
  for (; k > 0; k -= group) {
    let acc00 = v128.load(starts);
    let acc01 = v128.load(starts, 16);
    let acc10 = acc00;
    let acc11 = acc01;
    let acc20 = acc00;
    let acc21 = acc01;
    let acc30 = acc00;
    let acc31 = acc01;
    const bEnd = bPtr + (<usize>min(group, k) << 3);
    let upper = aPtr;
    for (let left = planes; ; ) {
      let aPtr0 = upper;
      let aPtr1 = aPtr0 + aStride;
      let aPtr2 = aPtr1 + aStride;
      let aPtr3 = aPtr2 + aStride;
      let bPtr0 = bPtr;
      do {
        const pair0 = v128.load(bPtr0);
        const pair1 = v128.load(bPtr0, 16);
        const b0 = fours_low(pair0, pair1);
        const b1 = fours_high(pair0, pair1);
        a0 = v128.load32_splat(aPtr0);
        acc00 = dot_fours(path, a0, b0, acc00);
        acc01 = dot_fours(path, a0, b1, acc01);
        if (rows > 1) {
          a0 = v128.load32_splat(aPtr1);
          acc10 = dot_fours(path, a0, b0, acc10);
          acc11 = dot_fours(path, a0, b1, acc11);
        }
        if (rows > 2) {
          a0 = v128.load32_splat(aPtr2);
          acc20 = dot_fours(path, a0, b0, acc20);
          acc21 = dot_fours(path, a0, b1, acc21);
        }
        if (rows > 3) {
          a0 = v128.load32_splat(aPtr3);
          acc30 = dot_fours(path, a0, b0, acc30);
          acc31 = dot_fours(path, a0, b1, acc31);
        }
        aPtr0 += 4;
        aPtr1 += 4;
        aPtr2 += 4;
        aPtr3 += 4;
        bPtr0 += PAIR_BYTES * 2;
      } while (bPtr0 < bEnd);
      if (--left == 0) break;
      upper += plane;
      acc00 = i32x4.shl(acc00, DIGIT_BITS);
      acc01 = i32x4.shl(acc01, DIGIT_BITS);
      if (rows > 1) {
        acc10 = i32x4.shl(acc10, DIGIT_BITS);
        acc11 = i32x4.shl(acc11, DIGIT_BITS);
      }
      if (rows > 2) {
        acc20 = i32x4.shl(acc20, DIGIT_BITS);
        acc21 = i32x4.shl(acc21, DIGIT_BITS);
      }
      if (rows > 3) {
        acc30 = i32x4.shl(acc30, DIGIT_BITS);
        acc31 = i32x4.shl(acc31, DIGIT_BITS);
      }
    }
    add_scaled_nx8(
      rows,
      cPtr0,
      cStride,
      initPtr,
      initStride,
      scales,
      acc00,
      acc01,
      acc10,
      acc11,
      acc20,
      acc21,
      acc30,
      acc31,
    );
    initPtr = cPtr0;
    initStride = cStride;
    if (gap) scales = bEnd;
    bPtr = bEnd + gap;
    aPtr += group;
    starts += STARTS_BYTES;
  }
}

/** starts[8] = -DIGIT_BIAS · the sums of w over each group of k: where int_dot_nx8 starts for signed numbers. */
export function start_sums(starts: I32Ptr, w: U8Ptr, k: i32, group: i32, gap: usize): void {
  const bias = i16x8.splat(<i16>-DIGIT_BIAS);
  for (; k > 0; k -= group) {
    let sum0 = i32x4.splat(0);
    let sum1 = i32x4.splat(0);
    for (const end = w + (<usize>min(group, k) << 3); w < end; w += PAIR_BYTES) {
      sum0 = dot_i16(bias, v128.load8x8_s(w), sum0);
      sum1 = dot_i16(bias, v128.load8x8_s(w, 8), sum1);
    }
    v128.store(starts, sum0);
    v128.store(starts, sum1, 16);
    starts += STARTS_BYTES;
    w += gap;
  }
}
