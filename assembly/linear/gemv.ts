import { PANEL_BYTES } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// Tiles of linear_f32 for one row: several panels at once give enough independent sums to hide the latency of madd, and
// as many streams of weights, which memory delivers faster than one. Each stream is a part of the matrix of its own, from
// end to end (f32.ts): a stream waits for memory where it begins. Strides are in bytes.

/**
 * C[32] = init[32] + A[k] · B[k, 32]: the tile of decode.
 *
 * 1x32 tile, 10 v128: acc00..acc07 = 8 | a row of B = 1 | a0 = 1
 * A [k] · B four panels [k][8], bStride apart · C, init [4][8], cPanel and initPanel apart
 * k unrolled x4 · every sum takes k in ascending order
 */
// @ts-ignore: decorator
@inline
export function linear_1x32(
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  k: i32,
  cPanel: usize,
  initPanel: usize,
  bStride: usize,
): void {
  let acc00 = v128.load(initPtr);
  let acc01 = v128.load(initPtr, 16);
  initPtr += initPanel;
  let acc02 = v128.load(initPtr);
  let acc03 = v128.load(initPtr, 16);
  initPtr += initPanel;
  let acc04 = v128.load(initPtr);
  let acc05 = v128.load(initPtr, 16);
  initPtr += initPanel;
  let acc06 = v128.load(initPtr);
  let acc07 = v128.load(initPtr, 16);
  let bPtr1 = bPtr0 + bStride;
  let bPtr2 = bPtr1 + bStride;
  let bPtr3 = bPtr2 + bStride;
  let a0: v128;
  const aEnd = aPtr0 + (<usize>k << 2);
  // Four steps share the additions to the addresses; a k that is no multiple of four leaves in between, as in tile.ts.
  while (aPtr0 != aEnd) {
    a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, v128.load(bPtr0), acc00);
    acc01 = madd(a0, v128.load(bPtr0, 16), acc01);
    acc02 = madd(a0, v128.load(bPtr1), acc02);
    acc03 = madd(a0, v128.load(bPtr1, 16), acc03);
    acc04 = madd(a0, v128.load(bPtr2), acc04);
    acc05 = madd(a0, v128.load(bPtr2, 16), acc05);
    acc06 = madd(a0, v128.load(bPtr3), acc06);
    acc07 = madd(a0, v128.load(bPtr3, 16), acc07);
    if (aPtr0 + 4 == aEnd) break;
    a0 = v128.load32_splat(aPtr0, 4);
    acc00 = madd(a0, v128.load(bPtr0, PANEL_BYTES), acc00);
    acc01 = madd(a0, v128.load(bPtr0, PANEL_BYTES + 16), acc01);
    acc02 = madd(a0, v128.load(bPtr1, PANEL_BYTES), acc02);
    acc03 = madd(a0, v128.load(bPtr1, PANEL_BYTES + 16), acc03);
    acc04 = madd(a0, v128.load(bPtr2, PANEL_BYTES), acc04);
    acc05 = madd(a0, v128.load(bPtr2, PANEL_BYTES + 16), acc05);
    acc06 = madd(a0, v128.load(bPtr3, PANEL_BYTES), acc06);
    acc07 = madd(a0, v128.load(bPtr3, PANEL_BYTES + 16), acc07);
    if (aPtr0 + 8 == aEnd) break;
    a0 = v128.load32_splat(aPtr0, 8);
    acc00 = madd(a0, v128.load(bPtr0, PANEL_BYTES * 2), acc00);
    acc01 = madd(a0, v128.load(bPtr0, PANEL_BYTES * 2 + 16), acc01);
    acc02 = madd(a0, v128.load(bPtr1, PANEL_BYTES * 2), acc02);
    acc03 = madd(a0, v128.load(bPtr1, PANEL_BYTES * 2 + 16), acc03);
    acc04 = madd(a0, v128.load(bPtr2, PANEL_BYTES * 2), acc04);
    acc05 = madd(a0, v128.load(bPtr2, PANEL_BYTES * 2 + 16), acc05);
    acc06 = madd(a0, v128.load(bPtr3, PANEL_BYTES * 2), acc06);
    acc07 = madd(a0, v128.load(bPtr3, PANEL_BYTES * 2 + 16), acc07);
    if (aPtr0 + 12 == aEnd) break;
    a0 = v128.load32_splat(aPtr0, 12);
    acc00 = madd(a0, v128.load(bPtr0, PANEL_BYTES * 3), acc00);
    acc01 = madd(a0, v128.load(bPtr0, PANEL_BYTES * 3 + 16), acc01);
    acc02 = madd(a0, v128.load(bPtr1, PANEL_BYTES * 3), acc02);
    acc03 = madd(a0, v128.load(bPtr1, PANEL_BYTES * 3 + 16), acc03);
    acc04 = madd(a0, v128.load(bPtr2, PANEL_BYTES * 3), acc04);
    acc05 = madd(a0, v128.load(bPtr2, PANEL_BYTES * 3 + 16), acc05);
    acc06 = madd(a0, v128.load(bPtr3, PANEL_BYTES * 3), acc06);
    acc07 = madd(a0, v128.load(bPtr3, PANEL_BYTES * 3 + 16), acc07);
    aPtr0 += 16;
    bPtr0 += PANEL_BYTES * 4;
    bPtr1 += PANEL_BYTES * 4;
    bPtr2 += PANEL_BYTES * 4;
    bPtr3 += PANEL_BYTES * 4;
  }
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  cPtr0 += cPanel;
  v128.store(cPtr0, acc02);
  v128.store(cPtr0, acc03, 16);
  cPtr0 += cPanel;
  v128.store(cPtr0, acc04);
  v128.store(cPtr0, acc05, 16);
  cPtr0 += cPanel;
  v128.store(cPtr0, acc06);
  v128.store(cPtr0, acc07, 16);
}

/**
 * C[8] = init[8] + A[k] · B[k, 8]: what is left when panels are taken by twos and fours.
 *
 * 1x8 tile, 4 v128: acc00 acc01 = 2 | a row of B = 1 | a0 = 1
 * A [k] · B [k][8] · C, init [8]
 * k not unrolled · every sum takes k in ascending order
 */
export function linear_1x8(cPtr0: F32Ptr, initPtr: F32Ptr, aPtr0: F32Ptr, bPtr0: F32Ptr, k: i32): void {
  let acc00 = v128.load(initPtr);
  let acc01 = v128.load(initPtr, 16);
  for (const aEnd = aPtr0 + (<usize>k << 2); aPtr0 != aEnd; aPtr0 += 4) {
    const a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, v128.load(bPtr0), acc00);
    acc01 = madd(a0, v128.load(bPtr0, 16), acc01);
    bPtr0 += PANEL_BYTES;
  }
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
}
