import { madd } from "./simd";
import { F32Ptr } from "./types";

// The micro-tiles of attention_f32. Every output has one accumulator and walks its sum upwards, so that all forms give
// the same bits. A tile of R x C keeps R·C/4 accumulators beside its operands: 15 vector registers are all V8 has, and 8
// chains at least keep two multiply-adds of latency 4 in flight.

/** Bytes between the rows of a strip of scores, between the states of rows, and from a state to its alpha. */
// 128 keys, 8 floats and 5 floats.
const STRIP = 512;
const STATE = 32;
const ALPHA = 20;
/** Bytes of a value panel: 128 keys of 8 columns. */
const VALUES = 4096;

/** Whether a sum of accumulators shows that all of them are finite (it may overflow: a false alarm costs time only). */
// @ts-ignore: decorator
@inline
function finite(sum: v128): bool {
  return !v128.any_true(f32x4.ne(f32x4.sub(sum, sum), f32x4.splat(0)));
}

/** o[:6, :8] = alpha[:6] · o + p[:6, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_6x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const o1 = o + row;
  const o2 = o1 + row;
  const o3 = o2 + row;
  const o4 = o3 + row;
  const o5 = o4 + row;
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE + ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE * 2 + ALPHA);
  let a20 = f32x4.mul(v128.load(o2), alpha2);
  let a21 = f32x4.mul(v128.load(o2, 16), alpha2);
  const alpha3 = v128.load32_splat(state, STATE * 3 + ALPHA);
  let a30 = f32x4.mul(v128.load(o3), alpha3);
  let a31 = f32x4.mul(v128.load(o3, 16), alpha3);
  const alpha4 = v128.load32_splat(state, STATE * 4 + ALPHA);
  let a40 = f32x4.mul(v128.load(o4), alpha4);
  let a41 = f32x4.mul(v128.load(o4, 16), alpha4);
  const alpha5 = v128.load32_splat(state, STATE * 5 + ALPHA);
  let a50 = f32x4.mul(v128.load(o5), alpha5);
  let a51 = f32x4.mul(v128.load(o5, 16), alpha5);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    const x1 = v128.load32_splat(p, STRIP);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    const x2 = v128.load32_splat(p, STRIP * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    const x4 = v128.load32_splat(p, STRIP * 4);
    a40 = madd(x4, b0, a40);
    a41 = madd(x4, b1, a41);
    const x5 = v128.load32_splat(p, STRIP * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a20);
    sum = f32x4.add(sum, a21);
    sum = f32x4.add(sum, a30);
    sum = f32x4.add(sum, a31);
    sum = f32x4.add(sum, a40);
    sum = f32x4.add(sum, a41);
    sum = f32x4.add(sum, a50);
    sum = f32x4.add(sum, a51);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  v128.store(o3, a30);
  v128.store(o3, a31, 16);
  v128.store(o4, a40);
  v128.store(o4, a41, 16);
  v128.store(o5, a50);
  v128.store(o5, a51, 16);
  return 0;
}

/**
 * weigh_6x8 where row r attends r keys more than row 0: the first n keys belong to all rows, then key n + step to the rows
 * above `step`, for the steps from..to-1. No pair outside is multiplied, so nothing is checked. p and v point at the first
 * of the n keys; n may be negative when the first rows attend no key of the page.
 */
export function weigh_6x8_causal(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, from: i32, to: i32): void {
  const o1 = o + row;
  const o2 = o1 + row;
  const o3 = o2 + row;
  const o4 = o3 + row;
  const o5 = o4 + row;
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE + ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE * 2 + ALPHA);
  let a20 = f32x4.mul(v128.load(o2), alpha2);
  let a21 = f32x4.mul(v128.load(o2, 16), alpha2);
  const alpha3 = v128.load32_splat(state, STATE * 3 + ALPHA);
  let a30 = f32x4.mul(v128.load(o3), alpha3);
  let a31 = f32x4.mul(v128.load(o3, 16), alpha3);
  const alpha4 = v128.load32_splat(state, STATE * 4 + ALPHA);
  let a40 = f32x4.mul(v128.load(o4), alpha4);
  let a41 = f32x4.mul(v128.load(o4, 16), alpha4);
  const alpha5 = v128.load32_splat(state, STATE * 5 + ALPHA);
  let a50 = f32x4.mul(v128.load(o5), alpha5);
  let a51 = f32x4.mul(v128.load(o5, 16), alpha5);
  const end = n > 0 ? p + (<usize>n << 2) : p;
  while (p < end) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    const x1 = v128.load32_splat(p, STRIP);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    const x2 = v128.load32_splat(p, STRIP * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    const x4 = v128.load32_splat(p, STRIP * 4);
    a40 = madd(x4, b0, a40);
    a41 = madd(x4, b1, a41);
    const x5 = v128.load32_splat(p, STRIP * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
    p += 4;
    v += 32;
  }
  if (from <= 0 && to > 0) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x1 = v128.load32_splat(p, STRIP);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    const x2 = v128.load32_splat(p, STRIP * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    const x4 = v128.load32_splat(p, STRIP * 4);
    a40 = madd(x4, b0, a40);
    a41 = madd(x4, b1, a41);
    const x5 = v128.load32_splat(p, STRIP * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
    p += 4;
    v += 32;
  }
  if (from <= 1 && to > 1) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x2 = v128.load32_splat(p, STRIP * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    const x4 = v128.load32_splat(p, STRIP * 4);
    a40 = madd(x4, b0, a40);
    a41 = madd(x4, b1, a41);
    const x5 = v128.load32_splat(p, STRIP * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
    p += 4;
    v += 32;
  }
  if (from <= 2 && to > 2) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x3 = v128.load32_splat(p, STRIP * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    const x4 = v128.load32_splat(p, STRIP * 4);
    a40 = madd(x4, b0, a40);
    a41 = madd(x4, b1, a41);
    const x5 = v128.load32_splat(p, STRIP * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
    p += 4;
    v += 32;
  }
  if (from <= 3 && to > 3) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x4 = v128.load32_splat(p, STRIP * 4);
    a40 = madd(x4, b0, a40);
    a41 = madd(x4, b1, a41);
    const x5 = v128.load32_splat(p, STRIP * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
    p += 4;
    v += 32;
  }
  if (from <= 4 && to > 4) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x5 = v128.load32_splat(p, STRIP * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  v128.store(o3, a30);
  v128.store(o3, a31, 16);
  v128.store(o4, a40);
  v128.store(o4, a41, 16);
  v128.store(o5, a50);
  v128.store(o5, a51, 16);
}

/** o[:5, :8] = alpha[:5] · o + p[:5, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_5x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const o1 = o + row;
  const o2 = o1 + row;
  const o3 = o2 + row;
  const o4 = o3 + row;
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE + ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE * 2 + ALPHA);
  let a20 = f32x4.mul(v128.load(o2), alpha2);
  let a21 = f32x4.mul(v128.load(o2, 16), alpha2);
  const alpha3 = v128.load32_splat(state, STATE * 3 + ALPHA);
  let a30 = f32x4.mul(v128.load(o3), alpha3);
  let a31 = f32x4.mul(v128.load(o3, 16), alpha3);
  const alpha4 = v128.load32_splat(state, STATE * 4 + ALPHA);
  let a40 = f32x4.mul(v128.load(o4), alpha4);
  let a41 = f32x4.mul(v128.load(o4, 16), alpha4);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    const x1 = v128.load32_splat(p, STRIP);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    const x2 = v128.load32_splat(p, STRIP * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    const x4 = v128.load32_splat(p, STRIP * 4);
    a40 = madd(x4, b0, a40);
    a41 = madd(x4, b1, a41);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a20);
    sum = f32x4.add(sum, a21);
    sum = f32x4.add(sum, a30);
    sum = f32x4.add(sum, a31);
    sum = f32x4.add(sum, a40);
    sum = f32x4.add(sum, a41);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  v128.store(o3, a30);
  v128.store(o3, a31, 16);
  v128.store(o4, a40);
  v128.store(o4, a41, 16);
  return 0;
}

/** o[:4, :8] = alpha[:4] · o + p[:4, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_4x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const o1 = o + row;
  const o2 = o1 + row;
  const o3 = o2 + row;
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE + ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE * 2 + ALPHA);
  let a20 = f32x4.mul(v128.load(o2), alpha2);
  let a21 = f32x4.mul(v128.load(o2, 16), alpha2);
  const alpha3 = v128.load32_splat(state, STATE * 3 + ALPHA);
  let a30 = f32x4.mul(v128.load(o3), alpha3);
  let a31 = f32x4.mul(v128.load(o3, 16), alpha3);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    const x1 = v128.load32_splat(p, STRIP);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    const x2 = v128.load32_splat(p, STRIP * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a20);
    sum = f32x4.add(sum, a21);
    sum = f32x4.add(sum, a30);
    sum = f32x4.add(sum, a31);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  v128.store(o3, a30);
  v128.store(o3, a31, 16);
  return 0;
}

/** o[:3, :8] = alpha[:3] · o + p[:3, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_3x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const o1 = o + row;
  const o2 = o1 + row;
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE + ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE * 2 + ALPHA);
  let a20 = f32x4.mul(v128.load(o2), alpha2);
  let a21 = f32x4.mul(v128.load(o2, 16), alpha2);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    const x1 = v128.load32_splat(p, STRIP);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    const x2 = v128.load32_splat(p, STRIP * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a20);
    sum = f32x4.add(sum, a21);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  return 0;
}

/** o[:3, :16] = alpha[:3] · o + p[:3, :n] · v[:n, :16], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_3x16(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const o1 = o + row;
  const o2 = o1 + row;
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  let a02 = f32x4.mul(v128.load(o, 32), alpha0);
  let a03 = f32x4.mul(v128.load(o, 48), alpha0);
  const alpha1 = v128.load32_splat(state, STATE + ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  let a12 = f32x4.mul(v128.load(o1, 32), alpha1);
  let a13 = f32x4.mul(v128.load(o1, 48), alpha1);
  const alpha2 = v128.load32_splat(state, STATE * 2 + ALPHA);
  let a20 = f32x4.mul(v128.load(o2), alpha2);
  let a21 = f32x4.mul(v128.load(o2, 16), alpha2);
  let a22 = f32x4.mul(v128.load(o2, 32), alpha2);
  let a23 = f32x4.mul(v128.load(o2, 48), alpha2);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x00 = v128.load32_splat(p);
    a00 = madd(x00, b0, a00);
    a01 = madd(x00, b1, a01);
    const x10 = v128.load32_splat(p, STRIP);
    a10 = madd(x10, b0, a10);
    a11 = madd(x10, b1, a11);
    const x20 = v128.load32_splat(p, STRIP * 2);
    a20 = madd(x20, b0, a20);
    a21 = madd(x20, b1, a21);
    const b2 = v128.load(v, VALUES);
    const b3 = v128.load(v, VALUES + 16);
    const x01 = v128.load32_splat(p);
    a02 = madd(x01, b2, a02);
    a03 = madd(x01, b3, a03);
    const x11 = v128.load32_splat(p, STRIP);
    a12 = madd(x11, b2, a12);
    a13 = madd(x11, b3, a13);
    const x21 = v128.load32_splat(p, STRIP * 2);
    a22 = madd(x21, b2, a22);
    a23 = madd(x21, b3, a23);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a02);
    sum = f32x4.add(sum, a03);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a12);
    sum = f32x4.add(sum, a13);
    sum = f32x4.add(sum, a20);
    sum = f32x4.add(sum, a21);
    sum = f32x4.add(sum, a22);
    sum = f32x4.add(sum, a23);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o, a02, 32);
  v128.store(o, a03, 48);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o1, a12, 32);
  v128.store(o1, a13, 48);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  v128.store(o2, a22, 32);
  v128.store(o2, a23, 48);
  return 0;
}

/** o[:2, :8] = alpha[:2] · o + p[:2, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_2x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const o1 = o + row;
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE + ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    const x1 = v128.load32_splat(p, STRIP);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  return 0;
}

/** o[:2, :16] = alpha[:2] · o + p[:2, :n] · v[:n, :16], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_2x16(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const o1 = o + row;
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  let a02 = f32x4.mul(v128.load(o, 32), alpha0);
  let a03 = f32x4.mul(v128.load(o, 48), alpha0);
  const alpha1 = v128.load32_splat(state, STATE + ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  let a12 = f32x4.mul(v128.load(o1, 32), alpha1);
  let a13 = f32x4.mul(v128.load(o1, 48), alpha1);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const b2 = v128.load(v, VALUES);
    const b3 = v128.load(v, VALUES + 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    a02 = madd(x0, b2, a02);
    a03 = madd(x0, b3, a03);
    const x1 = v128.load32_splat(p, STRIP);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    a12 = madd(x1, b2, a12);
    a13 = madd(x1, b3, a13);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a02);
    sum = f32x4.add(sum, a03);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a12);
    sum = f32x4.add(sum, a13);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o, a02, 32);
  v128.store(o, a03, 48);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o1, a12, 32);
  v128.store(o1, a13, 48);
  return 0;
}

/** o[:1, :8] = alpha[:1] · o + p[:1, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_1x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const end = p + (<usize>n << 2);
  do {
    const x = v128.load32_splat(p);
    a00 = madd(x, v128.load(v), a00);
    a01 = madd(x, v128.load(v, 16), a01);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  return 0;
}

/** o[:1, :32] = alpha[:1] · o + p[:1, :n] · v[:n, :32], n > 0. Checked: 1, and o as it was, when a result is not finite. */
export function weigh_1x32(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const alpha0 = v128.load32_splat(state, ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  let a02 = f32x4.mul(v128.load(o, 32), alpha0);
  let a03 = f32x4.mul(v128.load(o, 48), alpha0);
  let a04 = f32x4.mul(v128.load(o, 64), alpha0);
  let a05 = f32x4.mul(v128.load(o, 80), alpha0);
  let a06 = f32x4.mul(v128.load(o, 96), alpha0);
  let a07 = f32x4.mul(v128.load(o, 112), alpha0);
  const end = p + (<usize>n << 2);
  do {
    const x = v128.load32_splat(p);
    a00 = madd(x, v128.load(v), a00);
    a01 = madd(x, v128.load(v, 16), a01);
    a02 = madd(x, v128.load(v, VALUES), a02);
    a03 = madd(x, v128.load(v, VALUES + 16), a03);
    a04 = madd(x, v128.load(v, VALUES * 2), a04);
    a05 = madd(x, v128.load(v, VALUES * 2 + 16), a05);
    a06 = madd(x, v128.load(v, VALUES * 3), a06);
    a07 = madd(x, v128.load(v, VALUES * 3 + 16), a07);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a02);
    sum = f32x4.add(sum, a03);
    sum = f32x4.add(sum, a04);
    sum = f32x4.add(sum, a05);
    sum = f32x4.add(sum, a06);
    sum = f32x4.add(sum, a07);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o, a02, 32);
  v128.store(o, a03, 48);
  v128.store(o, a04, 64);
  v128.store(o, a05, 80);
  v128.store(o, a06, 96);
  v128.store(o, a07, 112);
  return 0;
}

/** The tile of `rows` rows and 8 columns. */
export function weighColumns(
  rows: i32,
  o: F32Ptr,
  row: usize,
  state: F32Ptr,
  p: F32Ptr,
  v: F32Ptr,
  n: i32,
  check: i32,
): i32 {
  switch (rows) {
    case 6:
      return weigh_6x8(o, row, state, p, v, n, check);
    case 5:
      return weigh_5x8(o, row, state, p, v, n, check);
    case 4:
      return weigh_4x8(o, row, state, p, v, n, check);
    case 3:
      return weigh_3x8(o, row, state, p, v, n, check);
    case 2:
      return weigh_2x8(o, row, state, p, v, n, check);
    default:
      return weigh_1x8(o, row, state, p, v, n, check);
  }
}
