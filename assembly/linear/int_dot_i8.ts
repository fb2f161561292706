import { PAIR_BYTES, PANEL_BYTES } from "../layout";
import { dot_i8, dot_i8_emulated } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { BLOCK_SHIFT, block_at, FAST_GROUP, SUM_BYTES } from "./block_layout";
import { add_scaled } from "./int_dot_i16";

// The paths of i8 (int_dot.ts): A is planes of 7-bit digits, and four k are multiplied at a time. A row of digits is a row
// of A, or where there are two planes, its upper or its lower digits, the upper ones first: these are raised by DIGIT_BIAS,
// those of one plane by what its block says (quantize_rows.ts), for which the sums of weights make up. At aBlocks are the blocks of
// the first row of A, at those of the group. Strides are in bytes.

/** By the engine's product of four, which takes four instructions where the CPU has none; emulated in three. */
export const PATH_I8: i32 = 1;
export const PATH_I8_EMULATED: i32 = 2;

/** Bits of a digit, and what is added to the upper digit of a signed number: 64, 1 << 6. */
export const DIGIT_BITS: i32 = 7;
const BIAS_BITS: i32 = 6;
export const DIGIT_BIAS: i32 = 1 << BIAS_BITS;
/** The bits of the lower digit. */
export const DIGIT: i32 = (1 << DIGIT_BITS) - 1;

// From memory: V8 makes constants anew at each use.
export const ONES = memory.data<u16>([1, 1, 1, 1, 1, 1, 1, 1]);

/** Four k of the columns 0 to 3 from two pairs of all columns. */
// @ts-ignore: decorator
@inline
export function fours_low(pairs0: v128, pairs1: v128): v128 {
  return i8x16.shuffle(pairs0, pairs1, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
}

/** Of the columns 4 to 7. */
// @ts-ignore: decorator
@inline
export function fours_high(pairs0: v128, pairs1: v128): v128 {
  return i8x16.shuffle(pairs0, pairs1, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
}

// @ts-ignore: decorator
@inline
export function dot_fours(path: i32, x: v128, w: v128, sum: v128, ones: v128): v128 {
  return path == PATH_I8 ? dot_i8(x, w, sum) : dot_i8_emulated(x, w, sum, ones);
}

/** Sums of weights that belong to a group of k: several, where a row of weights has one scale and two planes of digits. */
// @ts-ignore: decorator
@inline
export function sums_of(planes: i32, k: i32, gap: usize): i32 {
  return planes == 1 || gap ? 1 : (k + FAST_GROUP - 1) / FAST_GROUP;
}

/** Minus the sum of four columns of a group, over `count` sums: of columns 4 to 7 for `half` 1. */
// @ts-ignore: decorator
@inline
export function sum_of(sums: U8Ptr, count: i32, half: usize): v128 {
  let at = sums + (half << 3);
  let sum = v128.load16x4_s(at);
  for (; count > 1; count--) {
    at += SUM_BYTES;
    sum = i32x4.add(sum, v128.load16x4_s(at));
  }
  return sum;
}

/**
 * Where products of raised digits begin: minus the sum of weights times what they are raised by, 64 or, with one plane, what the block
 * of A says. That and such a sum fit 16 bits.
 */
// @ts-ignore: decorator
@inline
export function start_of(planes: i32, sum: v128, aBlock: usize): v128 {
  if (planes == 2) return i32x4.shl(sum, BIAS_BITS);
  return i32x4.dot_i16x8_s(sum, v128.load32_splat(aBlock, 4));
}

/** The sums of upper digits and those of lower ones as one. */
// @ts-ignore: decorator
@inline
export function joined(upper: v128, lower: v128): v128 {
  return i32x4.add(i32x4.shl(upper, DIGIT_BITS), lower);
}

/** C[8] += sums · scales[8]. */
// @ts-ignore: decorator
@inline
export function add_scaled_1x8(c: F32Ptr, scale0: v128, scale1: v128, acc0: v128, acc1: v128): void {
  add_scaled(c, c, acc0, scale0);
  add_scaled(c + 16, c + 16, acc1, scale1);
}

/** The same of a row of one plane: scales[8] are multiplied by that of its block first. */
// @ts-ignore: decorator
@inline
export function add_block_1x8(c: F32Ptr, scale0: v128, scale1: v128, aBlock: usize, acc0: v128, acc1: v128): void {
  const scale = v128.load32_splat(aBlock);
  add_scaled_1x8(c, f32x4.mul(scale0, scale), f32x4.mul(scale1, scale), acc0, acc1);
}

/**
 * C[8·panels] += Σ scales[8·panels] · (A · B[8·panels] over a group of k) for some rows of digits: a group of each panel
 * after the other. `path` and `rows`, from 1 to 4, or 6 on PATH_I8, are constants. A CPU with the product of four begins two
 * in a cycle and ends them after five, so that it waits where a tile has fewer than ten sums.
 *
 * 6x8 tile, 15 v128: acc00..acc51 = 12 | b0 b1 = 2 | a0 = 1 · 4x8 tile, 13 v128: acc00..acc31 = 8 | b0 b1 = 2 | a0, product, ones = 3
 * A rows aStride apart, planes `plane` · B panels [k/2][8][2] int8, bStride apart, as are their scales; sums sumStride apart
 * C rows cStride apart · k not unrolled, four a product · sums of a group are exact · groups are added in ascending order
 */
// @ts-ignore: decorator
@inline
export function int_dot_i8_nx8(
  path: i32,
  rows: i32,
  planes: i32,
  c: F32Ptr,
  cStride: usize,
  scales: F32Ptr,
  sums: U8Ptr,
  sumStride: usize,
  a: U8Ptr,
  aStride: usize,
  plane: usize,
  aBlocks: usize,
  b: U8Ptr,
  bStride: usize,
  panels: i32,
  k: i32,
  group: i32,
  gap: usize,
): void {
  const ones = v128.load(ONES);
  const aStep = planes == 2 ? plane : aStride;
  for (; k > 0; k -= group) {
    const bytes = <usize>min(group, k) << 3;
    const aBlock = block_at(aBlocks);
    const count = sums_of(planes, min(group, k), gap);
    let bPtr = b;
    let sumPtr = sums;
    let scalePtr = scales;
    let cPtr0 = c;
    for (const cEnd = c + <usize>panels * PANEL_BYTES; cPtr0 < cEnd; cPtr0 += PANEL_BYTES) {
      const sum0 = sum_of(sumPtr, count, 0);
      const sum1 = sum_of(sumPtr, count, 1);
      let acc00 = start_of(planes, sum0, aBlock);
      let acc01 = start_of(planes, sum1, aBlock);
      // Lower digits are not raised.
      let at = aBlock + aStride;
      let acc10 = planes == 2 || rows < 2 ? i32x4.splat(0) : start_of(1, sum0, at);
      let acc11 = planes == 2 || rows < 2 ? i32x4.splat(0) : start_of(1, sum1, at);
      at += aStride;
      let acc20 = planes == 2 || rows < 3 ? acc00 : start_of(1, sum0, at);
      let acc21 = planes == 2 || rows < 3 ? acc01 : start_of(1, sum1, at);
      at += aStride;
      let acc30 = planes == 2 || rows < 4 ? acc10 : start_of(1, sum0, at);
      let acc31 = planes == 2 || rows < 4 ? acc11 : start_of(1, sum1, at);
      at += aStride;
      let acc40 = planes == 2 || rows < 5 ? acc00 : start_of(1, sum0, at);
      let acc41 = planes == 2 || rows < 5 ? acc01 : start_of(1, sum1, at);
      at += aStride;
      let acc50 = planes == 2 || rows < 6 ? acc10 : start_of(1, sum0, at);
      let acc51 = planes == 2 || rows < 6 ? acc11 : start_of(1, sum1, at);
      let aPtr0 = a - 4;
      let aPtr1 = a + aStep;
      let aPtr2 = planes == 2 ? a + aStride : aPtr1 + aStride;
      let aPtr3 = aPtr2 + aStep;
      let aPtr4 = planes == 2 ? aPtr2 + aStride : aPtr3 + aStride;
      let aPtr5 = aPtr4 + aStep;
      let bPtr0 = bPtr - 32;
      const bEnd = bPtr0 + bytes;
      do {
        // B is read twice, because six rows leave no register for its pairs beside a0, and from another address, so that the
        // compiler does not keep the first ones.
        const b1 = fours_high(v128.load(bPtr0, 32), v128.load(bPtr0, 48));
        let a0 = v128.load32_splat(aPtr0, 4);
        acc01 = dot_fours(path, a0, b1, acc01, ones);
        bPtr0 += PAIR_BYTES * 2;
        aPtr0 += 4;
        const b0 = fours_low(v128.load(bPtr0), v128.load(bPtr0, 16));
        a0 = v128.load32_splat(aPtr0);
        acc00 = dot_fours(path, a0, b0, acc00, ones);
        if (rows > 1) {
          a0 = v128.load32_splat(aPtr1);
          acc10 = dot_fours(path, a0, b0, acc10, ones);
          acc11 = dot_fours(path, a0, b1, acc11, ones);
        }
        if (rows > 2) {
          a0 = v128.load32_splat(aPtr2);
          acc20 = dot_fours(path, a0, b0, acc20, ones);
          acc21 = dot_fours(path, a0, b1, acc21, ones);
        }
        if (rows > 3) {
          a0 = v128.load32_splat(aPtr3);
          acc30 = dot_fours(path, a0, b0, acc30, ones);
          acc31 = dot_fours(path, a0, b1, acc31, ones);
        }
        if (rows > 4) {
          a0 = v128.load32_splat(aPtr4);
          acc40 = dot_fours(path, a0, b0, acc40, ones);
          acc41 = dot_fours(path, a0, b1, acc41, ones);
          a0 = v128.load32_splat(aPtr5);
          acc50 = dot_fours(path, a0, b0, acc50, ones);
          acc51 = dot_fours(path, a0, b1, acc51, ones);
        }
        aPtr1 += 4;
        aPtr2 += 4;
        aPtr3 += 4;
        aPtr4 += 4;
        aPtr5 += 4;
      } while (bPtr0 < bEnd);
      const scale0 = v128.load(scalePtr);
      const scale1 = v128.load(scalePtr, 16);
      let o = cPtr0;
      if (planes == 2) {
        add_scaled_1x8(o, scale0, scale1, joined(acc00, acc10), joined(acc01, acc11));
        o += cStride;
        if (rows > 2) add_scaled_1x8(o, scale0, scale1, joined(acc20, acc30), joined(acc21, acc31));
        o += cStride;
        if (rows > 4) add_scaled_1x8(o, scale0, scale1, joined(acc40, acc50), joined(acc41, acc51));
      } else {
        at = aBlock;
        add_block_1x8(o, scale0, scale1, at, acc00, acc01);
        o += cStride;
        at += aStride;
        if (rows > 1) add_block_1x8(o, scale0, scale1, at, acc10, acc11);
        o += cStride;
        at += aStride;
        if (rows > 2) add_block_1x8(o, scale0, scale1, at, acc20, acc21);
        o += cStride;
        at += aStride;
        if (rows > 3) add_block_1x8(o, scale0, scale1, at, acc30, acc31);
        o += cStride;
        at += aStride;
        if (rows > 4) add_block_1x8(o, scale0, scale1, at, acc40, acc41);
        o += cStride;
        at += aStride;
        if (rows > 4) add_block_1x8(o, scale0, scale1, at, acc50, acc51);
      }
      bPtr += bStride;
      sumPtr += sumStride;
      scalePtr += bStride;
    }
    a += group;
    b += bytes + gap;
    if (gap) scales = b - gap;
    sums += SUM_BYTES * count;
    aBlocks += group >> BLOCK_SHIFT;
  }
}
