import { CHUNK_BYTES, STRIP_BYTES } from "../attention/state";
import { QUERY_CHUNK } from "../layout";
import { MADD_FUSES, madd } from "../math/simd";
import { F32Ptr } from "../types";
import { PAIR_STEP_BYTES, pair_bytes } from "./page";

// Tiles of attention_latents's scores: rows of queries x tokens, with four components in the lanes of an accumulator. Lane i
// takes the components d with d % 4 = i in ascending order, and a score is (0 + 2) + (1 + 3) of its lanes, so that all forms
// give the same bits. Registers and chunks of queries are as in attention/qk.ts.

/** Bytes of a chunk of QUERY_CHUNK components of two tokens. */
const PAIR_CHUNK_BYTES: usize = (QUERY_CHUNK << 2) * 2;

/** (0 + 2, 1 + 3) of the lanes of a, then of b. */
// @ts-ignore: decorator
@inline
function half_sums(a: v128, b: v128): v128 {
  return f32x4.add(v128.shuffle<f32>(a, b, 0, 1, 4, 5), v128.shuffle<f32>(a, b, 2, 3, 6, 7));
}

/** The sums of four accumulators, from their half sums. */
// @ts-ignore: decorator
@inline
function whole_sums(ab: v128, cd: v128): v128 {
  return f32x4.add(v128.shuffle<f32>(ab, cd, 0, 2, 4, 6), v128.shuffle<f32>(ab, cd, 1, 3, 5, 7));
}

/**
 * C[rows, j] = A[rows] · B[j] for the first 2 · count tokens. `rows` is a constant from 1 to 6.
 *
 * 6x2 tile, 15 v128: acc00..acc51 = 12 | b0 b1 = 2 | a<row> = 1
 * A [chunk][rows][QUERY_CHUNK], row stride CHUNK_BYTES · B pairs [dim/4][2][4] · C [rows][2] row stride STRIP_BYTES
 * not unrolled, because V8 would mix the steps and spill
 */
// @ts-ignore: decorator
@inline
function qk_nx2(rows: i32, cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, dim: i32, count: i32): void {
  for (; count > 0; count--) {
    const bEnd = bPtr0 + pair_bytes(dim);
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
      const chunkEnd = min<usize>(bPtr0 + PAIR_CHUNK_BYTES, bEnd);
      do {
        const b0 = v128.load(bPtr0);
        const b1 = v128.load(bPtr0, 16);
        const a0 = v128.load(aPtr0);
        acc00 = madd(a0, b0, acc00);
        acc01 = madd(a0, b1, acc01);
        if (rows > 1) {
          const a1 = v128.load(aPtr0, CHUNK_BYTES);
          acc10 = madd(a1, b0, acc10);
          acc11 = madd(a1, b1, acc11);
        }
        if (rows > 2) {
          const a2 = v128.load(aPtr0, CHUNK_BYTES * 2);
          acc20 = madd(a2, b0, acc20);
          acc21 = madd(a2, b1, acc21);
        }
        if (rows > 3) {
          const a3 = v128.load(aPtr0, CHUNK_BYTES * 3);
          acc30 = madd(a3, b0, acc30);
          acc31 = madd(a3, b1, acc31);
        }
        if (rows > 4) {
          const a4 = v128.load(aPtr0, CHUNK_BYTES * 4);
          acc40 = madd(a4, b0, acc40);
          acc41 = madd(a4, b1, acc41);
        }
        if (rows > 5) {
          const a5 = v128.load(aPtr0, CHUNK_BYTES * 5);
          acc50 = madd(a5, b0, acc50);
          acc51 = madd(a5, b1, acc51);
        }
        aPtr0 += 16;
        bPtr0 += PAIR_STEP_BYTES;
      } while (bPtr0 < chunkEnd);
      aPtr0 += CHUNK_BYTES * (rows - 1);
    } while (bPtr0 < bEnd);
    const c01 = whole_sums(half_sums(acc00, acc01), half_sums(acc10, acc11));
    v128.store_lane<f64>(cPtr0, c01, 0);
    if (rows > 1) v128.store_lane<f64>(cPtr0, c01, 1, STRIP_BYTES);
    if (rows > 2) {
      const c23 = whole_sums(half_sums(acc20, acc21), half_sums(acc30, acc31));
      v128.store_lane<f64>(cPtr0, c23, 0, STRIP_BYTES * 2);
      if (rows > 3) v128.store_lane<f64>(cPtr0, c23, 1, STRIP_BYTES * 3);
    }
    if (rows > 4) {
      const c45 = whole_sums(half_sums(acc40, acc41), half_sums(acc50, acc51));
      v128.store_lane<f64>(cPtr0, c45, 0, STRIP_BYTES * 4);
      if (rows > 5) v128.store_lane<f64>(cPtr0, c45, 1, STRIP_BYTES * 5);
    }
    cPtr0 += 8;
  }
}

function qk_6x2(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, dim: i32, count: i32): void {
  qk_nx2(6, cPtr0, aPtr, bPtr0, dim, count);
}

function qk_5x2(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, dim: i32, count: i32): void {
  qk_nx2(5, cPtr0, aPtr, bPtr0, dim, count);
}

function qk_4x2(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, dim: i32, count: i32): void {
  qk_nx2(4, cPtr0, aPtr, bPtr0, dim, count);
}

function qk_3x2(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, dim: i32, count: i32): void {
  qk_nx2(3, cPtr0, aPtr, bPtr0, dim, count);
}

function qk_2x2(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, dim: i32, count: i32): void {
  qk_nx2(2, cPtr0, aPtr, bPtr0, dim, count);
}

function qk_1x2(cPtr0: F32Ptr, aPtr: F32Ptr, bPtr0: F32Ptr, dim: i32, count: i32): void {
  qk_nx2(1, cPtr0, aPtr, bPtr0, dim, count);
}

/** Scores of a strip of `rows` rows for the first 2 · count tokens at `latents`. */
export function qk_latents(rows: i32, s: F32Ptr, q: F32Ptr, latents: F32Ptr, dim: i32, count: i32): void {
  switch (rows) {
    case 6:
      if (MADD_FUSES) qk_6x2(s, q, latents, dim, count);
      return;
    case 5:
      return qk_5x2(s, q, latents, dim, count);
    case 4:
      return qk_4x2(s, q, latents, dim, count);
    case 3:
      return qk_3x2(s, q, latents, dim, count);
    case 2:
      return qk_2x2(s, q, latents, dim, count);
    default:
      return qk_1x2(s, q, latents, dim, count);
  }
}
