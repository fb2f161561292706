import { PAGE } from "../layout";
import { ex2_clamped, ex2_f32x4, ex2_term } from "../math/exp";
import { madd } from "../math/simd";
import { F32Ptr, StatisticsShape } from "../types";
import { exclude_scores } from "./online_softmax";
import { last_of_best, least_of_best, list_row, take_keys } from "./best_keys";
import { reduced, STATE_ALPHA, STATE_BYTES, STATE_HIGH, STATE_SUMS, STRIP_BYTES } from "./state";
import {
  ROW_ENDS,
  ROW_OTHERS,
  ROW_POSITION,
  ROW_SHIFT,
  ROW_SQUARES,
  ROW_TOP,
  ROW_WEIGHTS,
  row_bytes,
  upper,
} from "./statistics";

// What a strip of rows adds to its statistics on one page, whose first key is `key`. Positions are relative to that.

/**
 * softmax_scores, with the same bits in s and in the states, which also adds to what is measured: `measured` are the
 * strip's rows, `kept` where their weights are kept, or 0.
 */
export function softmax_measured(
  s: F32Ptr,
  rows: i32,
  first: i32,
  last: i32,
  states: usize,
  statistics: StatisticsShape,
  lists: usize,
  measured: usize,
  kept: usize,
  key: i32,
): void {
  const k = statistics.topK;
  const rowBytes = row_bytes(statistics);
  const bytes = <usize>(last - first) << 2;
  // The best keys are searched in whole blocks of 32.
  const low = first & -32;
  const high = (last + 31) & -32;
  const wide = <usize>(high - low) << 2;
  let listed = lists;
  for (let i = 0; i < rows; i++) {
    const scores = s + STRIP_BYTES * i;
    if (wide > bytes) {
      exclude_scores(scores, low, first);
      exclude_scores(scores, last, high);
    }
    const row = measured + rowBytes * i;
    listed = raise_max(scores + (<usize>low << 2), wide, states + STATE_BYTES * i, listed, row + ROW_TOP, k);
  }
  if (listed != lists) take_keys(lists, listed, k, wide, key + low);

  const k0 = ex2_term(0);
  const k1 = ex2_term(1);
  const k2 = ex2_term(2);
  const k3 = ex2_term(3);
  const k4 = ex2_term(4);
  const magic = ex2_term(5);
  const lowest = ex2_term(6);
  const one = ex2_term(7);
  // Constants would be built anew at every use: see exp.ts.
  const two = f32x4.add(one, one);
  const four = f32x4.add(two, two);
  const eight = f32x4.add(four, four);
  const lanes = f32x4(0, 1, 2, 3);
  for (let i = 0; i < rows; i++) {
    const from = s + STRIP_BYTES * i + (<usize>first << 2);
    const state = states + STATE_BYTES * i;
    const row = measured + rowBytes * i;
    const m = reduced(load<f32>(state));
    rescale(row, m, load<f32>(state, STATE_ALPHA));
    const shift = f32x4.splat(m);
    let sums = v128.load(state, STATE_SUMS);
    let odd = f32x4.splat(0);
    let scores = f32x4.splat(0);
    const end = from + bytes;
    for (let at = from; at < end; at += 32) {
      // What is -127 here has the weight 0.
      const t0 = f32x4.pmax(f32x4.sub(v128.load(at), shift), lowest);
      const w0 = ex2_clamped(t0, k0, k1, k2, k3, k4, magic, one);
      v128.store(at, w0);
      sums = f32x4.add(sums, w0);
      scores = madd(w0, t0, scores);
      const t1 = f32x4.pmax(f32x4.sub(v128.load(at, 16), shift), lowest);
      const w1 = ex2_clamped(t1, k0, k1, k2, k3, k4, magic, one);
      v128.store(at, w1, 16);
      odd = f32x4.add(odd, w1);
      scores = madd(w1, t1, scores);
    }
    v128.store(state, f32x4.add(sums, odd), STATE_SUMS);

    // What needs weights alone: one loop would have more than V8's 15 registers.
    let both = f32x4.splat(0);
    let squares = f32x4.splat(0);
    let oddSquares = f32x4.splat(0);
    // The sum of `both` after each step has each weight once for every step from its own to the page's end, which no cut
    // of the rows moves.
    let steps = f32x4.splat(0);
    for (let at = from; at < end; at += 32) {
      const w0 = v128.load(at);
      const w1 = v128.load(at, 16);
      squares = madd(w0, w0, squares);
      oddSquares = madd(w1, w1, oddSquares);
      both = f32x4.add(both, f32x4.add(w0, w1));
      steps = f32x4.add(steps, both);
    }
    for (let j = last; j < PAGE; j += 8) steps = f32x4.add(steps, both);
    // Weights times the keys from their own to the page's end; those of `odd` have 4 less.
    const ahead = f32x4.sub(f32x4.mul(steps, eight), madd(odd, four, f32x4.mul(both, lanes)));
    const first_two = sums_of(both, scores);
    const other_two = sums_of(f32x4.add(squares, oddSquares), ahead);
    add_two(row + ROW_WEIGHTS, first_two);

    const weights = s + STRIP_BYTES * i;
    const position = load<i32>(row, ROW_POSITION) - key;
    const high = load<i32>(state, STATE_HIGH) - key;
    // What a row attends of the page lies before it, behind it, or on both sides.
    let distance = <f64>(position - PAGE) * f64x2.extract_lane(first_two, 0) + f64x2.extract_lane(other_two, 1);
    if (high > position + 1 && position < PAGE)
      distance = position < 0 ? -distance : distance_around(weights, first, last, position);
    add_two(row + ROW_SQUARES, f64x2.replace_lane(other_two, 1, distance));
    if (key < statistics.first) add_part(row + ROW_ENDS, weights, first, min(last, statistics.first - key));
    const start = high - statistics.last;
    if (start < PAGE) add_part(row + ROW_ENDS + 8, weights, max(first, start), min(last, high));
    if (kept != 0) keep_weights(kept + STRIP_BYTES * i, weights, first, last);
  }
}

/**
 * Takes the scores from `at` on into a row's max, as softmax_scores does, and lists the row if they are better than its
 * best. Returns the end of the list.
 */
// @ts-ignore: decorator
@inline
function raise_max(at: usize, bytes: usize, state: usize, listed: usize, best: usize, k: i32): usize {
  let m0 = f32x4.splat(f32.NEGATIVE_INFINITY);
  let m1 = m0;
  let m2 = m0;
  let m3 = m0;
  for (let from = at; from < at + bytes; from += 128) {
    m0 = f32x4.pmax(m0, f32x4.pmax(v128.load(from), v128.load(from, 16)));
    m1 = f32x4.pmax(m1, f32x4.pmax(v128.load(from, 32), v128.load(from, 48)));
    m2 = f32x4.pmax(m2, f32x4.pmax(v128.load(from, 64), v128.load(from, 80)));
    m3 = f32x4.pmax(m3, f32x4.pmax(v128.load(from, 96), v128.load(from, 112)));
  }
  let top = f32x4.pmax(f32x4.pmax(m0, m1), f32x4.pmax(m2, m3));
  top = f32x4.pmax(top, v128.shuffle<f32>(top, top, 2, 3, 0, 1));
  top = f32x4.pmax(top, v128.shuffle<f32>(top, top, 1, 0, 3, 2));
  const before = load<f32>(state);
  // A branch would often be mispredicted.
  const m = f32x4.extract_lane(f32x4.pmax(f32x4.splat(before), top), 0);
  const alpha = ex2_f32x4(f32x4.splat(before - reduced(m)));
  store<f32>(state, m);
  v128.store(state, f32x4.mul(v128.load(state, STATE_SUMS), alpha), STATE_SUMS);
  v128.store_lane<f32>(state, alpha, 0, STATE_ALPHA);

  let least = last_of_best(best, k);
  if (least == f32.NEGATIVE_INFINITY) least = least_of_best(k, m0, m1, m2, m3);
  return list_row(listed, at, best, least, f32x4.extract_lane(top, 0));
}

/** Makes a row's sums relative to a new max. */
// @ts-ignore: decorator
@inline
function rescale(row: usize, m: f32, alpha: f32): void {
  const before = load<f32>(row, ROW_SHIFT);
  if (m == before) return;
  store<f32>(row, m, ROW_SHIFT);
  const factor = f64x2.splat(<f64>alpha);
  const moved = (<f64>before - <f64>m) * load<f64>(row, ROW_WEIGHTS);
  const two = f64x2.add(v128.load(row, ROW_WEIGHTS), f64x2.replace_lane(f64x2.splat(0), 1, moved));
  v128.store(row, f64x2.mul(two, factor), ROW_WEIGHTS);
  const squared = f64x2.replace_lane(factor, 0, <f64>alpha * <f64>alpha);
  v128.store(row, f64x2.mul(v128.load(row, ROW_SQUARES), squared), ROW_SQUARES);
  v128.store(row, f64x2.mul(v128.load(row, ROW_ENDS), factor), ROW_ENDS);
  store<f64>(row, load<f64>(row, ROW_OTHERS) * <f64>alpha, ROW_OTHERS);
}

/** The sums of the lanes of two vectors. */
// @ts-ignore: decorator
@inline
function sums_of(a: v128, b: v128): v128 {
  const pairs = f32x4.add(v128.shuffle<f32>(a, b, 0, 4, 1, 5), v128.shuffle<f32>(a, b, 2, 6, 3, 7));
  return f64x2.add(f64x2.promote_low_f32x4(pairs), f64x2.promote_low_f32x4(upper(pairs)));
}

// @ts-ignore: decorator
@inline
function add_two(to: usize, x: v128): void {
  v128.store(to, f64x2.add(v128.load(to), x));
}

/** The sum of w · |p - j| over the keys [first, last). */
function distance_around(weights: F32Ptr, first: i32, last: i32, position: i32): f64 {
  let sum: f64 = 0;
  for (let j = first; j < last; j++)
    sum += <f64>load<f32>(weights + (<usize>j << 2)) * <f64>abs(position - j);
  return sum;
}

/** Adds the weights of the keys [from, to). */
function add_part(sum: usize, weights: F32Ptr, from: i32, to: i32): void {
  const low = i32x4.splat(from);
  const high = i32x4.splat(to);
  const start = from & -4;
  let j = i32x4.add(i32x4.splat(start), i32x4(0, 1, 2, 3));
  let part = f32x4.splat(0);
  const end = weights + (<usize>to << 2);
  for (let at = weights + (<usize>start << 2); at < end; at += 16) {
    const inside = v128.and(i32x4.ge_s(j, low), i32x4.lt_s(j, high));
    part = f32x4.add(part, v128.and(v128.load(at), inside));
    j = i32x4.add(j, i32x4.splat(4));
  }
  store<f64>(sum, load<f64>(sum) + f64x2.extract_lane(sums_of(part, part), 0));
}

/** Keeps a row's weights on the keys [first, last), unless they are where they stay; those of the other keys are 0. */
function keep_weights(to: usize, weights: F32Ptr, first: i32, last: i32): void {
  const from = <usize>first << 2;
  const end = <usize>last << 2;
  for (let at: usize = 0; at < from; at += 16) v128.store(to + at, f32x4.splat(0));
  if (to != weights) for (let at = from; at < end; at += 16) v128.store(to + at, v128.load(weights + at));
  for (let at = end; at < STRIP_BYTES; at += 16) v128.store(to + at, f32x4.splat(0));
}
