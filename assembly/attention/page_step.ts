import { PAIR_BYTES, PANEL, PANEL_BYTES, PANEL_BYTES_16, QUAD, QUERY_CHUNK } from "../layout";
import { bias_row, head_of, is_masked, keep_row, token_of } from "../mask";
import { MADD_FUSES } from "../math/simd";
import { AttentionShape, F32Ptr, F32PtrOrNull, StatisticsShape, U16Ptr } from "../types";
import { widen_half_keys } from "./dequantize";
import { scaled_queries } from "./f16_page";
import { qk_f16 } from "./f16_tile";
import { qk_int } from "./int_tile";
import { few_rows } from "./few_rows";
import { four_heads_f16 } from "./four_heads_f16";
import { bias_scores, cap_scores, exclude_scores, keep_scores, slope_scores, softmax_scores } from "./online_softmax";
import { RESCALED } from "./pv_masked";
import { is_causal_diagonal, pv_page, pv_page_causal, pv_page_int, quantize_rows_of_weights } from "./pv_page";
import { qk_1x32, qk_3x8, qk_4x8, qk_5x8, qk_6x8 } from "./qk";
import { end_key_of_any, first_key_of_any, row_from, row_to, STATE_BYTES, STRIP_BYTES, takes_3x16 } from "./state";
import { softmax_measured } from "./statistics_page";

// A strip of rows of attention_f32 with the keys of one page. The strip is rows r.., the page that of the keys from
// `key` on; keys [start, end), [first, last) and [from, to) are relative to the page.

/**
 * Scores, rules, online softmax and PV product. k and v are the kv head's keys and values, floats where their scales are 0
 * and bytes where not, which is what `queries` are too; or halves where kWide and vWide are not 0, rooms to widen them in.
 * s is the strip's scores. Where `apart` is not 0, the rows are one of each of four kv heads, which lie so far apart. The last
 * four are for S other than void alone: what is measured, and where it is kept (statistics.ts).
 */
export function attend_page<P, S>(
  s: F32Ptr,
  queries: usize,
  o: F32Ptr,
  states: usize,
  rows: i32,
  k: usize,
  kScales: F32PtrOrNull,
  kWide: F32PtrOrNull,
  v: usize,
  vScales: F32PtrOrNull,
  vWide: F32PtrOrNull,
  apart: usize,
  shape: AttentionShape,
  r: i32,
  key: i32,
  statistics: StatisticsShape,
  lists: usize,
  measured: usize,
  kept: usize,
): void {
  const first = first_key_of_any(states, rows, key);
  const last = end_key_of_any(states, rows, key);
  if (first >= last) return;
  const keys = rows > 3 ? PANEL : rows > 1 ? 16 : 32;
  const start = first & -keys;
  const end = (last + keys - 1) & -keys;
  if (isInteger<P>() && kScales != 0) qk_page_int(rows, s, queries, k, kScales, shape.headDim, start, end);
  else if (isInteger<P>() && apart != 0) qk_four_f16(s, queries, k, kWide, apart, shape.headDim, start, end);
  else if (isInteger<P>() && kWide != 0) qk_page_f16(rows, s, queries, k, kWide, shape.headDim, start, end);
  else qk_page<P>(rows, s, queries, k, apart, shape.headDim, start, end);
  apply_rules(rows, s, states, shape, r, key, start, end);
  if (isVoid<S>()) softmax_scores(s, rows, start, end, states);
  else softmax_measured(s, rows, start, end, states, statistics, lists, measured, kept, key);
  if (isInteger<P>() && vScales != 0) {
    quantize_rows_of_weights(rows, s, states, vScales, shape, r, key, start, end);
    pv_page_int(rows, o, states, s, v, shape.valueDim, first, last);
  } else if ((isFloat<P>() || vWide == 0) && is_causal_diagonal(rows, states, shape, key, first)) {
    pv_page_causal(o, states, s, v, shape.valueDim, key, first, last);
  } else pv_page<P>(rows, o, states, s, v, vWide, apart, shape, r, key, first, last);
}

/** Scores for the keys [start, end), multiples of the tile's keys. */
// @ts-ignore: decorator
@inline
function qk_page<P>(
  rows: i32,
  s: F32Ptr,
  q: F32Ptr,
  k: F32Ptr,
  apart: usize,
  headDim: i32,
  start: i32,
  end: i32,
): void {
  const to = s + (<usize>start << 2);
  const from = k + ((<usize>start * headDim) << 2);
  const count = (end - start) >> 3;
  if (rows == 6 && MADD_FUSES) qk_6x8(to, q, from, headDim, count);
  else if (rows == 5) qk_5x8(to, q, from, headDim, count);
  else if (rows == 4 && apart == 0) qk_4x8(to, q, from, headDim, count);
  else if (rows == 3 && !takes_3x16()) qk_3x8(to, q, from, headDim, count);
  else if (rows == 1) qk_1x32(to, q, from, headDim, count >> 2);
  else qk_few<P>(rows, s, q, k, apart, headDim, start, end);
}

/** The same for two or three rows and 16 keys at a time, or for 8 keys of each of four heads. */
// @ts-ignore: decorator
@inline
function qk_few<P>(
  rows: i32,
  s: F32Ptr,
  q: F32Ptr,
  k: F32Ptr,
  apart: usize,
  headDim: i32,
  start: i32,
  end: i32,
): void {
  clear_scores(rows, s);
  const panelBytes = <usize>headDim * PANEL_BYTES;
  const count = <usize>((end - start) >> (rows > 3 ? 3 : 4));
  const cApart = count * PANEL_BYTES;
  const bApart = apart ? apart : count * panelBytes;
  let from = k + <usize>(start >> 3) * panelBytes;
  let to = s + (<usize>start << 2);
  for (const stop = to + cApart; to < stop; to += PANEL_BYTES) {
    for (let d = 0; d < headDim; d += QUERY_CHUNK) {
      const n = min(QUERY_CHUNK, headDim - d);
      few_rows<P>(rows, to, STRIP_BYTES, cApart, RESCALED, q + ((<usize>d * rows) << 2), from, bApart, n, 0);
      from += <usize>n * PANEL_BYTES;
    }
  }
}

/** Scores to add to. */
// @ts-ignore: decorator
@inline
function clear_scores(rows: i32, s: F32Ptr): void {
  for (let at = s; at < s + STRIP_BYTES * rows; at += 16) v128.store(at, f32x4.splat(0));
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

/** The same of keys of f16, with the queries that scale_queries has left; `wide` is room for a page of keys. */
// @ts-ignore: decorator
@inline
function qk_page_f16(
  rows: i32,
  s: F32Ptr,
  q: F32Ptr,
  k: U16Ptr,
  wide: F32Ptr,
  headDim: i32,
  start: i32,
  end: i32,
): void {
  const from = k + ((<usize>start * headDim) << 1);
  if (!qk_f16(rows, s + (<usize>start << 2), q + scaled_queries(headDim), from, headDim, end - start)) return;
  widen_half_keys(wide, k, headDim, end);
  qk_page<u8>(rows, s, q, wide, 0, headDim, start, end);
}

/** The same for 8 keys of each of four heads. */
// @ts-ignore: decorator
@inline
function qk_four_f16(
  s: F32Ptr,
  q: F32Ptr,
  k: U16Ptr,
  wide: F32Ptr,
  apart: usize,
  headDim: i32,
  start: i32,
  end: i32,
): void {
  clear_scores(4, s);
  q += scaled_queries(headDim);
  let from = k + ((<usize>start * headDim) << 1);
  for (let to = s + (<usize>start << 2); to < s + (<usize>end << 2); to += PANEL_BYTES) {
    for (let d = 0; d < headDim; d += QUERY_CHUNK) {
      const n = min(QUERY_CHUNK, headDim - d);
      four_heads_f16(to, STRIP_BYTES, RESCALED, q + ((<usize>d * 4) << 2), from, apart, n, wide);
      from += <usize>n * PANEL_BYTES_16;
    }
  }
}

/** What the rules leave of the scores of the keys [start, end): softcap, ALiBi, bias, keep and the range of each row. */
// @ts-ignore: decorator
@inline
export function apply_rules(
  rows: i32,
  s: F32Ptr,
  states: usize,
  shape: AttentionShape,
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
    if (changes) change_scores(row, shape, r + i, key, start, end, from, to);
    exclude_scores(row, start, from);
    exclude_scores(row, to, end);
  }
}

/** Softcap, ALiBi, bias and keep on the scores of row r. [from, to) is what it may attend of [start, end). */
function change_scores(
  row: F32Ptr,
  shape: AttentionShape,
  r: i32,
  key: i32,
  start: i32,
  end: i32,
  from: i32,
  to: i32,
): void {
  const token = token_of(shape, r);
  const head = head_of(shape, r);
  if (shape.softcap > 0) cap_scores(row, start, end, shape.softcap);
  if (shape.slopes) {
    const slope = load<f32>(shape.slopes + (<usize>head << 2));
    slope_scores(row, start, end, slope, shape.qStart + token - key);
  }
  // Whole vectors, of which exclude_scores then takes what the row may not attend.
  const low = from & -PANEL;
  const high = (to + PANEL - 1) & -PANEL;
  if (shape.bias) bias_scores(row, bias_row(shape, head, token) + (<usize>key << 2), low, high);
  if (shape.keep) keep_scores(row, keep_row(shape, head, token) + key, low, high);
}
