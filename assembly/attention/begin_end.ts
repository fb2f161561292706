import { PANEL, QUERY_CHUNK, QUERY_HEAD } from "../layout";
import { end_key, first_key, head_of, token_of } from "../mask";
import { ex2_f32, ln_f64 } from "../math/exp";
import { madd, store_first } from "../math/simd";
import { AttentionShape, F32Ptr } from "../types";
import { cap_scores } from "./online_softmax";
import { is_finite } from "./pv";
import { quantize_query } from "./quantize";
import { CHUNK_BYTES, LOG2_E, reduced, STATE_BYTES, STATE_HIGH, STATE_LOW, STATE_SUMS } from "./state";

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
 * Sets a strip up, rows r..: the limits of each row in its state; its scaled query in the chunks of `queries`, and as
 * integers in `codes` unless that is 0 or pages have none; in o[:columns] what it has attended before any page. columns is
 * valueDim rounded up to a panel.
 */
export function start_rows<P>(
  rows: i32,
  states: usize,
  queries: F32Ptr,
  codes: usize,
  outputs: F32Ptr,
  q: F32Ptr,
  shape: AttentionShape,
  r: i32,
  columns: i32,
): void {
  const chunk = CHUNK_BYTES * rows;
  const headBytes = <usize>shape.headDim << 2;
  const outputBytes = <usize>columns << 2;
  const special = shape.extraKey != 0 || shape.zeroKey != 0 || shape.sinks != 0;
  const factor = query_scale(shape);
  const factor_f32x4 = f32x4.splat(factor);
  const zero = f32x4.splat(0);
  const group = shape.numHeads / shape.numKvHeads;
  let token = token_of(shape, r);
  let head = head_of(shape, r);
  let behind = head - (head % group) + group;
  let o = outputs;
  let pairs = codes + <usize>(rows * QUERY_HEAD);
  const stop = states + STATE_BYTES * rows;
  for (let state = states; state < stop; state += STATE_BYTES) {
    const low = first_key(shape, token);
    const high = end_key(shape, token);
    const none = low >= high;
    store<f32>(state, f32.NEGATIVE_INFINITY);
    v128.store(state, zero, STATE_SUMS);
    store<i32>(state, none ? 0 : low, STATE_LOW);
    store<i32>(state, none ? 0 : high, STATE_HIGH);

    let from = q + ((<usize>token * shape.qStride + <usize>head * shape.qHeadStride) << 2);
    const end = from + headBytes;
    for (let to = queries; from < end; to += chunk) {
      const last = min(from + CHUNK_BYTES, end);
      let at = to;
      for (; from + 32 <= last; from += 32) {
        v128.store(at, f32x4.mul(v128.load(from), factor_f32x4));
        v128.store(at, f32x4.mul(v128.load(from, 16), factor_f32x4), 16);
        at += 32;
      }
      for (; from < last; from += 4) {
        store<f32>(at, load<f32>(from) * factor);
        at += 4;
      }
    }
    if (isInteger<P>() && codes != 0) {
      quantize_query(codes, pairs, <usize>rows << 2, queries, chunk, shape.headDim);
      codes += 4;
      pairs += 4;
    }
    const next = o + outputBytes;
    for (let at = o; at < next; at += 32) {
      v128.store(at, zero);
      v128.store(at, zero, 16);
    }
    if (special) start_with_extras(state, queries, chunk, o, shape, head, columns);
    o = next;
    queries += CHUNK_BYTES;
    if (++head == behind) {
      if (++token < shape.qLen) head -= group;
      else {
        token = 0;
        behind += group;
      }
    }
  }
}

/** What a row attends before any page: the extra key, the zero key and the sink, where there are any. */
function start_with_extras(
  state: usize,
  qs: F32Ptr,
  chunk: usize,
  o: F32Ptr,
  shape: AttentionShape,
  head: i32,
  columns: i32,
): void {
  if (shape.extraKey) start_with_extra_key(state, qs, chunk, o, shape, head);
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
  head: i32,
): void {
  const kvHead = head / (shape.numHeads / shape.numKvHeads);
  const key = shape.extraKey + ((<usize>kvHead * shape.headDim) << 2);
  const value = shape.extraValue + ((<usize>kvHead * shape.valueDim) << 2);
  let dot = f32x4.splat(0);
  for (let d = 0; d < shape.headDim; d++) {
    const x = v128.load32_splat(qs + chunk * (d / QUERY_CHUNK) + (<usize>(d % QUERY_CHUNK) << 2));
    dot = madd(x, v128.load32_splat(key + (<usize>d << 2)), dot);
  }
  v128.store(o, dot);
  if (shape.softcap > 0) cap_scores(o, 0, 4, shape.softcap);
  const score = load<f32>(o);
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

/** o · inverse with one zero: whether a masked weight of 0 made -0 into +0 depends on the path. */
// @ts-ignore: decorator
@inline
function scaled(o: v128, inverse: v128): v128 {
  return f32x4.add(f32x4.mul(o, inverse), f32x4.splat(0));
}

/** x with every NaN as the one that leaves. */
// @ts-ignore: decorator
@inline
function with_one_nan(x: v128): v128 {
  return v128.bitselect(x, v128.load32_splat(NAN), f32x4.eq(x, x));
}

/** Writes out[:valueDim] = o / (sum of weights) of a strip's rows, and the log-sum-exp where it is wanted. */
export function finish_rows(
  rows: i32,
  states: usize,
  outputs: F32Ptr,
  out: F32Ptr,
  shape: AttentionShape,
  r: i32,
  columns: i32,
): void {
  const outputBytes = <usize>columns << 2;
  const whole = <usize>(shape.valueDim & -PANEL) << 2;
  const left = shape.valueDim % PANEL;
  const group = shape.numHeads / shape.numKvHeads;
  let token = token_of(shape, r);
  let head = head_of(shape, r);
  let behind = head - (head % group) + group;
  let o = outputs;
  const stop = states + STATE_BYTES * rows;
  for (let state = states; state < stop; state += STATE_BYTES) {
    const even = load<f32>(state, STATE_SUMS) + load<f32>(state, STATE_SUMS + 8);
    const sum = even + (load<f32>(state, STATE_SUMS + 4) + load<f32>(state, STATE_SUMS + 12));
    const inverse = f32x4.splat(sum == 0 ? <f32>0 : <f32>1 / sum);
    const to = out + ((<usize>token * shape.outStride + <usize>head * shape.outHeadStride) << 2);
    // Not finite when any output is not, which is rare: only then are the outputs looked at.
    let total = f32x4.splat(0);
    for (let at: usize = 0; at < whole; at += 32) {
      const x0 = scaled(v128.load(o + at), inverse);
      const x1 = scaled(v128.load(o + at, 16), inverse);
      v128.store(to + at, x0);
      v128.store(to + at, x1, 16);
      total = f32x4.add(total, f32x4.add(x0, x1));
    }
    if (!is_finite(total)) for (let at = to; at < to + whole; at += 16) v128.store(at, with_one_nan(v128.load(at)));
    if (left > 0) {
      store_first(to + whole, left, with_one_nan(scaled(v128.load(o + whole), inverse)));
      store_first(to + whole + 16, left - 4, with_one_nan(scaled(v128.load(o + whole, 16), inverse)));
    }
    if (shape.lse) store_lse(shape.lse + ((<usize>head * shape.qLen + token) << 2), load<f32>(state), sum);
    o += outputBytes;
    if (++head == behind) {
      if (++token < shape.qLen) head -= group;
      else {
        token = 0;
        behind += group;
      }
    }
  }
}

/** The log-sum-exp of scores in units of ln 2 whose max is m, from the sum of their weights. */
function store_lse(at: usize, m: f32, sum: f32): void {
  const lse = <f32>(<f64>m * LN_2 + ln_f64(<f64>sum));
  if (sum == 0) store<f32>(at, f32.NEGATIVE_INFINITY);
  else if (lse == lse) store<f32>(at, lse);
  else store<u32>(at, load<u32>(NAN));
}
