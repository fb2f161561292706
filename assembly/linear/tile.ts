import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// The register tile of linear_f32 for three rows and more. Strides are in bytes.

/**
 * out[rows, 8] = init[rows, 8] + x[rows, k] · w[k, 8]. `rows` is a constant from 3 to 6: six rows are 12 accumulators,
 * two weights and one x, all the registers that the engine has for them.
 */
// @ts-ignore: decorator
@inline
export function linear_x8(
  rows: i32,
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  k: i32,
  outStride: usize,
  initStride: usize,
  xStride: usize,
): void {
  let at = init;
  let acc00 = v128.load(at);
  let acc01 = v128.load(at, 16);
  at += initStride;
  let acc10 = v128.load(at);
  let acc11 = v128.load(at, 16);
  at += initStride;
  let acc20 = v128.load(at);
  let acc21 = v128.load(at, 16);
  let acc30 = acc00;
  let acc31 = acc01;
  if (rows > 3) {
    at += initStride;
    acc30 = v128.load(at);
    acc31 = v128.load(at, 16);
  }
  let acc40 = acc00;
  let acc41 = acc01;
  if (rows > 4) {
    at += initStride;
    acc40 = v128.load(at);
    acc41 = v128.load(at, 16);
  }
  let acc50 = acc00;
  let acc51 = acc01;
  if (rows > 5) {
    at += initStride;
    acc50 = v128.load(at);
    acc51 = v128.load(at, 16);
  }

  let x0 = x;
  let x1 = x0 + xStride;
  let x2 = x1 + xStride;
  let x3 = x2 + xStride;
  let x4 = x3 + xStride;
  let x5 = x4 + xStride;
  let v: v128;
  let b0: v128;
  let b1: v128;
  const end = w + (<usize>k << 5);
  for (const head = w + (<usize>(k & 3) << 5); w != head; w += 32) {
    b0 = v128.load(w);
    b1 = v128.load(w, 16);
    v = v128.load32_splat(x0);
    acc00 = madd(v, b0, acc00);
    acc01 = madd(v, b1, acc01);
    v = v128.load32_splat(x1);
    acc10 = madd(v, b0, acc10);
    acc11 = madd(v, b1, acc11);
    v = v128.load32_splat(x2);
    acc20 = madd(v, b0, acc20);
    acc21 = madd(v, b1, acc21);
    if (rows > 3) {
      v = v128.load32_splat(x3);
      acc30 = madd(v, b0, acc30);
      acc31 = madd(v, b1, acc31);
    }
    if (rows > 4) {
      v = v128.load32_splat(x4);
      acc40 = madd(v, b0, acc40);
      acc41 = madd(v, b1, acc41);
    }
    if (rows > 5) {
      v = v128.load32_splat(x5);
      acc50 = madd(v, b0, acc50);
      acc51 = madd(v, b1, acc51);
    }
    x0 += 4;
    x1 += 4;
    x2 += 4;
    x3 += 4;
    x4 += 4;
    x5 += 4;
  }
  // Four steps share the additions to the addresses. The branches between them are never taken: they keep the optimizer
  // from nesting the steps of one accumulator, which would hold all the loads at once and spill.
  while (w != end) {
    b0 = v128.load(w);
    b1 = v128.load(w, 16);
    v = v128.load32_splat(x0);
    acc00 = madd(v, b0, acc00);
    acc01 = madd(v, b1, acc01);
    v = v128.load32_splat(x1);
    acc10 = madd(v, b0, acc10);
    acc11 = madd(v, b1, acc11);
    v = v128.load32_splat(x2);
    acc20 = madd(v, b0, acc20);
    acc21 = madd(v, b1, acc21);
    if (rows > 3) {
      v = v128.load32_splat(x3);
      acc30 = madd(v, b0, acc30);
      acc31 = madd(v, b1, acc31);
    }
    if (rows > 4) {
      v = v128.load32_splat(x4);
      acc40 = madd(v, b0, acc40);
      acc41 = madd(v, b1, acc41);
    }
    if (rows > 5) {
      v = v128.load32_splat(x5);
      acc50 = madd(v, b0, acc50);
      acc51 = madd(v, b1, acc51);
    }
    if (w == end) break;
    b0 = v128.load(w, 32);
    b1 = v128.load(w, 48);
    v = v128.load32_splat(x0, 4);
    acc00 = madd(v, b0, acc00);
    acc01 = madd(v, b1, acc01);
    v = v128.load32_splat(x1, 4);
    acc10 = madd(v, b0, acc10);
    acc11 = madd(v, b1, acc11);
    v = v128.load32_splat(x2, 4);
    acc20 = madd(v, b0, acc20);
    acc21 = madd(v, b1, acc21);
    if (rows > 3) {
      v = v128.load32_splat(x3, 4);
      acc30 = madd(v, b0, acc30);
      acc31 = madd(v, b1, acc31);
    }
    if (rows > 4) {
      v = v128.load32_splat(x4, 4);
      acc40 = madd(v, b0, acc40);
      acc41 = madd(v, b1, acc41);
    }
    if (rows > 5) {
      v = v128.load32_splat(x5, 4);
      acc50 = madd(v, b0, acc50);
      acc51 = madd(v, b1, acc51);
    }
    if (w == end) break;
    b0 = v128.load(w, 64);
    b1 = v128.load(w, 80);
    v = v128.load32_splat(x0, 8);
    acc00 = madd(v, b0, acc00);
    acc01 = madd(v, b1, acc01);
    v = v128.load32_splat(x1, 8);
    acc10 = madd(v, b0, acc10);
    acc11 = madd(v, b1, acc11);
    v = v128.load32_splat(x2, 8);
    acc20 = madd(v, b0, acc20);
    acc21 = madd(v, b1, acc21);
    if (rows > 3) {
      v = v128.load32_splat(x3, 8);
      acc30 = madd(v, b0, acc30);
      acc31 = madd(v, b1, acc31);
    }
    if (rows > 4) {
      v = v128.load32_splat(x4, 8);
      acc40 = madd(v, b0, acc40);
      acc41 = madd(v, b1, acc41);
    }
    if (rows > 5) {
      v = v128.load32_splat(x5, 8);
      acc50 = madd(v, b0, acc50);
      acc51 = madd(v, b1, acc51);
    }
    if (w == end) break;
    b0 = v128.load(w, 96);
    b1 = v128.load(w, 112);
    v = v128.load32_splat(x0, 12);
    acc00 = madd(v, b0, acc00);
    acc01 = madd(v, b1, acc01);
    v = v128.load32_splat(x1, 12);
    acc10 = madd(v, b0, acc10);
    acc11 = madd(v, b1, acc11);
    v = v128.load32_splat(x2, 12);
    acc20 = madd(v, b0, acc20);
    acc21 = madd(v, b1, acc21);
    if (rows > 3) {
      v = v128.load32_splat(x3, 12);
      acc30 = madd(v, b0, acc30);
      acc31 = madd(v, b1, acc31);
    }
    if (rows > 4) {
      v = v128.load32_splat(x4, 12);
      acc40 = madd(v, b0, acc40);
      acc41 = madd(v, b1, acc41);
    }
    if (rows > 5) {
      v = v128.load32_splat(x5, 12);
      acc50 = madd(v, b0, acc50);
      acc51 = madd(v, b1, acc51);
    }
    w += 128;
    x0 += 16;
    x1 += 16;
    x2 += 16;
    x3 += 16;
    x4 += 16;
    x5 += 16;
  }

  at = out;
  v128.store(at, acc00);
  v128.store(at, acc01, 16);
  at += outStride;
  v128.store(at, acc10);
  v128.store(at, acc11, 16);
  at += outStride;
  v128.store(at, acc20);
  v128.store(at, acc21, 16);
  if (rows > 3) {
    at += outStride;
    v128.store(at, acc30);
    v128.store(at, acc31, 16);
  }
  if (rows > 4) {
    at += outStride;
    v128.store(at, acc40);
    v128.store(at, acc41, 16);
  }
  if (rows > 5) {
    at += outStride;
    v128.store(at, acc50);
    v128.store(at, acc51, 16);
  }
}
