import { PANEL_BYTES, PANEL_BYTES_16 } from "../layout";
import { BEFORE, even, kept_bits, odd, store_columns } from "../linear/f16_skinny";
import { madd } from "../math/simd";
import { F32Ptr, U16Ptr } from "../types";
import { element_of, F16_CHUNK_BYTES, has_non_finite, note, start_even, start_odd } from "./f16_lines";
import { pv_f16_1x32, pv_f16_2x16, qk_f16_1x32, qk_f16_2x16 } from "./f16_tile_skinny";
import { is_finite } from "./pv";
import { CHUNK_BYTES, STATE_BYTES, STRIP_BYTES } from "./state";

// Tiles of attention on pages of f16 for few rows, which widen keys and values in registers as they multiply: see
// f16_lines.ts.

/**
 * C[rows, 8] = A[rows, n] · B[n, 8], for `values` plus alpha[rows] · C. Returns 1 and leaves C as it was where B is not
 * finite, or with `check` a result. `values` and `rows`, from 1 to 5, are constants; `tall` is the height of the strip,
 * which queries are interleaved by.
 *
 * 5x8 tile, 15 v128: acc00..acc41 = 10 | line, b0 or b1 = 2 | a<row> = 1 | kept, seen = 2
 * A queries [chunk][tall][QUERY_CHUNK], or weights [rows][n] row stride STRIP_BYTES · B [n][8] halves · C row stride cStride
 * n not unrolled · every sum takes n in ascending order
 */
// @ts-ignore: decorator
@inline
function f16_nx8(
  values: bool,
  rows: i32,
  cPtr0: F32Ptr,
  cStride: usize,
  state: usize,
  aPtr0: F32Ptr,
  tall: usize,
  bPtr0: U16Ptr,
  n: i32,
  check: i32,
): i32 {
  const kept = kept_bits(false);
  let seen = i32x4.splat(0);
  let acc00 = start_even(values, cPtr0, state);
  let acc01 = start_odd(values, cPtr0, state);
  const cPtr1 = cPtr0 + cStride;
  let acc10 = rows > 1 ? start_even(values, cPtr1, state + STATE_BYTES) : acc00;
  let acc11 = rows > 1 ? start_odd(values, cPtr1, state + STATE_BYTES) : acc01;
  const cPtr2 = cPtr1 + cStride;
  let acc20 = rows > 2 ? start_even(values, cPtr2, state + STATE_BYTES * 2) : acc00;
  let acc21 = rows > 2 ? start_odd(values, cPtr2, state + STATE_BYTES * 2) : acc01;
  const cPtr3 = cPtr2 + cStride;
  let acc30 = rows > 3 ? start_even(values, cPtr3, state + STATE_BYTES * 3) : acc00;
  let acc31 = rows > 3 ? start_odd(values, cPtr3, state + STATE_BYTES * 3) : acc01;
  const cPtr4 = cPtr3 + cStride;
  let acc40 = rows > 4 ? start_even(values, cPtr4, state + STATE_BYTES * 4) : acc00;
  let acc41 = rows > 4 ? start_odd(values, cPtr4, state + STATE_BYTES * 4) : acc01;
  bPtr0 -= BEFORE;
  const bEnd = bPtr0 + <usize>n * PANEL_BYTES_16;
  do {
    const chunkEnd = values ? bEnd : min<usize>(bPtr0 + F16_CHUNK_BYTES, bEnd);
    do {
      const line = v128.load(bPtr0, BEFORE);
      seen = note(seen, line);
      const b0 = even(false, bPtr0, line, kept);
      const b1 = odd(false, line, kept);
      const a0 = element_of(values, 0, aPtr0);
      acc00 = madd(a0, b0, acc00);
      acc01 = madd(a0, b1, acc01);
      if (rows > 1) {
        const a1 = element_of(values, 1, aPtr0);
        acc10 = madd(a1, b0, acc10);
        acc11 = madd(a1, b1, acc11);
      }
      if (rows > 2) {
        const a2 = element_of(values, 2, aPtr0);
        acc20 = madd(a2, b0, acc20);
        acc21 = madd(a2, b1, acc21);
      }
      if (rows > 3) {
        const a3 = element_of(values, 3, aPtr0);
        acc30 = madd(a3, b0, acc30);
        acc31 = madd(a3, b1, acc31);
      }
      if (rows > 4) {
        const a4 = element_of(values, 4, aPtr0);
        acc40 = madd(a4, b0, acc40);
        acc41 = madd(a4, b1, acc41);
      }
      aPtr0 += 4;
      bPtr0 += PANEL_BYTES_16;
    } while (bPtr0 < chunkEnd);
    aPtr0 += CHUNK_BYTES * (tall - 1);
  } while (!values && bPtr0 < bEnd);
  if (has_non_finite(seen)) return 1;
  if (values && check != 0) {
    let sum = f32x4.add(acc00, acc01);
    if (rows > 1) sum = f32x4.add(sum, f32x4.add(acc10, acc11));
    if (rows > 2) sum = f32x4.add(sum, f32x4.add(acc20, acc21));
    if (rows > 3) sum = f32x4.add(sum, f32x4.add(acc30, acc31));
    if (rows > 4) sum = f32x4.add(sum, f32x4.add(acc40, acc41));
    if (!is_finite(sum)) return 1;
  }
  store_columns(cPtr0, acc00, acc01);
  if (rows > 1) store_columns(cPtr1, acc10, acc11);
  if (rows > 2) store_columns(cPtr2, acc20, acc21);
  if (rows > 3) store_columns(cPtr3, acc30, acc31);
  if (rows > 4) store_columns(cPtr4, acc40, acc41);
  return 0;
}

// @ts-ignore: decorator
@inline
function qk_f16_nx8(rows: i32, s: F32Ptr, a: F32Ptr, tall: usize, k: U16Ptr, headDim: i32, count: i32): i32 {
  for (; count > 0; count--) {
    if (f16_nx8(false, rows, s, STRIP_BYTES, 0, a, tall, k, headDim, 0)) return 1;
    s += PANEL_BYTES;
    k += <usize>headDim * PANEL_BYTES_16;
  }
  return 0;
}

function qk_f16_3x8(s: F32Ptr, a: F32Ptr, tall: usize, k: U16Ptr, headDim: i32, count: i32): i32 {
  return qk_f16_nx8(3, s, a, tall, k, headDim, count);
}

function qk_f16_4x8(s: F32Ptr, a: F32Ptr, k: U16Ptr, headDim: i32, count: i32): i32 {
  return qk_f16_nx8(4, s, a, 4, k, headDim, count);
}

function qk_f16_5x8(s: F32Ptr, a: F32Ptr, k: U16Ptr, headDim: i32, count: i32): i32 {
  return qk_f16_nx8(5, s, a, 5, k, headDim, count);
}

/** s[rows, keys] = q · k for `keys` keys, a multiple of what attend_page takes at a time; q times 2^112. 1: k is not finite. */
export function qk_f16(rows: i32, s: F32Ptr, a: F32Ptr, k: U16Ptr, headDim: i32, keys: i32): i32 {
  switch (rows) {
    case 6:
      if (qk_f16_3x8(s, a, 6, k, headDim, keys >> 3)) return 1;
      return qk_f16_3x8(s + STRIP_BYTES * 3, a + CHUNK_BYTES * 3, 6, k, headDim, keys >> 3);
    case 5:
      return qk_f16_5x8(s, a, k, headDim, keys >> 3);
    case 4:
      return qk_f16_4x8(s, a, k, headDim, keys >> 3);
    case 3:
      return qk_f16_3x8(s, a, 3, k, headDim, keys >> 3);
    case 2:
      return qk_f16_2x16(s, a, k, headDim, keys >> 4);
    default:
      return qk_f16_1x32(s, a, k, headDim, keys >> 5);
  }
}

function pv_f16_1x8(o: F32Ptr, row: usize, state: usize, p: F32Ptr, v: U16Ptr, n: i32, check: i32): i32 {
  return f16_nx8(true, 1, o, row, state, p, 1, v, n, check);
}

function pv_f16_2x8(o: F32Ptr, row: usize, state: usize, p: F32Ptr, v: U16Ptr, n: i32, check: i32): i32 {
  return f16_nx8(true, 2, o, row, state, p, 1, v, n, check);
}

function pv_f16_3x8(o: F32Ptr, row: usize, state: usize, p: F32Ptr, v: U16Ptr, n: i32, check: i32): i32 {
  return f16_nx8(true, 3, o, row, state, p, 1, v, n, check);
}

function pv_f16_4x8(o: F32Ptr, row: usize, state: usize, p: F32Ptr, v: U16Ptr, n: i32, check: i32): i32 {
  return f16_nx8(true, 4, o, row, state, p, 1, v, n, check);
}

function pv_f16_5x8(o: F32Ptr, row: usize, state: usize, p: F32Ptr, v: U16Ptr, n: i32, check: i32): i32 {
  return f16_nx8(true, 5, o, row, state, p, 1, v, n, check);
}

/**
 * o[rows] = alpha · o + p · v over n keys for one panel, or for `together` of them, `step` panels apart; p times 2^112.
 * Returns 1 and leaves o as it was where v is not finite, or with `check` a result.
 */
export function pv_f16(
  rows: i32,
  together: i32,
  o: F32Ptr,
  row: usize,
  state: usize,
  p: F32Ptr,
  v: U16Ptr,
  n: i32,
  check: i32,
  step: usize,
): i32 {
  switch (rows) {
    case 6:
      // The second half must not fail once the first is stored: halves it has met are finite, and results are not checked.
      if (check || pv_f16_3x8(o, row, state, p, v, n, 0)) return 1;
      return pv_f16_3x8(o + row * 3, row, state + STATE_BYTES * 3, p + STRIP_BYTES * 3, v, n, 0);
    case 5:
      return pv_f16_5x8(o, row, state, p, v, n, check);
    case 4:
      return pv_f16_4x8(o, row, state, p, v, n, check);
    case 3:
      return pv_f16_3x8(o, row, state, p, v, n, check);
    case 2:
      if (together > 1) return pv_f16_2x16(o, row, state, p, v, n, check, step);
      return pv_f16_2x8(o, row, state, p, v, n, check);
    default:
      if (together > 1) return pv_f16_1x32(o, state, p, v, n, check, step);
      return pv_f16_1x8(o, row, state, p, v, n, check);
  }
}
