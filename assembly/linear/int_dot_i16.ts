import { PAIR_BYTES } from "../layout";
import { dot_i16 } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { BLOCK_SHIFT, block_at } from "./block_layout";

// The path of i16 pairs (int_dot.ts): A is int16, and two k are multiplied in one instruction. Strides are in bytes.

/** C[4] = init[4] + sum · scale, unfused: the same in every build. */
// @ts-ignore: decorator
@inline
export function add_scaled(cPtr0: F32Ptr, initPtr: F32Ptr, sum: v128, scale: v128): void {
  v128.store(cPtr0, f32x4.add(v128.load(initPtr), f32x4.mul(f32x4.convert_i32x4_s(sum), scale)));
}

/** scale · that of A for the block at aBlocks, if `fast`, a constant. */
// @ts-ignore: decorator
@inline
export function scaled_by(fast: bool, aBlocks: usize, scale: v128): v128 {
  return fast ? f32x4.mul(scale, v128.load32_splat(block_at(aBlocks))) : scale;
}

/** C[rows, 8] = init[rows, 8] + sums · scales[8], by those of A at aBlocks if `fast`. This and `rows`, from 1 to 4, are constants. */
// @ts-ignore: decorator
@inline
export function add_scaled_nx8(
  rows: i32,
  fast: bool,
  cPtr0: F32Ptr,
  cStride: usize,
  initPtr: F32Ptr,
  initStride: usize,
  scales: F32Ptr,
  aBlocks: usize,
  aStride: usize,
  acc00: v128,
  acc01: v128,
  acc10: v128,
  acc11: v128,
  acc20: v128,
  acc21: v128,
  acc30: v128,
  acc31: v128,
): void {
  const scale0 = v128.load(scales);
  const scale1 = v128.load(scales, 16);
  add_scaled(cPtr0, initPtr, acc00, scaled_by(fast, aBlocks, scale0));
  add_scaled(cPtr0 + 16, initPtr + 16, acc01, scaled_by(fast, aBlocks, scale1));
  if (rows > 1) {
    cPtr0 += cStride;
    initPtr += initStride;
    aBlocks += aStride;
    add_scaled(cPtr0, initPtr, acc10, scaled_by(fast, aBlocks, scale0));
    add_scaled(cPtr0 + 16, initPtr + 16, acc11, scaled_by(fast, aBlocks, scale1));
  }
  if (rows > 2) {
    cPtr0 += cStride;
    initPtr += initStride;
    aBlocks += aStride;
    add_scaled(cPtr0, initPtr, acc20, scaled_by(fast, aBlocks, scale0));
    add_scaled(cPtr0 + 16, initPtr + 16, acc21, scaled_by(fast, aBlocks, scale1));
  }
  if (rows > 3) {
    cPtr0 += cStride;
    initPtr += initStride;
    aBlocks += aStride;
    add_scaled(cPtr0, initPtr, acc30, scaled_by(fast, aBlocks, scale0));
    add_scaled(cPtr0 + 16, initPtr + 16, acc31, scaled_by(fast, aBlocks, scale1));
  }
}

/**
 * C[rows, 8] = init[rows, 8] + Σ scales[8] · (A[rows] · B[8] over a group of k), as int_dot_nx8 has it. `rows` is a constant
 * from 1 to 4: more rows and accumulators are no faster.
 *
 * 4x8 tile, 11 v128: acc00..acc31 = 8 | b0 b1 = 2 | a0 = 1
 * A [rows][k] int16, row stride aStride · B [k/2][8][2] int8 · C, init [rows][8] by their strides
 * k unrolled x4, two a product · sums of a group are exact · groups are added in ascending order
 */
// @ts-ignore: decorator
@inline
export function int_dot_i16_nx8(
  rows: i32,
  cPtr0: F32Ptr,
  cStride: usize,
  initPtr: F32Ptr,
  initStride: usize,
  scales: F32Ptr,
  aPtr0: U8Ptr,
  aStride: usize,
  aBlocks: usize,
  bPtr0: U8Ptr,
  k: i32,
  group: i32,
  gap: usize,
): void {
  let aPtr1 = aPtr0 + aStride;
  let aPtr2 = aPtr1 + aStride;
  let aPtr3 = aPtr2 + aStride;
  let a0: v128;
  for (; k > 0; k -= group) {
    let acc00 = i32x4.splat(0);
    let acc01 = i32x4.splat(0);
    let acc10 = i32x4.splat(0);
    let acc11 = i32x4.splat(0);
    let acc20 = i32x4.splat(0);
    let acc21 = i32x4.splat(0);
    let acc30 = i32x4.splat(0);
    let acc31 = i32x4.splat(0);
    const bEnd = bPtr0 + (<usize>min(group, k) << 3);
    do {
      let b0 = v128.load8x8_s(bPtr0);
      let b1 = v128.load8x8_s(bPtr0, 8);
      a0 = v128.load32_splat(aPtr0);
      acc00 = dot_i16(a0, b0, acc00);
      acc01 = dot_i16(a0, b1, acc01);
      if (rows > 1) {
        a0 = v128.load32_splat(aPtr1);
        acc10 = dot_i16(a0, b0, acc10);
        acc11 = dot_i16(a0, b1, acc11);
      }
      if (rows > 2) {
        a0 = v128.load32_splat(aPtr2);
        acc20 = dot_i16(a0, b0, acc20);
        acc21 = dot_i16(a0, b1, acc21);
      }
      if (rows > 3) {
        a0 = v128.load32_splat(aPtr3);
        acc30 = dot_i16(a0, b0, acc30);
        acc31 = dot_i16(a0, b1, acc31);
      }
      b0 = v128.load8x8_s(bPtr0, PAIR_BYTES);
      b1 = v128.load8x8_s(bPtr0, PAIR_BYTES + 8);
      a0 = v128.load32_splat(aPtr0, 4);
      acc00 = dot_i16(a0, b0, acc00);
      acc01 = dot_i16(a0, b1, acc01);
      if (rows > 1) {
        a0 = v128.load32_splat(aPtr1, 4);
        acc10 = dot_i16(a0, b0, acc10);
        acc11 = dot_i16(a0, b1, acc11);
      }
      if (rows > 2) {
        a0 = v128.load32_splat(aPtr2, 4);
        acc20 = dot_i16(a0, b0, acc20);
        acc21 = dot_i16(a0, b1, acc21);
      }
      if (rows > 3) {
        a0 = v128.load32_splat(aPtr3, 4);
        acc30 = dot_i16(a0, b0, acc30);
        acc31 = dot_i16(a0, b1, acc31);
      }
      aPtr0 += 8;
      aPtr1 += 8;
      aPtr2 += 8;
      aPtr3 += 8;
      bPtr0 += PAIR_BYTES * 2;
    } while (bPtr0 < bEnd);
    // One branch a group: exact rows wait for none of it.
    if (aBlocks) {
      add_scaled_nx8(rows, true, cPtr0, cStride, initPtr, initStride, scales, aBlocks, aStride, acc00, acc01, acc10, acc11, acc20, acc21, acc30, acc31);
      aBlocks += group >> BLOCK_SHIFT;
    } else
      add_scaled_nx8(rows, false, cPtr0, cStride, initPtr, initStride, scales, 0, 0, acc00, acc01, acc10, acc11, acc20, acc21, acc30, acc31);
    initPtr = cPtr0;
    initStride = cStride;
    if (gap) scales = bPtr0;
    bPtr0 += gap;
  }
}
