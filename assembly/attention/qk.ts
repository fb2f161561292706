import { PANEL_BYTES } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";
import { CHUNK_BYTES, KEY_CHUNK_BYTES, STRIP_BYTES } from "./state";

// Tiles of attention_f32's scores: rows of queries x keys. Every score has one accumulator and takes headDim in ascending
// order, so that all forms give the same bits. V8 has 15 vector registers for accumulators and operands; 8 independent sums
// at least keep two multiply-adds of latency 4 in flight. The rows of a strip's queries lie interleaved in chunks of
// QUERY_CHUNK components, so that one address and constant offsets reach them all.

/**
 * C[rows, j] = A[rows] · B[j] for the first 8 · count keys. `rows` is a constant from 3 to 6.
 *
 * 6x8 tile, 15 v128: acc00..acc51 = 12 | b0 b1 = 2 | a<row> = 1
 * A [chunk][rows][QUERY_CHUNK], row stride CHUNK_BYTES · B [headDim][8] · C [rows][8] row stride STRIP_BYTES
 * headDim not unrolled · every sum takes headDim in ascending order
 */
// @ts-ignore: decorator
@inline
function qk_nx8(rows: i32, cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, headDim: i32, count: i32): void {
  for (; count > 0; count--) {
    const bEnd = bPtr0 + <usize>headDim * PANEL_BYTES;
    let aPtr0 = aPtr;
    let acc00 = f32x4.splat(0);
    let acc01 = f32x4.splat(0);
    let acc10 = f32x4.splat(0);
    let acc11 = f32x4.splat(0);
    let acc20 = f32x4.splat(0);
    let acc21 = f32x4.splat(0);
    let acc30 = f32x4.splat(0);
    let acc31 = f32x4.splat(0);
    let acc40 = f32x4.splat(0);
    let acc41 = f32x4.splat(0);
    let acc50 = f32x4.splat(0);
    let acc51 = f32x4.splat(0);
    do {
      const chunkEnd = min<usize>(bPtr0 + KEY_CHUNK_BYTES, bEnd);
      do {
        const b0 = v128.load(bPtr0);
        const b1 = v128.load(bPtr0, 16);
        const a0 = v128.load32_splat(aPtr0);
        acc00 = madd(a0, b0, acc00);
        acc01 = madd(a0, b1, acc01);
        const a1 = v128.load32_splat(aPtr0, CHUNK_BYTES);
        acc10 = madd(a1, b0, acc10);
        acc11 = madd(a1, b1, acc11);
        const a2 = v128.load32_splat(aPtr0, CHUNK_BYTES * 2);
        acc20 = madd(a2, b0, acc20);
        acc21 = madd(a2, b1, acc21);
        if (rows > 3) {
          const a3 = v128.load32_splat(aPtr0, CHUNK_BYTES * 3);
          acc30 = madd(a3, b0, acc30);
          acc31 = madd(a3, b1, acc31);
        }
        if (rows > 4) {
          const a4 = v128.load32_splat(aPtr0, CHUNK_BYTES * 4);
          acc40 = madd(a4, b0, acc40);
          acc41 = madd(a4, b1, acc41);
        }
        if (rows > 5) {
          const a5 = v128.load32_splat(aPtr0, CHUNK_BYTES * 5);
          acc50 = madd(a5, b0, acc50);
          acc51 = madd(a5, b1, acc51);
        }
        aPtr0 += 4;
        bPtr0 += PANEL_BYTES;
      } while (bPtr0 < chunkEnd);
      aPtr0 += CHUNK_BYTES * (rows - 1);
    } while (bPtr0 < bEnd);
    v128.store(cPtr0, acc00);
    v128.store(cPtr0, acc01, 16);
    v128.store(cPtr0, acc10, STRIP_BYTES);
    v128.store(cPtr0, acc11, STRIP_BYTES + 16);
    v128.store(cPtr0, acc20, STRIP_BYTES * 2);
    v128.store(cPtr0, acc21, STRIP_BYTES * 2 + 16);
    if (rows > 3) {
      v128.store(cPtr0, acc30, STRIP_BYTES * 3);
      v128.store(cPtr0, acc31, STRIP_BYTES * 3 + 16);
    }
    if (rows > 4) {
      v128.store(cPtr0, acc40, STRIP_BYTES * 4);
      v128.store(cPtr0, acc41, STRIP_BYTES * 4 + 16);
    }
    if (rows > 5) {
      v128.store(cPtr0, acc50, STRIP_BYTES * 5);
      v128.store(cPtr0, acc51, STRIP_BYTES * 5 + 16);
    }
    cPtr0 += PANEL_BYTES;
  }
}

export function qk_6x8(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, headDim: i32, count: i32): void {
  qk_nx8(6, cPtr0, aPtr, bPtr0, headDim, count);
}

export function qk_5x8(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, headDim: i32, count: i32): void {
  qk_nx8(5, cPtr0, aPtr, bPtr0, headDim, count);
}

export function qk_4x8(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, headDim: i32, count: i32): void {
  qk_nx8(4, cPtr0, aPtr, bPtr0, headDim, count);
}

export function qk_3x8(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, headDim: i32, count: i32): void {
  qk_nx8(3, cPtr0, aPtr, bPtr0, headDim, count);
}

/**
 * C[j] = A · B[j] for the first 32 · count keys, in four parts that are read side by side, for the reason in
 * few_rows.ts.
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
