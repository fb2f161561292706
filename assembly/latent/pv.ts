import { pv_nx8 } from "../attention/pv";
import { classify_keys, pv_masked } from "../attention/pv_masked";
import { begin_together, end_together, STRIP_BYTES, STRIP_ROWS } from "../attention/state";
import { PANEL, PANEL_BYTES } from "../layout";
import { is_masked } from "../mask";
import { MADD_FUSES } from "../math/simd";
import { AttentionShape, F32Ptr } from "../types";
import { latent_at, PAIR_PANEL_BYTES, PAIR_STEP_BYTES, pair_bytes, QUARTER_BYTES } from "./page";

// The PV product of attention_latents: the tiles of attention/pv.ts on values that lie two tokens at a time.

// @ts-ignore: decorator
@inline
function pv_rows(
  rows: i32,
  cPtr0: F32Ptr,
  cStride: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  n: i32,
  check: i32,
  step: usize,
  pair: usize,
): i32 {
  return pv_nx8(rows, cPtr0, cStride, state, aPtr0, bPtr0, n, check, true, step, pair);
}

function pv_6(c: usize, cStride: usize, state: usize, a: usize, b: usize, n: i32, check: i32, step: usize, pair: usize): i32 {
  return pv_rows(6, c, cStride, state, a, b, n, check, step, pair);
}

function pv_5(c: usize, cStride: usize, state: usize, a: usize, b: usize, n: i32, check: i32, step: usize, pair: usize): i32 {
  return pv_rows(5, c, cStride, state, a, b, n, check, step, pair);
}

function pv_4(c: usize, cStride: usize, state: usize, a: usize, b: usize, n: i32, check: i32, step: usize, pair: usize): i32 {
  return pv_rows(4, c, cStride, state, a, b, n, check, step, pair);
}

function pv_3(c: usize, cStride: usize, state: usize, a: usize, b: usize, n: i32, check: i32, step: usize, pair: usize): i32 {
  return pv_rows(3, c, cStride, state, a, b, n, check, step, pair);
}

function pv_2(c: usize, cStride: usize, state: usize, a: usize, b: usize, n: i32, check: i32, step: usize, pair: usize): i32 {
  return pv_rows(2, c, cStride, state, a, b, n, check, step, pair);
}

function pv_1(c: usize, cStride: usize, state: usize, a: usize, b: usize, n: i32, check: i32, step: usize, pair: usize): i32 {
  return pv_rows(1, c, cStride, state, a, b, n, check, step, pair);
}

/** The tile of `rows` rows and 8 columns: see pv_nx8. */
// @ts-ignore: decorator
@inline
function pv_columns(
  rows: i32,
  c: usize,
  cStride: usize,
  state: usize,
  a: usize,
  b: usize,
  n: i32,
  check: i32,
  step: usize,
  pair: usize,
): i32 {
  switch (rows) {
    case 6:
      return MADD_FUSES ? pv_6(c, cStride, state, a, b, n, check, step, pair) : 0;
    case 5:
      return pv_5(c, cStride, state, a, b, n, check, step, pair);
    case 4:
      return pv_4(c, cStride, state, a, b, n, check, step, pair);
    case 3:
      return pv_3(c, cStride, state, a, b, n, check, step, pair);
    case 2:
      return pv_2(c, cStride, state, a, b, n, check, step, pair);
    default:
      return pv_1(c, cStride, state, a, b, n, check, step, pair);
  }
}

/**
 * The PV product of a strip with the tokens [first, last) of a page. Where not every row attends all of them, each result is
 * checked, and computed again by the rules where it is not finite: from a copy of its 8 columns at `panel`, laid out as
 * values of float32.
 */
export function pv_latents(
  rows: i32,
  o: F32Ptr,
  columns: i32,
  states: usize,
  s: F32Ptr,
  latents: F32Ptr,
  panel: F32Ptr,
  shape: AttentionShape,
  r: i32,
  key: i32,
  first: i32,
  last: i32,
): void {
  const shared = !is_masked(shape) && begin_together(states, rows, key, first) && end_together(states, rows, key, last);
  const check: i32 = shared ? 0 : 1;
  const dim = shape.headDim;
  const pair = pair_bytes(dim);
  const step = first & 1 ? pair - QUARTER_BYTES : QUARTER_BYTES;
  const outputBytes = <usize>columns << 2;
  const p = s + (<usize>first << 2);
  const values = latent_at(latents, dim, first);
  const allowed = s + STRIP_BYTES * STRIP_ROWS;
  let classified = false;
  for (let c = 0; c < columns / PANEL; c++) {
    const to = o + <usize>c * PANEL_BYTES;
    const from = values + PAIR_PANEL_BYTES * c;
    if (!pv_columns(rows, to, outputBytes, states, p, from, last - first, check, step, pair)) continue;
    if (!classified) classify_keys(allowed, states, rows, shape, r, key, first, last);
    classified = true;
    copy_columns(panel, latents + PAIR_PANEL_BYTES * c, dim, first, last);
    pv_masked(to, outputBytes, states, rows, s, panel, allowed, first, last);
  }
}

/** 8 columns of the tokens [first, last) of a page as a panel of values. */
function copy_columns(panel: F32Ptr, latents: F32Ptr, dim: i32, first: i32, last: i32): void {
  for (let j = first; j < last; j++) {
    const from = latent_at(latents, dim, j);
    const to = panel + <usize>j * PANEL_BYTES;
    v128.store(to, v128.load(from));
    v128.store(to, v128.load(from, PAIR_STEP_BYTES), 16);
  }
}
