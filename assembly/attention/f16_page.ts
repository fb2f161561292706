import { QUERY_CHUNK, TILE_ROWS } from "../layout";
import { load_first } from "../math/simd";
import { F32Ptr } from "../types";
import { CHUNK_BYTES, query_bytes, STRIP_BYTES } from "./state";

// Queries and weights for the tiles of f16 (f16_tile.ts), times 2^112.

/** From more rows on a page is widened once for all of them: strips widen it anew. */
export const FEW_ROWS = 8;

/** 2^112 and 2^-112; all bits but the sign. */
const SCALES = memory.data<u32>([0x77800000, 0x07800000, 0x7fffffff]);

/** How far behind queries the scaled ones lie: where a tile of TILE_ROWS rows has queries of rows that FEW_ROWS have not. */
// @ts-ignore: decorator
@inline
export function scaled_queries(headDim: i32): usize {
  return query_bytes(headDim) * (TILE_ROWS / 2);
}

/** Scales the queries of a strip. Returns whether all are finite. */
export function scale_queries(queries: F32Ptr, rows: i32, headDim: i32): bool {
  const scale = v128.load32_splat(SCALES);
  const magnitude = v128.load32_splat(SCALES, 8);
  const to = scaled_queries(headDim);
  let top = i32x4.splat(0);
  for (let d = 0; d < headDim; d += QUERY_CHUNK) {
    for (let i = 0; i < rows; i++) {
      for (let c = d; c < min(d + QUERY_CHUNK, headDim); c += 4) {
        const at = queries + (<usize>(c - d) << 2);
        const x = f32x4.mul(load_first(at, headDim - c, 0), scale);
        top = i32x4.max_u(top, v128.and(x, magnitude));
        v128.store(at + to, x);
      }
      queries += CHUNK_BYTES;
    }
  }
  return !v128.any_true(i32x4.ge_u(top, i32x4.splat(0x7f800000)));
}

/** Scales the weights of the keys [first, last). */
export function scale_weights(rows: i32, s: F32Ptr, first: i32, last: i32): void {
  multiply_weights(rows, s, first, last, v128.load32_splat(SCALES));
}

/** What they were, to the bit. */
export function unscale_weights(rows: i32, s: F32Ptr, first: i32, last: i32): void {
  multiply_weights(rows, s, first, last, v128.load32_splat(SCALES, 4));
}

// @ts-ignore: decorator
@inline
function multiply_weights(rows: i32, s: F32Ptr, first: i32, last: i32, factor: v128): void {
  for (let i = 0; i < rows; i++) {
    multiply(s + (<usize>(first & -4) << 2), s + (<usize>last << 2), factor);
    s += STRIP_BYTES;
  }
}

/** The floats from `at` to `end` times 2^-112, whole vectors. */
export function unscale(at: usize, end: usize): void {
  multiply(at, end, v128.load32_splat(SCALES, 4));
}

// @ts-ignore: decorator
@inline
function multiply(at: usize, end: usize, factor: v128): void {
  for (; at < end; at += 16) v128.store(at, f32x4.mul(v128.load(at), factor));
}
