import { VALUE_PANEL_BYTES } from "../cache/page";
import { PAGE, PAIR_BYTES, PANEL, PANEL_BYTES, QUAD } from "../layout";
import { bias_row, keep_row } from "../mask";
import { MADD_FUSES } from "../math/simd";
import { AttentionShape, F32Ptr, F32PtrOrNull } from "../types";
import { pv_int, qk_int } from "./int_tile";
import { bias_scores, cap_scores, exclude_scores, keep_scores, slope_scores, softmax_scores } from "./online_softmax";
import { pv_panel } from "./pv";
import { pv_causal_4x8, pv_causal_6x8 } from "./pv_causal";
import { classify_keys, pv_masked } from "./pv_masked";
import { pv_1x32, pv_2x16, pv_3x16 } from "./pv_skinny";
import { qk_3x8, qk_4x8, qk_5x8, qk_6x8 } from "./qk";
import { qk_1x32, qk_2x16, qk_3x16 } from "./qk_skinny";
import { quantize_weights } from "./quantize";
import { STATE_BYTES, STATE_HIGH, STATE_LOW, STRIP_BYTES, STRIP_ROWS, tile_height } from "./state";

// A strip of rows of attention_f32 with the keys of one page. The strip is rows r.. of the kv head's, the page that of the
// keys from `key` on; keys [start, end), [first, last) and [from, to) are relative to the page.

/**
 * Whether three rows take 16 keys or columns at a time. Fused, they need the 12 independent sums and have the registers; an
 * add alone is ready so early that 6 sums do, and the product takes a register.
 */
// @ts-ignore: decorator
@inline
function takes_3x16(): bool {
  return MADD_FUSES;
}

/**
 * Scores, rules, online softmax and PV product. k and v are the kv head's keys and values, floats where their scales are 0
 * and bytes where not, which is what `queries` are too; s is the strip's scores.
 */
export function attend_page<P>(
  s: F32Ptr,
  queries: usize,
  o: F32Ptr,
  states: usize,
  rows: i32,
  k: usize,
  kScales: F32PtrOrNull,
  v: usize,
  vScales: F32PtrOrNull,
  shape: AttentionShape,
  kvHead: i32,
  r: i32,
  key: i32,
): void {
  const first = first_key_of_any(states, rows, key);
  const last = end_key_of_any(states, rows, key);
  if (first >= last) return;
  const keys = rows > 3 ? PANEL : rows > 1 ? 16 : 32;
  const start = first & -keys;
  const end = (last + keys - 1) & -keys;
  if (isInteger<P>() && kScales != 0) qk_page_int(rows, s, queries, k, kScales, shape.headDim, start, end);
  else qk_page(rows, s, queries, k, shape.headDim, start, end);
  apply_rules(rows, s, states, shape, kvHead, r, key, start, end);
  softmax_scores(s, rows, start, end, states);
  if (isInteger<P>() && vScales != 0) {
    quantize_rows_of_weights(rows, s, states, vScales, shape, kvHead, r, key, start, end);
    pv_page_int(rows, o, states, s, v, shape.valueDim, first, last);
  } else if (is_causal_diagonal(rows, states, shape, key, first)) {
    pv_page_causal(o, states, s, v, shape.valueDim, key, first, last);
  } else pv_page(rows, o, states, s, v, shape, kvHead, r, key, first, last);
}

/** The first key of a row's range. */
// @ts-ignore: decorator
@inline
function row_from(state: usize, key: i32): i32 {
  return max(load<i32>(state, STATE_LOW) - key, 0);
}

/** The key behind the last of a row's range, which is empty unless this is above the first. */
// @ts-ignore: decorator
@inline
function row_to(state: usize, key: i32): i32 {
  return min(load<i32>(state, STATE_HIGH) - key, PAGE);
}

/** The first key that any row attends; PAGE where there is none. */
// @ts-ignore: decorator
@inline
function first_key_of_any(states: usize, rows: i32, key: i32): i32 {
  let first = PAGE;
  for (let i = 0; i < rows; i++) {
    const from = row_from(states + STATE_BYTES * i, key);
    if (from < row_to(states + STATE_BYTES * i, key)) first = min(first, from);
  }
  return first;
}

/** The key behind the last that any row attends; 0 where there is none. */
// @ts-ignore: decorator
@inline
function end_key_of_any(states: usize, rows: i32, key: i32): i32 {
  let last = 0;
  for (let i = 0; i < rows; i++) {
    const to = row_to(states + STATE_BYTES * i, key);
    if (row_from(states + STATE_BYTES * i, key) < to) last = max(last, to);
  }
  return last;
}

/** Whether no row's range begins behind `first`. */
function begin_together(states: usize, rows: i32, key: i32, first: i32): bool {
  for (let i = 0; i < rows; i++) if (row_from(states + STATE_BYTES * i, key) > first) return false;
  return true;
}

/** Whether no row's range ends before `last`. */
function end_together(states: usize, rows: i32, key: i32, last: i32): bool {
  for (let i = 0; i < rows; i++) if (row_to(states + STATE_BYTES * i, key) < last) return false;
  return true;
}

/** Scores for the keys [start, end), multiples of the tile's keys. */
// @ts-ignore: decorator
@inline
function qk_page(rows: i32, s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, start: i32, end: i32): void {
  const to = s + (<usize>start << 2);
  const from = k + ((<usize>start * headDim) << 2);
  const n = end - start;
  switch (rows) {
    case 6:
      if (MADD_FUSES) qk_6x8(to, q, from, headDim, n >> 3);
      return;
    case 5:
      return qk_5x8(to, q, from, headDim, n >> 3);
    case 4:
      return qk_4x8(to, q, from, headDim, n >> 3);
    case 3:
      if (takes_3x16()) qk_3x16(to, q, from, headDim, n >> 4);
      else qk_3x8(to, q, from, headDim, n >> 3);
      return;
    case 2:
      return qk_2x16(to, q, from, headDim, n >> 4);
    default:
      return qk_1x32(to, q, from, headDim, n >> 5);
  }
}

/** The same of integer queries and keys. */
// @ts-ignore: decorator
@inline
function qk_page_int(
  rows: i32,
  s: F32Ptr,
  codes: usize,
  k: usize,
  kScales: F32Ptr,
  headDim: i32,
  start: i32,
  end: i32,
): void {
  const pairs = ((headDim + QUAD - 1) & -QUAD) >> 1;
  const at = <usize>start << 2;
  const from = k + <usize>((start >> 3) * pairs) * PAIR_BYTES;
  qk_int(rows, s + at, codes, from, kScales + at, pairs, end - start);
}

/** What the rules leave of the scores of the keys [start, end): softcap, ALiBi, bias, keep and the range of each row. */
// @ts-ignore: decorator
@inline
function apply_rules(
  rows: i32,
  s: F32Ptr,
  states: usize,
  shape: AttentionShape,
  kvHead: i32,
  r: i32,
  key: i32,
  start: i32,
  end: i32,
): void {
  const changes = is_masked(shape) || shape.softcap > 0 || shape.slopes != 0;
  for (let i = 0; i < rows; i++) {
    const state = states + STATE_BYTES * i;
    const row = s + STRIP_BYTES * i;
    let from = row_from(state, key);
    let to = row_to(state, key);
    if (from >= to) {
      from = end;
      to = end;
    }
    if (changes) change_scores(row, shape, kvHead, r + i, key, start, end, from, to);
    exclude_scores(row, start, from);
    exclude_scores(row, to, end);
  }
}

// @ts-ignore: decorator
@inline
function is_masked(shape: AttentionShape): bool {
  return shape.keep != 0 || shape.bias != 0;
}

/** Softcap, ALiBi, bias and keep on the scores of row r. [from, to) is what it may attend of [start, end). */
function change_scores(
  row: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
  r: i32,
  key: i32,
  start: i32,
  end: i32,
  from: i32,
  to: i32,
): void {
  const group = shape.numHeads / shape.numKvHeads;
  const token = r / group;
  const head = kvHead * group + (r - token * group);
  if (shape.softcap > 0) cap_scores(row, start, end, shape.softcap);
  if (shape.slopes) {
    const slope = load<f32>(shape.slopes + (<usize>head << 2));
    slope_scores(row, start, end, slope, shape.qStart + token - key);
  }
  if (shape.bias) bias_scores(row, bias_row(shape, head, token) + (<usize>key << 2), from, to);
  if (shape.keep) keep_scores(row, keep_row(shape, head, token) + key, from, to);
}

/** The weights of the keys [start, end) as integers, with the values' scales. */
// @ts-ignore: decorator
@inline
function quantize_rows_of_weights(
  rows: i32,
  s: F32Ptr,
  states: usize,
  scales: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
  r: i32,
  key: i32,
  start: i32,
  end: i32,
): void {
  for (let i = 0; i < rows; i++)
    quantize_row_of_weights(s + STRIP_BYTES * i, states + STATE_BYTES * i, scales, shape, kvHead, r + i, key, start, end);
}

/** Those of row r. */
function quantize_row_of_weights(
  row: F32Ptr,
  state: usize,
  scales: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
  r: i32,
  key: i32,
  start: i32,
  end: i32,
): void {
  const group = shape.numHeads / shape.numKvHeads;
  const token = r / group;
  const head = kvHead * group + (r - token * group);
  const from = max(load<i32>(state, STATE_LOW) - key, start);
  const to = min(load<i32>(state, STATE_HIGH) - key, end);
  let keep = keep_row(shape, head, token);
  let bias = bias_row(shape, head, token);
  if (keep) keep += key;
  if (bias) bias += <usize>key << 2;
  if (from < to) quantize_weights(row, scales, start, end, from, to, keep, bias);
  else quantize_weights(row, scales, start, end, end, end, 0, 0);
}

// @ts-ignore: decorator
@inline
function panels_of(valueDim: i32): i32 {
  return (valueDim + PANEL - 1) / PANEL;
}

/** The PV product of integer weights and values, for the keys [first, last). */
// @ts-ignore: decorator
@inline
function pv_page_int(
  rows: i32,
  o: F32Ptr,
  states: usize,
  s: F32Ptr,
  v: usize,
  valueDim: i32,
  first: i32,
  last: i32,
): void {
  const panels = panels_of(valueDim);
  const from = first & -QUAD;
  const pairs = (((last + QUAD - 1) & -QUAD) - from) >> 1;
  pv_int(rows, o, <usize>panels * PANEL_BYTES, states, s, from, v + (<usize>from << 3), pairs, panels);
}

/** Whether a strip of tile_height() rows begins together and each row attends one key more than the row before. */
// @ts-ignore: decorator
@inline
function is_causal_diagonal(rows: i32, states: usize, shape: AttentionShape, key: i32, first: i32): bool {
  if (is_masked(shape) || rows != tile_height() || !begin_together(states, rows, key, first)) return false;
  const high = load<i32>(states, STATE_HIGH);
  for (let i = 1; i < rows; i++) if (load<i32>(states + STATE_BYTES * i, STATE_HIGH) != high + i) return false;
  // Where the page ends before the first row's range does, all rows attend all keys.
  return high - key < PAGE;
}

/** The PV product of such a strip, for the keys [first, last). */
// @ts-ignore: decorator
@inline
function pv_page_causal(
  o: F32Ptr,
  states: usize,
  s: F32Ptr,
  v: F32Ptr,
  valueDim: i32,
  key: i32,
  first: i32,
  last: i32,
): void {
  const panels = panels_of(valueDim);
  const outputBytes = <usize>panels * PANEL_BYTES;
  const p = s + (<usize>first << 2);
  const values = v + <usize>first * PANEL_BYTES;
  const whole = load<i32>(states, STATE_HIGH) - key - first;
  const steps = last - first - whole;
  for (let c = 0; c < panels; c++) {
    const to = o + <usize>c * PANEL_BYTES;
    const from = values + VALUE_PANEL_BYTES * c;
    if (MADD_FUSES) pv_causal_6x8(to, outputBytes, states, p, from, whole, steps);
    else pv_causal_4x8(to, outputBytes, states, p, from, whole, steps);
  }
}

/**
 * The PV product of any strip, for the keys [first, last). Where not every row attends all of them, each result is checked,
 * and computed again by the rules where it is not finite.
 */
// @ts-ignore: decorator
@inline
function pv_page(
  rows: i32,
  o: F32Ptr,
  states: usize,
  s: F32Ptr,
  v: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
  r: i32,
  key: i32,
  first: i32,
  last: i32,
): void {
  const shared =
    !is_masked(shape) && begin_together(states, rows, key, first) && end_together(states, rows, key, last);
  const panels = panels_of(shape.valueDim);
  const outputBytes = <usize>panels * PANEL_BYTES;
  const n = last - first;
  const p = s + (<usize>first << 2);
  const values = v + <usize>first * PANEL_BYTES;
  const check: i32 = shared ? 0 : 1;
  const allowed = s + STRIP_BYTES * STRIP_ROWS;
  let classified = false;
  // Strips of few rows take several value panels at a time, each from a part of its own: `step` panels apart.
  const paired = rows == 2 || (rows == 3 && takes_3x16());
  const wide = rows == 1 ? 4 : paired ? 2 : 1;
  const step = panels / wide;
  for (let c = 0; c < panels; ) {
    const together = c < step ? wide : 1;
    const to = o + <usize>c * PANEL_BYTES;
    const from = values + VALUE_PANEL_BYTES * c;
    let failed = 0;
    if (together == 1) failed = pv_panel(rows, to, outputBytes, states, p, from, n, check);
    else if (rows == 1) failed = pv_1x32(to, outputBytes, states, p, from, n, check, step);
    else if (rows == 2) failed = pv_2x16(to, outputBytes, states, p, from, n, check, step);
    else if (takes_3x16()) failed = pv_3x16(to, outputBytes, states, p, from, n, check, step);
    if (failed) {
      if (!classified) classify_keys(allowed, states, rows, shape, kvHead, r, key, first, last);
      classified = true;
      for (let i = 0; i < together; i++) {
        const at = c + i * step;
        const from = v + VALUE_PANEL_BYTES * at;
        pv_masked(o + <usize>at * PANEL_BYTES, outputBytes, states, rows, s, from, allowed, first, last);
      }
    }
    c++;
    if (c == step) c = step * wide;
  }
}
