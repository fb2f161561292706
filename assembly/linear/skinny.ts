import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// The forms of linear_f32 for two and three rows, which take several panels at once: as many chains as hide the latency
// of madd, and so many streams of weights, which memory delivers faster than one. Strides are in bytes.

/** out[2, 16] = init[16] + x[2, k] · w[k, 16] from two panels `wStride` apart. */
export function linear_2x16(
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  k: i32,
  outStride: usize,
  xStride: usize,
  wStride: usize,
): void {
  let acc00 = v128.load(init);
  let acc01 = v128.load(init, 16);
  let acc02 = v128.load(init, 32);
  let acc03 = v128.load(init, 48);
  let acc10 = v128.load(init);
  let acc11 = v128.load(init, 16);
  let acc12 = v128.load(init, 32);
  let acc13 = v128.load(init, 48);
  let x0 = x;
  let x1 = x0 + xStride;
  let w0 = w;
  let w1 = w0 + wStride;
  for (const end = w0 + (<usize>k << 5); w0 != end; w0 += 32) {
    const v0 = v128.load32_splat(x0);
    const v1 = v128.load32_splat(x1);
    let b = v128.load(w0);
    acc00 = madd(v0, b, acc00);
    acc10 = madd(v1, b, acc10);
    b = v128.load(w0, 16);
    acc01 = madd(v0, b, acc01);
    acc11 = madd(v1, b, acc11);
    b = v128.load(w1);
    acc02 = madd(v0, b, acc02);
    acc12 = madd(v1, b, acc12);
    b = v128.load(w1, 16);
    acc03 = madd(v0, b, acc03);
    acc13 = madd(v1, b, acc13);
    x0 += 4;
    x1 += 4;
    w1 += 32;
  }
  const out1 = out + outStride;
  v128.store(out, acc00);
  v128.store(out, acc01, 16);
  v128.store(out, acc02, 32);
  v128.store(out, acc03, 48);
  v128.store(out1, acc10);
  v128.store(out1, acc11, 16);
  v128.store(out1, acc12, 32);
  v128.store(out1, acc13, 48);
}

/** out[2, 24] = init[24] + x[2, k] · w[k, 24] from three panels `wStride` apart. */
export function linear_2x24(
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  k: i32,
  outStride: usize,
  xStride: usize,
  wStride: usize,
): void {
  let acc00 = v128.load(init);
  let acc01 = v128.load(init, 16);
  let acc02 = v128.load(init, 32);
  let acc03 = v128.load(init, 48);
  let acc04 = v128.load(init, 64);
  let acc05 = v128.load(init, 80);
  let acc10 = v128.load(init);
  let acc11 = v128.load(init, 16);
  let acc12 = v128.load(init, 32);
  let acc13 = v128.load(init, 48);
  let acc14 = v128.load(init, 64);
  let acc15 = v128.load(init, 80);
  let x1 = x + xStride;
  let w1 = w + wStride;
  let w2 = w1 + wStride;
  for (const end = w + (<usize>k << 5); w != end; w += 32) {
    const v0 = v128.load32_splat(x);
    const v1 = v128.load32_splat(x1);
    let b = v128.load(w);
    acc00 = madd(v0, b, acc00);
    acc10 = madd(v1, b, acc10);
    b = v128.load(w, 16);
    acc01 = madd(v0, b, acc01);
    acc11 = madd(v1, b, acc11);
    b = v128.load(w1);
    acc02 = madd(v0, b, acc02);
    acc12 = madd(v1, b, acc12);
    b = v128.load(w1, 16);
    acc03 = madd(v0, b, acc03);
    acc13 = madd(v1, b, acc13);
    b = v128.load(w2);
    acc04 = madd(v0, b, acc04);
    acc14 = madd(v1, b, acc14);
    b = v128.load(w2, 16);
    acc05 = madd(v0, b, acc05);
    acc15 = madd(v1, b, acc15);
    x += 4;
    x1 += 4;
    w1 += 32;
    w2 += 32;
  }
  const out1 = out + outStride;
  v128.store(out, acc00);
  v128.store(out, acc01, 16);
  v128.store(out, acc02, 32);
  v128.store(out, acc03, 48);
  v128.store(out, acc04, 64);
  v128.store(out, acc05, 80);
  v128.store(out1, acc10);
  v128.store(out1, acc11, 16);
  v128.store(out1, acc12, 32);
  v128.store(out1, acc13, 48);
  v128.store(out1, acc14, 64);
  v128.store(out1, acc15, 80);
}

/**
 * out[3, 16] = init[16] + x[3, k] · w[k, 16] from two panels `wStride` apart. Each x is read twice, once as a broadcast
 * and once as a float that is spread: read twice alike, V8 would keep all three in registers, which are one too few.
 */
export function linear_3x16(
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  k: i32,
  outStride: usize,
  xStride: usize,
  wStride: usize,
): void {
  let acc00 = v128.load(init);
  let acc01 = v128.load(init, 16);
  let acc02 = v128.load(init, 32);
  let acc03 = v128.load(init, 48);
  let acc10 = v128.load(init);
  let acc11 = v128.load(init, 16);
  let acc12 = v128.load(init, 32);
  let acc13 = v128.load(init, 48);
  let acc20 = v128.load(init);
  let acc21 = v128.load(init, 16);
  let acc22 = v128.load(init, 32);
  let acc23 = v128.load(init, 48);
  let x1 = x + xStride;
  let x2 = x1 + xStride;
  let w1 = w + wStride;
  for (const end = w + (<usize>k << 5); w != end; w += 32) {
    const b0 = v128.load(w);
    const b1 = v128.load(w, 16);
    const v00 = v128.load32_splat(x);
    acc00 = madd(v00, b0, acc00);
    acc01 = madd(v00, b1, acc01);
    const v10 = v128.load32_splat(x1);
    acc10 = madd(v10, b0, acc10);
    acc11 = madd(v10, b1, acc11);
    const v20 = v128.load32_splat(x2);
    acc20 = madd(v20, b0, acc20);
    acc21 = madd(v20, b1, acc21);
    const b2 = v128.load(w1);
    const b3 = v128.load(w1, 16);
    const v01 = f32x4.splat(load<f32>(x));
    acc02 = madd(v01, b2, acc02);
    acc03 = madd(v01, b3, acc03);
    const v11 = f32x4.splat(load<f32>(x1));
    acc12 = madd(v11, b2, acc12);
    acc13 = madd(v11, b3, acc13);
    const v21 = f32x4.splat(load<f32>(x2));
    acc22 = madd(v21, b2, acc22);
    acc23 = madd(v21, b3, acc23);
    x += 4;
    x1 += 4;
    x2 += 4;
    w1 += 32;
  }
  const out1 = out + outStride;
  const out2 = out1 + outStride;
  v128.store(out, acc00);
  v128.store(out, acc01, 16);
  v128.store(out, acc02, 32);
  v128.store(out, acc03, 48);
  v128.store(out1, acc10);
  v128.store(out1, acc11, 16);
  v128.store(out1, acc12, 32);
  v128.store(out1, acc13, 48);
  v128.store(out2, acc20);
  v128.store(out2, acc21, 16);
  v128.store(out2, acc22, 32);
  v128.store(out2, acc23, 48);
}
