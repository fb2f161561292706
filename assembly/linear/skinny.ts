import { PANEL_BYTES } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// Tiles of linear_f32 for two and three rows, which take several panels at once: as many independent sums as hide the
// latency of madd, and so many streams of weights, as in gemv.ts. Strides are in bytes: C and init have one for rows and one
// for panels.

/**
 * C[2, 16] = init[2, 16] + A[2, k] · B[k, 16].
 *
 * 2x16 tile, 11 v128: acc00..acc13 = 8 | b0 = 1 | a0 a1 = 2
 * A [2][k] row stride aStride · B two panels [k][8], bStride apart · C, init [2][2][8] by their strides
 * k not unrolled · every sum takes k in ascending order
 */
export function linear_2x16(
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  k: i32,
  cPanel: usize,
  cStride: usize,
  initPanel: usize,
  initStride: usize,
  aStride: usize,
  bStride: usize,
): void {
  let initPtr1 = initPtr + initStride;
  let acc00 = v128.load(initPtr);
  let acc01 = v128.load(initPtr, 16);
  let acc10 = v128.load(initPtr1);
  let acc11 = v128.load(initPtr1, 16);
  initPtr += initPanel;
  initPtr1 += initPanel;
  let acc02 = v128.load(initPtr);
  let acc03 = v128.load(initPtr, 16);
  let acc12 = v128.load(initPtr1);
  let acc13 = v128.load(initPtr1, 16);
  let aPtr1 = aPtr0 + aStride;
  let bPtr1 = bPtr0 + bStride;
  for (const bEnd = bPtr0 + <usize>k * PANEL_BYTES; bPtr0 != bEnd; bPtr0 += PANEL_BYTES) {
    const a0 = v128.load32_splat(aPtr0);
    const a1 = v128.load32_splat(aPtr1);
    let b0 = v128.load(bPtr0);
    acc00 = madd(a0, b0, acc00);
    acc10 = madd(a1, b0, acc10);
    b0 = v128.load(bPtr0, 16);
    acc01 = madd(a0, b0, acc01);
    acc11 = madd(a1, b0, acc11);
    b0 = v128.load(bPtr1);
    acc02 = madd(a0, b0, acc02);
    acc12 = madd(a1, b0, acc12);
    b0 = v128.load(bPtr1, 16);
    acc03 = madd(a0, b0, acc03);
    acc13 = madd(a1, b0, acc13);
    aPtr0 += 4;
    aPtr1 += 4;
    bPtr1 += PANEL_BYTES;
  }
  let cPtr1 = cPtr0 + cStride;
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr1, acc10);
  v128.store(cPtr1, acc11, 16);
  cPtr0 += cPanel;
  cPtr1 += cPanel;
  v128.store(cPtr0, acc02);
  v128.store(cPtr0, acc03, 16);
  v128.store(cPtr1, acc12);
  v128.store(cPtr1, acc13, 16);
}

/**
 * C[2, 24] = init[2, 24] + A[2, k] · B[k, 24].
 *
 * 2x24 tile, 15 v128: acc00..acc15 = 12 | b0 = 1 | a0 a1 = 2
 * A [2][k] row stride aStride · B three panels [k][8], bStride apart · C, init [2][3][8] by their strides
 * k unrolled x2 · every sum takes k in ascending order
 */
export function linear_2x24(
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  k: i32,
  cPanel: usize,
  cStride: usize,
  initPanel: usize,
  initStride: usize,
  aStride: usize,
  bStride: usize,
): void {
  let initPtr1 = initPtr + initStride;
  let acc00 = v128.load(initPtr);
  let acc01 = v128.load(initPtr, 16);
  let acc10 = v128.load(initPtr1);
  let acc11 = v128.load(initPtr1, 16);
  initPtr += initPanel;
  initPtr1 += initPanel;
  let acc02 = v128.load(initPtr);
  let acc03 = v128.load(initPtr, 16);
  let acc12 = v128.load(initPtr1);
  let acc13 = v128.load(initPtr1, 16);
  initPtr += initPanel;
  initPtr1 += initPanel;
  let acc04 = v128.load(initPtr);
  let acc05 = v128.load(initPtr, 16);
  let acc14 = v128.load(initPtr1);
  let acc15 = v128.load(initPtr1, 16);
  let aPtr1 = aPtr0 + aStride;
  let bPtr1 = bPtr0 + bStride;
  let bPtr2 = bPtr1 + bStride;
  let a0: v128;
  let a1: v128;
  let b0: v128;
  const bEnd = bPtr0 + <usize>k * PANEL_BYTES;
  // Two steps share the additions to the addresses; an odd k leaves in between, as in tile.ts.
  while (bPtr0 < bEnd) {
    a0 = v128.load32_splat(aPtr0);
    a1 = v128.load32_splat(aPtr1);
    b0 = v128.load(bPtr0);
    acc00 = madd(a0, b0, acc00);
    acc10 = madd(a1, b0, acc10);
    b0 = v128.load(bPtr0, 16);
    acc01 = madd(a0, b0, acc01);
    acc11 = madd(a1, b0, acc11);
    b0 = v128.load(bPtr1);
    acc02 = madd(a0, b0, acc02);
    acc12 = madd(a1, b0, acc12);
    b0 = v128.load(bPtr1, 16);
    acc03 = madd(a0, b0, acc03);
    acc13 = madd(a1, b0, acc13);
    b0 = v128.load(bPtr2);
    acc04 = madd(a0, b0, acc04);
    acc14 = madd(a1, b0, acc14);
    b0 = v128.load(bPtr2, 16);
    acc05 = madd(a0, b0, acc05);
    acc15 = madd(a1, b0, acc15);
    if (bPtr0 + PANEL_BYTES == bEnd) break;
    a0 = v128.load32_splat(aPtr0, 4);
    a1 = v128.load32_splat(aPtr1, 4);
    b0 = v128.load(bPtr0, PANEL_BYTES);
    acc00 = madd(a0, b0, acc00);
    acc10 = madd(a1, b0, acc10);
    b0 = v128.load(bPtr0, PANEL_BYTES + 16);
    acc01 = madd(a0, b0, acc01);
    acc11 = madd(a1, b0, acc11);
    b0 = v128.load(bPtr1, PANEL_BYTES);
    acc02 = madd(a0, b0, acc02);
    acc12 = madd(a1, b0, acc12);
    b0 = v128.load(bPtr1, PANEL_BYTES + 16);
    acc03 = madd(a0, b0, acc03);
    acc13 = madd(a1, b0, acc13);
    b0 = v128.load(bPtr2, PANEL_BYTES);
    acc04 = madd(a0, b0, acc04);
    acc14 = madd(a1, b0, acc14);
    b0 = v128.load(bPtr2, PANEL_BYTES + 16);
    acc05 = madd(a0, b0, acc05);
    acc15 = madd(a1, b0, acc15);
    aPtr0 += 8;
    aPtr1 += 8;
    bPtr0 += PANEL_BYTES * 2;
    bPtr1 += PANEL_BYTES * 2;
    bPtr2 += PANEL_BYTES * 2;
  }
  let cPtr1 = cPtr0 + cStride;
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr1, acc10);
  v128.store(cPtr1, acc11, 16);
  cPtr0 += cPanel;
  cPtr1 += cPanel;
  v128.store(cPtr0, acc02);
  v128.store(cPtr0, acc03, 16);
  v128.store(cPtr1, acc12);
  v128.store(cPtr1, acc13, 16);
  cPtr0 += cPanel;
  cPtr1 += cPanel;
  v128.store(cPtr0, acc04);
  v128.store(cPtr0, acc05, 16);
  v128.store(cPtr1, acc14);
  v128.store(cPtr1, acc15, 16);
}

/**
 * C[3, 16] = init[3, 16] + A[3, k] · B[k, 16].
 *
 * 3x16 tile, 15 v128: acc00..acc23 = 12 | b0 b1, then b2 b3 = 2 | a<row><panel> = 1
 * A [3][k] row stride aStride · B two panels [k][8], bStride apart · C, init [3][2][8] by their strides
 * k not unrolled · every sum takes k in ascending order
 *
 * Each element of A is read twice, once as a broadcast and once as a float that is spread: read twice alike, V8 would
 * keep all three in registers, which are one too few.
 */
export function linear_3x16(
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  k: i32,
  cPanel: usize,
  cStride: usize,
  initPanel: usize,
  initStride: usize,
  aStride: usize,
  bStride: usize,
): void {
  let initPtr1 = initPtr + initStride;
  let initPtr2 = initPtr1 + initStride;
  let acc00 = v128.load(initPtr);
  let acc01 = v128.load(initPtr, 16);
  let acc10 = v128.load(initPtr1);
  let acc11 = v128.load(initPtr1, 16);
  let acc20 = v128.load(initPtr2);
  let acc21 = v128.load(initPtr2, 16);
  initPtr += initPanel;
  initPtr1 += initPanel;
  initPtr2 += initPanel;
  let acc02 = v128.load(initPtr);
  let acc03 = v128.load(initPtr, 16);
  let acc12 = v128.load(initPtr1);
  let acc13 = v128.load(initPtr1, 16);
  let acc22 = v128.load(initPtr2);
  let acc23 = v128.load(initPtr2, 16);
  let aPtr1 = aPtr0 + aStride;
  let aPtr2 = aPtr1 + aStride;
  let bPtr1 = bPtr0 + bStride;
  for (const bEnd = bPtr0 + <usize>k * PANEL_BYTES; bPtr0 != bEnd; bPtr0 += PANEL_BYTES) {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const a00 = v128.load32_splat(aPtr0);
    acc00 = madd(a00, b0, acc00);
    acc01 = madd(a00, b1, acc01);
    const a10 = v128.load32_splat(aPtr1);
    acc10 = madd(a10, b0, acc10);
    acc11 = madd(a10, b1, acc11);
    const a20 = v128.load32_splat(aPtr2);
    acc20 = madd(a20, b0, acc20);
    acc21 = madd(a20, b1, acc21);
    const b2 = v128.load(bPtr1);
    const b3 = v128.load(bPtr1, 16);
    const a01 = f32x4.splat(load<f32>(aPtr0));
    acc02 = madd(a01, b2, acc02);
    acc03 = madd(a01, b3, acc03);
    const a11 = f32x4.splat(load<f32>(aPtr1));
    acc12 = madd(a11, b2, acc12);
    acc13 = madd(a11, b3, acc13);
    const a21 = f32x4.splat(load<f32>(aPtr2));
    acc22 = madd(a21, b2, acc22);
    acc23 = madd(a21, b3, acc23);
    aPtr0 += 4;
    aPtr1 += 4;
    aPtr2 += 4;
    bPtr1 += PANEL_BYTES;
  }
  let cPtr1 = cPtr0 + cStride;
  let cPtr2 = cPtr1 + cStride;
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr1, acc10);
  v128.store(cPtr1, acc11, 16);
  v128.store(cPtr2, acc20);
  v128.store(cPtr2, acc21, 16);
  cPtr0 += cPanel;
  cPtr1 += cPanel;
  cPtr2 += cPanel;
  v128.store(cPtr0, acc02);
  v128.store(cPtr0, acc03, 16);
  v128.store(cPtr1, acc12);
  v128.store(cPtr1, acc13, 16);
  v128.store(cPtr2, acc22);
  v128.store(cPtr2, acc23, 16);
}
