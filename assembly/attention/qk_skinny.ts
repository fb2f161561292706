import { CHUNK_BYTES, KEY_CHUNK_BYTES, STRIP_BYTES } from "./state";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// The tiles of attention_scores.ts for strips of up to three rows: more keys at a time, for as many chains. The panels
// of a tile lie `count` panels apart, so that each pointer walks through a part of the page from end to end: a few long
// streams come from memory up to twice as fast as many short ones.
// Three rows read each component of q twice, once as a broadcast and once as a float that is spread: read twice alike,
// V8 would keep all three in registers, which are one too few.

/** s[:3, j] = q[:3] · k[j] for the first 16 · count keys of k, in two parts. */
export function score_3x16(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const panel = <usize>headDim << 5;
  const apart = <usize>count << 5;
  let k1 = k + panel * count;
  for (; count > 0; count--) {
    const end = k + panel;
    let x = q;
    let a00 = f32x4.splat(0);
    let a01 = f32x4.splat(0);
    let a02 = f32x4.splat(0);
    let a03 = f32x4.splat(0);
    let a10 = f32x4.splat(0);
    let a11 = f32x4.splat(0);
    let a12 = f32x4.splat(0);
    let a13 = f32x4.splat(0);
    let a20 = f32x4.splat(0);
    let a21 = f32x4.splat(0);
    let a22 = f32x4.splat(0);
    let a23 = f32x4.splat(0);
    do {
      const stop = min<usize>(k + KEY_CHUNK_BYTES, end);
      do {
        const b0 = v128.load(k);
        const b1 = v128.load(k, 16);
        const x00 = v128.load32_splat(x);
        a00 = madd(x00, b0, a00);
        a01 = madd(x00, b1, a01);
        const x10 = v128.load32_splat(x, CHUNK_BYTES);
        a10 = madd(x10, b0, a10);
        a11 = madd(x10, b1, a11);
        const x20 = v128.load32_splat(x, CHUNK_BYTES * 2);
        a20 = madd(x20, b0, a20);
        a21 = madd(x20, b1, a21);
        const b2 = v128.load(k1);
        const b3 = v128.load(k1, 16);
        const x01 = f32x4.splat(load<f32>(x));
        a02 = madd(x01, b2, a02);
        a03 = madd(x01, b3, a03);
        const x11 = f32x4.splat(load<f32>(x, CHUNK_BYTES));
        a12 = madd(x11, b2, a12);
        a13 = madd(x11, b3, a13);
        const x21 = f32x4.splat(load<f32>(x, CHUNK_BYTES * 2));
        a22 = madd(x21, b2, a22);
        a23 = madd(x21, b3, a23);
        x += 4;
        k += 32;
        k1 += 32;
      } while (k < stop);
      x += CHUNK_BYTES * 2;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s + apart, a02);
    v128.store(s + apart, a03, 16);
    v128.store(s, a10, STRIP_BYTES);
    v128.store(s, a11, STRIP_BYTES + 16);
    v128.store(s + apart, a12, STRIP_BYTES);
    v128.store(s + apart, a13, STRIP_BYTES + 16);
    v128.store(s, a20, STRIP_BYTES * 2);
    v128.store(s, a21, STRIP_BYTES * 2 + 16);
    v128.store(s + apart, a22, STRIP_BYTES * 2);
    v128.store(s + apart, a23, STRIP_BYTES * 2 + 16);
    s += 32;
  }
}

/** s[:2, j] = q[:2] · k[j] for the first 16 · count keys of k, in two parts. */
export function score_2x16(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const panel = <usize>headDim << 5;
  const apart = <usize>count << 5;
  let k1 = k + panel * count;
  for (; count > 0; count--) {
    const end = k + panel;
    let x = q;
    let a00 = f32x4.splat(0);
    let a01 = f32x4.splat(0);
    let a02 = f32x4.splat(0);
    let a03 = f32x4.splat(0);
    let a10 = f32x4.splat(0);
    let a11 = f32x4.splat(0);
    let a12 = f32x4.splat(0);
    let a13 = f32x4.splat(0);
    do {
      const stop = min<usize>(k + KEY_CHUNK_BYTES, end);
      do {
        const b0 = v128.load(k);
        const b1 = v128.load(k, 16);
        const b2 = v128.load(k1);
        const b3 = v128.load(k1, 16);
        const x0 = v128.load32_splat(x);
        a00 = madd(x0, b0, a00);
        a01 = madd(x0, b1, a01);
        a02 = madd(x0, b2, a02);
        a03 = madd(x0, b3, a03);
        const x1 = v128.load32_splat(x, CHUNK_BYTES);
        a10 = madd(x1, b0, a10);
        a11 = madd(x1, b1, a11);
        a12 = madd(x1, b2, a12);
        a13 = madd(x1, b3, a13);
        x += 4;
        k += 32;
        k1 += 32;
      } while (k < stop);
      x += CHUNK_BYTES;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s + apart, a02);
    v128.store(s + apart, a03, 16);
    v128.store(s, a10, STRIP_BYTES);
    v128.store(s, a11, STRIP_BYTES + 16);
    v128.store(s + apart, a12, STRIP_BYTES);
    v128.store(s + apart, a13, STRIP_BYTES + 16);
    s += 32;
  }
}

/** s[:1, j] = q[:1] · k[j] for the first 32 · count keys of k, in four parts. */
export function score_1x32(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const panel = <usize>headDim << 5;
  const run = panel * count;
  const apart = <usize>count << 5;
  let k1 = k + run;
  let k2 = k1 + run;
  let k3 = k2 + run;
  for (; count > 0; count--) {
    const end = k + panel;
    let x = q;
    let a00 = f32x4.splat(0);
    let a01 = f32x4.splat(0);
    let a02 = f32x4.splat(0);
    let a03 = f32x4.splat(0);
    let a04 = f32x4.splat(0);
    let a05 = f32x4.splat(0);
    let a06 = f32x4.splat(0);
    let a07 = f32x4.splat(0);
    do {
      const x0 = v128.load32_splat(x);
      a00 = madd(x0, v128.load(k), a00);
      a01 = madd(x0, v128.load(k, 16), a01);
      a02 = madd(x0, v128.load(k1), a02);
      a03 = madd(x0, v128.load(k1, 16), a03);
      a04 = madd(x0, v128.load(k2), a04);
      a05 = madd(x0, v128.load(k2, 16), a05);
      a06 = madd(x0, v128.load(k3), a06);
      a07 = madd(x0, v128.load(k3, 16), a07);
      x += 4;
      k += 32;
      k1 += 32;
      k2 += 32;
      k3 += 32;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s + apart, a02);
    v128.store(s + apart, a03, 16);
    v128.store(s + apart * 2, a04);
    v128.store(s + apart * 2, a05, 16);
    v128.store(s + apart * 3, a06);
    v128.store(s + apart * 3, a07, 16);
    s += 32;
  }
}
