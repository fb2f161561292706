import { F16_SCRATCH, PANEL, PANEL_BYTES, PANEL_BYTES_16 } from "../layout";
import { has_many_subnormals, widen_rows } from "../math/half";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr, U16Ptr } from "../types";
import { linear_f16_1x32, linear_f16_2x16, linear_f16_nx8 } from "./f16_skinny";
import { linear_1x8, linear_1x32 } from "./gemv";
import { linear_strips } from "./strips";

/** Elements of k in a weight block, and panels of one that is widened for many rows: half of a small L2. */
const KC = 512;
const BLOCK_PANELS = 16;
/** For few rows a block has one panel, and for one or two of them these: half of a small L1. */
const ROW_PANELS = 4;
const ROW_KC = 128;

/** The most rows that are multiplied by weights in the registers that widen these; the most of a strip, and of inputs. */
const FUSED_ROWS = 15;
const STRIP_ROWS = 5;
const FUSED_KC = 1024;
/** Where their floats lie in the scratch, behind the small blocks, and how many there may be. */
const X_AT = KC * PANEL;
const X_ROOM = F16_SCRATCH - X_AT;

/** Where a missing bias is read: as many floats as the widest tile has columns. */
const zeros = memory.data(128, 16);

/** 2^112, and the bits of a float32 without its sign. */
const SCALE = memory.data<u32>([0x77800000, 0x7fffffff]);

/**
 * linear_f32 on weights of 16 bits, f16 or bf16, packed [panels][k][8]: the bits of linear_f32 on the same
 * weights as float32. The rules of linear_f32 hold, and scratch is F16_SCRATCH floats of any content that nothing else
 * uses meanwhile.
 */
export function linear_f16(
  out: F32Ptr,
  x: F32Ptr,
  w: U16Ptr,
  scratch: F32Ptr,
  bias: F32PtrOrNull,
  shape: LinearShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<LinearShape>(shape);
  const panels = s.panels;
  const k = s.k;
  const bf16 = s.bf16 != 0;
  assert(panels > 0 && k > 0, "linear_f16: panels and k must be positive");
  assert(s.outStride >= panels * PANEL && s.xStride >= k, "linear_f16: strides must hold a row");
  const outBytes = <usize>s.outStride << 2;
  const xBytes = <usize>s.xStride << 2;
  const rows = end - begin;
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  if (rows <= 0) return;
  let done = 0;
  if (rows <= FUSED_ROWS) {
    const step = rows == 1 ? 4 : rows == 2 ? 2 : 1;
    const scaled = scratch + (X_AT << 2);
    done = panels - (panels % step);
    if (done > 0) {
      if (bf16) fused(true, out, x, x, w, scratch, bias, rows, done, step, k, outBytes, xBytes, xBytes);
      else if (rows <= X_ROOM / k && scale_rows(scaled, x, rows, k, xBytes))
        fused(false, out, scaled, x, w, scratch, bias, rows, done, step, k, outBytes, <usize>k << 2, xBytes);
      else done = 0;
    }
  }

  if (done == panels) return;
  const init = bias ? bias + <usize>done * PANEL_BYTES : zeros;
  const initStep: usize = bias ? <usize>PANEL_BYTES : 0;
  out += <usize>done * PANEL_BYTES;
  const panelBytes = <usize>k * PANEL_BYTES_16;
  w += panelBytes * done;
  widened(bf16, out, init, x, w, scratch, rows, panels - done, k, PANEL_BYTES, outBytes, initStep, 0, xBytes, panelBytes);
}

/**
 * All rows by `panels` panels, whole steps of 4 for one row, 2 for two and 1 for more. x is scaled where the weights are
 * f16, `plain` is not: what a tile would get wrong, and blocks after one with many subnormals, are widened first.
 */
// @ts-ignore: decorator
@inline
function fused(
  bf16: bool,
  out: F32Ptr,
  x: F32Ptr,
  plain: F32Ptr,
  w: U16Ptr,
  scratch: F32Ptr,
  bias: F32PtrOrNull,
  rows: i32,
  panels: i32,
  step: i32,
  k: i32,
  outBytes: usize,
  xBytes: usize,
  plainBytes: usize,
): void {
  const panelBytes = <usize>k * PANEL_BYTES_16;
  const blockK = bf16 ? k : FUSED_KC;
  let many = false;
  const each = panels / step;
  const wStep = panelBytes * each;
  const outStep = <usize>each * PANEL_BYTES;
  for (let p = 0; p < each; p++) {
    const o = out + <usize>p * PANEL_BYTES;
    for (let i = 0; i < k; i += blockK) {
      const init = i > 0 ? o : bias ? bias + <usize>p * PANEL_BYTES : zeros;
      const initStep: usize = i > 0 || bias ? outStep : 0;
      const initBytes: usize = i > 0 ? outBytes : 0;
      const b = w + <usize>p * panelBytes + <usize>i * PANEL_BYTES_16;
      const kc = min(blockK, k - i);
      for (let row = 0; row < rows; ) {
        // Strips as equal as they can be: up to two rows are one of their own kind, no other has fewer than three.
        const strips = (rows - row + STRIP_ROWS - 1) / STRIP_ROWS;
        const n = (rows - row + strips - 1) / strips;
        const to = o + <usize>row * outBytes;
        const from = init + <usize>row * initBytes;
        const xs = x + <usize>row * xBytes + (<usize>i << 2);
        let done = false;
        if (!many) {
          if (n == 1) done = linear_f16_1x32(bf16, to, from, xs, b, kc, outStep, initStep, wStep);
          else if (n == 2) done = linear_f16_2x16(bf16, to, from, xs, b, kc, outStep, outBytes, initStep, initBytes, xBytes, wStep);
          else if (n == 3) done = linear_f16_nx8(bf16, 3, to, from, xs, b, kc, outBytes, initBytes, xBytes);
          else if (n == 4) done = linear_f16_nx8(bf16, 4, to, from, xs, b, kc, outBytes, initBytes, xBytes);
          else done = linear_f16_nx8(bf16, 5, to, from, xs, b, kc, outBytes, initBytes, xBytes);
        }
        if (!bf16 && !done) {
          const plains = plain + <usize>row * plainBytes + (<usize>i << 2);
          widened(false, to, from, plains, b, scratch, n, step, kc, outStep, outBytes, initStep, initBytes, plainBytes, wStep);
        }
        row += n;
      }
      // What one block had many of, the next is taken to have: only the time that it takes depends on it.
      if (!bf16) many = has_many_subnormals(b, step, kc, wStep);
    }
  }
}

/** All rows by panels x k weights that are widened into the scratch first; panels lie wStep bytes apart, of out outStep and of init initStep. */
function widened(
  bf16: bool,
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: U16Ptr,
  scratch: F32Ptr,
  rows: i32,
  panels: i32,
  k: i32,
  outStep: usize,
  outBytes: usize,
  initStep: usize,
  initBytes: usize,
  xBytes: usize,
  wStep: usize,
): void {
  const blockPanels = rows < 3 ? ROW_PANELS : rows <= FUSED_ROWS ? 1 : BLOCK_PANELS;
  const blockK = rows < 3 ? ROW_KC : KC;
  for (let p = 0; p < panels; p += blockPanels) {
    const n = min(blockPanels, panels - p);
    const o = out + outStep * p;
    for (let i = 0; i < k; i += blockK) {
      const kc = min(blockK, k - i);
      const from = w + wStep * p + <usize>i * PANEL_BYTES_16;
      const kcBytes = <usize>kc * PANEL_BYTES;
      for (let q = 0; q < n; q++)
        widen_rows(scratch + <usize>q * kcBytes, from + wStep * q, kc, bf16);
      // The first block starts from init, the others from what is there.
      const first = i == 0;
      const start = first ? init + <usize>p * initStep : o;
      const step = first ? initStep : outStep;
      const rowStep: usize = first ? initBytes : outBytes;
      const a = x + (<usize>i << 2);
      if (rows < 3) block_by_rows(o, start, a, scratch, rows, n, kc, outStep, outBytes, step, rowStep, xBytes);
      else linear_strips(o, start, a, scratch, rows, n, kc, outStep, outBytes, step, rowStep, xBytes, <usize>kc * PANEL_BYTES);
    }
  }
}

/** One row after the other by a block of float32. */
function block_by_rows(
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: F32Ptr,
  rows: i32,
  panels: i32,
  k: i32,
  outStep: usize,
  outBytes: usize,
  initStep: usize,
  initBytes: usize,
  xBytes: usize,
): void {
  const panelBytes = <usize>k * PANEL_BYTES;
  for (let row = 0; row < rows; row++) {
    if (panels == 4) linear_1x32(out, init, x, w, k, outStep, initStep, panelBytes);
    else
      for (let p = 0; p < panels; p++)
        linear_1x8(out + outStep * p, init + <usize>p * initStep, x, w + <usize>p * panelBytes, k);
    out += outBytes;
    init += initBytes;
    x += xBytes;
  }
}

/** to[rows, k] = x · 2^112, dense. Returns whether all of it is finite. */
function scale_rows(to: F32Ptr, x: F32Ptr, rows: i32, k: i32, xBytes: usize): bool {
  const scale = v128.load32_splat(SCALE);
  const magnitude = v128.load32_splat(SCALE + 4);
  const wide = k & ~3;
  let most = i32x4.splat(0);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < wide; i += 4) {
      const v = f32x4.mul(v128.load(x + (<usize>i << 2)), scale);
      most = i32x4.max_u(most, v128.and(v, magnitude));
      v128.store(to + (<usize>i << 2), v);
    }
    for (let i = wide; i < k; i++) {
      const v = f32x4.mul(v128.load32_splat(x + (<usize>i << 2)), scale);
      most = i32x4.max_u(most, v128.and(v, magnitude));
      v128.store_lane<f32>(to + (<usize>i << 2), v, 0);
    }
    to += <usize>k << 2;
    x += xBytes;
  }
  return !v128.any_true(i32x4.ge_u(most, i32x4.splat(0x7f800000)));
}
