import { madd } from "./simd";
import { F32Ptr } from "./types";

// The micro-tiles of attention_f32's scores. Every score has one accumulator and walks its sum upwards, so that all forms
// give the same bits. A tile of R x C keeps R·C/4 accumulators beside its operands: 15 vector registers are all V8 has, and
// at least 8 chains keep two multiply-adds of latency 4 in flight.

/** Bytes between the rows of a strip of scores: 128 keys. */
const STRIP = 512;

/** s[:6, j] = q[:6, :headDim] · k[j, :headDim] for the keys of `count` x 8. Rows of q lie headDim floats apart, of s 128. */
export function score_6x8(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const row = <usize>headDim << 2;
  const panel = <usize>headDim << 5;
  for (; count > 0; count--) {
    const end = k + panel;
    let q0 = q;
    let q1 = q0 + row;
    let q2 = q1 + row;
    let q3 = q2 + row;
    let q4 = q3 + row;
    let q5 = q4 + row;
    let a00 = f32x4.splat(0);
    let a01 = f32x4.splat(0);
    let a10 = f32x4.splat(0);
    let a11 = f32x4.splat(0);
    let a20 = f32x4.splat(0);
    let a21 = f32x4.splat(0);
    let a30 = f32x4.splat(0);
    let a31 = f32x4.splat(0);
    let a40 = f32x4.splat(0);
    let a41 = f32x4.splat(0);
    let a50 = f32x4.splat(0);
    let a51 = f32x4.splat(0);
    do {
      const b0 = v128.load(k);
      const b1 = v128.load(k, 16);
      const x0 = v128.load32_splat(q0);
      a00 = madd(x0, b0, a00);
      a01 = madd(x0, b1, a01);
      const x1 = v128.load32_splat(q1);
      a10 = madd(x1, b0, a10);
      a11 = madd(x1, b1, a11);
      const x2 = v128.load32_splat(q2);
      a20 = madd(x2, b0, a20);
      a21 = madd(x2, b1, a21);
      const x3 = v128.load32_splat(q3);
      a30 = madd(x3, b0, a30);
      a31 = madd(x3, b1, a31);
      const x4 = v128.load32_splat(q4);
      a40 = madd(x4, b0, a40);
      a41 = madd(x4, b1, a41);
      const x5 = v128.load32_splat(q5);
      a50 = madd(x5, b0, a50);
      a51 = madd(x5, b1, a51);
      q0 += 4;
      q1 += 4;
      q2 += 4;
      q3 += 4;
      q4 += 4;
      q5 += 4;
      k += 32;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s, a10, STRIP);
    v128.store(s, a11, STRIP * 1 + 16);
    v128.store(s, a20, STRIP * 2);
    v128.store(s, a21, STRIP * 2 + 16);
    v128.store(s, a30, STRIP * 3);
    v128.store(s, a31, STRIP * 3 + 16);
    v128.store(s, a40, STRIP * 4);
    v128.store(s, a41, STRIP * 4 + 16);
    v128.store(s, a50, STRIP * 5);
    v128.store(s, a51, STRIP * 5 + 16);
    s += 32;
  }
}

/** s[:5, j] = q[:5, :headDim] · k[j, :headDim] for the keys of `count` x 8. Rows of q lie headDim floats apart, of s 128. */
export function score_5x8(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const row = <usize>headDim << 2;
  const panel = <usize>headDim << 5;
  for (; count > 0; count--) {
    const end = k + panel;
    let q0 = q;
    let q1 = q0 + row;
    let q2 = q1 + row;
    let q3 = q2 + row;
    let q4 = q3 + row;
    let a00 = f32x4.splat(0);
    let a01 = f32x4.splat(0);
    let a10 = f32x4.splat(0);
    let a11 = f32x4.splat(0);
    let a20 = f32x4.splat(0);
    let a21 = f32x4.splat(0);
    let a30 = f32x4.splat(0);
    let a31 = f32x4.splat(0);
    let a40 = f32x4.splat(0);
    let a41 = f32x4.splat(0);
    do {
      const b0 = v128.load(k);
      const b1 = v128.load(k, 16);
      const x0 = v128.load32_splat(q0);
      a00 = madd(x0, b0, a00);
      a01 = madd(x0, b1, a01);
      const x1 = v128.load32_splat(q1);
      a10 = madd(x1, b0, a10);
      a11 = madd(x1, b1, a11);
      const x2 = v128.load32_splat(q2);
      a20 = madd(x2, b0, a20);
      a21 = madd(x2, b1, a21);
      const x3 = v128.load32_splat(q3);
      a30 = madd(x3, b0, a30);
      a31 = madd(x3, b1, a31);
      const x4 = v128.load32_splat(q4);
      a40 = madd(x4, b0, a40);
      a41 = madd(x4, b1, a41);
      q0 += 4;
      q1 += 4;
      q2 += 4;
      q3 += 4;
      q4 += 4;
      k += 32;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s, a10, STRIP);
    v128.store(s, a11, STRIP * 1 + 16);
    v128.store(s, a20, STRIP * 2);
    v128.store(s, a21, STRIP * 2 + 16);
    v128.store(s, a30, STRIP * 3);
    v128.store(s, a31, STRIP * 3 + 16);
    v128.store(s, a40, STRIP * 4);
    v128.store(s, a41, STRIP * 4 + 16);
    s += 32;
  }
}

/** s[:4, j] = q[:4, :headDim] · k[j, :headDim] for the keys of `count` x 8. Rows of q lie headDim floats apart, of s 128. */
export function score_4x8(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const row = <usize>headDim << 2;
  const panel = <usize>headDim << 5;
  for (; count > 0; count--) {
    const end = k + panel;
    let q0 = q;
    let q1 = q0 + row;
    let q2 = q1 + row;
    let q3 = q2 + row;
    let a00 = f32x4.splat(0);
    let a01 = f32x4.splat(0);
    let a10 = f32x4.splat(0);
    let a11 = f32x4.splat(0);
    let a20 = f32x4.splat(0);
    let a21 = f32x4.splat(0);
    let a30 = f32x4.splat(0);
    let a31 = f32x4.splat(0);
    do {
      const b0 = v128.load(k);
      const b1 = v128.load(k, 16);
      const x0 = v128.load32_splat(q0);
      a00 = madd(x0, b0, a00);
      a01 = madd(x0, b1, a01);
      const x1 = v128.load32_splat(q1);
      a10 = madd(x1, b0, a10);
      a11 = madd(x1, b1, a11);
      const x2 = v128.load32_splat(q2);
      a20 = madd(x2, b0, a20);
      a21 = madd(x2, b1, a21);
      const x3 = v128.load32_splat(q3);
      a30 = madd(x3, b0, a30);
      a31 = madd(x3, b1, a31);
      q0 += 4;
      q1 += 4;
      q2 += 4;
      q3 += 4;
      k += 32;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s, a10, STRIP);
    v128.store(s, a11, STRIP * 1 + 16);
    v128.store(s, a20, STRIP * 2);
    v128.store(s, a21, STRIP * 2 + 16);
    v128.store(s, a30, STRIP * 3);
    v128.store(s, a31, STRIP * 3 + 16);
    s += 32;
  }
}

/** s[:3, j] = q[:3, :headDim] · k[j, :headDim] for the keys of `count` x 16. Rows of q lie headDim floats apart, of s 128. */
export function score_3x16(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const row = <usize>headDim << 2;
  const panel = <usize>headDim << 5;
  for (; count > 0; count--) {
    const end = k + panel;
    let k1 = end;
    let q0 = q;
    let q1 = q0 + row;
    let q2 = q1 + row;
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
      const b0 = v128.load(k);
      const b1 = v128.load(k, 16);
      const x00 = v128.load32_splat(q0);
      a00 = madd(x00, b0, a00);
      a01 = madd(x00, b1, a01);
      const x10 = v128.load32_splat(q1);
      a10 = madd(x10, b0, a10);
      a11 = madd(x10, b1, a11);
      const x20 = v128.load32_splat(q2);
      a20 = madd(x20, b0, a20);
      a21 = madd(x20, b1, a21);
      const b2 = v128.load(k1);
      const b3 = v128.load(k1, 16);
      const x01 = v128.load32_splat(q0);
      a02 = madd(x01, b2, a02);
      a03 = madd(x01, b3, a03);
      const x11 = v128.load32_splat(q1);
      a12 = madd(x11, b2, a12);
      a13 = madd(x11, b3, a13);
      const x21 = v128.load32_splat(q2);
      a22 = madd(x21, b2, a22);
      a23 = madd(x21, b3, a23);
      q0 += 4;
      q1 += 4;
      q2 += 4;
      k += 32;
      k1 += 32;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s, a02, 32);
    v128.store(s, a03, 48);
    v128.store(s, a10, STRIP);
    v128.store(s, a11, STRIP * 1 + 16);
    v128.store(s, a12, STRIP * 1 + 32);
    v128.store(s, a13, STRIP * 1 + 48);
    v128.store(s, a20, STRIP * 2);
    v128.store(s, a21, STRIP * 2 + 16);
    v128.store(s, a22, STRIP * 2 + 32);
    v128.store(s, a23, STRIP * 2 + 48);
    k = k1;
    s += 64;
  }
}

/** s[:2, j] = q[:2, :headDim] · k[j, :headDim] for the keys of `count` x 16. Rows of q lie headDim floats apart, of s 128. */
export function score_2x16(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const row = <usize>headDim << 2;
  const panel = <usize>headDim << 5;
  for (; count > 0; count--) {
    const end = k + panel;
    let k1 = end;
    let q0 = q;
    let q1 = q0 + row;
    let a00 = f32x4.splat(0);
    let a01 = f32x4.splat(0);
    let a02 = f32x4.splat(0);
    let a03 = f32x4.splat(0);
    let a10 = f32x4.splat(0);
    let a11 = f32x4.splat(0);
    let a12 = f32x4.splat(0);
    let a13 = f32x4.splat(0);
    do {
      const b0 = v128.load(k);
      const b1 = v128.load(k, 16);
      const b2 = v128.load(k1);
      const b3 = v128.load(k1, 16);
      const x0 = v128.load32_splat(q0);
      a00 = madd(x0, b0, a00);
      a01 = madd(x0, b1, a01);
      a02 = madd(x0, b2, a02);
      a03 = madd(x0, b3, a03);
      const x1 = v128.load32_splat(q1);
      a10 = madd(x1, b0, a10);
      a11 = madd(x1, b1, a11);
      a12 = madd(x1, b2, a12);
      a13 = madd(x1, b3, a13);
      q0 += 4;
      q1 += 4;
      k += 32;
      k1 += 32;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s, a02, 32);
    v128.store(s, a03, 48);
    v128.store(s, a10, STRIP);
    v128.store(s, a11, STRIP * 1 + 16);
    v128.store(s, a12, STRIP * 1 + 32);
    v128.store(s, a13, STRIP * 1 + 48);
    k = k1;
    s += 64;
  }
}

/** s[:1, j] = q[:1, :headDim] · k[j, :headDim] for the keys of `count` x 32. Rows of q lie headDim floats apart, of s 128. */
export function score_1x32(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  const row = <usize>headDim << 2;
  const panel = <usize>headDim << 5;
  for (; count > 0; count--) {
    const end = k + panel;
    let k1 = end;
    let k2 = k + panel * 2;
    let k3 = k + panel * 3;
    let q0 = q;
    let a00 = f32x4.splat(0);
    let a01 = f32x4.splat(0);
    let a02 = f32x4.splat(0);
    let a03 = f32x4.splat(0);
    let a04 = f32x4.splat(0);
    let a05 = f32x4.splat(0);
    let a06 = f32x4.splat(0);
    let a07 = f32x4.splat(0);
    do {
      const x = v128.load32_splat(q0);
      a00 = madd(x, v128.load(k), a00);
      a01 = madd(x, v128.load(k, 16), a01);
      a02 = madd(x, v128.load(k1), a02);
      a03 = madd(x, v128.load(k1, 16), a03);
      a04 = madd(x, v128.load(k2), a04);
      a05 = madd(x, v128.load(k2, 16), a05);
      a06 = madd(x, v128.load(k3), a06);
      a07 = madd(x, v128.load(k3, 16), a07);
      q0 += 4;
      k += 32;
      k1 += 32;
      k2 += 32;
      k3 += 32;
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s, a02, 32);
    v128.store(s, a03, 48);
    v128.store(s, a04, 64);
    v128.store(s, a05, 80);
    v128.store(s, a06, 96);
    v128.store(s, a07, 112);
    k = k3;
    s += 128;
  }
}

/** Scores of `rows` rows for the keys [first, last) of a page, multiples of the tile's keys. */
export function scoreKeys(rows: i32, s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, first: i32, last: i32): void {
  const to = s + (<usize>first << 2);
  const from = k + ((<usize>first * headDim) << 2);
  const n = last - first;
  switch (rows) {
    case 6:
      return score_6x8(to, q, from, headDim, n >> 3);
    case 5:
      return score_5x8(to, q, from, headDim, n >> 3);
    case 4:
      return score_4x8(to, q, from, headDim, n >> 3);
    case 3:
      return score_3x16(to, q, from, headDim, n >> 4);
    case 2:
      return score_2x16(to, q, from, headDim, n >> 4);
    default:
      return score_1x32(to, q, from, headDim, n >> 5);
  }
}
