import { PAGE, QUAD } from "../layout";
import { ex2_clamped, ex2_f32x4, ex2_term } from "../math/exp";
import { madd } from "../math/simd";
import { F32Ptr, StatisticsShape } from "../types";
import { reduced, STATE_ALPHA, STATE_BYTES, STATE_HIGH, STATE_SUMS, STRIP_BYTES } from "./state";
import {
  keys_behind,
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
    if (top > load<f32>(row + (<usize>(k - 1) << 2), ROW_TOP)) take_keys(row, k, top, from, from + bytes, key + first);
  }

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
    // The sum of weights times their keys; those of `odd` are 4 more.
    let keys = f32x4.splat(0);
    let j = f32x4.add(f32x4.splat(<f32>first), f32x4(0, 1, 2, 3));
    for (let at = from; at < end; at += 32) {
      const w0 = v128.load(at);
      const w1 = v128.load(at, 16);
      squares = madd(w0, w0, squares);
      squares = madd(w1, w1, squares);
      const w = f32x4.add(w0, w1);
      both = f32x4.add(both, w);
      keys = madd(w, j, keys);
      j = f32x4.add(j, eight);
    }
    const first_two = sums_of(both, scores);
    const other_two = sums_of(squares, madd(odd, four, keys));
    add_two(row + ROW_WEIGHTS, first_two);

    const weights = s + STRIP_BYTES * i;
    const position = load<i32>(row, ROW_POSITION) - key;
    const high = load<i32>(state, STATE_HIGH) - key;
    // What a row attends of the page lies before it, behind it, or on both sides.
    let distance = <f64>position * f64x2.extract_lane(first_two, 0) - f64x2.extract_lane(other_two, 1);
    if (high > position + 1 && position < PAGE)
      distance = position < 0 ? -distance : distance_around(weights, first, last, position);
    add_two(row + ROW_SQUARES, f64x2.replace_lane(other_two, 1, distance));
    if (key < statistics.first) add_part(row + ROW_ENDS, weights, first, min(last, statistics.first - key));
    const start = high - statistics.last;
    if (start < PAGE) add_part(row + ROW_ENDS + 8, weights, max(first, start), min(last, high));
    if (kept != 0) keep_weights(kept + STRIP_BYTES * i, weights, first, last);
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
  // A branch would often be mispredicted.
  const m = f32x4.extract_lane(f32x4.pmax(f32x4.splat(before), top), 0);
  const alpha = ex2_f32x4(f32x4.splat(before - reduced(m)));
  store<f32>(state, m);
  v128.store(state, f32x4.mul(v128.load(state, STATE_SUMS), alpha), STATE_SUMS);
  v128.store_lane<f32>(state, alpha, 0, STATE_ALPHA);
  return f32x4.extract_lane(top, 0);
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

/**
 * Takes the scores from `at` to `end`, those of the keys from `key` on, into the best of a row. The largest of them is
 * `top`.
 */
function take_keys(row: usize, k: i32, top: f32, at: usize, end: usize, key: i32): void {
  const lowest = row + ROW_TOP + (<usize>(k - 1) << 2);
  // Few scores of a row's first page are as large as this, where all are larger than none.
  let known = top;
  if (k > 1) known = load<f32>(lowest) == f32.NEGATIVE_INFINITY ? least_of_best(k, at, end) : f32.NEGATIVE_INFINITY;
  while (at < end) {
    // Hits of 64 keys, one branch for all of them. A score that is as large as the last of the best changes nothing.
    const least = f32x4.splat(max<f32>(known, load<f32>(lowest)));
    const stop = min(at + 256, end);
    let hits: u64 = 0;
    let bit: u64 = 0;
    for (let from = at; from < stop; from += 32) {
      const low = f32x4.ge(v128.load(from), least);
      const high = f32x4.ge(v128.load(from, 16), least);
      hits |= <u64>i16x8.bitmask(i16x8.narrow_i32x4_s(low, high)) << bit;
      bit += 8;
    }
    for (; hits != 0; hits &= hits - 1) {
      const hit = <i32>ctz(hits);
      insert_key(row + ROW_TOP, k, v128.load32_splat(at + (<usize>hit << 2)), i32x4.splat(key + hit));
    }
    at = stop;
    key += 64;
  }
}

/**
 * A score that at least k of those from `at` to `end` reach: the least of the maxima of 4 or 8 parts; -Infinity for
 * more than 8.
 */
function least_of_best(k: i32, at: usize, end: usize): f32 {
  if (k > 8) return f32.NEGATIVE_INFINITY;
  let even = f32x4.splat(f32.NEGATIVE_INFINITY);
  let odd = even;
  for (; at < end; at += 32) {
    even = f32x4.pmax(even, v128.load(at));
    odd = f32x4.pmax(odd, v128.load(at, 16));
  }
  const four = k > 4 ? f32x4.pmin(even, odd) : f32x4.pmax(even, odd);
  const two = f32x4.pmin(four, v128.shuffle<f32>(four, four, 2, 3, 0, 1));
  return f32x4.extract_lane(f32x4.pmin(two, v128.shuffle<f32>(two, two, 1, 0, 3, 2)), 0);
}

/**
 * Inserts a score, in all lanes, behind those that are as large. Each place takes what it has, or the new one, or what
 * the place before has: from the last four to the first, without a branch.
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
