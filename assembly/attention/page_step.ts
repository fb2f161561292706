import { score_integers, weigh_integers } from "./int_tile";
import { classify_keys, weigh_masked } from "./pv_masked";
import { quantize_weights } from "./quantize";
import { score_3x8, score_4x8, score_5x8, score_6x8 } from "./qk";
import { score_1x32, score_2x16, score_3x16 } from "./qk_skinny";
import { bias_scores, cap_scores, exclude_scores, keep_scores, slope_scores, soften_scores } from "./online_softmax";
import { STATE_BYTES, STATE_HIGH, STATE_LOW, STRIP_BYTES, STRIP_ROWS, tile_height } from "./state";
import { weigh_columns } from "./pv";
import { weigh_causal_4, weigh_causal_6 } from "./pv_causal";
import { weigh_1x32, weigh_2x16, weigh_3x16 } from "./pv_skinny";
import { PAGE, PANEL, QUAD } from "../layout";
import { bias_row, keep_row } from "../mask";
import { VALUE_PANEL_BYTES } from "../cache/page";
import { MADD_FUSES } from "../math/simd";
import { AttentionShape, F32Ptr, F32PtrOrNull } from "../types";

/**
 * Whether three rows take 16 keys or columns at a time. Fused, they need the 12 chains and have the registers; an add
 * alone is ready so early that 6 chains do, and the product takes a register.
 */
// @ts-ignore: decorator
@inline
function three_wide(): bool {
  return MADD_FUSES;
}

/**
 * A strip of rows with the keys of one page: scores, rules, online softmax, values. The strip is rows r.. of the kv
 * head's, the page that of the keys from `key` on; k and v are the kv head's keys and values, floats where their scales
 * are 0 and bytes where not, which is what `queries` are too; s is the strip's scores.
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
  // [first, last) are the keys that any row attends; `shared` says that every row attends all of them.
  let first = PAGE;
  let last = 0;
  let latestFirst = 0;
  let earliestLast = PAGE;
  for (let i = 0; i < rows; i++) {
    const from = max(load<i32>(states + STATE_BYTES * i, STATE_LOW) - key, 0);
    const to = min(load<i32>(states + STATE_BYTES * i, STATE_HIGH) - key, PAGE);
    if (from < to) {
      first = min(first, from);
      last = max(last, to);
    }
    latestFirst = max(latestFirst, from);
    earliestLast = min(earliestLast, to);
  }
  if (first >= last) return;
  const masked = shape.keep != 0 || shape.bias != 0;
  const shared = latestFirst <= first && earliestLast >= last && !masked;

  const keys = rows > 3 ? PANEL : rows > 1 ? 16 : 32;
  const start = first & -keys;
  const end = (last + keys - 1) & -keys;
  if (isInteger<P>() && kScales != 0) {
    const pairs = ((shape.headDim + QUAD - 1) & -QUAD) >> 1;
    const at = <usize>start << 2;
    score_integers(rows, s + at, queries, k + ((<usize>(start >> 3) * pairs) << 4), kScales + at, pairs, end - start);
  } else score_keys(rows, s, queries, k, shape.headDim, start, end);
  const ruled = masked || shape.softcap > 0 || shape.slopes != 0;
  for (let i = 0; i < rows; i++) {
    const state = states + STATE_BYTES * i;
    const row = s + STRIP_BYTES * i;
    let from = max(load<i32>(state, STATE_LOW) - key, 0);
    let to = min(load<i32>(state, STATE_HIGH) - key, PAGE);
    if (from >= to) {
      from = end;
      to = end;
    }
    if (ruled) apply_rules(row, shape, kvHead, r + i, key, start, end, from, to);
    exclude_scores(row, start, from);
    exclude_scores(row, to, end);
  }
  soften_scores(s, rows, start, end, states);

  const panels = (shape.valueDim + PANEL - 1) / PANEL;
  const outputBytes = (<usize>panels * PANEL) << 2;
  if (isInteger<P>() && vScales != 0) {
    for (let i = 0; i < rows; i++) {
      quantize_row(s + STRIP_BYTES * i, states + STATE_BYTES * i, vScales, shape, kvHead, r + i, key, start, end);
    }
    const from = first & -QUAD;
    const pairs = (((last + QUAD - 1) & -QUAD) - from) >> 1;
    weigh_integers(rows, o, outputBytes, states, s, from, v + (<usize>from << 3), pairs, panels);
    return;
  }

  const n = last - first;
  const p = s + (<usize>first << 2);
  const values = v + (<usize>first << 5);

  if (!shared && !masked && rows == tile_height() && latestFirst <= first && is_staircase(states)) {
    const whole = load<i32>(states, STATE_HIGH) - key - first;
    for (let c = 0; c < panels; c++) {
      const to = o + (<usize>c << 5);
      const from = values + VALUE_PANEL_BYTES * c;
      if (MADD_FUSES) weigh_causal_6(to, outputBytes, states, p, from, whole, n - whole);
      else weigh_causal_4(to, outputBytes, states, p, from, whole, n - whole);
    }
    return;
  }

  const check: i32 = shared ? 0 : 1;
  const allowed = s + STRIP_BYTES * STRIP_ROWS;
  let classified = false;
  // Strips of few rows take several value panels at a time, each from a part of its own: `step` panels apart.
  const paired = rows == 2 || (rows == 3 && three_wide());
  const wide = rows == 1 ? 4 : paired ? 2 : 1;
  const step = panels / wide;
  for (let c = 0; c < panels; ) {
    const together = c < step ? wide : 1;
    const to = o + (<usize>c << 5);
    const from = values + VALUE_PANEL_BYTES * c;
    let failed = 0;
    if (together == 1) failed = weigh_columns(rows, to, outputBytes, states, p, from, n, check);
    else if (rows == 1) failed = weigh_1x32(to, outputBytes, states, p, from, n, check, step);
    else if (rows == 2) failed = weigh_2x16(to, outputBytes, states, p, from, n, check, step);
    else if (three_wide()) failed = weigh_3x16(to, outputBytes, states, p, from, n, check, step);
    if (failed) {
      if (!classified) classify_keys(allowed, states, rows, shape, kvHead, r, key, first, last);
      classified = true;
      for (let i = 0; i < together; i++) {
        const at = c + i * step;
        const from = v + VALUE_PANEL_BYTES * at;
        weigh_masked(o + (<usize>at << 5), outputBytes, states, rows, s, from, allowed, first, last);
      }
    }
    c++;
    if (c == step) c = step * wide;
  }
}

/** Scores of `rows` rows for the keys [start, end) of a page, multiples of the tile's keys. */
function score_keys(rows: i32, s: F32Ptr, q: F32Ptr, k: F32Ptr, headDim: i32, start: i32, end: i32): void {
  const to = s + (<usize>start << 2);
  const from = k + ((<usize>start * headDim) << 2);
  const n = end - start;
  switch (rows) {
    case 6:
      if (MADD_FUSES) score_6x8(to, q, from, headDim, n >> 3);
      return;
    case 5:
      return score_5x8(to, q, from, headDim, n >> 3);
    case 4:
      return score_4x8(to, q, from, headDim, n >> 3);
    case 3:
      if (three_wide()) score_3x16(to, q, from, headDim, n >> 4);
      else score_3x8(to, q, from, headDim, n >> 3);
      return;
    case 2:
      return score_2x16(to, q, from, headDim, n >> 4);
    default:
      return score_1x32(to, q, from, headDim, n >> 5);
  }
}

/** The weights of row r of a strip for the keys [start, end) of a page as integers, with the values' scales. */
function quantize_row(
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

/** The rules on the scores of row r: softcap, ALiBi, bias, keep. [from, to) is what it may attend of [start, end). */
function apply_rules(
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

/** Whether each row of a strip of tile_height() attends one key more than the row before. */
// @ts-ignore: decorator
@inline
function is_staircase(states: usize): bool {
  const high = load<i32>(states, STATE_HIGH);
  const rows = tile_height();
  for (let i = 1; i < rows; i++) if (load<i32>(states + STATE_BYTES * i, STATE_HIGH) != high + i) return false;
  return true;
}
