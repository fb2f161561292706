import { PANEL_BYTES } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";
import { CHUNK_BYTES, KEY_CHUNK_BYTES, STRIP_BYTES } from "./state";

// Tiles of attention_f32's scores (qk.ts) for strips of up to three rows: more keys at a time, for as many independent sums.
// The panels of a tile lie bStride = count panels apart, so that each pointer walks through a part of the page from end to
// end: a few long streams come from memory up to twice as fast as many short ones.

/**
 * C[3, j] = A[3] · B[j] for the first 16 · count keys, in two parts.
 *
 * 3x16 tile, 15 v128: acc00..acc23 = 12 | b0 b1, then b2 b3 = 2 | a<row><panel> = 1
 * A [chunk][3][QUERY_CHUNK], row stride CHUNK_BYTES · B two panels [headDim][8] · C [3] rows of two panels, cApart apart
 * headDim not unrolled · every sum takes headDim in ascending order
 *
 * Each element of A is read twice, once as a broadcast and once as a float that is spread: read twice alike, V8 would
 * keep all three in registers, which are one too few.
 */
export function qk_3x16(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, headDim: i32, count: i32): void {
  const panelBytes = <usize>headDim * PANEL_BYTES;
  const cApart = <usize>count * PANEL_BYTES;
  let bPtr1 = bPtr0 + panelBytes * count;
  for (; count > 0; count--) {
    const bEnd = bPtr0 + panelBytes;
    let aPtr0 = aPtr;
    let acc00 = f32x4.splat(0);
    let acc01 = f32x4.splat(0);
    let acc02 = f32x4.splat(0);
    let acc03 = f32x4.splat(0);
    let acc10 = f32x4.splat(0);
    let acc11 = f32x4.splat(0);
    let acc12 = f32x4.splat(0);
    let acc13 = f32x4.splat(0);
    let acc20 = f32x4.splat(0);
    let acc21 = f32x4.splat(0);
    let acc22 = f32x4.splat(0);
    let acc23 = f32x4.splat(0);
    do {
      const chunkEnd = min<usize>(bPtr0 + KEY_CHUNK_BYTES, bEnd);
      do {
        const b0 = v128.load(bPtr0);
        const b1 = v128.load(bPtr0, 16);
        const a00 = v128.load32_splat(aPtr0);
        acc00 = madd(a00, b0, acc00);
        acc01 = madd(a00, b1, acc01);
        const a10 = v128.load32_splat(aPtr0, CHUNK_BYTES);
        acc10 = madd(a10, b0, acc10);
        acc11 = madd(a10, b1, acc11);
        const a20 = v128.load32_splat(aPtr0, CHUNK_BYTES * 2);
        acc20 = madd(a20, b0, acc20);
        acc21 = madd(a20, b1, acc21);
        const b2 = v128.load(bPtr1);
        const b3 = v128.load(bPtr1, 16);
        const a01 = f32x4.splat(load<f32>(aPtr0));
        acc02 = madd(a01, b2, acc02);
        acc03 = madd(a01, b3, acc03);
        const a11 = f32x4.splat(load<f32>(aPtr0, CHUNK_BYTES));
        acc12 = madd(a11, b2, acc12);
        acc13 = madd(a11, b3, acc13);
        const a21 = f32x4.splat(load<f32>(aPtr0, CHUNK_BYTES * 2));
        acc22 = madd(a21, b2, acc22);
        acc23 = madd(a21, b3, acc23);
        aPtr0 += 4;
        bPtr0 += PANEL_BYTES;
        bPtr1 += PANEL_BYTES;
      } while (bPtr0 < chunkEnd);
      aPtr0 += CHUNK_BYTES * 2;
    } while (bPtr0 < bEnd);
    v128.store(cPtr0, acc00);
    v128.store(cPtr0, acc01, 16);
    v128.store(cPtr0 + cApart, acc02);
    v128.store(cPtr0 + cApart, acc03, 16);
    v128.store(cPtr0, acc10, STRIP_BYTES);
    v128.store(cPtr0, acc11, STRIP_BYTES + 16);
    v128.store(cPtr0 + cApart, acc12, STRIP_BYTES);
    v128.store(cPtr0 + cApart, acc13, STRIP_BYTES + 16);
    v128.store(cPtr0, acc20, STRIP_BYTES * 2);
    v128.store(cPtr0, acc21, STRIP_BYTES * 2 + 16);
    v128.store(cPtr0 + cApart, acc22, STRIP_BYTES * 2);
    v128.store(cPtr0 + cApart, acc23, STRIP_BYTES * 2 + 16);
    cPtr0 += PANEL_BYTES;
  }
}

/**
 * C[2, j] = A[2] · B[j] for the first 16 · count keys, in two parts.
 *
 * 2x16 tile, 13 v128: acc00..acc13 = 8 | b0..b3 = 4 | a<row> = 1
 * A [chunk][2][QUERY_CHUNK], row stride CHUNK_BYTES · B two panels [headDim][8] · C [2] rows of two panels, cApart apart
 * headDim not unrolled · every sum takes headDim in ascending order
 */
export function qk_2x16(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, headDim: i32, count: i32): void {
  const panelBytes = <usize>headDim * PANEL_BYTES;
  const cApart = <usize>count * PANEL_BYTES;
  let bPtr1 = bPtr0 + panelBytes * count;
  for (; count > 0; count--) {
    const bEnd = bPtr0 + panelBytes;
    let aPtr0 = aPtr;
    let acc00 = f32x4.splat(0);
    let acc01 = f32x4.splat(0);
    let acc02 = f32x4.splat(0);
    let acc03 = f32x4.splat(0);
    let acc10 = f32x4.splat(0);
    let acc11 = f32x4.splat(0);
    let acc12 = f32x4.splat(0);
    let acc13 = f32x4.splat(0);
    do {
      const chunkEnd = min<usize>(bPtr0 + KEY_CHUNK_BYTES, bEnd);
      do {
        const b0 = v128.load(bPtr0);
        const b1 = v128.load(bPtr0, 16);
        const b2 = v128.load(bPtr1);
        const b3 = v128.load(bPtr1, 16);
        const a0 = v128.load32_splat(aPtr0);
        acc00 = madd(a0, b0, acc00);
        acc01 = madd(a0, b1, acc01);
        acc02 = madd(a0, b2, acc02);
        acc03 = madd(a0, b3, acc03);
        const a1 = v128.load32_splat(aPtr0, CHUNK_BYTES);
        acc10 = madd(a1, b0, acc10);
        acc11 = madd(a1, b1, acc11);
        acc12 = madd(a1, b2, acc12);
        acc13 = madd(a1, b3, acc13);
        aPtr0 += 4;
        bPtr0 += PANEL_BYTES;
        bPtr1 += PANEL_BYTES;
      } while (bPtr0 < chunkEnd);
      aPtr0 += CHUNK_BYTES;
    } while (bPtr0 < bEnd);
    v128.store(cPtr0, acc00);
    v128.store(cPtr0, acc01, 16);
    v128.store(cPtr0 + cApart, acc02);
    v128.store(cPtr0 + cApart, acc03, 16);
    v128.store(cPtr0, acc10, STRIP_BYTES);
    v128.store(cPtr0, acc11, STRIP_BYTES + 16);
    v128.store(cPtr0 + cApart, acc12, STRIP_BYTES);
    v128.store(cPtr0 + cApart, acc13, STRIP_BYTES + 16);
    cPtr0 += PANEL_BYTES;
  }
}

/**
 * C[j] = A · B[j] for the first 32 · count keys, in four parts.
 *
 * 1x32 tile, 10 v128: acc00..acc07 = 8 | a row of B = 1 | a0 = 1
 * A [headDim] · B four panels [headDim][8], bStride apart · C four panels, cApart apart
 * headDim not unrolled · every sum takes headDim in ascending order
 */
export function qk_1x32(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, headDim: i32, count: i32): void {
  const panelBytes = <usize>headDim * PANEL_BYTES;
  const bStride = panelBytes * count;
  const cApart = <usize>count * PANEL_BYTES;
  let bPtr1 = bPtr0 + bStride;
  let bPtr2 = bPtr1 + bStride;
  let bPtr3 = bPtr2 + bStride;
  for (; count > 0; count--) {
    const bEnd = bPtr0 + panelBytes;
    let aPtr0 = aPtr;
    let acc00 = f32x4.splat(0);
    let acc01 = f32x4.splat(0);
    let acc02 = f32x4.splat(0);
    let acc03 = f32x4.splat(0);
    let acc04 = f32x4.splat(0);
    let acc05 = f32x4.splat(0);
    let acc06 = f32x4.splat(0);
    let acc07 = f32x4.splat(0);
    do {
      const a0 = v128.load32_splat(aPtr0);
      acc00 = madd(a0, v128.load(bPtr0), acc00);
      acc01 = madd(a0, v128.load(bPtr0, 16), acc01);
      acc02 = madd(a0, v128.load(bPtr1), acc02);
      acc03 = madd(a0, v128.load(bPtr1, 16), acc03);
      acc04 = madd(a0, v128.load(bPtr2), acc04);
      acc05 = madd(a0, v128.load(bPtr2, 16), acc05);
      acc06 = madd(a0, v128.load(bPtr3), acc06);
      acc07 = madd(a0, v128.load(bPtr3, 16), acc07);
      aPtr0 += 4;
      bPtr0 += PANEL_BYTES;
      bPtr1 += PANEL_BYTES;
      bPtr2 += PANEL_BYTES;
      bPtr3 += PANEL_BYTES;
    } while (bPtr0 < bEnd);
    v128.store(cPtr0, acc00);
    v128.store(cPtr0, acc01, 16);
    v128.store(cPtr0 + cApart, acc02);
    v128.store(cPtr0 + cApart, acc03, 16);
    v128.store(cPtr0 + cApart * 2, acc04);
    v128.store(cPtr0 + cApart * 2, acc05, 16);
    v128.store(cPtr0 + cApart * 3, acc06);
    v128.store(cPtr0 + cApart * 3, acc07, 16);
    cPtr0 += PANEL_BYTES;
  }
}
