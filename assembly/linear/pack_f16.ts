import { PANEL, PANEL_BYTES_16 } from "../layout";
import { narrow_bf16, narrow_f16, zip_high, zip_low } from "../math/half";
import { F32Ptr, U16Ptr } from "../types";

/**
 * out[p, i, c] = w[8p + c, i] as f16 or bf16 (bf16 = 1), w [n][k] -> out [ceil(n / 8)][k][8], both dense, for panels
 * begin..end. Half to even; what is too large becomes an infinity, NaN stays NaN, columns beyond n are +0. out must not
 * overlap w; w lies at any multiple of four bytes, out of two.
 */
export function pack_rows_f16(out: U16Ptr, w: F32Ptr, n: i32, k: i32, bf16: i32, begin: i32, end: i32): void {
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_rows_f16: begin..end must lie within the panels");
  const rowBytes = <usize>k << 2;
  for (let p = begin; p < end; p++) {
    const rows = min(PANEL, n - p * PANEL);
    const low = w + <usize>(p * PANEL) * rowBytes;
    const high = low + (rowBytes << 2);
    const to = out + <usize>p * k * PANEL_BYTES_16;
    const wide = rows == PANEL ? k & ~3 : 0;
    for (let i = 0; i < wide; i += 4) {
      const at = <usize>i << 2;
      const square = to + <usize>i * PANEL_BYTES_16;
      const a0 = pair_low(low + at, rowBytes);
      const a1 = pair_low(low + at + (rowBytes << 1), rowBytes);
      const b0 = pair_low(high + at, rowBytes);
      const b1 = pair_low(high + at + (rowBytes << 1), rowBytes);
      v128.store(square, narrow(v128.shuffle<f64>(a0, a1, 0, 2), v128.shuffle<f64>(b0, b1, 0, 2), bf16));
      v128.store(square, narrow(v128.shuffle<f64>(a0, a1, 1, 3), v128.shuffle<f64>(b0, b1, 1, 3), bf16), 16);
      const c0 = pair_high(low + at, rowBytes);
      const c1 = pair_high(low + at + (rowBytes << 1), rowBytes);
      const d0 = pair_high(high + at, rowBytes);
      const d1 = pair_high(high + at + (rowBytes << 1), rowBytes);
      v128.store(square, narrow(v128.shuffle<f64>(c0, c1, 0, 2), v128.shuffle<f64>(d0, d1, 0, 2), bf16), 32);
      v128.store(square, narrow(v128.shuffle<f64>(c0, c1, 1, 3), v128.shuffle<f64>(d0, d1, 1, 3), bf16), 48);
    }
    for (let i = wide; i < k; i++) {
      const at = <usize>i << 2;
      v128.store(
        to + <usize>i * PANEL_BYTES_16,
        narrow(four(low + at, rowBytes, rows), four(high + at, rowBytes, rows - 4), bf16),
      );
    }
  }
}

/** The same from w [k][n], for rows begin..end of k: out[p, i, c] = w[i, 8p + c]. */
export function pack_columns_f16(out: U16Ptr, w: F32Ptr, n: i32, k: i32, bf16: i32, begin: i32, end: i32): void {
  assert(begin >= 0 && end <= k, "pack_columns_f16: begin..end must lie within k");
  const panelBytes = <usize>k * PANEL_BYTES_16;
  for (let i = begin; i < end; i++) {
    let from = w + ((<usize>i * n) << 2);
    let to = out + <usize>i * PANEL_BYTES_16;
    for (let columns = n; columns > 0; columns -= PANEL) {
      v128.store(to, narrow(four(from, 4, columns), four(from + 16, 4, columns - 4), bf16));
      from += 32;
      to += panelBytes;
    }
  }
}

/** pack_rows_f16 from halves as a file keeps them, of either kind: bits are copied. */
export function repack_rows_f16(out: U16Ptr, w: U16Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "repack_rows_f16: begin..end must lie within the panels");
  const rowBytes = <usize>k << 1;
  for (let p = begin; p < end; p++) {
    const rows = min(PANEL, n - p * PANEL);
    const from = w + <usize>(p * PANEL) * rowBytes;
    const to = out + <usize>p * k * PANEL_BYTES_16;
    const wide = rows == PANEL ? k & ~7 : 0;
    for (let i = 0; i < wide; i += 8) turn(to + <usize>i * PANEL_BYTES_16, from + (<usize>i << 1), rowBytes);
    for (let i = wide; i < k; i++)
      v128.store(to + <usize>i * PANEL_BYTES_16, eight(from + (<usize>i << 1), rowBytes, rows));
  }
}

/** pack_columns_f16 from halves as a file keeps them, of either kind: bits are copied. */
export function repack_columns_f16(out: U16Ptr, w: U16Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(begin >= 0 && end <= k, "repack_columns_f16: begin..end must lie within k");
  const panelBytes = <usize>k * PANEL_BYTES_16;
  for (let i = begin; i < end; i++) {
    let from = w + ((<usize>i * n) << 1);
    let to = out + <usize>i * PANEL_BYTES_16;
    for (let columns = n; columns > 0; columns -= PANEL) {
      v128.store(to, columns >= PANEL ? v128.load(from) : eight(from, 2, columns));
      from += 16;
      to += panelBytes;
    }
  }
}

// @ts-ignore: decorator
@inline
function narrow(a: v128, b: v128, bf16: i32): v128 {
  return bf16 ? narrow_bf16(a, b) : narrow_f16(a, b);
}

/** Of two rows the first two floats in turn. */
// @ts-ignore: decorator
@inline
function pair_low(at: usize, stride: usize): v128 {
  return v128.shuffle<f32>(v128.load(at), v128.load(at + stride), 0, 4, 1, 5);
}

/** The next two. */
// @ts-ignore: decorator
@inline
function pair_high(at: usize, stride: usize): v128 {
  return v128.shuffle<f32>(v128.load(at), v128.load(at + stride), 2, 6, 3, 7);
}

/** The floats at `at`, `at + stride`, .. : the first n of four, +0 behind. Any n. */
function four(at: usize, stride: usize, n: i32): v128 {
  let v = i32x4.splat(0);
  if (n > 0) v = v128.load_lane<f32>(at, v, 0);
  if (n > 1) v = v128.load_lane<f32>(at + stride, v, 1);
  if (n > 2) v = v128.load_lane<f32>(at + stride * 2, v, 2);
  if (n > 3) v = v128.load_lane<f32>(at + stride * 3, v, 3);
  return v;
}

/** The same of halves. */
function eight(at: usize, stride: usize, n: i32): v128 {
  let v = i32x4.splat(0);
  if (n > 0) v = v128.load_lane<i16>(at, v, 0);
  if (n > 1) v = v128.load_lane<i16>(at + stride, v, 1);
  if (n > 2) v = v128.load_lane<i16>(at + stride * 2, v, 2);
  if (n > 3) v = v128.load_lane<i16>(at + stride * 3, v, 3);
  if (n > 4) v = v128.load_lane<i16>(at + stride * 4, v, 4);
  if (n > 5) v = v128.load_lane<i16>(at + stride * 5, v, 5);
  if (n > 6) v = v128.load_lane<i16>(at + stride * 6, v, 6);
  if (n > 7) v = v128.load_lane<i16>(at + stride * 7, v, 7);
  return v;
}

/** A square of 8 x 8 halves from rows `stride` apart, turned over. */
function turn(to: usize, from: usize, stride: usize): void {
  store_turned(
    to,
    v128.load(from),
    v128.load(from + stride),
    v128.load(from + stride * 2),
    v128.load(from + stride * 3),
    v128.load(from + stride * 4),
    v128.load(from + stride * 5),
    v128.load(from + stride * 6),
    v128.load(from + stride * 7),
  );
}

/** Eight lines of a panel from eight units of 16 bits of each of its rows. */
// @ts-ignore: decorator
@inline
export function store_turned(
  to: usize,
  a: v128,
  b: v128,
  c: v128,
  d: v128,
  e: v128,
  f: v128,
  g: v128,
  h: v128,
): void {
  turn_four(to, zip_low(a, b), zip_low(c, d), zip_low(e, f), zip_low(g, h));
  turn_four(to + 64, zip_high(a, b), zip_high(c, d), zip_high(e, f), zip_high(g, h));
}

/** Four lines of a panel from the pairs of its rows. */
// @ts-ignore: decorator
@inline
function turn_four(to: usize, ab: v128, cd: v128, ef: v128, gh: v128): void {
  const abcd = v128.shuffle<i32>(ab, cd, 0, 4, 1, 5);
  const efgh = v128.shuffle<i32>(ef, gh, 0, 4, 1, 5);
  v128.store(to, v128.shuffle<i64>(abcd, efgh, 0, 2));
  v128.store(to, v128.shuffle<i64>(abcd, efgh, 1, 3), 16);
  const abcd_high = v128.shuffle<i32>(ab, cd, 2, 6, 3, 7);
  const efgh_high = v128.shuffle<i32>(ef, gh, 2, 6, 3, 7);
  v128.store(to, v128.shuffle<i64>(abcd_high, efgh_high, 0, 2), 32);
  v128.store(to, v128.shuffle<i64>(abcd_high, efgh_high, 1, 3), 48);
}
