import { score_1x32, score_2x16, weigh_1x32, weigh_2x16 } from "./int_tile_skinny";
import { dot, pair_of, store_outputs, store_scores } from "./int_pairs";
import { STATE_BYTES, STRIP_BYTES } from "./state";
import { QUERY_HEAD } from "../layout";
import { CODE_PANEL_BYTES } from "../cache/page";
import { F32Ptr, U8Ptr } from "../types";

// The micro-tiles of attention_f32 on integer pages: R rows x 8 keys or columns, see attention_pairs.ts.

/**
 * `rows` rows (a constant from 1 to 5 where this is inlined) by 8: sums of `pairs` pairs. With `values`, `to` are outputs
 * `toBytes` apart, `scale` the rows' states and k the rows of weights, their scales among them; otherwise `to` are scores,
 * `scale` the scales of the queries and k those of the keys.
 */
// @ts-ignore: decorator
@inline
function tile_x8(
  rows: i32,
  values: bool,
  to: usize,
  toBytes: usize,
  x: usize,
  step: usize,
  w: usize,
  pairs: i32,
  scale: usize,
  k: usize,
): void {
  const end = w + (<usize>pairs << 4);
  let a00 = i32x4.splat(0);
  let a01 = i32x4.splat(0);
  let a10 = i32x4.splat(0);
  let a11 = i32x4.splat(0);
  let a20 = i32x4.splat(0);
  let a21 = i32x4.splat(0);
  let a30 = i32x4.splat(0);
  let a31 = i32x4.splat(0);
  let a40 = i32x4.splat(0);
  let a41 = i32x4.splat(0);
  do {
    const b0 = v128.load8x8_s(w);
    const b1 = v128.load8x8_s(w, 8);
    const x0 = v128.load32_splat(x);
    a00 = dot(a00, x0, b0);
    a01 = dot(a01, x0, b1);
    if (rows > 1) {
      const x1 = pair_of(values, 1, x);
      a10 = dot(a10, x1, b0);
      a11 = dot(a11, x1, b1);
    }
    if (rows > 2) {
      const x2 = pair_of(values, 2, x);
      a20 = dot(a20, x2, b0);
      a21 = dot(a21, x2, b1);
    }
    if (rows > 3) {
      const x3 = pair_of(values, 3, x);
      a30 = dot(a30, x3, b0);
      a31 = dot(a31, x3, b1);
    }
    if (rows > 4) {
      const x4 = pair_of(values, 4, x);
      a40 = dot(a40, x4, b0);
      a41 = dot(a41, x4, b1);
    }
    x += step;
    w += 16;
  } while (w < end);
  if (values) {
    store_outputs(to, a00, a01, scale, k);
    if (rows > 1) store_outputs(to + toBytes, a10, a11, scale + STATE_BYTES, k + STRIP_BYTES);
    if (rows > 2) store_outputs(to + toBytes * 2, a20, a21, scale + STATE_BYTES * 2, k + STRIP_BYTES * 2);
    if (rows > 3) store_outputs(to + toBytes * 3, a30, a31, scale + STATE_BYTES * 3, k + STRIP_BYTES * 3);
    if (rows > 4) store_outputs(to + toBytes * 4, a40, a41, scale + STATE_BYTES * 4, k + STRIP_BYTES * 4);
  } else {
    store_scores(to, a00, a01, scale, k);
    if (rows > 1) store_scores(to + STRIP_BYTES, a10, a11, scale + 4, k);
    if (rows > 2) store_scores(to + STRIP_BYTES * 2, a20, a21, scale + 8, k);
    if (rows > 3) store_scores(to + STRIP_BYTES * 3, a30, a31, scale + 12, k);
    if (rows > 4) store_scores(to + STRIP_BYTES * 4, a40, a41, scale + 16, k);
  }
}

// @ts-ignore: decorator
@inline
function score_x8(rows: i32, s: F32Ptr, x: usize, step: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  for (; n > 0; n--) {
    tile_x8(rows, false, s, 0, x, step, k, pairs, scale, at);
    s += 32;
    k += <usize>pairs << 4;
    at += 32;
  }
}

function score_3x8(s: F32Ptr, x: usize, step: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  score_x8(3, s, x, step, k, pairs, n, scale, at);
}

function score_4x8(s: F32Ptr, x: usize, step: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  score_x8(4, s, x, step, k, pairs, n, scale, at);
}

function score_5x8(s: F32Ptr, x: usize, step: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  score_x8(5, s, x, step, k, pairs, n, scale, at);
}

/**
 * s[:rows, :keys] = q · k in units of the scales, for `keys` keys of k, a multiple of what attend_page takes at a time, and
 * their scales. codes: the strip's integer queries, `pairs` pairs each.
 */
export function score_integers(
  rows: i32,
  s: F32Ptr,
  codes: usize,
  k: U8Ptr,
  scales: F32Ptr,
  pairs: i32,
  keys: i32,
): void {
  const x = codes + <usize>(rows * QUERY_HEAD);
  const step = <usize>rows << 2;
  switch (rows) {
    case 6:
      score_3x8(s, x, step, k, pairs, keys >> 3, codes, scales);
      return score_3x8(s + STRIP_BYTES * 3, x + 12, step, k, pairs, keys >> 3, codes + 12, scales);
    case 5:
      return score_5x8(s, x, step, k, pairs, keys >> 3, codes, scales);
    case 4:
      return score_4x8(s, x, step, k, pairs, keys >> 3, codes, scales);
    case 3:
      return score_3x8(s, x, step, k, pairs, keys >> 3, codes, scales);
    case 2:
      return score_2x16(s, x, k, pairs, keys >> 4, codes, scales);
    default:
      return score_1x32(s, x, k, pairs, keys >> 5, codes, scales);
  }
}

// @ts-ignore: decorator
@inline
function weigh_x8(rows: i32, o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  for (; n > 0; n--) {
    tile_x8(rows, true, o, row, p, 4, v, pairs, states, s);
    o += 32;
    v += CODE_PANEL_BYTES;
  }
}

function weigh_1x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  weigh_x8(1, o, row, states, s, p, v, pairs, n);
}

function weigh_2x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  weigh_x8(2, o, row, states, s, p, v, pairs, n);
}

function weigh_3x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  weigh_x8(3, o, row, states, s, p, v, pairs, n);
}

function weigh_4x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  weigh_x8(4, o, row, states, s, p, v, pairs, n);
}

function weigh_5x8(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  weigh_x8(5, o, row, states, s, p, v, pairs, n);
}

/**
 * o[:rows] = alpha · o + p · v in units of the scales for `panels` panels of columns, over `pairs` pairs of keys from key
 * `first` on, a multiple of 4, where v points too; s are rows of integer weights STRIP_BYTES apart, with their scales.
 */
export function weigh_integers(
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
      weigh_3x8(o, row, states, s, p, v, pairs, panels);
      return weigh_3x8(o + row * 3, row, states + STATE_BYTES * 3, s + STRIP_BYTES * 3, p + STRIP_BYTES * 3, v, pairs, panels);
    case 5:
      return weigh_5x8(o, row, states, s, p, v, pairs, panels);
    case 4:
      return weigh_4x8(o, row, states, s, p, v, pairs, panels);
    case 3:
      return weigh_3x8(o, row, states, s, p, v, pairs, panels);
    case 2:
      weigh_2x16(o, row, states, s, p, v, pairs, n);
      if (panels & 1) weigh_2x8(o + (<usize>n << 6), row, states, s, p, v + CODE_PANEL_BYTES * 2 * n, pairs, 1);
      return;
    default:
      weigh_1x32(o, states, s, p, v, pairs, n);
      if (panels & 3) weigh_1x8(o + (<usize>n << 7), row, states, s, p, v + CODE_PANEL_BYTES * 4 * n, pairs, panels & 3);
  }
}
