import { int_nx8 } from "../attention/int_tile";
import { CHUNK_BYTES, STRIP_BYTES } from "../attention/state";
import { PANEL, PANEL_BYTES, QUAD, QUERY_CHUNK, QUERY_HEAD } from "../layout";
import { factor_of, largest_lane, magnitudes, rounded, scale_of, some_of } from "../math/rounding";
import { dot_i16 } from "../math/simd";
import { F32Ptr } from "../types";
import { CODE_PAIR_BYTES, code_pair_bytes } from "./page";

// attention_latents on pages of q8. Queries are integers of 14 bits with a scale for the part multiplied with latents
// and one for that of rotated keys. A strip of R rows has room for R · QUERY_HEAD bytes in front, which begins with [R]
// scales of the first and [R] of the second, then [dim/8][R][8] i16. Sums of integers are exact, the floats around them are not fused.

const MOST: f32 = 8191;
/** Bytes of 8 components of a query. */
const OCTET_BYTES: usize = 16;

/** Components d.. of a query in chunks. */
// @ts-ignore: decorator
@inline
function query_at(qs: F32Ptr, chunk: usize, d: i32): usize {
  return qs + chunk * (d / QUERY_CHUNK) + (<usize>(d % QUERY_CHUNK) << 2);
}

/** Components [first, end) of a query, multiples of 8, as integers `step` bytes apart from `to` on; their scale at `scale`. */
function quantize_part(scale: F32Ptr, to: usize, step: usize, qs: F32Ptr, chunk: usize, first: i32, end: i32): void {
  let top = i32x4.splat(0);
  for (let d = first; d < end; d += 4) top = i32x4.max_u(top, magnitudes(v128.load(query_at(qs, chunk, d))));
  const bits = largest_lane(top);
  store<f32>(scale, scale_of(bits, MOST));
  const factor = f32x4.splat(factor_of(bits, MOST));
  const some = some_of(factor);
  for (let d = first; d < end; d += PANEL) {
    const at = query_at(qs, chunk, d);
    const low = rounded(v128.load(at), factor, some);
    v128.store(to, i16x8.narrow_i32x4_s(low, rounded(v128.load(at, 16), factor, some)));
    to += step;
  }
}

/** The queries of a strip, as start_rows leaves them, as integers. `rank` is that of latents, in whole panels. */
export function quantize_queries(rows: i32, codes: usize, queries: F32Ptr, rank: i32, dim: i32): void {
  const chunk = CHUNK_BYTES * rows;
  const step = OCTET_BYTES * rows;
  for (let i = 0; i < rows; i++) {
    const scale = codes + (<usize>i << 2);
    const to = codes + <usize>(rows * QUERY_HEAD) + OCTET_BYTES * i;
    const qs = queries + CHUNK_BYTES * i;
    quantize_part(scale, to, step, qs, chunk, 0, rank);
    quantize_part(scale + (<usize>rows << 2), to + step * (rank / PANEL), step, qs, chunk, rank, dim);
  }
}

/** The sums of four accumulators of integers. */
// @ts-ignore: decorator
@inline
function sums(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = i32x4.add(v128.shuffle<i32>(a, b, 0, 1, 4, 5), v128.shuffle<i32>(a, b, 2, 3, 6, 7));
  const cd = i32x4.add(v128.shuffle<i32>(c, d, 0, 1, 4, 5), v128.shuffle<i32>(c, d, 2, 3, 6, 7));
  return i32x4.add(v128.shuffle<i32>(ab, cd, 0, 2, 4, 6), v128.shuffle<i32>(ab, cd, 1, 3, 5, 7));
}

/** The scores of two rows and two tokens, to those of the row at c and of the next one. */
// @ts-ignore: decorator
@inline
function store_scores(add: bool, both: bool, c: usize, total: v128, rowScales: F32Ptr, keyScales: F32Ptr): void {
  const keys = v128.load64_splat(keyScales);
  const x = v128.load32_splat(rowScales);
  const y = both ? v128.load32_splat(rowScales, 4) : x;
  let scores = f32x4.mul(f32x4.convert_i32x4_s(total), f32x4.mul(v128.shuffle<f64>(x, y, 0, 2), keys));
  if (add) {
    let before = v128.load64_zero(c);
    if (both) before = v128.load_lane<f64>(c + STRIP_BYTES, before, 1);
    scores = f32x4.add(before, scores);
  }
  v128.store_lane<f64>(c, scores, 0);
  if (both) v128.store_lane<f64>(c, scores, 1, STRIP_BYTES);
}

/**
 * C[rows, 2] = A[rows] · B[2] over `octets` times 8 components, times both scales; with `add`, plus C. `rows` is a constant
 * from 1 to 5.
 *
 * 5x2 tile, 14 v128: acc00..acc41 = 10 | b0 b1 = 2 | a<row> = 1 | a product = 1
 * A [octets][rows][8] i16 · B [octets][8][2] int8 · C [rows][2] row stride STRIP_BYTES
 * not unrolled · sums are exact
 */
// @ts-ignore: decorator
@inline
function codes_nx2(
  rows: i32,
  add: bool,
  cPtr0: F32Ptr,
  aPtr0: usize,
  bPtr0: usize,
  octets: i32,
  rowScales: F32Ptr,
  keyScales: F32Ptr,
): void {
  const bEnd = bPtr0 + CODE_PAIR_BYTES * octets;
  let acc00 = i32x4.splat(0);
  let acc01 = i32x4.splat(0);
  let acc10 = i32x4.splat(0);
  let acc11 = i32x4.splat(0);
  let acc20 = i32x4.splat(0);
  let acc21 = i32x4.splat(0);
  let acc30 = i32x4.splat(0);
  let acc31 = i32x4.splat(0);
  let acc40 = i32x4.splat(0);
  let acc41 = i32x4.splat(0);
  do {
    const pair = v128.load(bPtr0);
    const b0 = i16x8.shr_s(i16x8.shl(pair, 8), 8);
    const b1 = i16x8.shr_s(pair, 8);
    const a0 = v128.load(aPtr0);
    acc00 = dot_i16(a0, b0, acc00);
    acc01 = dot_i16(a0, b1, acc01);
    if (rows > 1) {
      const a1 = v128.load(aPtr0, OCTET_BYTES);
      acc10 = dot_i16(a1, b0, acc10);
      acc11 = dot_i16(a1, b1, acc11);
    }
    if (rows > 2) {
      const a2 = v128.load(aPtr0, OCTET_BYTES * 2);
      acc20 = dot_i16(a2, b0, acc20);
      acc21 = dot_i16(a2, b1, acc21);
    }
    if (rows > 3) {
      const a3 = v128.load(aPtr0, OCTET_BYTES * 3);
      acc30 = dot_i16(a3, b0, acc30);
      acc31 = dot_i16(a3, b1, acc31);
    }
    if (rows > 4) {
      const a4 = v128.load(aPtr0, OCTET_BYTES * 4);
      acc40 = dot_i16(a4, b0, acc40);
      acc41 = dot_i16(a4, b1, acc41);
    }
    aPtr0 += OCTET_BYTES * rows;
    bPtr0 += CODE_PAIR_BYTES;
  } while (bPtr0 < bEnd);
  store_scores(add, rows > 1, cPtr0, sums(acc00, acc01, acc10, acc11), rowScales, keyScales);
  if (rows > 2) {
    const c2 = sums(acc20, acc21, acc30, acc31);
    store_scores(add, rows > 3, cPtr0 + STRIP_BYTES * 2, c2, rowScales + 8, keyScales);
  }
  if (rows > 4) {
    const c4 = sums(acc40, acc41, acc40, acc41);
    store_scores(add, false, cPtr0 + STRIP_BYTES * 4, c4, rowScales + 16, keyScales);
  }
}

/** The scores of a strip for `count` pairs of tokens. */
// @ts-ignore: decorator
@inline
function qk_rows(
  rows: i32,
  s: F32Ptr,
  codes: usize,
  latents: usize,
  scales: F32Ptr,
  rotatedScales: F32Ptr,
  rank: i32,
  dim: i32,
  count: i32,
): void {
  const octets = rank / PANEL;
  const rotated = (dim - rank) / PANEL;
  const a = codes + <usize>(rows * QUERY_HEAD);
  const rotatedQueries = a + OCTET_BYTES * rows * octets;
  for (; count > 0; count--) {
    codes_nx2(rows, false, s, a, latents, octets, codes, scales);
    if (rotated > 0) {
      const b = latents + CODE_PAIR_BYTES * octets;
      codes_nx2(rows, true, s, rotatedQueries, b, rotated, codes + (<usize>rows << 2), rotatedScales);
    }
    s += 8;
    latents += code_pair_bytes(dim);
    scales += 8;
    rotatedScales += 8;
  }
}

function qk_5(s: usize, x: usize, k: usize, scales: usize, others: usize, rank: i32, dim: i32, count: i32): void {
  qk_rows(5, s, x, k, scales, others, rank, dim, count);
}

function qk_4(s: usize, x: usize, k: usize, scales: usize, others: usize, rank: i32, dim: i32, count: i32): void {
  qk_rows(4, s, x, k, scales, others, rank, dim, count);
}

function qk_3(s: usize, x: usize, k: usize, scales: usize, others: usize, rank: i32, dim: i32, count: i32): void {
  qk_rows(3, s, x, k, scales, others, rank, dim, count);
}

function qk_2(s: usize, x: usize, k: usize, scales: usize, others: usize, rank: i32, dim: i32, count: i32): void {
  qk_rows(2, s, x, k, scales, others, rank, dim, count);
}

function qk_1(s: usize, x: usize, k: usize, scales: usize, others: usize, rank: i32, dim: i32, count: i32): void {
  qk_rows(1, s, x, k, scales, others, rank, dim, count);
}

/** Scores of a strip of up to 5 rows for the first 2 · count tokens at `latents`. */
export function qk_codes(
  rows: i32,
  s: F32Ptr,
  codes: usize,
  latents: usize,
  scales: F32Ptr,
  rotatedScales: F32Ptr,
  rank: i32,
  dim: i32,
  count: i32,
): void {
  switch (rows) {
    case 5:
      return qk_5(s, codes, latents, scales, rotatedScales, rank, dim, count);
    case 4:
      return qk_4(s, codes, latents, scales, rotatedScales, rank, dim, count);
    case 3:
      return qk_3(s, codes, latents, scales, rotatedScales, rank, dim, count);
    case 2:
      return qk_2(s, codes, latents, scales, rotatedScales, rank, dim, count);
    default:
      return qk_1(s, codes, latents, scales, rotatedScales, rank, dim, count);
  }
}

// @ts-ignore: decorator
@inline
function pv_rows(
  rows: i32,
  o: usize,
  row: usize,
  states: usize,
  s: usize,
  p: usize,
  v: usize,
  step: usize,
  pairs: i32,
  panels: i32,
): void {
  for (; panels > 0; panels--) {
    int_nx8(rows, true, o, row, p, 4, v, step, pairs, states, s);
    o += PANEL_BYTES;
    v += CODE_PAIR_BYTES;
  }
}

function pv_5(o: usize, row: usize, states: usize, s: usize, p: usize, v: usize, step: usize, pairs: i32, n: i32): void {
  pv_rows(5, o, row, states, s, p, v, step, pairs, n);
}

function pv_4(o: usize, row: usize, states: usize, s: usize, p: usize, v: usize, step: usize, pairs: i32, n: i32): void {
  pv_rows(4, o, row, states, s, p, v, step, pairs, n);
}

function pv_3(o: usize, row: usize, states: usize, s: usize, p: usize, v: usize, step: usize, pairs: i32, n: i32): void {
  pv_rows(3, o, row, states, s, p, v, step, pairs, n);
}

function pv_2(o: usize, row: usize, states: usize, s: usize, p: usize, v: usize, step: usize, pairs: i32, n: i32): void {
  pv_rows(2, o, row, states, s, p, v, step, pairs, n);
}

function pv_1(o: usize, row: usize, states: usize, s: usize, p: usize, v: usize, step: usize, pairs: i32, n: i32): void {
  pv_rows(1, o, row, states, s, p, v, step, pairs, n);
}

/** o[rows] = alpha · o + weights · latents for `columns` columns, over the tokens [first, last) of the page at `latents`. */
export function pv_codes(
  rows: i32,
  o: F32Ptr,
  columns: i32,
  states: usize,
  s: F32Ptr,
  latents: usize,
  dim: i32,
  first: i32,
  last: i32,
): void {
  const from = first & -QUAD;
  const pairs = (((last + QUAD - 1) & -QUAD) - from) >> 1;
  const p = s + (<usize>from << 1);
  const row = <usize>columns << 2;
  const step = code_pair_bytes(dim);
  const v = latents + step * (from >> 1);
  const n = columns / PANEL;
  switch (rows) {
    case 5:
      return pv_5(o, row, states, s, p, v, step, pairs, n);
    case 4:
      return pv_4(o, row, states, s, p, v, step, pairs, n);
    case 3:
      return pv_3(o, row, states, s, p, v, step, pairs, n);
    case 2:
      return pv_2(o, row, states, s, p, v, step, pairs, n);
    default:
      return pv_1(o, row, states, s, p, v, step, pairs, n);
  }
}
