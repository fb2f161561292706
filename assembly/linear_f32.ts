import { PANEL } from "./layout";
import { madd } from "./simd";
import { F32Ptr, F32PtrOrNull } from "./types";

/** Rows of the widest tile: 6x8 is 12 accumulators, two weights and one broadcast x, all the registers there are. */
const ROWS = 6;
/** Elements of k a weight block holds, so that six rows of x (12 KB) stay in a 32 KB L1 while the panels pass by. */
const KC = 512;
/** Panels of a weight block: 16 · 8 · KC floats are 256 KB, half of the smallest L2 that matters (512 KB). */
const BLOCK_PANELS = 16;

/** Where a missing bias is read: the floats of the widest tile. */
const zeros = memory.data(128, 16);

/** One tile: out[rows, 8] = init[rows, 8] + x[rows, k] · w[k, 8]. `rows` is a constant where this is inlined. */
// @ts-ignore: decorator
@inline
function linear_x8(
  rows: i32,
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  k: i32,
  outStride: usize,
  initStride: usize,
  xStride: usize,
): void {
  let at = init;
  let acc00 = v128.load(at);
  let acc01 = v128.load(at, 16);
  if (rows > 1) at += initStride;
  let acc10 = v128.load(at);
  let acc11 = v128.load(at, 16);
  if (rows > 2) at += initStride;
  let acc20 = v128.load(at);
  let acc21 = v128.load(at, 16);
  if (rows > 3) at += initStride;
  let acc30 = v128.load(at);
  let acc31 = v128.load(at, 16);
  if (rows > 4) at += initStride;
  let acc40 = v128.load(at);
  let acc41 = v128.load(at, 16);
  if (rows > 5) at += initStride;
  let acc50 = v128.load(at);
  let acc51 = v128.load(at, 16);

  let x0 = x;
  let x1 = x0 + xStride;
  let x2 = x1 + xStride;
  let x3 = x2 + xStride;
  let x4 = x3 + xStride;
  let x5 = x4 + xStride;
  const end = w + (<usize>k << 5);
  for (let b = w; b != end; b += 32) {
    const b0 = v128.load(b);
    const b1 = v128.load(b, 16);
    let v = v128.load32_splat(x0);
    acc00 = madd(v, b0, acc00);
    acc01 = madd(v, b1, acc01);
    x0 += 4;
    if (rows > 1) {
      v = v128.load32_splat(x1);
      acc10 = madd(v, b0, acc10);
      acc11 = madd(v, b1, acc11);
      x1 += 4;
    }
    if (rows > 2) {
      v = v128.load32_splat(x2);
      acc20 = madd(v, b0, acc20);
      acc21 = madd(v, b1, acc21);
      x2 += 4;
    }
    if (rows > 3) {
      v = v128.load32_splat(x3);
      acc30 = madd(v, b0, acc30);
      acc31 = madd(v, b1, acc31);
      x3 += 4;
    }
    if (rows > 4) {
      v = v128.load32_splat(x4);
      acc40 = madd(v, b0, acc40);
      acc41 = madd(v, b1, acc41);
      x4 += 4;
    }
    if (rows > 5) {
      v = v128.load32_splat(x5);
      acc50 = madd(v, b0, acc50);
      acc51 = madd(v, b1, acc51);
      x5 += 4;
    }
  }

  at = out;
  v128.store(at, acc00);
  v128.store(at, acc01, 16);
  if (rows > 1) {
    at += outStride;
    v128.store(at, acc10);
    v128.store(at, acc11, 16);
  }
  if (rows > 2) {
    at += outStride;
    v128.store(at, acc20);
    v128.store(at, acc21, 16);
  }
  if (rows > 3) {
    at += outStride;
    v128.store(at, acc30);
    v128.store(at, acc31, 16);
  }
  if (rows > 4) {
    at += outStride;
    v128.store(at, acc40);
    v128.store(at, acc41, 16);
  }
  if (rows > 5) {
    at += outStride;
    v128.store(at, acc50);
    v128.store(at, acc51, 16);
  }
}

/** One row over four panels `wStride` bytes apart: the form of decode, which the memory limits. */
// @ts-ignore: decorator
@inline
function linear_1x32(out: F32Ptr, init: F32Ptr, x: F32Ptr, w: F32Ptr, k: i32, wStride: usize): void {
  let acc0 = v128.load(init);
  let acc1 = v128.load(init, 16);
  let acc2 = v128.load(init, 32);
  let acc3 = v128.load(init, 48);
  let acc4 = v128.load(init, 64);
  let acc5 = v128.load(init, 80);
  let acc6 = v128.load(init, 96);
  let acc7 = v128.load(init, 112);
  let b0 = w;
  let b1 = b0 + wStride;
  let b2 = b1 + wStride;
  let b3 = b2 + wStride;
  const end = x + (<usize>k << 2);
  for (let a = x; a != end; a += 4) {
    const v = v128.load32_splat(a);
    acc0 = madd(v, v128.load(b0), acc0);
    acc1 = madd(v, v128.load(b0, 16), acc1);
    acc2 = madd(v, v128.load(b1), acc2);
    acc3 = madd(v, v128.load(b1, 16), acc3);
    acc4 = madd(v, v128.load(b2), acc4);
    acc5 = madd(v, v128.load(b2, 16), acc5);
    acc6 = madd(v, v128.load(b3), acc6);
    acc7 = madd(v, v128.load(b3, 16), acc7);
    b0 += 32;
    b1 += 32;
    b2 += 32;
    b3 += 32;
  }
  v128.store(out, acc0);
  v128.store(out, acc1, 16);
  v128.store(out, acc2, 32);
  v128.store(out, acc3, 48);
  v128.store(out, acc4, 64);
  v128.store(out, acc5, 80);
  v128.store(out, acc6, 96);
  v128.store(out, acc7, 112);
}

/** One row over all panels. */
function linear_row(out: F32Ptr, x: F32Ptr, w: F32Ptr, bias: F32PtrOrNull, panels: i32, k: i32): void {
  const wStride = <usize>k << 5;
  const initStep: usize = bias ? 32 : 0;
  let init = bias ? bias : zeros;
  let p = 0;
  for (; p <= panels - 4; p += 4) {
    linear_1x32(out, init, x, w, k, wStride);
    out += 128;
    init += initStep << 2;
    w += wStride << 2;
  }
  for (; p < panels; p++) {
    linear_x8(1, out, init, x, w, k, 0, 0, 0);
    out += 32;
    init += initStep;
    w += wStride;
  }
}

/**
 * out[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] for rows m in begin..end and n in 0..8·panels.
 * w is packed [panels][k][8] and bias holds 8·panels floats or is null. Row m of out and of x lies m·outStride and
 * m·xStride floats behind the first; out rows have room for 8·panels floats and out overlaps no input. 4-byte
 * alignment is enough. Each element has one accumulator that starts from the bias (or +0) and takes k in ascending
 * order, in every tile, so that its bits do not depend on the rows computed with it.
 */
export function linear_f32(
  out: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  bias: F32PtrOrNull,
  panels: i32,
  k: i32,
  outStride: i32,
  xStride: i32,
  begin: i32,
  end: i32,
): void {
  assert(panels > 0 && k > 0, "linear_f32: panels and k must be positive");
  assert(outStride >= panels * PANEL && xStride >= k, "linear_f32: strides must hold a row");
  const outBytes = <usize>outStride << 2;
  const xBytes = <usize>xStride << 2;
  if (end - begin == 1) {
    linear_row(out + <usize>begin * outBytes, x + <usize>begin * xBytes, w, bias, panels, k);
    return;
  }
  for (let p0 = 0; p0 < panels; p0 += BLOCK_PANELS) {
    const p1 = min(p0 + BLOCK_PANELS, panels);
    for (let k0 = 0; k0 < k; k0 += KC) {
      const kc = min(KC, k - k0);
      const first = k0 == 0;
      let rows = 0;
      for (let m = begin; m < end; m += rows) {
        // The last strips share what is left, so that none is a single row: 7 is 4 + 3, 8 is 4 + 4.
        const left = end - m;
        rows = left == 7 || left == 8 ? 4 : min(left, ROWS);
        const xm = x + <usize>m * xBytes + (<usize>k0 << 2);
        const om = out + <usize>m * outBytes;
        for (let p = p0; p < p1; p++) {
          const o = om + (<usize>p << 5);
          const b = w + ((<usize>p * k + k0) << 5);
          const init = first ? (bias ? bias + (<usize>p << 5) : zeros) : o;
          const initBytes: usize = first ? 0 : outBytes;
          if (rows == 6) linear_x8(6, o, init, xm, b, kc, outBytes, initBytes, xBytes);
          else if (rows == 5) linear_x8(5, o, init, xm, b, kc, outBytes, initBytes, xBytes);
          else if (rows == 4) linear_x8(4, o, init, xm, b, kc, outBytes, initBytes, xBytes);
          else if (rows == 3) linear_x8(3, o, init, xm, b, kc, outBytes, initBytes, xBytes);
          else linear_x8(2, o, init, xm, b, kc, outBytes, initBytes, xBytes);
        }
      }
    }
  }
}
