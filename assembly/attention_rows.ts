import { LOG2_E, reduced, STATE_HIGH, STATE_LOW, STATE_SUMS } from "./attention_state";
import { ex2_f32, ln_f64, tanh_f32x4 } from "./exp";
import { PANEL, QUERY_CHUNK } from "./layout";
import { end_key, first_key } from "./mask";
import { madd, store_first } from "./simd";
import { AttentionShape, F32Ptr } from "./types";

// What happens to a row of attention_f32 once: before its first page and after its last.

const LN_2: f64 = 0.6931471805599453;
/** The one NaN that leaves, from memory: see exp.ts. */
const NAN = memory.data<u32>([0x7fc00000]);

/** What queries are multiplied by: scores come out in units of ln 2, or as the argument of softcap's tanh. */
// @ts-ignore: decorator
@inline
function query_scale(shape: AttentionShape): f32 {
  const scale = <f64>shape.scale;
  return shape.softcap > 0 ? <f32>(scale / <f64>shape.softcap) : <f32>(scale * LOG2_E);
}

/**
 * Sets a row up: its limits in `state`; the scaled query in the chunks of `qs`, which lie `chunk` bytes apart;
 * o[:columns], what it has attended before any page. columns is valueDim rounded up to a panel.
 */
export function start_row(
  state: usize,
  qs: F32Ptr,
  chunk: usize,
  o: F32Ptr,
  q: F32Ptr,
  shape: AttentionShape,
  token: i32,
  head: i32,
  kvHead: i32,
  columns: i32,
): void {
  const low = first_key(shape, token);
  const high = end_key(shape, token);
  const none = low >= high;
  store<f32>(state, f32.NEGATIVE_INFINITY);
  v128.store(state, f32x4.splat(0), STATE_SUMS);
  store<i32>(state, none ? 0 : low, STATE_LOW);
  store<i32>(state, none ? 0 : high, STATE_HIGH);

  const factor = query_scale(shape);
  const factor_f32x4 = f32x4.splat(factor);
  let to = qs;
  for (let d = 0; d < shape.headDim; d += QUERY_CHUNK) {
    const from = q + (<usize>d << 2);
    const bytes = <usize>min(QUERY_CHUNK, shape.headDim - d) << 2;
    const wide = bytes & -32;
    for (let at: usize = 0; at < wide; at += 32) {
      v128.store(to + at, f32x4.mul(v128.load(from + at), factor_f32x4));
      v128.store(to + at, f32x4.mul(v128.load(from + at, 16), factor_f32x4), 16);
    }
    for (let at = wide; at < bytes; at += 4) store<f32>(to + at, load<f32>(from + at) * factor);
    to += chunk;
  }
  const zero = f32x4.splat(0);
  const end = o + (<usize>columns << 2);
  for (let at = o; at < end; at += 32) {
    v128.store(at, zero);
    v128.store(at, zero, 16);
  }

  if (shape.extraKey) start_with_extra_key(state, qs, chunk, o, shape, kvHead);
  if (shape.zeroKey) join(state, o, columns, 0);
  if (shape.sinks) {
    const sink = load<f32>(shape.sinks + (<usize>head << 2));
    if (sink != f32.NEGATIVE_INFINITY) join(state, o, columns, sink * <f32>LOG2_E);
  }
}

/** The extra key is the first that a row attends. */
function start_with_extra_key(
  state: usize,
  qs: F32Ptr,
  chunk: usize,
  o: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
): void {
  const key = shape.extraKey + ((<usize>kvHead * shape.headDim) << 2);
  const value = shape.extraValue + ((<usize>kvHead * shape.valueDim) << 2);
  let dot = f32x4.splat(0);
  for (let d = 0; d < shape.headDim; d++) {
    const x = v128.load32_splat(qs + chunk * (d / QUERY_CHUNK) + (<usize>(d % QUERY_CHUNK) << 2));
    dot = madd(x, v128.load32_splat(key + (<usize>d << 2)), dot);
  }
  if (shape.softcap > 0) dot = f32x4.mul(tanh_f32x4(dot), f32x4.splat(<f32>(<f64>shape.softcap * LOG2_E)));
  const score = f32x4.extract_lane(dot, 0);
  const weight = ex2_f32(score - reduced(score));
  store<f32>(state, score);
  store<f32>(state, weight, STATE_SUMS);
  const end = <usize>shape.valueDim << 2;
  for (let at: usize = 0; at < end; at += 4) store<f32>(o + at, weight * load<f32>(value + at));
}

/** Gives a row one more score, without a value: its sums and its output are rescaled to the new max. */
function join(state: usize, o: F32Ptr, columns: i32, score: f32): void {
  const before = load<f32>(state);
  const m = max<f32>(before, score);
  const shift = reduced(m);
  const alpha = f32x4.splat(ex2_f32(before - shift));
  const weight = f32x4.replace_lane(f32x4.splat(0), 0, ex2_f32(score - shift));
  store<f32>(state, m);
  v128.store(state, f32x4.add(f32x4.mul(v128.load(state, STATE_SUMS), alpha), weight), STATE_SUMS);
  const end = o + (<usize>columns << 2);
  for (let at = o; at < end; at += 16) v128.store(at, f32x4.mul(v128.load(at), alpha));
}

/** o · inverse as it leaves: one zero, one NaN. Whether a masked weight of 0 made -0 into +0 depends on the road. */
// @ts-ignore: decorator
@inline
function settled(o: v128, inverse: v128): v128 {
  const x = f32x4.add(f32x4.mul(o, inverse), f32x4.splat(0));
  return v128.bitselect(x, v128.load32_splat(NAN), f32x4.eq(x, x));
}

/** Writes out[:valueDim] = o / (sum of weights), and the log-sum-exp where it is wanted. */
export function finish_row(state: usize, o: F32Ptr, out: F32Ptr, shape: AttentionShape, token: i32, head: i32): void {
  const even = load<f32>(state, STATE_SUMS) + load<f32>(state, STATE_SUMS + 8);
  const sum = even + (load<f32>(state, STATE_SUMS + 4) + load<f32>(state, STATE_SUMS + 12));
  const inverse = f32x4.splat(sum == 0 ? <f32>0 : <f32>1 / sum);
  const whole = <usize>(shape.valueDim & -PANEL) << 2;
  for (let at: usize = 0; at < whole; at += 32) {
    v128.store(out + at, settled(v128.load(o + at), inverse));
    v128.store(out + at, settled(v128.load(o + at, 16), inverse), 16);
  }
  const left = shape.valueDim % PANEL;
  store_first(out + whole, left, settled(v128.load(o + whole), inverse));
  store_first(out + whole + 16, left - 4, settled(v128.load(o + whole, 16), inverse));
  if (shape.lse) {
    const at = shape.lse + ((<usize>head * shape.qLen + token) << 2);
    const lse = <f32>(<f64>load<f32>(state) * LN_2 + ln_f64(<f64>sum));
    if (sum == 0) store<f32>(at, f32.NEGATIVE_INFINITY);
    else if (lse == lse) store<f32>(at, lse);
    else store<u32>(at, load<u32>(NAN));
  }
}
