import { extra_columns } from "../mask";
import { exp_f32, exp_f32x4 } from "../math/exp";
import { hsum, load_first, store_first } from "../math/simd";
import { AttentionShape, AttentionShapePtr, F32Ptr } from "../types";

/**
 * out[t, j] = exp(scores[t, j]) / (exp(sinks[head]) + Σ_i exp(scores[t, i])) for query tokens begin..end, rows
 * [qLen][kvLen + extras] as stage 2 of scores_f32 leaves them. A score of -Infinity excludes its key: the weight is 0
 * and nothing else is computed of it. A row without any other score becomes zeros. A NaN or +Infinity score makes every
 * weight of its row NaN, except those zeros. Keys are summed in 4 lanes by j & 3, then the extra keys, then the sink,
 * so that excluded keys behind the last attended one do not change a bit. out may be scores. No alignment is needed.
 */
export function masked_softmax_f32(
  out: F32Ptr,
  scores: F32Ptr,
  shape: AttentionShapePtr,
  head: i32,
  begin: i32,
  end: i32,
): void {
  const s = changetype<AttentionShape>(shape);
  assert(head >= 0 && head < s.numHeads, "masked_softmax_f32: head must be below numHeads");
  assert(begin >= 0 && end <= s.qLen, "masked_softmax_f32: begin..end must lie within qLen");
  const kvLen = s.kvLen;
  const columns = kvLen + extra_columns(s);
  const sink = s.sinks ? load<f32>(s.sinks + (<usize>head << 2)) : f32.NEGATIVE_INFINITY;
  const none_f32x4 = f32x4.splat(f32.NEGATIVE_INFINITY);
  for (let t = begin; t < end; t++) {
    const from = scores + ((<usize>t * columns) << 2);
    const row = out + ((<usize>t * columns) << 2);

    // pmax may pass over a NaN, which makes the sum NaN all the same.
    let max_f32x4 = f32x4.splat(sink);
    for (let j = 0; j < columns; j += 4)
      max_f32x4 = f32x4.pmax(max_f32x4, load_first(from + (<usize>j << 2), columns - j, f32.NEGATIVE_INFINITY));
    const largest = hmax(max_f32x4);
    const largest_f32x4 = f32x4.splat(largest);

    // Excluded keys stay -Infinity until the sum is known, which no exponential can be. They add 0 to it, or NaN where
    // there is nothing but excluded keys.
    let acc = f32x4.splat(0);
    for (let j = 0; j < kvLen; j += 4) {
      const at = <usize>j << 2;
      const score_f32x4 = load_first(from + at, kvLen - j, f32.NEGATIVE_INFINITY);
      const excluded = f32x4.eq(score_f32x4, none_f32x4);
      const e_f32x4 = exp_f32x4(f32x4.sub(score_f32x4, largest_f32x4));
      acc = f32x4.add(acc, e_f32x4);
      store_first(row + at, kvLen - j, v128.bitselect(score_f32x4, e_f32x4, excluded));
    }
    let sum = hsum(acc);
    for (let j = kvLen; j < columns; j++) {
      const at = <usize>j << 2;
      let e = load<f32>(from + at);
      if (e != f32.NEGATIVE_INFINITY) {
        e = exp_f32(e - largest);
        sum += e;
      }
      store<f32>(row + at, e);
    }
    if (sink != f32.NEGATIVE_INFINITY) sum += exp_f32(sink - largest);

    const sum_f32x4 = f32x4.splat(sum);
    for (let j = 0; j < columns; j += 4) {
      const at = row + (<usize>j << 2);
      const e_f32x4 = load_first(at, columns - j, 0);
      const weight_f32x4 = v128.andnot(f32x4.div(e_f32x4, sum_f32x4), f32x4.eq(e_f32x4, none_f32x4));
      store_first(at, columns - j, weight_f32x4);
    }
  }
}

/** The largest lane. */
// @ts-ignore: decorator
@inline
function hmax(v: v128): f32 {
  return max(
    max(f32x4.extract_lane(v, 0), f32x4.extract_lane(v, 2)),
    max(f32x4.extract_lane(v, 1), f32x4.extract_lane(v, 3)),
  );
}
