import { key_at, key_format, key_scales, keys_of, page_entry } from "../cache/page";
import { FORMAT_F16, FORMAT_F32, PAGE, PAIR_BYTES, PANEL, PANEL_BYTES, QUAD } from "../layout";
import { bias_row, end_key, extra_columns, first_key, is_excluded, keep_row } from "../mask";
import { tanh_f32x4 } from "../math/exp";
import { keys_high, keys_low } from "../math/rounding";
import { load_first, madd, store_first } from "../math/simd";
import { AttentionShape, AttentionShapePtr, F32Ptr, F32PtrOrNull, PagesPtr, U8PtrOrNull } from "../types";

/**
 * out[t, j] = scale · q[t, head] · k[j, head / group] for query tokens begin..end and every key, [qLen][kvLen +
 * extras], dense; the extra columns hold the score of the extra key and 0 for the zero key. `stage` selects how far to go:
 * 0 = that; 1 = softcap·tanh(score / softcap) where the shape has one; 2 = minus slope·|p - j|, plus bias, and
 * -Infinity where the query may not attend the key, whatever key and bias hold. Neither slopes nor masks touch the
 * extra columns. q (t, head) lies at q + t·qStride + head·qHeadStride. The dot is one accumulator, f32(scale·q[d])·k[d]
 * in ascending d; slope and bias round after every step in every build. No alignment is needed; out overlaps nothing.
 */
export function scores_f32(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  shape: AttentionShapePtr,
  head: i32,
  stage: i32,
  begin: i32,
  end: i32,
): void {
  score_rows<f32>(out, q, pages, shape, head, stage, begin, end);
}

/** scores_f32 over pages with keys of any format, each key as the floats that gather_pages gives. */
export function scores_pages(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  shape: AttentionShapePtr,
  head: i32,
  stage: i32,
  begin: i32,
  end: i32,
): void {
  score_rows<u8>(out, q, pages, shape, head, stage, begin, end);
}

/** The kernel for pages of P, see page.ts. */
// @ts-ignore: decorator
@inline
function score_rows<P>(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  shape: AttentionShapePtr,
  head: i32,
  stage: i32,
  begin: i32,
  end: i32,
): void {
  const s = changetype<AttentionShape>(shape);
  assert(s.headDim > 0 && s.valueDim > 0, "scores: headDim and valueDim must be positive");
  assert(s.numHeads % s.numKvHeads == 0, "scores: numHeads must be a multiple of numKvHeads");
  assert(head >= 0 && head < s.numHeads, "scores: head must be below numHeads");
  assert(begin >= 0 && end <= s.qLen, "scores: begin..end must lie within qLen");
  const kvLen = s.kvLen;
  const columns = kvLen + extra_columns(s);
  const kvHead = head / (s.numHeads / s.numKvHeads);
  for (let t = begin; t < end; t++) {
    const row = out + ((<usize>t * columns) << 2);
    const query = q + ((<usize>t * s.qStride + <usize>head * s.qHeadStride) << 2);
    let from = 0;
    let to = kvLen;
    if (stage == 2) {
      from = first_key(s, t);
      to = end_key(s, t);
      if (to <= from) from = to = 0;
    }
    dot_keys<P>(row, query, pages, kvHead, from, to, s);
    if (s.extraKey) {
      const key = s.extraKey + ((<usize>kvHead * s.headDim) << 2);
      store<f32>(row + (<usize>kvLen << 2), dot(query, key, s.headDim, s.scale));
    }
    if (stage > 0 && s.softcap != 0) {
      cap(row, from, to, s.softcap);
      if (s.extraKey) cap(row, kvLen, kvLen + 1, s.softcap);
    }
    if (s.zeroKey) store<f32>(row + (<usize>(columns - 1) << 2), 0);
    if (stage == 2) {
      const slope = s.slopes ? load<f32>(s.slopes + (<usize>head << 2)) : <f32>0;
      apply_rules(row, from, to, s.qStart + t, slope, keep_row(s, head, t), bias_row(s, head, t));
      exclude(row, 0, from);
      exclude(row, to, kvLen);
    }
  }
}

/** Scores of keys from..to. Leaves other numbers in the columns of [0, from) that share from's panel. */
// @ts-ignore: decorator
@inline
function dot_keys<P>(
  row: usize,
  query: usize,
  pages: PagesPtr,
  kvHead: i32,
  from: i32,
  to: i32,
  s: AttentionShape,
): void {
  const headDim = s.headDim;
  const panelBytes = <usize>headDim * PANEL_BYTES;
  for (let j = from & -PANEL, n = 0; j < to; j += n) {
    const target = row + (<usize>j << 2);
    const entry = page_entry(pages, j);
    const format = key_format<P>(entry);
    if (isInteger<P>() && format != FORMAT_F32) {
      n = PANEL;
      const slot = j % PAGE;
      const keys = keys_of<P>(entry, kvHead, headDim, s.valueDim);
      const scales = keys + key_scales(format, headDim) + (<usize>slot << 2);
      const rows = format == FORMAT_F16 ? headDim : ((headDim + QUAD - 1) & -QUAD) >> (format - 1);
      const panel = keys + <usize>((slot / PANEL) * rows) * PAIR_BYTES;
      dot_codes(target, to - j, query, format, panel, scales, headDim, s.scale);
      continue;
    }
    const panel = key_at<P>(pages, kvHead, headDim, s.valueDim, j);
    // Four panels of one page, or one that may be the last and hold keys beyond the range.
    n = j % PAGE <= PAGE - 4 * PANEL && to - j >= 4 * PANEL ? 4 * PANEL : PANEL;
    if (n == PANEL) dot_1x8(target, to - j, query, panel, headDim, s.scale);
    else dot_1x32(target, query, panel, panelBytes, headDim, s.scale);
  }
}

/**
 * C[32] = scale · A · B[32], each element of A times scale rounded first.
 *
 * 1x32 tile, 11 v128: acc00..acc07 = 8 | a row of B = 1 | a0 = 1 | scale = 1
 * A [headDim] · B four panels [headDim][8], bStride apart · C [32]
 * headDim not unrolled · every sum takes headDim in ascending order
 */
// @ts-ignore: decorator
@inline
function dot_1x32(cPtr0: usize, aPtr0: usize, bPtr0: usize, bStride: usize, headDim: i32, scale: f32): void {
  const scale_f32x4 = f32x4.splat(scale);
  let acc00 = f32x4.splat(0);
  let acc01 = acc00;
  let acc02 = acc00;
  let acc03 = acc00;
  let acc04 = acc00;
  let acc05 = acc00;
  let acc06 = acc00;
  let acc07 = acc00;
  const bPtr2 = bPtr0 + 2 * bStride;
  for (let d = 0; d < headDim; d++) {
    const a0 = f32x4.mul(v128.load32_splat(aPtr0 + (<usize>d << 2)), scale_f32x4);
    const at = <usize>d * PANEL_BYTES;
    acc00 = madd(a0, v128.load(bPtr0 + at), acc00);
    acc01 = madd(a0, v128.load(bPtr0 + at, 16), acc01);
    acc02 = madd(a0, v128.load(bPtr0 + bStride + at), acc02);
    acc03 = madd(a0, v128.load(bPtr0 + bStride + at, 16), acc03);
    acc04 = madd(a0, v128.load(bPtr2 + at), acc04);
    acc05 = madd(a0, v128.load(bPtr2 + at, 16), acc05);
    acc06 = madd(a0, v128.load(bPtr2 + bStride + at), acc06);
    acc07 = madd(a0, v128.load(bPtr2 + bStride + at, 16), acc07);
  }
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr0, acc02, 32);
  v128.store(cPtr0, acc03, 48);
  v128.store(cPtr0, acc04, 64);
  v128.store(cPtr0, acc05, 80);
  v128.store(cPtr0, acc06, 96);
  v128.store(cPtr0, acc07, 112);
}

/** Stores the first n scores of the bPtr0. */
// @ts-ignore: decorator
@inline
function dot_1x8(cPtr0: usize, n: i32, aPtr0: usize, bPtr0: usize, headDim: i32, scale: f32): void {
  const scale_f32x4 = f32x4.splat(scale);
  let acc00 = f32x4.splat(0);
  let acc01 = acc00;
  for (let d = 0; d < headDim; d++) {
    const a0 = f32x4.mul(v128.load32_splat(aPtr0 + (<usize>d << 2)), scale_f32x4);
    const at = <usize>d * PANEL_BYTES;
    acc00 = madd(a0, v128.load(bPtr0 + at), acc00);
    acc01 = madd(a0, v128.load(bPtr0 + at, 16), acc01);
  }
  store_first(cPtr0, n, acc00);
  store_first(cPtr0 + 16, n - 4, acc01);
}

/** Stores the first n scores of a bPtr0 that is not float32, of its keys as floats. */
function dot_codes(
  cPtr0: usize,
  n: i32,
  aPtr0: usize,
  format: i32,
  bPtr0: usize,
  scales: usize,
  headDim: i32,
  scale: f32,
): void {
  const scale_f32x4 = f32x4.splat(scale);
  let acc00 = f32x4.splat(0);
  let acc01 = acc00;
  for (let d = 0; d < headDim; d++) {
    const a0 = f32x4.mul(v128.load32_splat(aPtr0 + (<usize>d << 2)), scale_f32x4);
    acc00 = madd(a0, keys_low(format, bPtr0, scales, d), acc00);
    acc01 = madd(a0, keys_high(format, bPtr0, scales, d), acc01);
  }
  store_first(cPtr0, n, acc00);
  store_first(cPtr0 + 16, n - 4, acc01);
}

/** The same dot with a key that lies in one row: splats, because only a vector can be multiplied and added at once. */
// @ts-ignore: decorator
@inline
function dot(query: usize, key: usize, headDim: i32, scale: f32): f32 {
  const scale_f32x4 = f32x4.splat(scale);
  let acc = f32x4.splat(0);
  for (let d = 0; d < headDim; d++) {
    const at = <usize>d << 2;
    acc = madd(f32x4.mul(v128.load32_splat(query + at), scale_f32x4), v128.load32_splat(key + at), acc);
  }
  return f32x4.extract_lane(acc, 0);
}

/** row[j] = softcap · tanh(row[j] / softcap) for from <= j < to. */
function cap(row: usize, from: i32, to: i32, softcap: f32): void {
  const softcap_f32x4 = f32x4.splat(softcap);
  for (let j = from; j < to; j += 4) {
    const at = row + (<usize>j << 2);
    const z_f32x4 = f32x4.div(load_first(at, to - j, 0), softcap_f32x4);
    store_first(at, to - j, f32x4.mul(tanh_f32x4(z_f32x4), softcap_f32x4));
  }
}

/** Slope, bias, and -Infinity where keep or a bias of -Infinity excludes: from <= j < to of the query at position p. */
// @ts-ignore: decorator
@inline
function apply_rules(row: usize, from: i32, to: i32, p: i32, slope: f32, keep: U8PtrOrNull, bias: F32PtrOrNull): void {
  if (slope == 0 && !keep && !bias) return;
  for (let j = from; j < to; j++) {
    const at = row + (<usize>j << 2);
    let score = load<f32>(at);
    if (slope != 0) score -= slope * <f32>abs(p - j);
    if (bias) score += load<f32>(bias + (<usize>j << 2));
    store<f32>(at, is_excluded(keep, bias, j) ? f32.NEGATIVE_INFINITY : score);
  }
}

/** row[j] = -Infinity for from <= j < to. */
// @ts-ignore: decorator
@inline
function exclude(row: usize, from: i32, to: i32): void {
  const none_f32x4 = f32x4.splat(f32.NEGATIVE_INFINITY);
  for (let j = from; j < to; j += 4) store_first(row + (<usize>j << 2), to - j, none_f32x4);
}
