import { KEPT_END, KEPT_ROWS, PAGE, QUAD, STATISTICS, STATISTICS_ROW, TILE_ROWS } from "../layout";
import { bias_row, head_of, is_excluded, keep_row, token_of } from "../mask";
import { ex2_f32, ln_f64 } from "../math/exp";
import { madd } from "../math/simd";
import { AttentionShape, F32Ptr, StatisticsShape } from "../types";
import { key_of, score_of } from "./best_keys";
import { reduced, row_from, row_to, STATE_BYTES, STATE_SUMS, STRIP_BYTES } from "./state";

// Statistics of rows of attention, from the weights that the online softmax makes. A row's weights are e = 2^(s - m),
// where m is its max so far; its sums are kept in float64, relative to that max too, and each page adds to them once:
//
//   S = sum of e    X = sum of e · (s - m)    Q = sum of e²    D = sum of e · |p - j|    first, last = parts of S
//
// When m grows to m', all of them are multiplied by alpha = 2^(m - m'), Q twice, and X becomes
// alpha · (X + (m - m') · S). At the end Z = S + what the extra key, the zero key and the sink have of the sum of
// weights.
//
// What a key receives from SUMMED tokens, whose positions begin with a multiple of that, is summed in float32, and
// these sums in float64 when the next tokens begin: not before, so that a call of one token has none. Rows come in
// ascending order, so that no cut between them changes a bit. The float32 sums stay in memory between tiles, behind the
// float64 ones.
//
// In scratch, from StatisticsShape.work on: the lists of best_keys.ts; TILE_ROWS rows as below; where `received` is
// wanted, room for a list of 8 bytes a row; strips in which scores become weights and stay, STRIP_BYTES for each of
// KEPT_ROWS rows of each page of the tile, with KEPT_END bytes behind the last for what a strip has behind its rows;
// then the max that each of these rows is relative to. Tiles then have KEPT_ROWS rows.

/**
 * A row: S, X, Q, D, first and last; what is not of keys; the max; the row's position; Infinity behind 8 bytes; then the
 * best keys, topK of them rounded up to whole QUADs, descending: see best_keys.ts.
 */
export const ROW_WEIGHTS: usize = 0;
const ROW_SCORES: usize = 8;
export const ROW_SQUARES: usize = 16;
const ROW_DISTANCES: usize = 24;
export const ROW_ENDS: usize = 32;
export const ROW_OTHERS: usize = 48;
export const ROW_SHIFT: usize = 56;
export const ROW_POSITION: usize = 60;
const ROW_ABOVE: usize = 72;
export const ROW_TOP: usize = 80;
/** Of a row that is finished: 1 / Z as float32. */
const ROW_INVERSE: usize = ROW_OTHERS;

/** The float32 sum of so many is within 15 · 2^-24 of itself. */
const SUMMED = 16;

const LN_2: f64 = 0.6931471805599453;
/** The part of the weight from which on keys have an entropy, a distance and a number: less, squared, may underflow. */
const LEAST: f64 = 9.094947017729282e-13;
/** The one NaN that leaves, from memory: see exp.ts. */
const NAN = memory.data<u32>([0x7fc00000]);

/** Bytes of a row. */
// @ts-ignore: decorator
@inline
export function row_bytes(statistics: StatisticsShape): usize {
  return <usize>(STATISTICS_ROW + 8 * whole_quads(statistics.topK));
}

// @ts-ignore: decorator
@inline
function whole_quads(k: i32): i32 {
  return (k + QUAD - 1) & -QUAD;
}

/** The most rows of a tile. */
// @ts-ignore: decorator
@inline
export function tile_rows(statistics: StatisticsShape): i32 {
  return statistics.received ? KEPT_ROWS : TILE_ROWS;
}

/** Where row i keeps its weights on page `page` of a tile's pages; 0 if they are not kept. */
// @ts-ignore: decorator
@inline
export function kept_row(rows: usize, statistics: StatisticsShape, page: i32, i: i32): usize {
  if (!statistics.received) return 0;
  const pages = rows + (row_bytes(statistics) + 8) * TILE_ROWS;
  return pages + STRIP_BYTES * (page * KEPT_ROWS + i);
}

/** Where it keeps the max that they are relative to. */
// @ts-ignore: decorator
@inline
function kept_max(rows: usize, statistics: StatisticsShape, page: i32, i: i32): usize {
  const end = kept_row(rows, statistics, statistics.keptPages, 0) + KEPT_END;
  return end + (<usize>(page * KEPT_ROWS + i) << 2);
}

/** Keeps the maxima of rows i.. of a tile, `n` of them, after a page. */
export function keep_maxima(n: i32, state: usize, rows: usize, statistics: StatisticsShape, page: i32, i: i32): void {
  const to = kept_max(rows, statistics, page, i);
  for (let at = 0; at < n; at++) store<f32>(to + (<usize>at << 2), reduced(load<f32>(state + STATE_BYTES * at)));
}

/** Sets rows r.. of a tile up, whose states start_rows has set up, and which have `pages` pages. */
export function start_statistics(
  n: i32,
  states: usize,
  rows: usize,
  shape: AttentionShape,
  statistics: StatisticsShape,
  r: i32,
  pages: i32,
): void {
  const k = statistics.topK;
  for (let i = 0; i < n; i++) {
    const state = states + STATE_BYTES * i;
    const row = rows + row_bytes(statistics) * i;
    for (let at = row; at < row + ROW_TOP; at += 16) v128.store(at, f64x2.splat(0));
    store<f64>(row, <f64>load<f32>(state, STATE_SUMS), ROW_OTHERS);
    store<f32>(row, reduced(load<f32>(state)), ROW_SHIFT);
    store<i32>(row, shape.qStart + token_of(shape, r + i), ROW_POSITION);
    store<f64>(row, Infinity, ROW_ABOVE);
    for (let at = row; at < row + (<usize>k << 3); at += 16) v128.store(at, f64x2.splat(-Infinity), ROW_TOP);
  }
  const fits = !statistics.received || pages <= statistics.keptPages;
  assert(fits, "attention_statistics: rows must not have more than keptPages pages");
}

/** Writes what was measured of rows r.. of a tile, whose `pages` pages begin with that of the key `low`. */
export function finish_statistics(
  n: i32,
  states: usize,
  rows: usize,
  shape: AttentionShape,
  statistics: StatisticsShape,
  r: i32,
  low: i32,
  pages: i32,
): void {
  const size = STATISTICS + 2 * statistics.topK;
  for (let i = 0; i < n; i++) {
    const at = head_of(shape, r + i) * shape.qLen + token_of(shape, r + i);
    finish_row(rows + row_bytes(statistics) * i, statistics.rows + (<usize>(at * size) << 2), statistics.topK);
  }
  if (!statistics.received) return;
  // Rows of one head are as far apart as the group is large; four rows of four kv heads are of a head each.
  const group = shape.numHeads / shape.numKvHeads;
  const apart = n > shape.qLen * group ? n : group;
  for (let page = 0; page < pages; page++)
    for (let i = 0; i < min(apart, n); i++) receive_page(n, states, rows, shape, statistics, r, low, page, i, apart);
}

function store_number(at: usize, x: f64): void {
  store<f32>(at, <f32>x);
  if (x != x) store<u32>(at, load<u32>(NAN));
}

/** The statistics of a row to `to`, and its 1 / Z to where receive_page reads it. */
function finish_row(row: usize, to: usize, k: i32): void {
  const weights = load<f64>(row, ROW_WEIGHTS);
  const all = weights + load<f64>(row, ROW_OTHERS);
  const inverse: f64 = all == 0 ? 0 : 1 / all;
  const shift = load<f32>(row, ROW_SHIFT);
  const logarithm = ln_f64(all);
  store_number(to, <f64>shift * LN_2 + logarithm);
  store_number(to + 4, weights * inverse);
  store_number(to + 8, load<f64>(row, ROW_ENDS) * inverse);
  store_number(to + 12, load<f64>(row, ROW_ENDS + 8) * inverse);
  const nothing = weights <= all * LEAST;
  const part: f64 = nothing ? 0 : 1 / weights;
  const ofKeys = weights == all ? logarithm : ln_f64(weights);
  store_number(to + 16, nothing ? 0 : max<f64>(0, ofKeys - LN_2 * load<f64>(row, ROW_SCORES) * part));
  store_number(to + 20, load<f64>(row, ROW_DISTANCES) * part);
  store_number(to + 24, nothing ? 0 : (weights * weights) / load<f64>(row, ROW_SQUARES));
  store<f32>(to, 0, 28);
  for (let i = 0; i < k; i++) {
    const entry = load<f64>(row + (<usize>i << 3), ROW_TOP);
    const weight = to + (<usize>(STATISTICS + i) << 2);
    const id = key_of(entry);
    store_number(weight, id < 0 ? 0 : <f64>ex2_f32(score_of(entry) - shift) * inverse);
    store<i32>(weight + (<usize>k << 2), id);
  }
  store<f32>(row, <f32>inverse, ROW_INVERSE);
}

/** Adds the weights of every `apart`th of a tile's rows from `first` on to what the keys of a page receive. */
function receive_page(
  n: i32,
  states: usize,
  rows: usize,
  shape: AttentionShape,
  statistics: StatisticsShape,
  r: i32,
  low: i32,
  page: i32,
  first: i32,
  apart: i32,
): void {
  const key = low + page * PAGE;
  const at = <usize>(head_of(shape, r + first) * statistics.receivedStride + key);
  const to = statistics.received + (at << 3);
  const parts = statistics.received + (<usize>(shape.numHeads * statistics.receivedStride) << 3) + (at << 2);
  const rowBytes = row_bytes(statistics);
  const kept = kept_row(rows, statistics, page, 0);
  const maxima = kept_max(rows, statistics, page, 0);
  // The rows that attend the page: where their weights are, and what these are multiplied by.
  const list = rows + rowBytes * TILE_ROWS;
  let end = list;
  for (let i = first; i < n; i += apart) {
    const state = states + STATE_BYTES * i;
    const row = rows + rowBytes * i;
    if ((load<i32>(row, ROW_POSITION) & (SUMMED - 1)) == 0) {
      add_rows(parts, list, end);
      add_parts(to, parts);
      end = list;
    }
    if (row_from(state, key) < row_to(state, key)) {
      const before = load<f32>(maxima + (<usize>i << 2));
      const factor = ex2_f32(before - load<f32>(row, ROW_SHIFT)) * load<f32>(row, ROW_INVERSE);
      if (factor == factor) {
        store<u32>(end, <u32>(kept + STRIP_BYTES * i));
        store<f32>(end, factor, 4);
        end += 8;
      } else receive_nan(parts, state, shape, r + i, key);
    }
  }
  add_rows(parts, list, end);
}

/** Adds the weights of a list of rows to the float32 sums of a page's keys. */
function add_rows(to: usize, list: usize, end: usize): void {
  if (end == list) return;
  for (let at: usize = 0; at < STRIP_BYTES; at += 128) {
    let s0 = v128.load(to + at);
    let s1 = v128.load(to + at, 16);
    let s2 = v128.load(to + at, 32);
    let s3 = v128.load(to + at, 48);
    let s4 = v128.load(to + at, 64);
    let s5 = v128.load(to + at, 80);
    let s6 = v128.load(to + at, 96);
    let s7 = v128.load(to + at, 112);
    for (let row = list; row < end; row += 8) {
      const w = <usize>load<u32>(row) + at;
      const factor = v128.load32_splat(row, 4);
      s0 = madd(v128.load(w), factor, s0);
      s1 = madd(v128.load(w, 16), factor, s1);
      s2 = madd(v128.load(w, 32), factor, s2);
      s3 = madd(v128.load(w, 48), factor, s3);
      s4 = madd(v128.load(w, 64), factor, s4);
      s5 = madd(v128.load(w, 80), factor, s5);
      s6 = madd(v128.load(w, 96), factor, s6);
      s7 = madd(v128.load(w, 112), factor, s7);
    }
    v128.store(to + at, s0);
    v128.store(to + at, s1, 16);
    v128.store(to + at, s2, 32);
    v128.store(to + at, s3, 48);
    v128.store(to + at, s4, 64);
    v128.store(to + at, s5, 80);
    v128.store(to + at, s6, 96);
    v128.store(to + at, s7, 112);
  }
}

/** Adds the float32 sums of a page's keys to their float64 sums, and begins anew. */
function add_parts(to: usize, parts: usize): void {
  for (let at: usize = 0; at < STRIP_BYTES; at += 16) {
    const part = v128.load(parts + at);
    const sums = to + (at << 1);
    v128.store(sums, f64x2.add(v128.load(sums), f64x2.promote_low_f32x4(part)));
    v128.store(sums, f64x2.add(v128.load(sums, 16), f64x2.promote_low_f32x4(upper(part))), 16);
    v128.store(parts + at, f32x4.splat(0));
  }
}

/** Row r has a score that is NaN, or Infinity: what the keys that it attends receive is NaN. */
function receive_nan(to: F32Ptr, state: usize, shape: AttentionShape, r: i32, key: i32): void {
  const keep = keep_row(shape, head_of(shape, r), token_of(shape, r));
  const bias = bias_row(shape, head_of(shape, r), token_of(shape, r));
  for (let j = row_from(state, key); j < row_to(state, key); j++)
    if (!is_excluded(keep, bias, key + j)) store<f32>(to + (<usize>j << 2), NaN);
}

/** Lanes 2 and 3 in front. */
// @ts-ignore: decorator
@inline
export function upper(x: v128): v128 {
  return i64x2.shuffle(x, x, 1, 0);
}
