import { KEPT_ROW, PAGE, QUAD } from "../layout";
import { ex2_clamped, ex2_f32x4, ex2_term } from "../math/exp";
import { madd } from "../math/simd";
import { F32Ptr, StatisticsShape } from "../types";
import { reduced, STATE_ALPHA, STATE_BYTES, STATE_HIGH, STATE_SUMS, STRIP_BYTES } from "./state";
import {
  KEPT_SHIFT,
  keys_behind,
  ROW_DISTANCES,
  ROW_ENDS,
  ROW_OTHERS,
  ROW_POSITION,
  ROW_SCORES,
  ROW_SHIFT,
  ROW_SQUARES,
  ROW_TOP,
  ROW_WEIGHTS,
  row_bytes,
  upper,
} from "./statistics";

// What a strip of rows adds to its statistics on one page, whose keys begin with `key`. Positions are relative to the page.

/**
 * softmax_scores, with the same bits in s and in the states, which also adds to what is measured: `measured` are the strip's
 * rows, `kept` where their weights are kept, or 0.
 */
export function softmax_measured(
  s: F32Ptr,
  rows: i32,
  first: i32,
  last: i32,
  states: usize,
  statistics: StatisticsShape,
  measured: usize,
  kept: usize,
  key: i32,
): void {
  const k = statistics.topK;
  const rowBytes = row_bytes(statistics);
  const bytes = <usize>(last - first) << 2;
  for (let i = 0; i < rows; i++) {
    const from = s + STRIP_BYTES * i + (<usize>first << 2);
    const row = measured + rowBytes * i;
    const top = raise_max(from, from + bytes, states + STATE_BYTES * i);
    if (top > load<f32>(row + (<usize>(k - 1) << 2), ROW_TOP)) take_keys(row, k, from, from + bytes, key + first);
  }

  const k0 = ex2_term(0);
  const k1 = ex2_term(1);
  const k2 = ex2_term(2);
  const k3 = ex2_term(3);
  const k4 = ex2_term(4);
  const magic = ex2_term(5);
  const lowest = ex2_term(6);
  const one = ex2_term(7);
  for (let i = 0; i < rows; i++) {
    const from = s + STRIP_BYTES * i + (<usize>first << 2);
    const state = states + STATE_BYTES * i;
    const row = measured + rowBytes * i;
    const m = reduced(load<f32>(state));
    rescale(row, m, load<f32>(state, STATE_ALPHA));
    const shift = f32x4.splat(m);
    let sums = v128.load(state, STATE_SUMS);
    let even = f32x4.splat(0);
    let odd = f32x4.splat(0);
    let scores = f32x4.splat(0);
    let squares = f32x4.splat(0);
    // The sum of weights times their step, 8 keys each.
    let steps = f32x4.splat(0);
    let step = f32x4.splat(<f32>(first >> 3));
    const end = from + bytes;
    for (let at = from; at < end; at += 32) {
      // What is -127 here has the weight 0.
      const t0 = f32x4.pmax(f32x4.sub(v128.load(at), shift), lowest);
      const w0 = ex2_clamped(t0, k0, k1, k2, k3, k4, magic, one);
      v128.store(at, w0);
      sums = f32x4.add(sums, w0);
      even = f32x4.add(even, w0);
      steps = madd(w0, step, steps);
      scores = madd(w0, t0, scores);
      squares = madd(w0, w0, squares);
      const t1 = f32x4.pmax(f32x4.sub(v128.load(at, 16), shift), lowest);
      const w1 = ex2_clamped(t1, k0, k1, k2, k3, k4, magic, one);
      v128.store(at, w1, 16);
      odd = f32x4.add(odd, w1);
      steps = madd(w1, step, steps);
      step = f32x4.add(step, one);
      scores = madd(w1, t1, scores);
      squares = madd(w1, w1, squares);
    }
    v128.store(state, f32x4.add(sums, odd), STATE_SUMS);
    add_lanes(row + ROW_SCORES, scores);
    add_lanes(row + ROW_SQUARES, squares);
    add_lanes(row + ROW_WEIGHTS, f32x4.add(even, odd));

    const weights = s + STRIP_BYTES * i;
    const position = load<i32>(row, ROW_POSITION) - key;
    const high = load<i32>(state, STATE_HIGH) - key;
    // What a row attends of the page lies before it, behind it, or on both sides.
    if (high <= position + 1 || position >= PAGE) add_distances(row, even, odd, steps, position, 1);
    else if (position < 0) add_distances(row, even, odd, steps, position, -1);
    else add_distances_around(row, weights, first, last, position);
    if (key < statistics.first) add_part(row + ROW_ENDS, weights, first, min(last, statistics.first - key));
    if (high - statistics.last < PAGE) add_part(row + ROW_ENDS + 8, weights, max(first, high - statistics.last), min(last, high));
    if (kept != 0) keep_weights(kept + KEPT_ROW * i, weights, first, last, m);
  }
}

/** Takes the scores from `at` to `end` into a row's max, as softmax_scores does. Returns the largest of them. */
// @ts-ignore: decorator
@inline
function raise_max(at: usize, end: usize, state: usize): f32 {
  let top = f32x4.splat(f32.NEGATIVE_INFINITY);
  for (; at < end; at += 32) top = f32x4.pmax(top, f32x4.pmax(v128.load(at), v128.load(at, 16)));
  top = f32x4.pmax(top, i8x16.shuffle(top, top, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  top = f32x4.pmax(top, i8x16.shuffle(top, top, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  const before = load<f32>(state);
  const largest = f32x4.extract_lane(top, 0);
  const m = before < largest ? largest : before;
  const alpha = ex2_f32x4(f32x4.splat(before - reduced(m)));
  store<f32>(state, m);
  v128.store(state, f32x4.mul(v128.load(state, STATE_SUMS), alpha), STATE_SUMS);
  v128.store_lane<f32>(state, alpha, 0, STATE_ALPHA);
  return largest;
}

/** Makes a row's sums relative to a new max. */
// @ts-ignore: decorator
@inline
function rescale(row: usize, m: f32, alpha: f32): void {
  const before = load<f32>(row, ROW_SHIFT);
  if (m == before) return;
  store<f32>(row, m, ROW_SHIFT);
  const factor = f64x2.splat(<f64>alpha);
  const weights = v128.load(row, ROW_WEIGHTS);
  const moved = f64x2.add(v128.load(row, ROW_SCORES), f64x2.mul(f64x2.splat(<f64>before - <f64>m), weights));
  v128.store(row, f64x2.mul(weights, factor), ROW_WEIGHTS);
  v128.store(row, f64x2.mul(moved, factor), ROW_SCORES);
  v128.store(row, f64x2.mul(v128.load(row, ROW_SQUARES), f64x2.mul(factor, factor)), ROW_SQUARES);
  v128.store(row, f64x2.mul(v128.load(row, ROW_DISTANCES), factor), ROW_DISTANCES);
  v128.store(row, f64x2.mul(v128.load(row, ROW_ENDS), factor), ROW_ENDS);
  store<f64>(row, load<f64>(row, ROW_OTHERS) * <f64>alpha, ROW_OTHERS);
}

/** Adds lanes 0 and 2 of x to the first of two doubles, 1 and 3 to the second. */
// @ts-ignore: decorator
@inline
function add_lanes(to: usize, x: v128): void {
  const pair = f64x2.add(f64x2.promote_low_f32x4(x), f64x2.promote_low_f32x4(upper(x)));
  v128.store(to, f64x2.add(v128.load(to), pair));
}

/**
 * Adds the sum of w · (p - j) times `sign` to a row's distances, from what softmax_measured left: lane l of step u is of the key
 * j = 8u + l, in `odd` of j + 4.
 */
// @ts-ignore: decorator
@inline
function add_distances(row: usize, even: v128, odd: v128, steps: v128, position: i32, sign: f64): void {
  const from = f64x2.splat(<f64>position);
  const four = f64x2.splat(4);
  const low = f64x2.sub(from, f64x2(0, 1));
  const high = f64x2.sub(from, f64x2(2, 3));
  let sum = f64x2.mul(f64x2.promote_low_f32x4(even), low);
  sum = f64x2.add(sum, f64x2.mul(f64x2.promote_low_f32x4(upper(even)), high));
  sum = f64x2.add(sum, f64x2.mul(f64x2.promote_low_f32x4(odd), f64x2.sub(low, four)));
  sum = f64x2.add(sum, f64x2.mul(f64x2.promote_low_f32x4(upper(odd)), f64x2.sub(high, four)));
  const moved = f64x2.add(f64x2.promote_low_f32x4(steps), f64x2.promote_low_f32x4(upper(steps)));
  sum = f64x2.sub(sum, f64x2.mul(moved, f64x2.splat(8)));
  const all = f64x2.add(v128.load(row, ROW_DISTANCES), f64x2.mul(sum, f64x2.splat(sign)));
  v128.store(row, all, ROW_DISTANCES);
}

/** Adds the sum of w · |p - j| over the keys [first, last). */
function add_distances_around(row: usize, weights: F32Ptr, first: i32, last: i32, position: i32): void {
  let sum: f64 = 0;
  for (let j = first; j < last; j++)
    sum += <f64>load<f32>(weights + (<usize>j << 2)) * <f64>abs(position - j);
  store<f64>(row, load<f64>(row, ROW_DISTANCES) + sum, ROW_DISTANCES);
}

/** Adds the weights of the keys [from, to). */
function add_part(sum: usize, weights: F32Ptr, from: i32, to: i32): void {
  let part: f64 = 0;
  for (let j = from; j < to; j++) part += <f64>load<f32>(weights + (<usize>j << 2));
  store<f64>(sum, load<f64>(sum) + part);
}

/** Keeps a row's weights on the keys [first, last), and the max that they are relative to; those of the other keys are 0. */
function keep_weights(to: usize, weights: F32Ptr, first: i32, last: i32, m: f32): void {
  const from = <usize>first << 2;
  const end = <usize>last << 2;
  for (let at: usize = 0; at < from; at += 16) v128.store(to + at, f32x4.splat(0));
  for (let at = from; at < end; at += 16) v128.store(to + at, v128.load(weights + at));
  for (let at = end; at < KEPT_SHIFT; at += 16) v128.store(to + at, f32x4.splat(0));
  store<f32>(to, m, KEPT_SHIFT);
}

/** Takes the scores from `at` to `end`, those of the keys from `key` on, into the best of a row. */
function take_keys(row: usize, k: i32, at: usize, end: usize, key: i32): void {
  const lowest = row + ROW_TOP + (<usize>(k - 1) << 2);
  let least = v128.load32_splat(lowest);
  for (; at < end; at += 16) {
    const hits = i32x4.bitmask(f32x4.gt(v128.load(at), least));
    if (hits != 0) {
      for (let left = hits; left != 0; left &= left - 1) {
        const lane = ctz(left);
        const score = v128.load32_splat(at + (<usize>lane << 2));
        insert_key(row + ROW_TOP, k, score, i32x4.splat(key + lane));
      }
      least = v128.load32_splat(lowest);
    }
    key += 4;
  }
}

/**
 * Inserts a score, in all lanes, behind those that are as large. Each place takes what it has, or the new one, or what the
 * place before has: from the last four to the first, without a branch.
 */
// @ts-ignore: decorator
@inline
function insert_key(top: usize, k: i32, score: v128, id: v128): void {
  const ids = keys_behind(k);
  for (let at = top + (<usize>((k - 1) & -QUAD) << 2); at >= top; at -= 16) {
    const own = v128.load(at);
    const before = place_before(v128.load(at - 16), own);
    const stays = f32x4.ge(own, score);
    const follows = f32x4.ge(before, score);
    v128.store(at, v128.bitselect(own, v128.bitselect(score, before, follows), stays));
    const ownId = v128.load(at + ids);
    const moved = v128.bitselect(id, place_before(v128.load(at + ids - 16), ownId), follows);
    v128.store(at + ids, v128.bitselect(ownId, moved, stays));
  }
}

/** The last lane of four, then the first three of the next: a load of them would wait for the stores of both. */
// @ts-ignore: decorator
@inline
function place_before(four: v128, next: v128): v128 {
  return i32x4.shuffle(four, next, 3, 4, 5, 6);
}
