import { PAIR_BYTES } from "../layout";
import { F32Ptr, U8Ptr } from "../types";
import { BLOCK_SHIFT, block_at, SUM_BYTES } from "./block_layout";
import {
  add_block_1x8,
  add_scaled_1x8,
  dot_fours,
  fours_high,
  fours_low,
  joined,
  ONES,
  start_of,
  sum_of,
  sums_of,
} from "./int_dot_i8";

// Tiles of the paths of i8 (int_dot_i8.ts) for one and two rows of digits, whose weights come from memory: several panels
// at once are as many streams, and four digits are broadcast once for all of them. Strides are in bytes; panels and
// their scales lie bStride apart, their sums sumStride.

/**
 * C[32] += Σ scales[32] · (A · B[32] over a group of k) for a row of raised digits. `path` is a constant.
 *
 * 1x32 tile, 14 v128: acc00..acc07 = 8 | two rows of B, four k of four columns, product = 4 | a0, ones = 2
 * A [k] digits · B four panels [k/2][8][2] int8 · C [4][8], cPanel apart
 * k not unrolled, four a product · sums of a group are exact · groups are added in ascending order
 */
// @ts-ignore: decorator
@inline
export function int_dot_i8_1x32(
  path: i32,
  c: F32Ptr,
  cPanel: usize,
  scales: F32Ptr,
  sums: U8Ptr,
  sumStride: usize,
  aPtr0: U8Ptr,
  aBlocks: usize,
  bPtr0: U8Ptr,
  bStride: usize,
  k: i32,
  group: i32,
  gap: usize,
): void {
  const ones = v128.load(ONES);
  for (; k > 0; k -= group) {
    const aBlock = block_at(aBlocks);
    let bPtr1 = bPtr0 + bStride;
    let bPtr2 = bPtr1 + bStride;
    let bPtr3 = bPtr2 + bStride;
    let at = sums;
    let acc00 = start_of(1, sum_of(at, 1, 0), aBlock);
    let acc01 = start_of(1, sum_of(at, 1, 1), aBlock);
    at += sumStride;
    let acc02 = start_of(1, sum_of(at, 1, 0), aBlock);
    let acc03 = start_of(1, sum_of(at, 1, 1), aBlock);
    at += sumStride;
    let acc04 = start_of(1, sum_of(at, 1, 0), aBlock);
    let acc05 = start_of(1, sum_of(at, 1, 1), aBlock);
    at += sumStride;
    let acc06 = start_of(1, sum_of(at, 1, 0), aBlock);
    let acc07 = start_of(1, sum_of(at, 1, 1), aBlock);
    const bEnd = bPtr0 + (<usize>min(group, k) << 3);
    do {
      const a0 = v128.load32_splat(aPtr0);
      let pair0 = v128.load(bPtr0);
      let pair1 = v128.load(bPtr0, 16);
      acc00 = dot_fours(path, a0, fours_low(pair0, pair1), acc00, ones);
      acc01 = dot_fours(path, a0, fours_high(pair0, pair1), acc01, ones);
      pair0 = v128.load(bPtr1);
      pair1 = v128.load(bPtr1, 16);
      acc02 = dot_fours(path, a0, fours_low(pair0, pair1), acc02, ones);
      acc03 = dot_fours(path, a0, fours_high(pair0, pair1), acc03, ones);
      pair0 = v128.load(bPtr2);
      pair1 = v128.load(bPtr2, 16);
      acc04 = dot_fours(path, a0, fours_low(pair0, pair1), acc04, ones);
      acc05 = dot_fours(path, a0, fours_high(pair0, pair1), acc05, ones);
      pair0 = v128.load(bPtr3);
      pair1 = v128.load(bPtr3, 16);
      acc06 = dot_fours(path, a0, fours_low(pair0, pair1), acc06, ones);
      acc07 = dot_fours(path, a0, fours_high(pair0, pair1), acc07, ones);
      aPtr0 += 4;
      bPtr0 += PAIR_BYTES * 2;
      bPtr1 += PAIR_BYTES * 2;
      bPtr2 += PAIR_BYTES * 2;
      bPtr3 += PAIR_BYTES * 2;
    } while (bPtr0 < bEnd);
    at = scales;
    add_block_1x8(c, v128.load(at), v128.load(at, 16), aBlock, acc00, acc01);
    at += bStride;
    let o = c + cPanel;
    add_block_1x8(o, v128.load(at), v128.load(at, 16), aBlock, acc02, acc03);
    at += bStride;
    o += cPanel;
    add_block_1x8(o, v128.load(at), v128.load(at, 16), aBlock, acc04, acc05);
    at += bStride;
    o += cPanel;
    add_block_1x8(o, v128.load(at), v128.load(at, 16), aBlock, acc06, acc07);
    if (gap) scales = bPtr0;
    bPtr0 += gap;
    sums += SUM_BYTES;
    aBlocks += group >> BLOCK_SHIFT;
  }
}

/**
 * C[2, 16] += Σ scales[16] · (A[2] · B[16] over a group of k), or where `planes` is 2, C[16] for the upper and the lower
 * digits of a row. `path` is a constant.
 *
 * 2x16 tile, 15 v128: acc00..acc13 = 8 | two rows of B, four k, product = 4 | a0 a1, ones = 3
 * A [2][k] digits, aStride apart · B two panels [k/2][8][2] int8 · C [2][2][8] by strides
 * k not unrolled, four a product · sums of a group are exact · groups are added in ascending order
 */
// @ts-ignore: decorator
@inline
export function int_dot_i8_2x16(
  path: i32,
  planes: i32,
  c: F32Ptr,
  cPanel: usize,
  cStride: usize,
  scales: F32Ptr,
  sums: U8Ptr,
  sumStride: usize,
  aPtr0: U8Ptr,
  aStride: usize,
  aBlocks: usize,
  bPtr0: U8Ptr,
  bStride: usize,
  k: i32,
  group: i32,
  gap: usize,
): void {
  const ones = v128.load(ONES);
  let aPtr1 = aPtr0 + aStride;
  for (; k > 0; k -= group) {
    const aBlock = block_at(aBlocks);
    let bPtr1 = bPtr0 + bStride;
    const count = sums_of(planes, min(group, k), gap);
    const sum0 = sum_of(sums, count, 0);
    const sum1 = sum_of(sums, count, 1);
    const sum2 = sum_of(sums + sumStride, count, 0);
    const sum3 = sum_of(sums + sumStride, count, 1);
    let acc00 = start_of(planes, sum0, aBlock);
    let acc01 = start_of(planes, sum1, aBlock);
    let acc02 = start_of(planes, sum2, aBlock);
    let acc03 = start_of(planes, sum3, aBlock);
    // Lower digits are not raised.
    const aBlock1 = aBlock + aStride;
    let acc10 = planes == 2 ? i32x4.splat(0) : start_of(1, sum0, aBlock1);
    let acc11 = planes == 2 ? acc10 : start_of(1, sum1, aBlock1);
    let acc12 = planes == 2 ? acc10 : start_of(1, sum2, aBlock1);
    let acc13 = planes == 2 ? acc10 : start_of(1, sum3, aBlock1);
    const bEnd = bPtr0 + (<usize>min(group, k) << 3);
    do {
      const a0 = v128.load32_splat(aPtr0);
      const a1 = v128.load32_splat(aPtr1);
      let pair0 = v128.load(bPtr0);
      let pair1 = v128.load(bPtr0, 16);
      let b0 = fours_low(pair0, pair1);
      acc00 = dot_fours(path, a0, b0, acc00, ones);
      acc10 = dot_fours(path, a1, b0, acc10, ones);
      b0 = fours_high(pair0, pair1);
      acc01 = dot_fours(path, a0, b0, acc01, ones);
      acc11 = dot_fours(path, a1, b0, acc11, ones);
      pair0 = v128.load(bPtr1);
      pair1 = v128.load(bPtr1, 16);
      b0 = fours_low(pair0, pair1);
      acc02 = dot_fours(path, a0, b0, acc02, ones);
      acc12 = dot_fours(path, a1, b0, acc12, ones);
      b0 = fours_high(pair0, pair1);
      acc03 = dot_fours(path, a0, b0, acc03, ones);
      acc13 = dot_fours(path, a1, b0, acc13, ones);
      aPtr0 += 4;
      aPtr1 += 4;
      bPtr0 += PAIR_BYTES * 2;
      bPtr1 += PAIR_BYTES * 2;
    } while (bPtr0 < bEnd);
    if (planes == 2) {
      add_scaled_1x8(c, v128.load(scales), v128.load(scales, 16), joined(acc00, acc10), joined(acc01, acc11));
      add_scaled_1x8(c + cPanel, v128.load(scales + bStride), v128.load(scales + bStride, 16), joined(acc02, acc12), joined(acc03, acc13));
    } else {
      add_block_1x8(c, v128.load(scales), v128.load(scales, 16), aBlock, acc00, acc01);
      add_block_1x8(c + cPanel, v128.load(scales + bStride), v128.load(scales + bStride, 16), aBlock, acc02, acc03);
      add_block_1x8(c + cStride, v128.load(scales), v128.load(scales, 16), aBlock1, acc10, acc11);
      add_block_1x8(c + cStride + cPanel, v128.load(scales + bStride), v128.load(scales + bStride, 16), aBlock1, acc12, acc13);
    }
    if (gap) scales = bPtr0;
    bPtr0 += gap;
    sums += SUM_BYTES * count;
    aBlocks += group >> BLOCK_SHIFT;
  }
}
