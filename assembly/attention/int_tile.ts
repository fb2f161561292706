import { CODE_PANEL_BYTES } from "../cache/page";
import { PAIR_BYTES, PANEL_BYTES, QUERY_HEAD } from "../layout";
import { dot_i16 } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { pair_of, store_outputs, store_scores } from "./int_pairs";
import { pv_int_1x32, pv_int_2x16, qk_int_1x32, qk_int_2x16 } from "./int_tile_skinny";
import { STATE_BYTES, STRIP_BYTES } from "./state";

// Tiles of attention on integer pages: rows of a strip x 8 keys or columns, see int_pairs.ts.

/**
 * C[rows, 8] = A[rows] · B[8] over `pairs` pairs, as scores or outputs. `rows` is a constant from 1 to 5. With `values`, C
 * are outputs cStride apart, rowScales the rows' states and scales the rows of weights, their scales among them; otherwise
 * C are scores, rowScales the scales of the queries and scales those of the keys.
 *
 * 5x8 tile, 13 v128: acc00..acc41 = 10 | b0 b1 = 2 | a<row> = 1
 * A a pair of every row, pairs aStep apart, see int_pairs.ts · B [pairs][8][2] int8, pairs bStep apart
 * C [rows][8] row stride cStride
 * two a product, not unrolled · sums are exact
 */
// @ts-ignore: decorator
@inline
export function int_nx8(
  rows: i32,
  values: bool,
  cPtr0: usize,
  cStride: usize,
  aPtr0: usize,
  aStep: usize,
  bPtr0: usize,
  bStep: usize,
  pairs: i32,
  rowScales: usize,
  scales: usize,
): void {
  const bEnd = bPtr0 + <usize>pairs * bStep;
  let acc00 = i32x4.splat(0);
  let acc01 = i32x4.splat(0);
  let acc10 = i32x4.splat(0);
  let acc11 = i32x4.splat(0);
  let acc20 = i32x4.splat(0);
  let acc21 = i32x4.splat(0);
  let acc30 = i32x4.splat(0);
  let acc31 = i32x4.splat(0);
  let acc40 = i32x4.splat(0);
  let acc41 = i32x4.splat(0);
  do {
    const b0 = v128.load8x8_s(bPtr0);
    const b1 = v128.load8x8_s(bPtr0, 8);
    const a0 = v128.load32_splat(aPtr0);
    acc00 = dot_i16(a0, b0, acc00);
    acc01 = dot_i16(a0, b1, acc01);
    if (rows > 1) {
      const a1 = pair_of(values, 1, aPtr0);
      acc10 = dot_i16(a1, b0, acc10);
      acc11 = dot_i16(a1, b1, acc11);
    }
    if (rows > 2) {
      const a2 = pair_of(values, 2, aPtr0);
      acc20 = dot_i16(a2, b0, acc20);
      acc21 = dot_i16(a2, b1, acc21);
    }
    if (rows > 3) {
      const a3 = pair_of(values, 3, aPtr0);
      acc30 = dot_i16(a3, b0, acc30);
      acc31 = dot_i16(a3, b1, acc31);
    }
    if (rows > 4) {
      const a4 = pair_of(values, 4, aPtr0);
      acc40 = dot_i16(a4, b0, acc40);
      acc41 = dot_i16(a4, b1, acc41);
    }
    aPtr0 += aStep;
    bPtr0 += bStep;
  } while (bPtr0 < bEnd);
  if (values) {
    store_outputs(cPtr0, acc00, acc01, rowScales, scales);
    if (rows > 1) store_outputs(cPtr0 + cStride, acc10, acc11, rowScales + STATE_BYTES, scales + STRIP_BYTES);
    if (rows > 2)
      store_outputs(cPtr0 + cStride * 2, acc20, acc21, rowScales + STATE_BYTES * 2, scales + STRIP_BYTES * 2);
    if (rows > 3)
      store_outputs(cPtr0 + cStride * 3, acc30, acc31, rowScales + STATE_BYTES * 3, scales + STRIP_BYTES * 3);
    if (rows > 4)
      store_outputs(cPtr0 + cStride * 4, acc40, acc41, rowScales + STATE_BYTES * 4, scales + STRIP_BYTES * 4);
  } else {
    store_scores(cPtr0, acc00, acc01, rowScales, scales);
    if (rows > 1) store_scores(cPtr0 + STRIP_BYTES, acc10, acc11, rowScales + 4, scales);
    if (rows > 2) store_scores(cPtr0 + STRIP_BYTES * 2, acc20, acc21, rowScales + 8, scales);
    if (rows > 3) store_scores(cPtr0 + STRIP_BYTES * 3, acc30, acc31, rowScales + 12, scales);
    if (rows > 4) store_scores(cPtr0 + STRIP_BYTES * 4, acc40, acc41, rowScales + 16, scales);
  }
}

// @ts-ignore: decorator
@inline
function qk_int_nx8(
  rows: i32,
  s: F32Ptr,
  x: usize,
  aStep: usize,
  k: U8Ptr,
  pairs: i32,
  n: i32,
  scale: usize,
  at: usize,
): void {
  for (; n > 0; n--) {
    int_nx8(rows, false, s, 0, x, aStep, k, PAIR_BYTES, pairs, scale, at);
    s += PANEL_BYTES;
    k += <usize>pairs * PAIR_BYTES;
    at += PANEL_BYTES;
  }
}

function qk_int_3x8(s: F32Ptr, x: usize, aStep: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  qk_int_nx8(3, s, x, aStep, k, pairs, n, scale, at);
}

function qk_int_4x8(s: F32Ptr, x: usize, aStep: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  qk_int_nx8(4, s, x, aStep, k, pairs, n, scale, at);
}

function qk_int_5x8(s: F32Ptr, x: usize, aStep: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  qk_int_nx8(5, s, x, aStep, k, pairs, n, scale, at);
}

/**
 * s[rows, keys] = q · k times both scales, for `keys` keys of k, a multiple of what attend_page takes at a time. codes: the strip's integer queries, `pairs` pairs each.
 */
export function qk_int(rows: i32, s: F32Ptr, codes: usize, k: U8Ptr, scales: F32Ptr, pairs: i32, keys: i32): void {
  const x = codes + <usize>(rows * QUERY_HEAD);
  const aStep = <usize>rows << 2;
  switch (rows) {
    case 6:
      qk_int_3x8(s, x, aStep, k, pairs, keys >> 3, codes, scales);
      return qk_int_3x8(s + STRIP_BYTES * 3, x + 12, aStep, k, pairs, keys >> 3, codes + 12, scales);
    case 5:
      return qk_int_5x8(s, x, aStep, k, pairs, keys >> 3, codes, scales);
    case 4:
      return qk_int_4x8(s, x, aStep, k, pairs, keys >> 3, codes, scales);
    case 3:
      return qk_int_3x8(s, x, aStep, k, pairs, keys >> 3, codes, scales);
    case 2:
      return qk_int_2x16(s, x, k, pairs, keys >> 4, codes, scales);
    default:
      return qk_int_1x32(s, x, k, pairs, keys >> 5, codes, scales);
  }
}

// @ts-ignore: decorator
@inline
function pv_int_nx8(
  rows: i32,
  o: F32Ptr,
  row: usize,
  states: usize,
  s: usize,
  p: usize,
  v: U8Ptr,
  pairs: i32,
  n: i32,
): void {
  for (; n > 0; n--) {
    int_nx8(rows, true, o, row, p, 4, v, PAIR_BYTES, pairs, states, s);
    o += PANEL_BYTES;
    v += CODE_PANEL_BYTES;
  }
}

function pv_int_1x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  pv_int_nx8(1, o, row, states, s, p, v, pairs, n);
}

function pv_int_2x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  pv_int_nx8(2, o, row, states, s, p, v, pairs, n);
}

function pv_int_3x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  pv_int_nx8(3, o, row, states, s, p, v, pairs, n);
}

function pv_int_4x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  pv_int_nx8(4, o, row, states, s, p, v, pairs, n);
}

function pv_int_5x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  pv_int_nx8(5, o, row, states, s, p, v, pairs, n);
}

/**
 * o[rows] = alpha · o + p · v times the scale of p for `panels` panels of columns, over `pairs` pairs of keys from key
 * `first` on, a multiple of 4, where v points too; s are rows of integer weights STRIP_BYTES apart, with their scales.
 */
export function pv_int(
  rows: i32,
  o: F32Ptr,
  row: usize,
  states: usize,
  s: usize,
  first: i32,
  v: U8Ptr,
  pairs: i32,
  panels: i32,
): void {
  const p = s + (<usize>first << 1);
  const n = rows == 1 ? panels >> 2 : panels >> 1;
  switch (rows) {
    case 6:
      pv_int_3x8(o, row, states, s, p, v, pairs, panels);
      return pv_int_3x8(
        o + row * 3,
        row,
        states + STATE_BYTES * 3,
        s + STRIP_BYTES * 3,
        p + STRIP_BYTES * 3,
        v,
        pairs,
        panels,
      );
    case 5:
      return pv_int_5x8(o, row, states, s, p, v, pairs, panels);
    case 4:
      return pv_int_4x8(o, row, states, s, p, v, pairs, panels);
    case 3:
      return pv_int_3x8(o, row, states, s, p, v, pairs, panels);
    case 2:
      pv_int_2x16(o, row, states, s, p, v, pairs, n);
      if (panels & 1)
        pv_int_2x8(o + <usize>n * PANEL_BYTES * 2, row, states, s, p, v + CODE_PANEL_BYTES * 2 * n, pairs, 1);
      return;
    default:
      pv_int_1x32(o, states, s, p, v, pairs, n);
      if (panels & 3)
        pv_int_1x8(o + <usize>n * PANEL_BYTES * 4, row, states, s, p, v + CODE_PANEL_BYTES * 4 * n, pairs, panels & 3);
  }
}
