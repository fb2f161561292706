import { KEPT_ROW, KEPT_ROWS, PAGE, QUAD, STATISTICS, STATISTICS_ROW, TILE_ROWS } from "../layout";
import { head_of, token_of } from "../mask";
import { ex2_f32, ln_f64 } from "../math/exp";
import { AttentionShape, StatisticsShape } from "../types";
import { reduced, STATE_BYTES, STATE_SUMS } from "./state";

// Statistics of rows of attention, from the weights that the online softmax makes. A row's weights are e = 2^(s - m), where m
// is its max so far; its sums are kept in float64, relative to that max too, and each page adds to them once:
//
//   S = sum of e    X = sum of e · (s - m)    Q = sum of e²    D = sum of e · |p - j|    first, last = parts of S
//
// When m grows to m', all of them are multiplied by alpha = 2^(m - m'), Q twice, and X becomes alpha · (X + (m - m') · S).
// At the end Z = S + what the extra key, the zero key and the sink have of the sum of weights.
//
// In scratch, from StatisticsShape.work on: TILE_ROWS rows as below; where `received` is wanted, room for a list of 8 bytes a
// row, then for each page of the tile and each row KEPT_ROW bytes: PAGE weights, and the max that they are relative to,
// -Infinity where the row attends none of the page. Tiles then have KEPT_ROWS rows.

/**
 * A row: two lanes each of S, X, Q and D; first and last; what is not of keys; the max; the row's position; Infinity, then the
 * best scores, topK of them rounded up to whole QUADs, descending; four words, then their keys.
 */
export const ROW_WEIGHTS: usize = 0;
export const ROW_SCORES: usize = 16;
export const ROW_SQUARES: usize = 32;
export const ROW_DISTANCES: usize = 48;
export const ROW_ENDS: usize = 64;
export const ROW_OTHERS: usize = 80;
export const ROW_SHIFT: usize = 88;
export const ROW_POSITION: usize = 92;
const ROW_ABOVE: usize = 108;
export const ROW_TOP: usize = 112;
/** Of a row that is finished: 1 / Z as float32. */
const ROW_INVERSE: usize = ROW_OTHERS;

export const KEPT_SHIFT: usize = PAGE << 2;

const LN_2: f64 = 0.6931471805599453;
/** The part of the weight from which on keys have an entropy, a distance and a number: squares of parts of less may underflow. */
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

/** Bytes from a row's score to its key. */
// @ts-ignore: decorator
@inline
export function keys_behind(k: i32): usize {
  return 16 + (<usize>whole_quads(k) << 2);
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
  return pages + <usize>(page * KEPT_ROWS + i) * KEPT_ROW;
}

/** Sets rows r.. of a tile up, whose states start_rows has set up, and its `pages` pages. */
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
    store<f32>(row, f32.POSITIVE_INFINITY, ROW_ABOVE);
    for (let at = row; at < row + (<usize>k << 2); at += 16) {
      v128.store(at, f32x4.splat(f32.NEGATIVE_INFINITY), ROW_TOP);
      v128.store(at + keys_behind(k), i32x4.splat(-1), ROW_TOP);
    }
  }
  if (!statistics.received) return;
  assert(pages <= statistics.keptPages, "attention_statistics: rows must not have more than keptPages pages");
  for (let page = 0; page < pages; page++)
    for (let i = 0; i < n; i++) store<f32>(kept_row(rows, statistics, page, i), f32.NEGATIVE_INFINITY, KEPT_SHIFT);
}

/** Writes what was measured of rows r.. of a tile, whose `pages` pages begin with that of the key `low`. */
export function finish_statistics(
  n: i32,
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
    for (let i = 0; i < min(apart, n); i++) {
      const head = <usize>head_of(shape, r + i) * statistics.receivedStride;
      const to = statistics.received + ((head + low + page * PAGE) << 3);
      receive_page(to, rows, statistics, page, i, n, apart);
    }
}

/** The sum of the two lanes of a row's sum. */
// @ts-ignore: decorator
@inline
function sum_of(row: usize, sum: usize): f64 {
  return load<f64>(row + sum) + load<f64>(row + sum, 8);
}

function store_number(at: usize, x: f64): void {
  store<f32>(at, <f32>x);
  if (x != x) store<u32>(at, load<u32>(NAN));
}

/** The statistics of a row to `to`, and its 1 / Z to where flush reads it. */
function finish_row(row: usize, to: usize, k: i32): void {
  const weights = sum_of(row, ROW_WEIGHTS);
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
  store_number(to + 16, nothing ? 0 : max<f64>(0, ofKeys - LN_2 * sum_of(row, ROW_SCORES) * part));
  store_number(to + 20, sum_of(row, ROW_DISTANCES) * part);
  store_number(to + 24, nothing ? 0 : (weights * weights) / sum_of(row, ROW_SQUARES));
  store<f32>(to, 0, 28);
  for (let i = 0; i < k; i++) {
    const score = row + (<usize>i << 2);
    const weight = to + (<usize>(STATISTICS + i) << 2);
    const id = load<i32>(score + keys_behind(k), ROW_TOP);
    store_number(weight, id < 0 ? 0 : <f64>ex2_f32(load<f32>(score, ROW_TOP) - shift) * inverse);
    store<i32>(weight + (<usize>k << 2), id);
  }
  store<f32>(row, <f32>inverse, ROW_INVERSE);
}

/** Adds the weights of every `apart`th of a tile's rows from `first` on to what the keys of a page receive. */
function receive_page(
  to: usize,
  rows: usize,
  statistics: StatisticsShape,
  page: i32,
  first: i32,
  n: i32,
  apart: i32,
): void {
  // The rows that attend the page: where their weights are, and what these are multiplied by.
  const list = rows + row_bytes(statistics) * TILE_ROWS;
  let end = list;
  for (let i = first; i < n; i += apart) {
    const kept = kept_row(rows, statistics, page, i);
    const before = load<f32>(kept, KEPT_SHIFT);
    if (before == f32.NEGATIVE_INFINITY) continue;
    const row = rows + row_bytes(statistics) * i;
    store<u32>(end, <u32>kept);
    store<f32>(end, ex2_f32(before - load<f32>(row, ROW_SHIFT)) * load<f32>(row, ROW_INVERSE), 4);
    end += 8;
  }
  if (end == list) return;
  for (let at: usize = 0; at < KEPT_SHIFT; at += 64) {
    const sums = to + (at << 1);
    let s0 = v128.load(sums);
    let s1 = v128.load(sums, 16);
    let s2 = v128.load(sums, 32);
    let s3 = v128.load(sums, 48);
    let s4 = v128.load(sums, 64);
    let s5 = v128.load(sums, 80);
    let s6 = v128.load(sums, 96);
    let s7 = v128.load(sums, 112);
    for (let row = list; row < end; row += 8) {
      const kept = <usize>load<u32>(row) + at;
      const factor = v128.load32_splat(row, 4);
      const w0 = f32x4.mul(v128.load(kept), factor);
      s0 = f64x2.add(s0, f64x2.promote_low_f32x4(w0));
      s1 = f64x2.add(s1, f64x2.promote_low_f32x4(upper(w0)));
      const w1 = f32x4.mul(v128.load(kept, 16), factor);
      s2 = f64x2.add(s2, f64x2.promote_low_f32x4(w1));
      s3 = f64x2.add(s3, f64x2.promote_low_f32x4(upper(w1)));
      const w2 = f32x4.mul(v128.load(kept, 32), factor);
      s4 = f64x2.add(s4, f64x2.promote_low_f32x4(w2));
      s5 = f64x2.add(s5, f64x2.promote_low_f32x4(upper(w2)));
      const w3 = f32x4.mul(v128.load(kept, 48), factor);
      s6 = f64x2.add(s6, f64x2.promote_low_f32x4(w3));
      s7 = f64x2.add(s7, f64x2.promote_low_f32x4(upper(w3)));
    }
    v128.store(sums, s0);
    v128.store(sums, s1, 16);
    v128.store(sums, s2, 32);
    v128.store(sums, s3, 48);
    v128.store(sums, s4, 64);
    v128.store(sums, s5, 80);
    v128.store(sums, s6, 96);
    v128.store(sums, s7, 112);
  }
}

/** Lanes 2 and 3 in front. */
// @ts-ignore: decorator
@inline
export function upper(x: v128): v128 {
  return i64x2.shuffle(x, x, 1, 0);
}
