import { PAIR_BYTES, PANEL, QUAD } from "../layout";
import { bias_row, is_masked, keep_row } from "../mask";
import { MADD_FUSES } from "../math/simd";
import { AttentionShape, F32Ptr, F32PtrOrNull, U16Ptr } from "../types";
import { widen_half_keys } from "./dequantize";
import { scaled_queries } from "./f16_page";
import { qk_f16 } from "./f16_tile";
import { qk_int } from "./int_tile";
import { bias_scores, cap_scores, exclude_scores, keep_scores, slope_scores, softmax_scores } from "./online_softmax";
import { is_causal_diagonal, pv_page, pv_page_causal, pv_page_int, quantize_rows_of_weights } from "./pv_page";
import { qk_3x8, qk_4x8, qk_5x8, qk_6x8 } from "./qk";
import { qk_1x32, qk_2x16, qk_3x16 } from "./qk_skinny";
import { end_key_of_any, first_key_of_any, row_from, row_to, STATE_BYTES, STRIP_BYTES, takes_3x16 } from "./state";

// A strip of rows of attention_f32 with the keys of one page. The strip is rows r.. of the kv head's, the page that of the
// keys from `key` on; keys [start, end), [first, last) and [from, to) are relative to the page.

/**
 * Scores, rules, online softmax and PV product. k and v are the kv head's keys and values, floats where their scales are 0
 * and bytes where not, which is what `queries` are too; or halves where kWide and vWide are not 0, rooms to widen them in.
 * s is the strip's scores.
 */
export function attend_page<P>(
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
  else if (isInteger<P>() && kWide != 0) qk_page_f16(rows, s, queries, k, kWide, shape.headDim, start, end);
  else qk_page(rows, s, queries, k, shape.headDim, start, end);
  apply_rules(rows, s, states, shape, kvHead, r, key, start, end);
  softmax_scores(s, rows, start, end, states);
  if (isInteger<P>() && vScales != 0) {
    quantize_rows_of_weights(rows, s, states, vScales, shape, kvHead, r, key, start, end);
    pv_page_int(rows, o, states, s, v, shape.valueDim, first, last);
  } else if ((isFloat<P>() || vWide == 0) && is_causal_diagonal(rows, states, shape, key, first)) {
    pv_page_causal(o, states, s, v, shape.valueDim, key, first, last);
  } else pv_page<P>(rows, o, states, s, v, vWide, shape, kvHead, r, key, first, last);
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
  qk_page(rows, s, q, wide, headDim, start, end);
}

/** What the rules leave of the scores of the keys [start, end): softcap, ALiBi, bias, keep and the range of each row. */
// @ts-ignore: decorator
@inline
export function apply_rules(
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
  // Whole vectors, of which exclude_scores then takes what the row may not attend.
  const low = from & -PANEL;
  const high = (to + PANEL - 1) & -PANEL;
  if (shape.bias) bias_scores(row, bias_row(shape, head, token) + (<usize>key << 2), low, high);
  if (shape.keep) keep_scores(row, keep_row(shape, head, token) + key, low, high);
}
