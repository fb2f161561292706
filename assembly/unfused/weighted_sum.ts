import { VALUE_PANEL_BYTES, value_at } from "../cache/page";
import { PAGE, PANEL, PANEL_BYTES } from "../layout";
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

/**
 * Columns c..c+32 of one output row: C[32] = Σ A[j] · B[j, 32] over the keys that take part.
 *
 * 1x32 tile, 10 v128: acc00..acc07 = 8 | a row of B = 1 | a0 = 1
 * A [kvLen] · B four panels [PAGE][8] a page, VALUE_PANEL_BYTES apart · C [32]
 * keys not unrolled · every sum takes the keys in ascending order
 */
function sum_1x32(out: usize, row: usize, pages: PagesPtr, s: AttentionShape, head: i32, t: i32, c: i32): void {
  const kvLen = s.kvLen;
  const kvHead = head / (s.numHeads / s.numKvHeads);
  const from = first_key(s, t);
  const to = end_key(s, t);
  const keep = keep_row(s, head, t);
  const bias = bias_row(s, head, t);
  let acc00 = f32x4.splat(0);
  let acc01 = acc00;
  let acc02 = acc00;
  let acc03 = acc00;
  let acc04 = acc00;
  let acc05 = acc00;
  let acc06 = acc00;
  let acc07 = acc00;
  for (let start = 0; start < kvLen; start += PAGE) {
    const panel = value_at<f32>(pages, kvHead, s.headDim, s.valueDim, start) + <usize>(c / PANEL) * VALUE_PANEL_BYTES;
    const stop = min(start + PAGE, kvLen);
    for (let j = start; j < stop; j++) {
      const w = load<f32>(row + (<usize>j << 2));
      if (!takes_part(w, from, to, keep, bias, j)) continue;
      const a0 = f32x4.splat(w);
      const bPtr0 = panel + <usize>(j - start) * PANEL_BYTES;
      acc00 = madd(a0, v128.load(bPtr0), acc00);
      acc01 = madd(a0, v128.load(bPtr0, 16), acc01);
      acc02 = madd(a0, v128.load(bPtr0 + VALUE_PANEL_BYTES), acc02);
      acc03 = madd(a0, v128.load(bPtr0 + VALUE_PANEL_BYTES, 16), acc03);
      acc04 = madd(a0, v128.load(bPtr0 + 2 * VALUE_PANEL_BYTES), acc04);
      acc05 = madd(a0, v128.load(bPtr0 + 2 * VALUE_PANEL_BYTES, 16), acc05);
      acc06 = madd(a0, v128.load(bPtr0 + 3 * VALUE_PANEL_BYTES), acc06);
      acc07 = madd(a0, v128.load(bPtr0 + 3 * VALUE_PANEL_BYTES, 16), acc07);
    }
  }
  if (s.extraKey) {
    const a0 = v128.load32_splat(row + (<usize>kvLen << 2));
    const bPtr0 = s.extraValue + ((<usize>kvHead * s.valueDim + c) << 2);
    acc00 = madd(a0, v128.load(bPtr0), acc00);
    acc01 = madd(a0, v128.load(bPtr0, 16), acc01);
    acc02 = madd(a0, v128.load(bPtr0, 32), acc02);
    acc03 = madd(a0, v128.load(bPtr0, 48), acc03);
    acc04 = madd(a0, v128.load(bPtr0, 64), acc04);
    acc05 = madd(a0, v128.load(bPtr0, 80), acc05);
    acc06 = madd(a0, v128.load(bPtr0, 96), acc06);
    acc07 = madd(a0, v128.load(bPtr0, 112), acc07);
  }
  const cPtr0 = out + (<usize>c << 2);
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr0, acc02, 32);
  v128.store(cPtr0, acc03, 48);
  v128.store(cPtr0, acc04, 64);
  v128.store(cPtr0, acc05, 80);
  v128.store(cPtr0, acc06, 96);
  v128.store(cPtr0, acc07, 112);
}

/**
 * Columns c..c+8, or those of them below valueDim.
 *
 * 1x8 tile, 4 v128: acc00 acc01 = 2 | a row of B = 1 | a0 = 1
 * A, B as for 32 columns · C [8] · keys not unrolled, ascending
 */
function sum_1x8(out: usize, row: usize, pages: PagesPtr, s: AttentionShape, head: i32, t: i32, c: i32): void {
  const kvLen = s.kvLen;
  const kvHead = head / (s.numHeads / s.numKvHeads);
  const from = first_key(s, t);
  const to = end_key(s, t);
  const keep = keep_row(s, head, t);
  const bias = bias_row(s, head, t);
  const left = s.valueDim - c;
  let acc00 = f32x4.splat(0);
  let acc01 = acc00;
  for (let start = 0; start < kvLen; start += PAGE) {
    const panel = value_at<f32>(pages, kvHead, s.headDim, s.valueDim, start) + <usize>(c / PANEL) * VALUE_PANEL_BYTES;
    const stop = min(start + PAGE, kvLen);
    for (let j = start; j < stop; j++) {
      const w = load<f32>(row + (<usize>j << 2));
      if (!takes_part(w, from, to, keep, bias, j)) continue;
      const a0 = f32x4.splat(w);
      const bPtr0 = panel + <usize>(j - start) * PANEL_BYTES;
      acc00 = madd(a0, v128.load(bPtr0), acc00);
      acc01 = madd(a0, v128.load(bPtr0, 16), acc01);
    }
  }
  if (s.extraKey) {
    const a0 = v128.load32_splat(row + (<usize>kvLen << 2));
    const bPtr0 = s.extraValue + ((<usize>kvHead * s.valueDim + c) << 2);
    acc00 = madd(a0, load_first(bPtr0, left, 0), acc00);
    if (left > 4) acc01 = madd(a0, load_first(bPtr0 + 16, left - 4, 0), acc01);
  }
  const cPtr0 = out + (<usize>c << 2);
  store_first(cPtr0, left, acc00);
  store_first(cPtr0 + 16, left - 4, acc01);
}
