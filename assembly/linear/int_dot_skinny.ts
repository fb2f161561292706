import { PAIR_BYTES } from "../layout";
import { dot_i16 } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { BLOCK_SHIFT } from "./block_layout";
import { add_scaled, scaled_by } from "./int_dot_i16";

// Tiles of the path of i16 pairs (int_dot.ts) for one and two rows, whose weights come from memory: several panels at once
// are as many streams, and each pair of A is broadcast once. Strides are in bytes; panels and their scales lie bStride
// apart. At aBlocks are the scales of A by blocks, if it has some.

/** C[16] = init[16] + sums · scales[16], by that of A at aBlocks if `fast`, a constant. */
// @ts-ignore: decorator
@inline
function add_scaled_1x16(
  fast: bool,
  c: F32Ptr,
  cPanel: usize,
  init: F32Ptr,
  initPanel: usize,
  scales: F32Ptr,
  bStride: usize,
  aBlocks: usize,
  acc0: v128,
  acc1: v128,
  acc2: v128,
  acc3: v128,
): void {
  add_scaled(c, init, acc0, scaled_by(fast, aBlocks, v128.load(scales)));
  add_scaled(c + 16, init + 16, acc1, scaled_by(fast, aBlocks, v128.load(scales, 16)));
  c += cPanel;
  init += initPanel;
  scales += bStride;
  add_scaled(c, init, acc2, scaled_by(fast, aBlocks, v128.load(scales)));
  add_scaled(c + 16, init + 16, acc3, scaled_by(fast, aBlocks, v128.load(scales, 16)));
}

/** The same of C[32]. */
// @ts-ignore: decorator
@inline
function add_scaled_1x32(
  fast: bool,
  c: F32Ptr,
  cPanel: usize,
  init: F32Ptr,
  initPanel: usize,
  scales: F32Ptr,
  bStride: usize,
  aBlocks: usize,
  acc0: v128,
  acc1: v128,
  acc2: v128,
  acc3: v128,
  acc4: v128,
  acc5: v128,
  acc6: v128,
  acc7: v128,
): void {
  add_scaled_1x16(fast, c, cPanel, init, initPanel, scales, bStride, aBlocks, acc0, acc1, acc2, acc3);
  add_scaled_1x16(fast, c + cPanel * 2, cPanel, init + initPanel * 2, initPanel, scales + bStride * 2, bStride, aBlocks, acc4, acc5, acc6, acc7);
}

/**
 * C[32] = init[32] + Σ scales[32] · (A · B[32] over a group of k).
 *
 * 1x32 tile, 10 v128: acc00..acc07 = 8 | a row of B = 1 | a0 = 1
 * A [k] int16 · B four panels [k/2][8][2] int8, bStride apart · C, init [4][8], cPanel and initPanel apart
 * k unrolled x4, two a product · sums of a group are exact · groups are added in ascending order
 */
export function int_dot_i16_1x32(
  cPtr0: F32Ptr,
  cPanel: usize,
  initPtr: F32Ptr,
  initPanel: usize,
  scales: F32Ptr,
  aPtr0: U8Ptr,
  aBlocks: usize,
  bPtr0: U8Ptr,
  bStride: usize,
  k: i32,
  group: i32,
  gap: usize,
): void {
  for (; k > 0; k -= group) {
    let acc00 = i32x4.splat(0);
    let acc01 = i32x4.splat(0);
    let acc02 = i32x4.splat(0);
    let acc03 = i32x4.splat(0);
    let acc04 = i32x4.splat(0);
    let acc05 = i32x4.splat(0);
    let acc06 = i32x4.splat(0);
    let acc07 = i32x4.splat(0);
    let bPtr1 = bPtr0 + bStride;
    let bPtr2 = bPtr1 + bStride;
    let bPtr3 = bPtr2 + bStride;
    const bEnd = bPtr0 + (<usize>min(group, k) << 3);
    do {
      let a0 = v128.load32_splat(aPtr0);
      acc00 = dot_i16(a0, v128.load8x8_s(bPtr0), acc00);
      acc01 = dot_i16(a0, v128.load8x8_s(bPtr0, 8), acc01);
      acc02 = dot_i16(a0, v128.load8x8_s(bPtr1), acc02);
      acc03 = dot_i16(a0, v128.load8x8_s(bPtr1, 8), acc03);
      acc04 = dot_i16(a0, v128.load8x8_s(bPtr2), acc04);
      acc05 = dot_i16(a0, v128.load8x8_s(bPtr2, 8), acc05);
      acc06 = dot_i16(a0, v128.load8x8_s(bPtr3), acc06);
      acc07 = dot_i16(a0, v128.load8x8_s(bPtr3, 8), acc07);
      a0 = v128.load32_splat(aPtr0, 4);
      acc00 = dot_i16(a0, v128.load8x8_s(bPtr0, PAIR_BYTES), acc00);
      acc01 = dot_i16(a0, v128.load8x8_s(bPtr0, PAIR_BYTES + 8), acc01);
      acc02 = dot_i16(a0, v128.load8x8_s(bPtr1, PAIR_BYTES), acc02);
      acc03 = dot_i16(a0, v128.load8x8_s(bPtr1, PAIR_BYTES + 8), acc03);
      acc04 = dot_i16(a0, v128.load8x8_s(bPtr2, PAIR_BYTES), acc04);
      acc05 = dot_i16(a0, v128.load8x8_s(bPtr2, PAIR_BYTES + 8), acc05);
      acc06 = dot_i16(a0, v128.load8x8_s(bPtr3, PAIR_BYTES), acc06);
      acc07 = dot_i16(a0, v128.load8x8_s(bPtr3, PAIR_BYTES + 8), acc07);
      aPtr0 += 8;
      bPtr0 += PAIR_BYTES * 2;
      bPtr1 += PAIR_BYTES * 2;
      bPtr2 += PAIR_BYTES * 2;
      bPtr3 += PAIR_BYTES * 2;
    } while (bPtr0 < bEnd);
    if (aBlocks) {
      add_scaled_1x32(true, cPtr0, cPanel, initPtr, initPanel, scales, bStride, aBlocks, acc00, acc01, acc02, acc03, acc04, acc05, acc06, acc07);
      aBlocks += group >> BLOCK_SHIFT;
    } else
      add_scaled_1x32(false, cPtr0, cPanel, initPtr, initPanel, scales, bStride, 0, acc00, acc01, acc02, acc03, acc04, acc05, acc06, acc07);
    initPtr = cPtr0;
    initPanel = cPanel;
    if (gap) scales = bPtr0;
    bPtr0 += gap;
  }
}

/**
 * C[2, 16] = init[2, 16] + Σ scales[16] · (A[2] · B[16] over a group of k).
 *
 * 2x16 tile, 13 v128: acc00..acc13 = 8 | b0..b3 = 4 | a0 or a1 = 1
 * A [2][k] int16, row stride aStride · B two panels [k/2][8][2] int8, bStride apart · C, init [2][2][8] by strides
 * k not unrolled, two a product · sums of a group are exact · groups are added in ascending order
 */
export function int_dot_i16_2x16(
  cPtr0: F32Ptr,
  cPanel: usize,
  cStride: usize,
  initPtr: F32Ptr,
  initPanel: usize,
  initStride: usize,
  scales: F32Ptr,
  aPtr0: U8Ptr,
  aStride: usize,
  aBlocks: usize,
  bPtr0: U8Ptr,
  bStride: usize,
  k: i32,
  group: i32,
  gap: usize,
): void {
  let aPtr1 = aPtr0 + aStride;
  for (; k > 0; k -= group) {
    let acc00 = i32x4.splat(0);
    let acc01 = i32x4.splat(0);
    let acc02 = i32x4.splat(0);
    let acc03 = i32x4.splat(0);
    let acc10 = i32x4.splat(0);
    let acc11 = i32x4.splat(0);
    let acc12 = i32x4.splat(0);
    let acc13 = i32x4.splat(0);
    let bPtr1 = bPtr0 + bStride;
    const bEnd = bPtr0 + (<usize>min(group, k) << 3);
    do {
      const b0 = v128.load8x8_s(bPtr0);
      const b1 = v128.load8x8_s(bPtr0, 8);
      const b2 = v128.load8x8_s(bPtr1);
      const b3 = v128.load8x8_s(bPtr1, 8);
      const a0 = v128.load32_splat(aPtr0);
      acc00 = dot_i16(a0, b0, acc00);
      acc01 = dot_i16(a0, b1, acc01);
      acc02 = dot_i16(a0, b2, acc02);
      acc03 = dot_i16(a0, b3, acc03);
      const a1 = v128.load32_splat(aPtr1);
      acc10 = dot_i16(a1, b0, acc10);
      acc11 = dot_i16(a1, b1, acc11);
      acc12 = dot_i16(a1, b2, acc12);
      acc13 = dot_i16(a1, b3, acc13);
      aPtr0 += 4;
      aPtr1 += 4;
      bPtr0 += PAIR_BYTES;
      bPtr1 += PAIR_BYTES;
    } while (bPtr0 < bEnd);
    if (aBlocks) {
      add_scaled_1x16(true, cPtr0, cPanel, initPtr, initPanel, scales, bStride, aBlocks, acc00, acc01, acc02, acc03);
      const aBlocks1 = aBlocks + aStride;
      add_scaled_1x16(true, cPtr0 + cStride, cPanel, initPtr + initStride, initPanel, scales, bStride, aBlocks1, acc10, acc11, acc12, acc13);
      aBlocks += group >> BLOCK_SHIFT;
    } else {
      add_scaled_1x16(false, cPtr0, cPanel, initPtr, initPanel, scales, bStride, 0, acc00, acc01, acc02, acc03);
      add_scaled_1x16(false, cPtr0 + cStride, cPanel, initPtr + initStride, initPanel, scales, bStride, 0, acc10, acc11, acc12, acc13);
    }
    initPtr = cPtr0;
    initStride = cStride;
    initPanel = cPanel;
    if (gap) scales = bPtr0;
    bPtr0 += gap;
  }
}
