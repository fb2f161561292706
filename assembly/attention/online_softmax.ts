import { ex2_f32x4, ex2_term, ex2_with, tanh_f32x4 } from "../math/exp";
import { F32Ptr, U8Ptr } from "../types";
import { LOG2_E, reduced, STATE_ALPHA, STATE_BYTES, STATE_SUMS, STRIP_BYTES } from "./state";

// Scores of one page, s[j] for the keys [first, last) of it: the rules for one row, then the online softmax of a strip.
// Positions are relative to the page.

/** s[j] = softcap · log2 e · tanh(s[j]) for [first, last), multiples of 4. */
export function cap_scores(s: F32Ptr, first: i32, last: i32, softcap: f32): void {
  const factor = f32x4.splat(<f32>(<f64>softcap * LOG2_E));
  const end = s + (<usize>last << 2);
  for (let at = s + (<usize>first << 2); at < end; at += 16) {
    v128.store(at, f32x4.mul(tanh_f32x4(v128.load(at)), factor));
  }
}

/** s[j] -= slope · log2 e · |distance - j| for [first, last); distance is the query's position less the page's. */
export function slope_scores(s: F32Ptr, first: i32, last: i32, slope: f32, distance: i32): void {
  const factor = f32x4.splat(<f32>(<f64>slope * -LOG2_E));
  let away = i32x4.sub(i32x4.splat(distance - first), i32x4(0, 1, 2, 3));
  const end = s + (<usize>last << 2);
  for (let at = s + (<usize>first << 2); at < end; at += 16) {
    const length = f32x4.convert_i32x4_s(i32x4.abs(away));
    v128.store(at, f32x4.add(v128.load(at), f32x4.mul(length, factor)));
    away = i32x4.sub(away, i32x4.splat(4));
  }
}

/** -Infinity, the lowest float, log2 e: from memory, see exp.ts. */
const BIAS = memory.data<u32>([0xff800000, 0xff7fffff, 0x3fb8aa3b]);

/** Adds bias[j] · log2 e to s[j] for [first, last), multiples of 4; -Infinity excludes the key whatever its score is. */
export function bias_scores(s: F32Ptr, bias: F32Ptr, first: i32, last: i32): void {
  const none = v128.load32_splat(BIAS);
  const lowest = v128.load32_splat(BIAS, 4);
  const factor = v128.load32_splat(BIAS, 8);
  const end = s + (<usize>last << 2);
  let from = bias + (<usize>first << 2);
  for (let at = s + (<usize>first << 2); at < end; at += 16) {
    const x = v128.load(from);
    // Masks made of the lowest float overflow here, and a finite bias must not exclude. pmax lets NaN pass.
    const product = f32x4.pmax(f32x4.mul(x, factor), lowest);
    const sum = f32x4.add(v128.load(at), product);
    v128.store(at, v128.bitselect(none, sum, f32x4.eq(x, none)));
    from += 16;
  }
}

/** s[j] = -Infinity where keep[j] is 0, for [first, last), multiples of 8. */
export function keep_scores(s: F32Ptr, keep: U8Ptr, first: i32, last: i32): void {
  const none = v128.load32_splat(BIAS);
  const zero = i16x8.splat(0);
  for (let j = first; j < last; j += 8) {
    const dropped = i16x8.eq(v128.load8x8_u(keep + j), zero);
    const at = s + (<usize>j << 2);
    v128.store(at, v128.bitselect(none, v128.load(at), i32x4.extend_low_i16x8_s(dropped)));
    v128.store(at, v128.bitselect(none, v128.load(at, 16), i32x4.extend_high_i16x8_s(dropped)), 16);
  }
}

/** s[j] = -Infinity for [first, last), any bounds: whole vectors, which softmax reads next, never single floats. */
export function exclude_scores(s: F32Ptr, first: i32, last: i32): void {
  const excluded = f32x4.splat(f32.NEGATIVE_INFINITY);
  const low = i32x4.splat(first);
  const high = i32x4.splat(last);
  const start = first & -4;
  let j = i32x4.add(i32x4.splat(start), i32x4(0, 1, 2, 3));
  const end = s + (<usize>last << 2);
  for (let at = s + (<usize>start << 2); at < end; at += 16) {
    const inside = v128.and(i32x4.ge_s(j, low), i32x4.lt_s(j, high));
    v128.store(at, v128.bitselect(excluded, v128.load(at), inside));
    j = i32x4.add(j, i32x4.splat(4));
  }
}

/**
 * The scores of a strip become weights, s[j] = 2^(s[j] - m) for [first, last), multiples of 8, where m is the row's max so
 * far; its max, sums and alpha follow. Sums are four lanes; keys with j & 4 have sums of their own, which join the row's
 * at the end. The maxima of all rows come first, so that one row's exponentials need not wait for its max.
 */
export function softmax_scores(s: F32Ptr, rows: i32, first: i32, last: i32, states: usize): void {
  const bytes = <usize>(last - first) << 2;
  const start = s + (<usize>first << 2);
  const behind = states + STATE_BYTES * rows;
  let from = start;
  for (let state = states; state < behind; state += STATE_BYTES) {
    update_max(from, from + bytes, state);
    from += STRIP_BYTES;
  }

  const k0 = ex2_term(0);
  const k1 = ex2_term(1);
  const k2 = ex2_term(2);
  const k3 = ex2_term(3);
  const k4 = ex2_term(4);
  const magic = ex2_term(5);
  const lowest = ex2_term(6);
  const one = ex2_term(7);
  from = start;
  for (let state = states; state < behind; state += STATE_BYTES) {
    const shift = f32x4.splat(reduced(load<f32>(state)));
    let sums = v128.load(state, STATE_SUMS);
    let odd = f32x4.splat(0);
    const end = from + bytes;
    for (let at = from; at < end; at += 32) {
      const w0 = ex2_with(f32x4.sub(v128.load(at), shift), k0, k1, k2, k3, k4, magic, lowest, one);
      v128.store(at, w0);
      sums = f32x4.add(sums, w0);
      const w1 = ex2_with(f32x4.sub(v128.load(at, 16), shift), k0, k1, k2, k3, k4, magic, lowest, one);
      v128.store(at, w1, 16);
      odd = f32x4.add(odd, w1);
    }
    v128.store(state, f32x4.add(sums, odd), STATE_SUMS);
    from += STRIP_BYTES;
  }
}

/** Takes the scores from `at` to `end` into a row's max; its sums are rescaled, alpha says by what. */
// @ts-ignore: decorator
@inline
function update_max(at: usize, end: usize, state: usize): void {
  const before = load<f32>(state);
  let top = f32x4.splat(before);
  for (; at < end; at += 32) top = f32x4.pmax(top, f32x4.pmax(v128.load(at), v128.load(at, 16)));
  top = f32x4.pmax(top, i8x16.shuffle(top, top, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  top = f32x4.pmax(top, i8x16.shuffle(top, top, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  const m = f32x4.extract_lane(top, 0);
  const alpha = ex2_f32x4(f32x4.splat(before - reduced(m)));
  store<f32>(state, m);
  v128.store(state, f32x4.mul(v128.load(state, STATE_SUMS), alpha), STATE_SUMS);
  v128.store_lane<f32>(state, alpha, 0, STATE_ALPHA);
}
