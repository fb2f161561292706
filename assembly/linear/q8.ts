import { PANEL, PANEL_BYTES } from "../layout";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr, U8Ptr } from "../types";
import { BLOCK_SHIFT, GROUP, gap_of, panel_bytes, panel_sum_bytes, q8_block_bytes, SCALES, SUM_BYTES, summed_of } from "./block_layout";
import { FAST, int_dot_i8, int_dot_i8_emulated, int_dot_i16, PATH_I16, path_of } from "./int_dot";
import { PATH_I8 } from "./int_dot_i8";
import { int_dot_i16_1x32, int_dot_i16_2x16 } from "./int_dot_skinny";
import { blocks_of, padded, ROW_HEAD, row_bytes } from "./quantize_rows";

/** Inputs of a weight block: four rows of integers are 8 KB. */
export const KC: i32 = 1024;
/** Panels of a weight block, 144 KB with its scales: it stays in a second-level cache while the rows pass. */
export const BLOCK_PANELS: i32 = 16;
/** Up to so many rows, the weights of a panel are read once, from end to end: on the path of pairs, and on those of i8. */
const FEW_ROWS = 4;
const FEW_ROWS_I8 = 8;
/** Rows of a strip: on the paths of i8, rows of digits. */
const STRIP_ROWS = 4;

/** Panels of blocks of 16 or 32 that the paths of i8 read at a time, a block of each after the other: as many streams. */
const STREAMS = 8;

/** Where the first group starts from: as many floats as the widest tile has columns. */
const zeros = memory.data(128, 16);

/**
 * out[m, n] = bias[n] + xScale[m] · Σg wScale[g, n] · (Σ of x[m, k] · w[n, k] over the k of group g), for rows m in
 * begin..end and n in 0..8·panels. x is what quantize_rows made in the same `mode`; of fast rows, each group's wScale is first
 * multiplied by the scale of its inputs, which they share. w is packed [panels] of [K / block] of
 * 8 scales and [block/2][8][2] int8, where K is k rounded up to 32, and block 16, 32, 64, 128 or K. A group is a block, or of one longer
 * than 128 1024 inputs, of fast rows FAST_GROUP. sums are [panels][groups of fast rows][8], minus the sums of the weights of each, of
 * 16 bits; the path of pairs does not read them. bias holds 8·panels floats or is null. Rows of out lie outStride floats apart and overlap no input.
 * The inner sums are exact, the outer one is ascending, and nothing is fused: the bits are the same in every tile, on
 * every path and in every build.
 */
export function linear_q8(
  out: F32Ptr,
  x: U8Ptr,
  w: U8Ptr,
  sums: U8Ptr,
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
  const sumStride = panel_sum_bytes(length, block);
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  const path = path_of(mode);
  const blocks = blocks_of(x, k, mode);
  const whole = rows <= (path == PATH_I16 ? FEW_ROWS : FEW_ROWS_I8);
  const step = whole ? panels : BLOCK_PANELS;
  const chunk = whole ? length : KC;
  for (let p = 0; p < panels; p += step) {
    const o = out + <usize>p * PANEL_BYTES;
    const panel = w + panel_bytes(length, block) * p;
    const sum = sums + sumStride * p;
    const n = min(step, panels - p);
    for (let i = 0; i < length; i += chunk) {
      const integers = x + ROW_HEAD + (<usize>i << (path == PATH_I16 ? 1 : 0));
      const count = min(chunk, length - i);
      const xBlocks = blocks ? blocks + (<usize>i >> BLOCK_SHIFT) : 0;
      sum_products(o, outBytes, i > 0, integers, xBytes, length, xBlocks, panel, sum, length, block, n, i, count, mode, rows);
    }
  }
  scale_rows(out, outBytes, x, xBytes, bias, panels, rows);
}

/**
 * out[rows, 8·panels] (+)= the add_scaled sums over the inputs from..from+count of panels of `length` inputs. x is at the first
 * of them in rows of integers, whose lower digits lie `plane` bytes behind the upper ones, and xBlocks at the scale of their block in
 * the first row, if rows are fast.
 */
export function sum_products(
  out: F32Ptr,
  outBytes: usize,
  more: bool,
  x: U8Ptr,
  xBytes: usize,
  plane: usize,
  xBlocks: usize,
  w: U8Ptr,
  sums: U8Ptr,
  length: i32,
  block: i32,
  panels: i32,
  from: i32,
  count: i32,
  mode: i32,
  rows: i32,
): void {
  const path = path_of(mode);
  const fast = (mode & FAST) != 0;
  const group = fast ? summed_of(block) : min(block, GROUP);
  const gap = gap_of(block);
  const panelBytes = panel_bytes(length, block);
  const sumStride = panel_sum_bytes(length, block);
  // Where the first group has its scales, its weights and its sums: the former two in its block, or all in one.
  const scales = w + (gap ? <usize>(from / block) * q8_block_bytes(block) : 0);
  const weights = scales + SCALES + (gap ? 0 : <usize>from << 3);
  sums += <usize>(from / summed_of(block)) * SUM_BYTES;
  if (path != PATH_I16) {
    if (!more) clear_rows(out, outBytes, panels, rows);
    const planes = fast ? 1 : 2;
    const strips = rows * planes > STRIP_ROWS;
    const span = strips && gap && rows <= FEW_ROWS_I8 ? group : count;
    const step = rows * planes <= 2 ? panels : gap ? STREAMS : 1;
    for (let p = 0; p < panels; p += step) {
      const n = min(step, panels - p);
      const o = out + <usize>p * PANEL_BYTES;
      let at = panelBytes * p;
      let sum = sums + sumStride * p;
      for (let i = 0; i < count; i += span) {
        const k = min(span, count - i);
        const s = scales + at;
        const b = weights + at;
        const a = x + i;
        const xb = xBlocks + (<usize>i >> BLOCK_SHIFT);
        if (path == PATH_I8)
          int_dot_i8(rows, planes, o, outBytes, s, sum, sumStride, a, xBytes, plane, xb, b, panelBytes, n, k, group, gap);
        else
          int_dot_i8_emulated(rows, planes, o, outBytes, s, sum, sumStride, a, xBytes, plane, xb, b, panelBytes, n, k, group, gap);
        at += q8_block_bytes(block);
        sum += SUM_BYTES;
      }
    }
    return;
  }
  while (rows > 0) {
    const n = min(rows, STRIP_ROWS);
    const wide = n <= 2 ? 4 >> (n - 1) : 1;
    const initStep: usize = more ? <usize>PANEL_BYTES : 0;
    const initBytes: usize = more ? outBytes : 0;
    for (let p = 0; p < panels; ) {
      const step = wide <= panels - p ? wide : 1;
      const each = (panels - p) / step;
      const far = panelBytes * each;
      const oFar = <usize>each * PANEL_BYTES;
      const initFar = initStep * each;
      for (const end = p + each; p < end; p++) {
        const o = out + <usize>p * PANEL_BYTES;
        const init = more ? o : zeros;
        const s = scales + panelBytes * p;
        const b = weights + panelBytes * p;
        if (step == 4) int_dot_i16_1x32(o, oFar, init, initFar, s, x, xBlocks, b, far, count, group, gap);
        else if (step == 2)
          int_dot_i16_2x16(o, oFar, outBytes, init, initFar, initBytes, s, x, xBytes, xBlocks, b, far, count, group, gap);
        else int_dot_i16(n, o, outBytes, init, initBytes, s, x, xBytes, xBlocks, b, count, group, gap);
      }
      p += each * (step - 1);
    }
    rows -= n;
    out += outBytes * n;
    x += xBytes * n;
    if (fast) xBlocks += xBytes * n;
  }
}

/** out[rows, 8·panels] = 0. */
function clear_rows(out: F32Ptr, outBytes: usize, panels: i32, rows: i32): void {
  const bytes = <usize>panels * PANEL_BYTES;
  for (; rows > 0; rows--) {
    for (let at: usize = 0; at < bytes; at += 16) v128.store(out + at, f32x4.splat(0));
    out += outBytes;
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
