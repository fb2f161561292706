import { PANEL_BYTES, VALUE_PANEL_BYTES, value_at } from "../cache/page";
import { PAGE, PANEL } from "../layout";
import { bias_row, end_key, extra_columns, first_key, is_excluded, keep_row } from "../mask";
import { load_first, madd, store_first } from "../math/simd";
import { AttentionShape, AttentionShapePtr, F32Ptr, F32PtrOrNull, PagesPtr, U8PtrOrNull } from "../types";

/**
 * out[t, head] = Σ_j weights[t, j] · v[j, head / group], j ascending, for query tokens begin..end; weights
 * [qLen][kvLen + extras] as masked_softmax_f32 leaves them, out (t, head) at out + t·outStride + head·outHeadStride,
 * valueDim floats. The extra key's column weighs extraValue, last; the zero key's has no value. A key whose weight is 0
 * takes part only where the query may attend it, so that what an excluded key holds cannot matter, while a weight that
 * somebody else put there counts. Pages are of float32. One accumulator per output. No alignment is needed; out
 * overlaps nothing.
 */
export function weighted_sum_f32(
  out: F32Ptr,
  weights: F32Ptr,
  pages: PagesPtr,
  shape: AttentionShapePtr,
  head: i32,
  begin: i32,
  end: i32,
): void {
  const s = changetype<AttentionShape>(shape);
  assert(s.headDim > 0 && s.valueDim > 0, "weighted_sum_f32: headDim and valueDim must be positive");
  assert(s.numHeads % s.numKvHeads == 0, "weighted_sum_f32: numHeads must be a multiple of numKvHeads");
  assert(head >= 0 && head < s.numHeads, "weighted_sum_f32: head must be below numHeads");
  assert(begin >= 0 && end <= s.qLen, "weighted_sum_f32: begin..end must lie within qLen");
  const columns = s.kvLen + extra_columns(s);
  const valueDim = s.valueDim;
  for (let t = begin; t < end; t++) {
    const row = weights + ((<usize>t * columns) << 2);
    const target = out + ((<usize>t * s.outStride + <usize>head * s.outHeadStride) << 2);
    let c = 0;
    for (; c <= valueDim - 4 * PANEL; c += 4 * PANEL) sum_1x32(target, row, pages, s, head, t, c);
    for (; c < valueDim; c += PANEL) sum_1x8(target, row, pages, s, head, t, c);
  }
}

/** Whether key j, of weight w, takes part: every weight but 0 does, and 0 where the query may attend the key. */
// @ts-ignore: decorator
@inline
function takes_part(w: f32, from: i32, to: i32, keep: U8PtrOrNull, bias: F32PtrOrNull, j: i32): bool {
  return w != 0 || (j >= from && j < to && !is_excluded(keep, bias, j));
}

/** Columns c..c+32 of one output row. */
function sum_1x32(target: usize, row: usize, pages: PagesPtr, s: AttentionShape, head: i32, t: i32, c: i32): void {
  const kvLen = s.kvLen;
  const kvHead = head / (s.numHeads / s.numKvHeads);
  const from = first_key(s, t);
  const to = end_key(s, t);
  const keep = keep_row(s, head, t);
  const bias = bias_row(s, head, t);
  let acc0 = f32x4.splat(0);
  let acc1 = acc0;
  let acc2 = acc0;
  let acc3 = acc0;
  let acc4 = acc0;
  let acc5 = acc0;
  let acc6 = acc0;
  let acc7 = acc0;
  for (let start = 0; start < kvLen; start += PAGE) {
    const panel = value_at<f32>(pages, kvHead, s.headDim, s.valueDim, start) + <usize>(c / PANEL) * VALUE_PANEL_BYTES;
    const stop = min(start + PAGE, kvLen);
    for (let j = start; j < stop; j++) {
      const w = load<f32>(row + ((<usize>j) << 2));
      if (!takes_part(w, from, to, keep, bias, j)) continue;
      const w_f32x4 = f32x4.splat(w);
      const at = panel + <usize>(j - start) * PANEL_BYTES;
      acc0 = madd(w_f32x4, v128.load(at), acc0);
      acc1 = madd(w_f32x4, v128.load(at, 16), acc1);
      acc2 = madd(w_f32x4, v128.load(at + VALUE_PANEL_BYTES), acc2);
      acc3 = madd(w_f32x4, v128.load(at + VALUE_PANEL_BYTES, 16), acc3);
      acc4 = madd(w_f32x4, v128.load(at + 2 * VALUE_PANEL_BYTES), acc4);
      acc5 = madd(w_f32x4, v128.load(at + 2 * VALUE_PANEL_BYTES, 16), acc5);
      acc6 = madd(w_f32x4, v128.load(at + 3 * VALUE_PANEL_BYTES), acc6);
      acc7 = madd(w_f32x4, v128.load(at + 3 * VALUE_PANEL_BYTES, 16), acc7);
    }
  }
  if (s.extraKey) {
    const w_f32x4 = v128.load32_splat(row + ((<usize>kvLen) << 2));
    const at = s.extraValue + ((<usize>kvHead * s.valueDim + c) << 2);
    acc0 = madd(w_f32x4, v128.load(at), acc0);
    acc1 = madd(w_f32x4, v128.load(at, 16), acc1);
    acc2 = madd(w_f32x4, v128.load(at, 32), acc2);
    acc3 = madd(w_f32x4, v128.load(at, 48), acc3);
    acc4 = madd(w_f32x4, v128.load(at, 64), acc4);
    acc5 = madd(w_f32x4, v128.load(at, 80), acc5);
    acc6 = madd(w_f32x4, v128.load(at, 96), acc6);
    acc7 = madd(w_f32x4, v128.load(at, 112), acc7);
  }
  const to0 = target + ((<usize>c) << 2);
  v128.store(to0, acc0);
  v128.store(to0, acc1, 16);
  v128.store(to0, acc2, 32);
  v128.store(to0, acc3, 48);
  v128.store(to0, acc4, 64);
  v128.store(to0, acc5, 80);
  v128.store(to0, acc6, 96);
  v128.store(to0, acc7, 112);
}

/** Columns c..c+8, or those of them below valueDim. */
function sum_1x8(target: usize, row: usize, pages: PagesPtr, s: AttentionShape, head: i32, t: i32, c: i32): void {
  const kvLen = s.kvLen;
  const kvHead = head / (s.numHeads / s.numKvHeads);
  const from = first_key(s, t);
  const to = end_key(s, t);
  const keep = keep_row(s, head, t);
  const bias = bias_row(s, head, t);
  const left = s.valueDim - c;
  let acc0 = f32x4.splat(0);
  let acc1 = acc0;
  for (let start = 0; start < kvLen; start += PAGE) {
    const panel = value_at<f32>(pages, kvHead, s.headDim, s.valueDim, start) + <usize>(c / PANEL) * VALUE_PANEL_BYTES;
    const stop = min(start + PAGE, kvLen);
    for (let j = start; j < stop; j++) {
      const w = load<f32>(row + ((<usize>j) << 2));
      if (!takes_part(w, from, to, keep, bias, j)) continue;
      const w_f32x4 = f32x4.splat(w);
      const at = panel + <usize>(j - start) * PANEL_BYTES;
      acc0 = madd(w_f32x4, v128.load(at), acc0);
      acc1 = madd(w_f32x4, v128.load(at, 16), acc1);
    }
  }
  if (s.extraKey) {
    const w_f32x4 = v128.load32_splat(row + ((<usize>kvLen) << 2));
    const at = s.extraValue + ((<usize>kvHead * s.valueDim + c) << 2);
    acc0 = madd(w_f32x4, load_first(at, left, 0), acc0);
    if (left > 4) acc1 = madd(w_f32x4, load_first(at + 16, left - 4, 0), acc1);
  }
  const to0 = target + ((<usize>c) << 2);
  store_first(to0, left, acc0);
  store_first(to0 + 16, left - 4, acc1);
}
