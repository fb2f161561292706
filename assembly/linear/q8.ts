import { BLOCK, PANEL, PANEL_BYTES } from "../layout";
import { F32Ptr, F32PtrOrNull, I32Ptr, LinearShape, LinearShapePtr, U8Ptr } from "../types";
import { panel_bytes, SCALES } from "./block_layout";
import { FAST, int_dot_nx8, PATH_I16 } from "./int_dot";
import { STARTS_BYTES, start_sums } from "./int_dot_i8";
import { int_dot_i16_1x32, int_dot_i16_2x16 } from "./int_dot_skinny";
import { padded, ROW_HEAD, row_bytes } from "./quantize_rows";

/** Inputs whose products are summed as integers where a row has one scale. */
const GROUP: i32 = 1024;
/** Inputs of a weight block: four rows of integers are 8 KB. */
export const KC: i32 = 1024;
/** Panels of a weight block, 144 KB with its scales: it stays in a second-level cache while the rows pass. */
export const BLOCK_PANELS: i32 = 16;
/** Up to so many rows, the weights of a panel are read once, from end to end. */
const FEW_ROWS = 4;
/** Rows of a strip. */
const STRIP_ROWS = 4;

/** Bytes of scratch for the sums of a weight block. */
export const SUMS: usize = STARTS_BYTES * BLOCK_PANELS * (KC / BLOCK);

/** Where the first group starts from: as many floats as the widest tile has columns. */
const zeros = memory.data(128, 16);

/**
 * out[m, n] = bias[n] + xScale[m] · Σg wScale[g, n] · (Σ of x[m, k] · w[n, k] over the k of group g), for rows m in begin..end
 * and n in 0..8·panels. x is what quantize_rows made in the same `mode`. w is packed [panels][K / block] of 8 scales and
 * [block/2][8][2] int8, where K is k rounded up to 32, and block 32 or K. A group is a block, or 1024 inputs of a longer
 * one. bias holds 8·panels floats or is null. Rows of out lie outStride floats apart and overlap no input. scratch:
 * LINEAR_SCRATCH bytes (layout.ts), 16-byte aligned.
 * The inner sums are exact, the outer one is ascending, and nothing is fused: the bits are the same in every tile, on
 * every path and in every build.
 */
export function linear_q8(
  out: F32Ptr,
  x: U8Ptr,
  w: U8Ptr,
  scratch: U8Ptr,
  bias: F32PtrOrNull,
  shape: LinearShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<LinearShape>(shape);
  const panels = s.panels;
  const k = s.k;
  const block = s.block;
  const mode = s.mode;
  assert(panels > 0 && k > 0, "linear_q8: panels and k must be positive");
  assert(s.outStride >= panels * PANEL, "linear_q8: the stride must hold a row");
  const rows = end - begin;
  const outBytes = <usize>s.outStride << 2;
  const xBytes = row_bytes(k);
  const length = padded(k);
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  const panelBytes = panel_bytes(length, block);
  const whole = rows <= FEW_ROWS && mode >> 1 == PATH_I16;
  const step = whole ? panels : BLOCK_PANELS;
  const chunk = whole ? length : KC;
  for (let p = 0; p < panels; p += step) {
    const n = min(step, panels - p);
    const o = out + <usize>p * PANEL_BYTES;
    for (let i = 0; i < length; i += chunk) {
      const count = min(chunk, length - i);
      // Where the first group has its scales and its weights: each in its block, or all in one.
      const scales = w + panelBytes * p + (block == BLOCK ? panel_bytes(i, BLOCK) : 0);
      const weights = scales + SCALES + (block == BLOCK ? 0 : <usize>i << 3);
      sum_products(
        o,
        outBytes,
        i > 0,
        x + ROW_HEAD,
        xBytes,
        scales,
        weights,
        panelBytes,
        scratch,
        n,
        length,
        block,
        i,
        count,
        mode,
        rows,
      );
    }
  }
  scale_rows(out, outBytes, x, xBytes, bias, panels, rows);
}

/**
 * out[rows, 8·panels] (+)= the add_scaled sums over the inputs from..from+count, whose scales and weights in the first panel
 * are given. Rows of x have `length` integers.
 */
export function sum_products(
  out: F32Ptr,
  outBytes: usize,
  more: bool,
  x: U8Ptr,
  xBytes: usize,
  scales: F32Ptr,
  weights: U8Ptr,
  panelBytes: usize,
  sums: I32Ptr,
  panels: i32,
  length: i32,
  block: i32,
  from: i32,
  count: i32,
  mode: i32,
  rows: i32,
): void {
  const path = mode >> 1;
  const planes = mode & FAST ? 1 : 2;
  const group = min(block, GROUP);
  const gap = block == BLOCK ? SCALES : 0;
  const panelSums: usize = path == PATH_I16 ? 0 : STARTS_BYTES * <usize>((count + group - 1) / group);
  if (path != PATH_I16)
    for (let p = 0; p < panels; p++) start_sums(sums + panelSums * p, weights + panelBytes * p, count, group, gap);
  x += <usize>from << (path == PATH_I16 ? 1 : 0);
  while (rows > 0) {
    const n = min(rows, STRIP_ROWS);
    const wide = path == PATH_I16 && n <= 2 ? 4 >> (n - 1) : 1;
    let o = out;
    let init = more ? out : zeros;
    const initStep: usize = more ? <usize>PANEL_BYTES : 0;
    const initBytes: usize = more ? outBytes : 0;
    let s = scales;
    let w = weights;
    let starts = sums;
    for (let p = 0; p < panels; ) {
      const step = wide <= panels - p ? wide : 1;
      if (step == 4) int_dot_i16_1x32(o, init, s, x, w, panelBytes, count, group, gap);
      else if (step == 2)
        int_dot_i16_2x16(o, outBytes, init, initBytes, s, x, xBytes, w, panelBytes, count, group, gap);
      else
        int_dot_nx8(path, n, planes, starts, o, outBytes, init, initBytes, s, x, xBytes, length, w, count, group, gap);
      o += <usize>step * PANEL_BYTES;
      init += initStep * step;
      s += panelBytes * step;
      w += panelBytes * step;
      starts += panelSums;
      p += step;
    }
    rows -= n;
    out += outBytes * n;
    x += xBytes * n;
  }
}

/** out = bias + out · scale, for the scale at the head of each row of x. */
export function scale_rows(
  out: F32Ptr,
  outBytes: usize,
  x: U8Ptr,
  xBytes: usize,
  bias: F32PtrOrNull,
  panels: i32,
  rows: i32,
): void {
  const bytes = <usize>panels * PANEL_BYTES;
  for (; rows > 0; rows--) {
    const scale = v128.load32_splat(x);
    for (let at: usize = 0; at < bytes; at += 16) {
      const start = bias ? v128.load(bias + at) : f32x4.splat(0);
      v128.store(out + at, f32x4.add(start, f32x4.mul(v128.load(out + at), scale)));
    }
    out += outBytes;
    x += xBytes;
  }
}
