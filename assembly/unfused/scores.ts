import { key_at, key_format, key_scales, keys_of, page_entry } from "../cache/page";
import { FORMAT_F16, FORMAT_F32, PAGE, PANEL, QUAD } from "../layout";
import { bias_row, end_key, extra_columns, first_key, is_excluded, keep_row } from "../mask";
import { tanh_f32x4 } from "../math/exp";
import { keys_high, keys_low } from "../math/rounding";
import { load_first, madd, store_first } from "../math/simd";
import { AttentionShape, AttentionShapePtr, F32Ptr, F32PtrOrNull, PagesPtr, U8PtrOrNull } from "../types";

const PANEL_BYTES: usize = PANEL << 2;

/**
 * out[t, j] = scale · q[t, head] · k[j, head / group] for query tokens begin..end and every key, [qLen][kvLen +
 * extras], dense; the extra columns hold the score of the extra key and 0 for the zero key. `stage` says how far to go:
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
      store<f32>(row + ((<usize>kvLen) << 2), dot(query, key, s.headDim, s.scale));
    }
    if (stage > 0 && s.softcap != 0) {
      cap(row, from, to, s.softcap);
      if (s.extraKey) cap(row, kvLen, kvLen + 1, s.softcap);
    }
    if (s.zeroKey) store<f32>(row + ((<usize>(columns - 1)) << 2), 0);
    if (stage == 2) {
      const slope = s.slopes ? load<f32>(s.slopes + ((<usize>head) << 2)) : <f32>0;
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
    const target = row + ((<usize>j) << 2);
    const entry = page_entry(pages, j);
    const format = key_format<P>(entry);
    if (isInteger<P>() && format != FORMAT_F32) {
      n = PANEL;
      const slot = j % PAGE;
      const keys = keys_of<P>(entry, kvHead, headDim, s.valueDim);
      const scales = keys + key_scales(format, headDim) + ((<usize>slot) << 2);
      const lines = format == FORMAT_F16 ? headDim : ((headDim + QUAD - 1) & -QUAD) >> (format - 1);
      const panel = keys + ((<usize>((slot / PANEL) * lines)) << 4);
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

// @ts-ignore: decorator
@inline
function dot_1x32(target: usize, query: usize, panel: usize, panelBytes: usize, headDim: i32, scale: f32): void {
  const scale_f32x4 = f32x4.splat(scale);
  let acc0 = f32x4.splat(0);
  let acc1 = acc0;
  let acc2 = acc0;
  let acc3 = acc0;
  let acc4 = acc0;
  let acc5 = acc0;
  let acc6 = acc0;
  let acc7 = acc0;
  const panel2 = panel + 2 * panelBytes;
  for (let d = 0; d < headDim; d++) {
    const q_f32x4 = f32x4.mul(v128.load32_splat(query + ((<usize>d) << 2)), scale_f32x4);
    const at = <usize>d * PANEL_BYTES;
    acc0 = madd(q_f32x4, v128.load(panel + at), acc0);
    acc1 = madd(q_f32x4, v128.load(panel + at, 16), acc1);
    acc2 = madd(q_f32x4, v128.load(panel + panelBytes + at), acc2);
    acc3 = madd(q_f32x4, v128.load(panel + panelBytes + at, 16), acc3);
    acc4 = madd(q_f32x4, v128.load(panel2 + at), acc4);
    acc5 = madd(q_f32x4, v128.load(panel2 + at, 16), acc5);
    acc6 = madd(q_f32x4, v128.load(panel2 + panelBytes + at), acc6);
    acc7 = madd(q_f32x4, v128.load(panel2 + panelBytes + at, 16), acc7);
  }
  v128.store(target, acc0);
  v128.store(target, acc1, 16);
  v128.store(target, acc2, 32);
  v128.store(target, acc3, 48);
  v128.store(target, acc4, 64);
  v128.store(target, acc5, 80);
  v128.store(target, acc6, 96);
  v128.store(target, acc7, 112);
}

/** Stores the first n scores of the panel. */
// @ts-ignore: decorator
@inline
function dot_1x8(target: usize, n: i32, query: usize, panel: usize, headDim: i32, scale: f32): void {
  const scale_f32x4 = f32x4.splat(scale);
  let acc0 = f32x4.splat(0);
  let acc1 = acc0;
  for (let d = 0; d < headDim; d++) {
    const q_f32x4 = f32x4.mul(v128.load32_splat(query + ((<usize>d) << 2)), scale_f32x4);
    const at = <usize>d * PANEL_BYTES;
    acc0 = madd(q_f32x4, v128.load(panel + at), acc0);
    acc1 = madd(q_f32x4, v128.load(panel + at, 16), acc1);
  }
  store_first(target, n, acc0);
  store_first(target + 16, n - 4, acc1);
}

/** Stores the first n scores of a panel that is not float32, of its keys as floats. */
function dot_codes(
  target: usize,
  n: i32,
  query: usize,
  format: i32,
  panel: usize,
  scales: usize,
  headDim: i32,
  scale: f32,
): void {
  const scale_f32x4 = f32x4.splat(scale);
  let acc0 = f32x4.splat(0);
  let acc1 = acc0;
  for (let d = 0; d < headDim; d++) {
    const q_f32x4 = f32x4.mul(v128.load32_splat(query + ((<usize>d) << 2)), scale_f32x4);
    acc0 = madd(q_f32x4, keys_low(format, panel, scales, d), acc0);
    acc1 = madd(q_f32x4, keys_high(format, panel, scales, d), acc1);
  }
  store_first(target, n, acc0);
  store_first(target + 16, n - 4, acc1);
}

/** The same dot with a key that lies in one row: splats, because only a vector can be multiplied and added at once. */
// @ts-ignore: decorator
@inline
function dot(query: usize, key: usize, headDim: i32, scale: f32): f32 {
  const scale_f32x4 = f32x4.splat(scale);
  let acc = f32x4.splat(0);
  for (let d = 0; d < headDim; d++) {
    const at = (<usize>d) << 2;
    acc = madd(f32x4.mul(v128.load32_splat(query + at), scale_f32x4), v128.load32_splat(key + at), acc);
  }
  return f32x4.extract_lane(acc, 0);
}

/** row[j] = softcap · tanh(row[j] / softcap) for from <= j < to. */
function cap(row: usize, from: i32, to: i32, softcap: f32): void {
  const softcap_f32x4 = f32x4.splat(softcap);
  for (let j = from; j < to; j += 4) {
    const at = row + ((<usize>j) << 2);
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
    const at = row + ((<usize>j) << 2);
    let score = load<f32>(at);
    if (slope != 0) score -= slope * <f32>abs(p - j);
    if (bias) score += load<f32>(bias + ((<usize>j) << 2));
    store<f32>(at, is_excluded(keep, bias, j) ? f32.NEGATIVE_INFINITY : score);
  }
}

/** row[j] = -Infinity for from <= j < to. */
// @ts-ignore: decorator
@inline
function exclude(row: usize, from: i32, to: i32): void {
  const none_f32x4 = f32x4.splat(f32.NEGATIVE_INFINITY);
  for (let j = from; j < to; j += 4) store_first(row + ((<usize>j) << 2), to - j, none_f32x4);
}
