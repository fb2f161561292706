import { dot, pair_of, store_outputs, store_scores } from "./int_pairs";
import { STATE_BYTES, STRIP_BYTES } from "./state";
import { CODE_PANEL_BYTES } from "../cache/page";
import { F32Ptr, U8Ptr } from "../types";

// The tiles of attention_integers.ts for strips of one and two rows: more keys or columns at a time, in panels that lie
// apart, for the reasons in attention_scores_wide.ts.

/** tile_x8 for one row and 32 keys or columns, whose panels lie `apart` bytes apart: four long streams. */
// @ts-ignore: decorator
@inline
function tile_1x32(
  values: bool,
  to: usize,
  toApart: usize,
  x: usize,
  w: usize,
  apart: usize,
  pairs: i32,
  scale: usize,
  k: usize,
  kApart: usize,
): void {
  const end = w + (<usize>pairs << 4);
  let w1 = w + apart;
  let w2 = w1 + apart;
  let w3 = w2 + apart;
  let a00 = i32x4.splat(0);
  let a01 = i32x4.splat(0);
  let a02 = i32x4.splat(0);
  let a03 = i32x4.splat(0);
  let a04 = i32x4.splat(0);
  let a05 = i32x4.splat(0);
  let a06 = i32x4.splat(0);
  let a07 = i32x4.splat(0);
  do {
    const x0 = v128.load32_splat(x);
    a00 = dot(a00, x0, v128.load8x8_s(w));
    a01 = dot(a01, x0, v128.load8x8_s(w, 8));
    a02 = dot(a02, x0, v128.load8x8_s(w1));
    a03 = dot(a03, x0, v128.load8x8_s(w1, 8));
    a04 = dot(a04, x0, v128.load8x8_s(w2));
    a05 = dot(a05, x0, v128.load8x8_s(w2, 8));
    a06 = dot(a06, x0, v128.load8x8_s(w3));
    a07 = dot(a07, x0, v128.load8x8_s(w3, 8));
    x += 4;
    w += 16;
    w1 += 16;
    w2 += 16;
    w3 += 16;
  } while (w < end);
  if (values) {
    store_outputs(to, a00, a01, scale, k);
    store_outputs(to + toApart, a02, a03, scale, k);
    store_outputs(to + toApart * 2, a04, a05, scale, k);
    store_outputs(to + toApart * 3, a06, a07, scale, k);
  } else {
    store_scores(to, a00, a01, scale, k);
    store_scores(to + toApart, a02, a03, scale, k + kApart);
    store_scores(to + toApart * 2, a04, a05, scale, k + kApart * 2);
    store_scores(to + toApart * 3, a06, a07, scale, k + kApart * 3);
  }
}

/** The same for two rows and 16 keys or columns, in two streams. */
// @ts-ignore: decorator
@inline
function tile_2x16(
  values: bool,
  to: usize,
  toBytes: usize,
  toApart: usize,
  x: usize,
  step: usize,
  w: usize,
  apart: usize,
  pairs: i32,
  scale: usize,
  k: usize,
  kApart: usize,
): void {
  const end = w + (<usize>pairs << 4);
  let w1 = w + apart;
  let a00 = i32x4.splat(0);
  let a01 = i32x4.splat(0);
  let a02 = i32x4.splat(0);
  let a03 = i32x4.splat(0);
  let a10 = i32x4.splat(0);
  let a11 = i32x4.splat(0);
  let a12 = i32x4.splat(0);
  let a13 = i32x4.splat(0);
  do {
    const x0 = v128.load32_splat(x);
    const x1 = pair_of(values, 1, x);
    const b0 = v128.load8x8_s(w);
    a00 = dot(a00, x0, b0);
    a10 = dot(a10, x1, b0);
    const b1 = v128.load8x8_s(w, 8);
    a01 = dot(a01, x0, b1);
    a11 = dot(a11, x1, b1);
    const b2 = v128.load8x8_s(w1);
    a02 = dot(a02, x0, b2);
    a12 = dot(a12, x1, b2);
    const b3 = v128.load8x8_s(w1, 8);
    a03 = dot(a03, x0, b3);
    a13 = dot(a13, x1, b3);
    x += step;
    w += 16;
    w1 += 16;
  } while (w < end);
  if (values) {
    store_outputs(to, a00, a01, scale, k);
    store_outputs(to + toApart, a02, a03, scale, k);
    store_outputs(to + toBytes, a10, a11, scale + STATE_BYTES, k + STRIP_BYTES);
    store_outputs(to + toBytes + toApart, a12, a13, scale + STATE_BYTES, k + STRIP_BYTES);
  } else {
    store_scores(to, a00, a01, scale, k);
    store_scores(to + toApart, a02, a03, scale, k + kApart);
    store_scores(to + STRIP_BYTES, a10, a11, scale + 4, k);
    store_scores(to + STRIP_BYTES + toApart, a12, a13, scale + 4, k + kApart);
  }
}

export function score_2x16(s: F32Ptr, x: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  const panel = <usize>pairs << 4;
  const apart = <usize>n << 5;
  for (let i = 0; i < n; i++) {
    tile_2x16(false, s, 0, apart, x, 8, k, panel * n, pairs, scale, at, apart);
    s += 32;
    k += panel;
    at += 32;
  }
}

export function score_1x32(s: F32Ptr, x: usize, k: U8Ptr, pairs: i32, n: i32, scale: usize, at: usize): void {
  const panel = <usize>pairs << 4;
  const apart = <usize>n << 5;
  for (let i = 0; i < n; i++) {
    tile_1x32(false, s, apart, x, k, panel * n, pairs, scale, at, apart);
    s += 32;
    k += panel;
    at += 32;
  }
}

export function weigh_2x16(o: F32Ptr, row: usize, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  for (let i = 0; i < n; i++) {
    tile_2x16(true, o, row, <usize>n << 5, p, 4, v, CODE_PANEL_BYTES * n, pairs, states, s, 0);
    o += 32;
    v += CODE_PANEL_BYTES;
  }
}

export function weigh_1x32(o: F32Ptr, states: usize, s: usize, p: usize, v: U8Ptr, pairs: i32, n: i32): void {
  for (let i = 0; i < n; i++) {
    tile_1x32(true, o, <usize>n << 5, p, v, CODE_PANEL_BYTES * n, pairs, states, s, 0);
    o += 32;
    v += CODE_PANEL_BYTES;
  }
}
