import { CODE_PANEL_BYTES } from "../cache/page";
import { PAIR_BYTES, PANEL_BYTES } from "../layout";
import { dot_i16 } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { pair_of, store_outputs, store_scores } from "./int_pairs";
import { STATE_BYTES, STRIP_BYTES } from "./state";

// Tiles of attention on integer pages (int_tile.ts) for strips of one and two rows: more keys or columns at a time, in panels
// that lie apart, for the reason in few_rows.ts.

/**
 * int_nx8 (int_tile.ts) for one row and 32 keys or columns in four panels.
 *
 * 1x32 tile, 10 v128: acc00..acc07 = 8 | a row of B = 1 | a0 = 1
 * A [pairs] · B four panels [pairs][8][2] int8, bStride apart · C four panels, cApart apart
 * two a product, not unrolled · sums are exact
 */
// @ts-ignore: decorator
@inline
function int_1x32(
  values: bool,
  cPtr0: usize,
  cApart: usize,
  aPtr0: usize,
  bPtr0: usize,
  bStride: usize,
  pairs: i32,
  rowScales: usize,
  scales: usize,
  scalesApart: usize,
): void {
  const bEnd = bPtr0 + <usize>pairs * PAIR_BYTES;
  let bPtr1 = bPtr0 + bStride;
  let bPtr2 = bPtr1 + bStride;
  let bPtr3 = bPtr2 + bStride;
  let acc00 = i32x4.splat(0);
  let acc01 = i32x4.splat(0);
  let acc02 = i32x4.splat(0);
  let acc03 = i32x4.splat(0);
  let acc04 = i32x4.splat(0);
  let acc05 = i32x4.splat(0);
  let acc06 = i32x4.splat(0);
  let acc07 = i32x4.splat(0);
  do {
    const a0 = v128.load32_splat(aPtr0);
    acc00 = dot_i16(a0, v128.load8x8_s(bPtr0), acc00);
    acc01 = dot_i16(a0, v128.load8x8_s(bPtr0, 8), acc01);
    acc02 = dot_i16(a0, v128.load8x8_s(bPtr1), acc02);
    acc03 = dot_i16(a0, v128.load8x8_s(bPtr1, 8), acc03);
    acc04 = dot_i16(a0, v128.load8x8_s(bPtr2), acc04);
    acc05 = dot_i16(a0, v128.load8x8_s(bPtr2, 8), acc05);
    acc06 = dot_i16(a0, v128.load8x8_s(bPtr3), acc06);
    acc07 = dot_i16(a0, v128.load8x8_s(bPtr3, 8), acc07);
    aPtr0 += 4;
    bPtr0 += PAIR_BYTES;
    bPtr1 += PAIR_BYTES;
    bPtr2 += PAIR_BYTES;
    bPtr3 += PAIR_BYTES;
  } while (bPtr0 < bEnd);
  if (values) {
    store_outputs(cPtr0, acc00, acc01, rowScales, scales);
    store_outputs(cPtr0 + cApart, acc02, acc03, rowScales, scales);
    store_outputs(cPtr0 + cApart * 2, acc04, acc05, rowScales, scales);
    store_outputs(cPtr0 + cApart * 3, acc06, acc07, rowScales, scales);
  } else {
    store_scores(cPtr0, acc00, acc01, rowScales, scales);
    store_scores(cPtr0 + cApart, acc02, acc03, rowScales, scales + scalesApart);
    store_scores(cPtr0 + cApart * 2, acc04, acc05, rowScales, scales + scalesApart * 2);
    store_scores(cPtr0 + cApart * 3, acc06, acc07, rowScales, scales + scalesApart * 3);
  }
}

/**
 * The same for two rows and 16 keys or columns in two panels.
 *
 * 2x16 tile, 11 v128: acc00..acc13 = 8 | b<n> = 1 | a0 a1 = 2
 * A a pair of both rows, pairs aStep apart · B two panels [pairs][8][2] int8, bStride apart · C two panels, cApart apart
 * two a product, not unrolled · sums are exact
 */
// @ts-ignore: decorator
@inline
function int_2x16(
  values: bool,
  cPtr0: usize,
  cStride: usize,
  cApart: usize,
  aPtr0: usize,
  aStep: usize,
  bPtr0: usize,
  bStride: usize,
  pairs: i32,
  rowScales: usize,
  scales: usize,
  scalesApart: usize,
): void {
  const bEnd = bPtr0 + <usize>pairs * PAIR_BYTES;
  let bPtr1 = bPtr0 + bStride;
  let acc00 = i32x4.splat(0);
  let acc01 = i32x4.splat(0);
  let acc02 = i32x4.splat(0);
  let acc03 = i32x4.splat(0);
  let acc10 = i32x4.splat(0);
  let acc11 = i32x4.splat(0);
  let acc12 = i32x4.splat(0);
  let acc13 = i32x4.splat(0);
  do {
    const a0 = v128.load32_splat(aPtr0);
    const a1 = pair_of(values, 1, aPtr0);
    const b0 = v128.load8x8_s(bPtr0);
    acc00 = dot_i16(a0, b0, acc00);
    acc10 = dot_i16(a1, b0, acc10);
    const b1 = v128.load8x8_s(bPtr0, 8);
    acc01 = dot_i16(a0, b1, acc01);
    acc11 = dot_i16(a1, b1, acc11);
    const b2 = v128.load8x8_s(bPtr1);
    acc02 = dot_i16(a0, b2, acc02);
    acc12 = dot_i16(a1, b2, acc12);
    const b3 = v128.load8x8_s(bPtr1, 8);
    acc03 = dot_i16(a0, b3, acc03);
    acc13 = dot_i16(a1, b3, acc13);
    aPtr0 += aStep;
    bPtr0 += PAIR_BYTES;
    bPtr1 += PAIR_BYTES;
  } while (bPtr0 < bEnd);
  if (values) {
    store_outputs(cPtr0, acc00, acc01, rowScales, scales);
    store_outputs(cPtr0 + cApart, acc02, acc03, rowScales, scales);
    store_outputs(cPtr0 + cStride, acc10, acc11, rowScales + STATE_BYTES, scales + STRIP_BYTES);
    store_outputs(cPtr0 + cStride + cApart, acc12, acc13, rowScales + STATE_BYTES, scales + STRIP_BYTES);
  } else {
    store_scores(cPtr0, acc00, acc01, rowScales, scales);
    store_scores(cPtr0 + cApart, acc02, acc03, rowScales, scales + scalesApart);
    store_scores(cPtr0 + STRIP_BYTES, acc10, acc11, rowScales + 4, scales);
    store_scores(cPtr0 + STRIP_BYTES + cApart, acc12, acc13, rowScales + 4, scales + scalesApart);
  }
}

export function qk_int_2x16(s: F32Ptr, x: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  const panelBytes = <usize>pairs * PAIR_BYTES;
  const apart = <usize>n * PANEL_BYTES;
  for (let i = 0; i < n; i++) {
    int_2x16(false, s, 0, apart, x, 8, k, panelBytes * n, pairs, scale, at, apart);
    s += PANEL_BYTES;
    k += panelBytes;
    at += PANEL_BYTES;
  }
}

export function qk_int_1x32(s: F32Ptr, x: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  const panelBytes = <usize>pairs * PAIR_BYTES;
  const apart = <usize>n * PANEL_BYTES;
  for (let i = 0; i < n; i++) {
    int_1x32(false, s, apart, x, k, panelBytes * n, pairs, scale, at, apart);
    s += PANEL_BYTES;
    k += panelBytes;
    at += PANEL_BYTES;
  }
}

export function pv_int_2x16(
  o: F32Ptr,
  row: usize,
  states: usize,
  s: usize,
  p: usize,
  v: U8Ptr,
  pairs: i32,
  n: i32,
): void {
  for (let i = 0; i < n; i++) {
    int_2x16(true, o, row, <usize>n * PANEL_BYTES, p, 4, v, CODE_PANEL_BYTES * n, pairs, states, s, 0);
    o += PANEL_BYTES;
    v += CODE_PANEL_BYTES;
  }
}

export function pv_int_1x32(o: F32Ptr, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  for (let i = 0; i < n; i++) {
    int_1x32(true, o, <usize>n * PANEL_BYTES, p, v, CODE_PANEL_BYTES * n, pairs, states, s, 0);
    o += PANEL_BYTES;
    v += CODE_PANEL_BYTES;
  }
}
