import { ex2_f32x4, ln_f64, tanh_f32x4 } from "./exp";
import { PANEL, ROW_STATE } from "./layout";
import { madd, store_first } from "./simd";
import { AttentionShape, F32Ptr } from "./types";

// What happens to a row of attention_f32 once: before its first page and after its last. Its state in scratch is 8 floats
// (ROW_STATE): the running max m, four sums l, alpha, and as integers the keys [low, high) it may attend.

export const STATE_BYTES: usize = ROW_STATE << 2;
export const STATE_SUMS: usize = 4;
export const STATE_ALPHA: usize = 20;
export const STATE_LOW: usize = 24;
export const STATE_HIGH: usize = 28;

/** Scores are kept in units of ln 2, so that a weight is 2^score. */
export const LOG2_E: f64 = 1.4426950408889634;
const LN_2: f64 = 0.6931471805599453;

/** x, or 0 for -Infinity: what is subtracted from scores, so that -Infinity - x is never NaN. */
// @ts-ignore: decorator
@inline
export function reduced(x: f32): f32 {
  return x == -<f32>Infinity ? <f32>0 : x;
}

/** 2^t of one float: the bits of a lane. */
// @ts-ignore: decorator
@inline
export function ex2_f32(t: f32): f32 {
  return f32x4.extract_lane(ex2_f32x4(f32x4.splat(t)), 0);
}

/** What queries are multiplied by: scores come out in units of ln 2, or as the argument of softcap's tanh. */
export function queryScale(shape: AttentionShape): f32 {
  const scale = <f64>shape.scale;
  return shape.softcap > 0 ? <f32>(scale / <f64>shape.softcap) : <f32>(scale * LOG2_E);
}

/** Gives a row one more score, without a value: its sums and its output are rescaled to the new max. */
function join(state: usize, o: F32Ptr, columns: i32, score: f32): void {
  const before = load<f32>(state);
  const m = max<f32>(before, score);
  const shift = reduced(m);
  const alpha = f32x4.splat(ex2_f32(before - shift));
  const weight = ex2_f32(score - shift);
  const sums = f32x4.mul(v128.load(state, STATE_SUMS), alpha);
  store<f32>(state, m);
  v128.store(state, f32x4.add(sums, f32x4(weight, 0, 0, 0)), STATE_SUMS);
  const end = o + (<usize>columns << 2);
  for (let at = o; at < end; at += 16) v128.store(at, f32x4.mul(v128.load(at), alpha));
}

/** The extra key is the first a row attends. */
function startWithExtraKey(state: usize, qs: F32Ptr, o: F32Ptr, shape: AttentionShape, kvHead: i32): void {
  const key = shape.extraKey + ((<usize>kvHead * shape.headDim) << 2);
  const value = shape.extraValue + ((<usize>kvHead * shape.valueDim) << 2);
  let dot = f32x4.splat(0);
  const bytes = <usize>shape.headDim << 2;
  for (let d: usize = 0; d < bytes; d += 4) {
    dot = madd(v128.load32_splat(qs + d), v128.load32_splat(key + d), dot);
  }
  if (shape.softcap > 0) dot = f32x4.mul(tanh_f32x4(dot), f32x4.splat(<f32>(<f64>shape.softcap * LOG2_E)));
  const score = f32x4.extract_lane(dot, 0);
  const weight = ex2_f32(score - reduced(score));
  store<f32>(state, score);
  store<f32>(state, weight, STATE_SUMS);
  const end = <usize>shape.valueDim << 2;
  for (let d: usize = 0; d < end; d += 4) store<f32>(o + d, weight * load<f32>(value + d));
}

/**
 * Sets a row up: its limits in `state`, `qs[:headDim]` the scaled query `q`, `o[:columns]` what it has attended before any
 * page. columns is valueDim rounded up to a panel.
 */
export function startRow(
  state: usize,
  qs: F32Ptr,
  o: F32Ptr,
  q: F32Ptr,
  shape: AttentionShape,
  token: i32,
  head: i32,
  kvHead: i32,
  columns: i32,
): void {
  const position = <i64>shape.qStart + <i64>token;
  const low = max<i64>(0, position - <i64>shape.left);
  const high = min<i64>(<i64>shape.kvLen, position + <i64>shape.right + 1);
  const none = low >= high;
  store<f32>(state, -<f32>Infinity);
  v128.store(state, f32x4.splat(0), STATE_SUMS);
  store<i32>(state, none ? 0 : <i32>low, STATE_LOW);
  store<i32>(state, none ? 0 : <i32>high, STATE_HIGH);

  const factor = queryScale(shape);
  const factor_f32x4 = f32x4.splat(factor);
  const wide = <usize>(shape.headDim & ~3) << 2;
  const bytes = <usize>shape.headDim << 2;
  for (let d: usize = 0; d < wide; d += 16) v128.store(qs + d, f32x4.mul(v128.load(q + d), factor_f32x4));
  for (let d = wide; d < bytes; d += 4) store<f32>(qs + d, load<f32>(q + d) * factor);
  memory.fill(o, 0, <usize>columns << 2);

  if (shape.extraKey) startWithExtraKey(state, qs, o, shape, kvHead);
  if (shape.zeroKey) join(state, o, columns, 0);
  if (shape.sinks) {
    const sink = load<f32>(shape.sinks + (<usize>head << 2));
    if (sink != -<f32>Infinity) join(state, o, columns, sink * <f32>LOG2_E);
  }
}

/** Writes out[:valueDim] = o / (sum of weights), and the log-sum-exp where it is wanted. */
export function finishRow(state: usize, o: F32Ptr, out: F32Ptr, shape: AttentionShape, token: i32, head: i32): void {
  const sum =
    load<f32>(state, STATE_SUMS) +
    load<f32>(state, STATE_SUMS + 8) +
    (load<f32>(state, STATE_SUMS + 4) + load<f32>(state, STATE_SUMS + 12));
  const inverse = f32x4.splat(sum == 0 ? <f32>0 : <f32>1 / sum);
  const nan = i32x4.splat(0x7fc00000);
  const columns = shape.valueDim;
  for (let d = 0; d < columns; d += 4) {
    // The added zero turns -0 into +0: a masked weight of 0 may or may not have done so already.
    const scaled = f32x4.add(f32x4.mul(v128.load(o + (<usize>d << 2)), inverse), f32x4.splat(0));
    const x = v128.bitselect(scaled, nan, f32x4.eq(scaled, scaled));
    store_first(out + (<usize>d << 2), columns - d, x);
  }
  if (shape.lse) {
    const lse = <f32>(<f64>load<f32>(state) * LN_2 + ln_f64(<f64>sum));
    const at = shape.lse + ((<usize>head * shape.qLen + token) << 2);
    if (sum == 0) store<f32>(at, -<f32>Infinity);
    else if (lse == lse) store<f32>(at, lse);
    else store<u32>(at, 0x7fc00000);
  }
}
