import { PANEL_BYTES } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// The tile of linear_f32 for three rows and more. Strides are in bytes.

/**
 * C[rows, 8] = init[rows, 8] + A[rows, k] · B[k, 8]. `rows` is a constant from 3 to 6.
 *
 * 6x8 tile, 15 v128: acc00..acc51 = 12 | b0 b1 = 2 | a0 = 1
 * A [rows][k] row stride aStride · B [k][8] · C [rows][8] row stride cStride · init row stride initStride
 * k unrolled x4 · every sum takes k in ascending order
 */
// @ts-ignore: decorator
@inline
export function linear_nx8(
  rows: i32,
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  k: i32,
  cStride: usize,
  initStride: usize,
  aStride: usize,
): void {
  let row = initPtr;
  let acc00 = v128.load(row);
  let acc01 = v128.load(row, 16);
  row += initStride;
  let acc10 = v128.load(row);
  let acc11 = v128.load(row, 16);
  row += initStride;
  let acc20 = v128.load(row);
  let acc21 = v128.load(row, 16);
  let acc30 = acc00;
  let acc31 = acc01;
  if (rows > 3) {
    row += initStride;
    acc30 = v128.load(row);
    acc31 = v128.load(row, 16);
  }
  let acc40 = acc00;
  let acc41 = acc01;
  if (rows > 4) {
    row += initStride;
    acc40 = v128.load(row);
    acc41 = v128.load(row, 16);
  }
  let acc50 = acc00;
  let acc51 = acc01;
  if (rows > 5) {
    row += initStride;
    acc50 = v128.load(row);
    acc51 = v128.load(row, 16);
  }

  let aPtr1 = aPtr0 + aStride;
  let aPtr2 = aPtr1 + aStride;
  let aPtr3 = aPtr2 + aStride;
  let aPtr4 = aPtr3 + aStride;
  let aPtr5 = aPtr4 + aStride;
  let a0: v128;
  let b0: v128;
  let b1: v128;
  const bEnd = bPtr0 + <usize>k * PANEL_BYTES;
  // Four steps share the additions to the addresses; a k that is no multiple of four leaves in between. These branches also
  // keep the optimizer from nesting the steps of one accumulator, which would hold all the loads first and spill.
  while (bPtr0 != bEnd) {
    b0 = v128.load(bPtr0);
    b1 = v128.load(bPtr0, 16);
    a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, b0, acc00);
    acc01 = madd(a0, b1, acc01);
    a0 = v128.load32_splat(aPtr1);
    acc10 = madd(a0, b0, acc10);
    acc11 = madd(a0, b1, acc11);
    a0 = v128.load32_splat(aPtr2);
    acc20 = madd(a0, b0, acc20);
    acc21 = madd(a0, b1, acc21);
    if (rows > 3) {
      a0 = v128.load32_splat(aPtr3);
      acc30 = madd(a0, b0, acc30);
      acc31 = madd(a0, b1, acc31);
    }
    if (rows > 4) {
      a0 = v128.load32_splat(aPtr4);
      acc40 = madd(a0, b0, acc40);
      acc41 = madd(a0, b1, acc41);
    }
    if (rows > 5) {
      a0 = v128.load32_splat(aPtr5);
      acc50 = madd(a0, b0, acc50);
      acc51 = madd(a0, b1, acc51);
    }
    if (bPtr0 + PANEL_BYTES == bEnd) break;
    b0 = v128.load(bPtr0, PANEL_BYTES);
    b1 = v128.load(bPtr0, PANEL_BYTES + 16);
    a0 = v128.load32_splat(aPtr0, 4);
    acc00 = madd(a0, b0, acc00);
    acc01 = madd(a0, b1, acc01);
    a0 = v128.load32_splat(aPtr1, 4);
    acc10 = madd(a0, b0, acc10);
    acc11 = madd(a0, b1, acc11);
    a0 = v128.load32_splat(aPtr2, 4);
    acc20 = madd(a0, b0, acc20);
    acc21 = madd(a0, b1, acc21);
    if (rows > 3) {
      a0 = v128.load32_splat(aPtr3, 4);
      acc30 = madd(a0, b0, acc30);
      acc31 = madd(a0, b1, acc31);
    }
    if (rows > 4) {
      a0 = v128.load32_splat(aPtr4, 4);
      acc40 = madd(a0, b0, acc40);
      acc41 = madd(a0, b1, acc41);
    }
    if (rows > 5) {
      a0 = v128.load32_splat(aPtr5, 4);
      acc50 = madd(a0, b0, acc50);
      acc51 = madd(a0, b1, acc51);
    }
    if (bPtr0 + PANEL_BYTES * 2 == bEnd) break;
    b0 = v128.load(bPtr0, PANEL_BYTES * 2);
    b1 = v128.load(bPtr0, PANEL_BYTES * 2 + 16);
    a0 = v128.load32_splat(aPtr0, 8);
    acc00 = madd(a0, b0, acc00);
    acc01 = madd(a0, b1, acc01);
    a0 = v128.load32_splat(aPtr1, 8);
    acc10 = madd(a0, b0, acc10);
    acc11 = madd(a0, b1, acc11);
    a0 = v128.load32_splat(aPtr2, 8);
    acc20 = madd(a0, b0, acc20);
    acc21 = madd(a0, b1, acc21);
    if (rows > 3) {
      a0 = v128.load32_splat(aPtr3, 8);
      acc30 = madd(a0, b0, acc30);
      acc31 = madd(a0, b1, acc31);
    }
    if (rows > 4) {
      a0 = v128.load32_splat(aPtr4, 8);
      acc40 = madd(a0, b0, acc40);
      acc41 = madd(a0, b1, acc41);
    }
    if (rows > 5) {
      a0 = v128.load32_splat(aPtr5, 8);
      acc50 = madd(a0, b0, acc50);
      acc51 = madd(a0, b1, acc51);
    }
    if (bPtr0 + PANEL_BYTES * 3 == bEnd) break;
    b0 = v128.load(bPtr0, PANEL_BYTES * 3);
    b1 = v128.load(bPtr0, PANEL_BYTES * 3 + 16);
    a0 = v128.load32_splat(aPtr0, 12);
    acc00 = madd(a0, b0, acc00);
    acc01 = madd(a0, b1, acc01);
    a0 = v128.load32_splat(aPtr1, 12);
    acc10 = madd(a0, b0, acc10);
    acc11 = madd(a0, b1, acc11);
    a0 = v128.load32_splat(aPtr2, 12);
    acc20 = madd(a0, b0, acc20);
    acc21 = madd(a0, b1, acc21);
    if (rows > 3) {
      a0 = v128.load32_splat(aPtr3, 12);
      acc30 = madd(a0, b0, acc30);
      acc31 = madd(a0, b1, acc31);
    }
    if (rows > 4) {
      a0 = v128.load32_splat(aPtr4, 12);
      acc40 = madd(a0, b0, acc40);
      acc41 = madd(a0, b1, acc41);
    }
    if (rows > 5) {
      a0 = v128.load32_splat(aPtr5, 12);
      acc50 = madd(a0, b0, acc50);
      acc51 = madd(a0, b1, acc51);
    }
    bPtr0 += PANEL_BYTES * 4;
    aPtr0 += 16;
    aPtr1 += 16;
    aPtr2 += 16;
    aPtr3 += 16;
    aPtr4 += 16;
    aPtr5 += 16;
  }

  row = cPtr0;
  v128.store(row, acc00);
  v128.store(row, acc01, 16);
  row += cStride;
  v128.store(row, acc10);
  v128.store(row, acc11, 16);
  row += cStride;
  v128.store(row, acc20);
  v128.store(row, acc21, 16);
  if (rows > 3) {
    row += cStride;
    v128.store(row, acc30);
    v128.store(row, acc31, 16);
  }
  if (rows > 4) {
    row += cStride;
    v128.store(row, acc40);
    v128.store(row, acc41, 16);
  }
  if (rows > 5) {
    row += cStride;
    v128.store(row, acc50);
    v128.store(row, acc51, 16);
  }
}
