import { QUERY_CHUNK } from "../layout";
import { is_excluded } from "../mask";
import { factor_of, is_non_finite, largest_lane, magnitudes, rounded, scale_of, some_of } from "../math/rounding";
import { load_first } from "../math/simd";
import { F32Ptr, F32PtrOrNull, U8PtrOrNull } from "../types";
import { WEIGHT_SCALE } from "./state";

// Queries and weights as integers for attention_f32 on integer pages, see rounding.ts.

/** The largest integers of 14 bits, with a sign and without. */
const MOST: f32 = 8191;
const MOST_WEIGHT: f32 = 16383;

/**
 * A query of headDim components, in chunks `chunk` bytes apart as start_rows leaves them, as integers: its scale at
 * `scale`, its pairs from `to` on, `step` bytes apart, with zeros up to a whole QUAD.
 */
export function quantize_query(scale: F32Ptr, to: usize, step: usize, qs: F32Ptr, chunk: usize, headDim: i32): void {
  let top = i32x4.splat(0);
  for (let d = 0; d < headDim; d += 4) top = i32x4.max_u(top, magnitudes(query_at(qs, chunk, d, headDim)));
  const bits = largest_lane(top);
  store<f32>(scale, scale_of(bits, MOST));
  const factor = f32x4.splat(factor_of(bits, MOST));
  const some = some_of(factor);
  for (let d = 0; d < headDim; d += 4) {
    const q = rounded(query_at(qs, chunk, d, headDim), factor, some);
    const pairs = i16x8.narrow_i32x4_s(q, q);
    v128.store_lane<u32>(to, pairs, 0);
    v128.store_lane<u32>(to + step, pairs, 1);
    to += step << 1;
  }
}

/** Components d to d + 3 of a query, zeros beyond headDim. */
// @ts-ignore: decorator
@inline
function query_at(qs: F32Ptr, chunk: usize, d: i32, headDim: i32): v128 {
  return load_first(qs + chunk * (d / QUERY_CHUNK) + (<usize>(d % QUERY_CHUNK) << 2), headDim - d, 0);
}

/** row[j] *= scales[j] for [start, end), multiples of 8. Returns the bits of the largest product. */
// @ts-ignore: decorator
@inline
function scale_weights(row: F32Ptr, scales: F32Ptr, start: i32, end: i32): u32 {
  let top = i32x4.splat(0);
  let k = scales + (<usize>start << 2);
  const stop = row + (<usize>end << 2);
  for (let at = row + (<usize>start << 2); at < stop; at += 32) {
    const p0 = f32x4.mul(v128.load(at), v128.load(k));
    const p1 = f32x4.mul(v128.load(at, 16), v128.load(k, 16));
    v128.store(at, p0);
    v128.store(at, p1, 16);
    top = i32x4.max_u(top, i32x4.max_u(p0, p1));
    k += 32;
  }
  return largest_lane(top);
}

/** The bits of the largest of row[j] for [start, end), multiples of 8. */
function largest_weight(row: F32Ptr, start: i32, end: i32): u32 {
  let top = i32x4.splat(0);
  const stop = row + (<usize>end << 2);
  for (let at = row + (<usize>start << 2); at < stop; at += 16) top = i32x4.max_u(top, v128.load(at));
  return largest_lane(top);
}

/**
 * The weights row[j] of one row, for the keys [start, end) of a page, multiples of 8, times the scales of the values, as
 * integers in place: 16 bits for each key from `row` on, their scale at WEIGHT_SCALE. Keys outside [from, to) have weight 0,
 * whatever their scales are, and so do those that keep and bias exclude: left out by the rules, not by their weight, since the scale of an
 * attended key must reach the row also where its weight is 0.
 */
export function quantize_weights(
  row: F32Ptr,
  scales: F32Ptr,
  start: i32,
  end: i32,
  from: i32,
  to: i32,
  keep: U8PtrOrNull,
  bias: F32PtrOrNull,
): void {
  let top = scale_weights(row, scales, start, end);
  if (start < from || to < end) {
    for (let j = start; j < from; j++) store<f32>(row + (<usize>j << 2), 0);
    for (let j = to; j < end; j++) store<f32>(row + (<usize>j << 2), 0);
    top = largest_weight(row, start, end);
  }
  if (is_non_finite(top) && (keep != 0 || bias != 0)) {
    for (let j = from; j < to; j++) if (is_excluded(keep, bias, j)) store<f32>(row + (<usize>j << 2), 0);
    top = largest_weight(row, start, end);
  }
  const scale = scale_of(top, MOST_WEIGHT);
  const factor = f32x4.splat(factor_of(top, MOST_WEIGHT));
  const some = some_of(factor);
  let at = row + (<usize>start << 2);
  const stop = row + (<usize>end << 2);
  for (let p = row + (<usize>start << 1); at < stop; at += 32) {
    const low = rounded(v128.load(at), factor, some);
    v128.store(p, i16x8.narrow_i32x4_s(low, rounded(v128.load(at, 16), factor, some)));
    p += 16;
  }
  store<f32>(row, scale, WEIGHT_SCALE);
}
