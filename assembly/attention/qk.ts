import { CHUNK_BYTES, KEY_CHUNK_BYTES, STRIP_BYTES } from "./state";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// The micro-tiles of attention_f32's scores: R query rows x C keys. Every score has one accumulator and walks its sum
// upwards, so that all forms give the same bits. A tile keeps R·C/4 accumulators beside its operands: V8 has 15 vector
// registers, and 8 chains at least keep two multiply-adds of latency 4 in flight. The R rows of q lie interleaved in
// chunks of 64 components, so that one address and constant offsets reach them all; rows of s lie a page of floats
// apart.

/**
 * s[:rows, j] = q[:rows] · k[j] for the first 8 · count keys of k. `rows` is a constant from 3 to 6 where this is inlined:
 * six rows are 12 accumulators, two keys and one component, all the registers there are.
 */
// @ts-ignore: decorator
@inline
function score_x8(rows: i32, s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  for (; count > 0; count--) {
    const end = k + (<usize>headDim << 5);
    let x = q;
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
      const stop = min<usize>(k + KEY_CHUNK_BYTES, end);
      do {
        const b0 = v128.load(k);
        const b1 = v128.load(k, 16);
        const x0 = v128.load32_splat(x);
        a00 = madd(x0, b0, a00);
        a01 = madd(x0, b1, a01);
        const x1 = v128.load32_splat(x, CHUNK_BYTES);
        a10 = madd(x1, b0, a10);
        a11 = madd(x1, b1, a11);
        const x2 = v128.load32_splat(x, CHUNK_BYTES * 2);
        a20 = madd(x2, b0, a20);
        a21 = madd(x2, b1, a21);
        if (rows > 3) {
          const x3 = v128.load32_splat(x, CHUNK_BYTES * 3);
          a30 = madd(x3, b0, a30);
          a31 = madd(x3, b1, a31);
        }
        if (rows > 4) {
          const x4 = v128.load32_splat(x, CHUNK_BYTES * 4);
          a40 = madd(x4, b0, a40);
          a41 = madd(x4, b1, a41);
        }
        if (rows > 5) {
          const x5 = v128.load32_splat(x, CHUNK_BYTES * 5);
          a50 = madd(x5, b0, a50);
          a51 = madd(x5, b1, a51);
        }
        x += 4;
        k += 32;
      } while (k < stop);
      x += CHUNK_BYTES * (rows - 1);
    } while (k < end);
    v128.store(s, a00);
    v128.store(s, a01, 16);
    v128.store(s, a10, STRIP_BYTES);
    v128.store(s, a11, STRIP_BYTES + 16);
    v128.store(s, a20, STRIP_BYTES * 2);
    v128.store(s, a21, STRIP_BYTES * 2 + 16);
    if (rows > 3) {
      v128.store(s, a30, STRIP_BYTES * 3);
      v128.store(s, a31, STRIP_BYTES * 3 + 16);
    }
    if (rows > 4) {
      v128.store(s, a40, STRIP_BYTES * 4);
      v128.store(s, a41, STRIP_BYTES * 4 + 16);
    }
    if (rows > 5) {
      v128.store(s, a50, STRIP_BYTES * 5);
      v128.store(s, a51, STRIP_BYTES * 5 + 16);
    }
    s += 32;
  }
}

export function score_6x8(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  score_x8(6, s, q, k, headDim, count);
}

export function score_5x8(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  score_x8(5, s, q, k, headDim, count);
}

export function score_4x8(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  score_x8(4, s, q, k, headDim, count);
}

export function score_3x8(s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, count: i32): void {
  score_x8(3, s, q, k, headDim, count);
}
