import { STATE_ALPHA, STRIP_BYTES, WEIGHT_SCALE } from "./state";

// What the tiles of attention on integer pages share, for scores and for values alike. Both operands come in pairs of 16 bits,
// and 16 bytes of a page are one pair of all eight keys or columns. The sums are exact, so no order, no tile and no build
// shows in them; what is done in floats behind them is not fused.
//
// Scores: pairs of queries lie 4 bytes apart, one of every row of the strip beside the next. Values: rows of weights lie
// STRIP_BYTES apart.

/** Eight sums of a row become scores of the row: the sum times both scales. */
// @ts-ignore: decorator
@inline
export function store_scores(s: usize, low: v128, high: v128, scale: usize, k: usize): void {
  const x = v128.load32_splat(scale);
  v128.store(s, f32x4.mul(f32x4.convert_i32x4_s(low), f32x4.mul(x, v128.load(k))));
  v128.store(s, f32x4.mul(f32x4.convert_i32x4_s(high), f32x4.mul(x, v128.load(k, 16))), 16);
}

/** o = alpha · o + the sums times the scale of the row's weights. */
// @ts-ignore: decorator
@inline
export function store_outputs(o: usize, low: v128, high: v128, state: usize, weights: usize): void {
  const alpha = v128.load32_splat(state, STATE_ALPHA);
  const x = v128.load32_splat(weights, WEIGHT_SCALE);
  v128.store(o, f32x4.add(f32x4.mul(v128.load(o), alpha), f32x4.mul(f32x4.convert_i32x4_s(low), x)));
  v128.store(o, f32x4.add(f32x4.mul(v128.load(o, 16), alpha), f32x4.mul(f32x4.convert_i32x4_s(high), x)), 16);
}

/** One pair of row `row` of x, broadcast. */
// @ts-ignore: decorator
@inline
export function pair_of(values: bool, row: i32, x: usize): v128 {
  if (row == 1) return values ? v128.load32_splat(x, STRIP_BYTES) : v128.load32_splat(x, 4);
  if (row == 2) return values ? v128.load32_splat(x, STRIP_BYTES * 2) : v128.load32_splat(x, 8);
  if (row == 3) return values ? v128.load32_splat(x, STRIP_BYTES * 3) : v128.load32_splat(x, 12);
  if (row == 4) return values ? v128.load32_splat(x, STRIP_BYTES * 4) : v128.load32_splat(x, 16);
  return v128.load32_splat(x);
}
