import { BLOCK, LINEAR_SCRATCH, PANEL_BYTES } from "../layout";
import { F32Ptr, U8Ptr } from "../types";
import { BLOCK_SHIFT, Q4_BLOCK_BYTES, SCALES } from "./block_layout";
import { PATH_I16 } from "./int_dot";
import { PATH_I8, PATH_I8_EMULATED } from "./int_dot_i8";
import { PLAIN, q4_dot_nx8 } from "./int_dot_q4";
import { order_digits, ordered_bytes } from "./order_digits";

// A few integer rows by weights of 4 bits: rows in the order of nibbles, and tiles (int_dot_q4.ts) in turn.

/**
 * Panels that are read at a time for each plane of digits, a block of each after the other: each is the next one of a part
 * of the matrix of its own, because a stream waits for memory where it begins.
 */
const STREAMS = 4;
/** Blocks of each of them that all rows pass before the next: 5 KB, which stay in a first-level cache. */
const SPAN = 4;

/** q4_dot_nx8 for any number of rows; `codes`, `path` and `planes` are constants. */
// @ts-ignore: decorator
@inline
export function q4_dot_rows(
  codes: i32,
  path: i32,
  rows: i32,
  planes: i32,
  c: F32Ptr,
  cPanel: usize,
  cStride: usize,
  first: bool,
  s: F32Ptr,
  sStride: usize,
  a: U8Ptr,
  aStride: usize,
  b: U8Ptr,
  bStride: usize,
  gap: usize,
  table: v128,
  panels: i32,
  groups: i32,
  group: i32,
): void {
  while (rows > 0) {
    let digits = min(rows * planes, 4);
    // Tables have no tile of three rows.
    if (codes != PLAIN && digits == 3) digits = 2;
    if (digits == 4)
      q4_dot_nx8(codes, path, 4, planes, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, gap, table, panels, groups, group);
    else if (codes == PLAIN && planes == 1 && digits == 3)
      q4_dot_nx8(codes, path, 3, 1, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, gap, table, panels, groups, group);
    else if (planes == 2 || digits == 2)
      q4_dot_nx8(codes, path, 2, planes, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, gap, table, panels, groups, group);
    else
      q4_dot_nx8(codes, path, 1, 1, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, gap, table, panels, groups, group);
    const taken = digits / planes;
    rows -= taken;
    c += cStride * taken;
    a += aStride * taken;
  }
}

/** q4_dot_rows of nibbles that stand for themselves. */
// @ts-ignore: decorator
@inline
function dot_plain(path: i32, rows: i32, planes: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, blocks: i32): void {
  q4_dot_rows(PLAIN, path, rows, planes, c, cPanel, cStride, first, b, bStride, a, aStride, b + SCALES, bStride, SCALES, i32x4.splat(0), panels, blocks, BLOCK);
}

// A function each, so that a path and its number of planes are constants in their tiles.

function fast_i8(rows: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, blocks: i32): void {
  dot_plain(PATH_I8, rows, 1, c, cPanel, cStride, first, a, aStride, b, bStride, panels, blocks);
}

function exact_i8(rows: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, blocks: i32): void {
  dot_plain(PATH_I8, rows, 2, c, cPanel, cStride, first, a, aStride, b, bStride, panels, blocks);
}

function fast_emulated(rows: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, blocks: i32): void {
  dot_plain(PATH_I8_EMULATED, rows, 1, c, cPanel, cStride, first, a, aStride, b, bStride, panels, blocks);
}

function exact_emulated(rows: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, blocks: i32): void {
  dot_plain(PATH_I8_EMULATED, rows, 2, c, cPanel, cStride, first, a, aStride, b, bStride, panels, blocks);
}

/**
 * out[rows, 8·panels] = the add_scaled sums of a few rows, for weights as linear_q4 has them and rows of `length` integers in
 * the form of `path`, whose blocks begin at xBlocks where `planes` is 1. scratch: LINEAR_SCRATCH bytes.
 */
export function q4_dot_skinny(
  path: i32,
  planes: i32,
  out: F32Ptr,
  outBytes: usize,
  x: U8Ptr,
  xBytes: usize,
  xBlocks: usize,
  w: U8Ptr,
  panels: i32,
  length: i32,
  rows: i32,
  zero: i32,
  scratch: U8Ptr,
): void {
  const panelBytes = <usize>(length / BLOCK) * Q4_BLOCK_BYTES;
  // An odd number: parts that begin at multiples of a power of two would share a few sets of the caches.
  const each = ((panels + STREAMS * planes - 1) / (STREAMS * planes)) | 1;
  const cPanel = <usize>each * PANEL_BYTES;
  const bStride = panelBytes * each;
  const blockBytes = ordered_bytes(planes, BLOCK);
  const most = LINEAR_SCRATCH / (<i32>blockBytes * rows);
  const rowBytes = blockBytes * <usize>min(most, length / BLOCK);
  for (let from = 0; from < length; from += most * BLOCK) {
    const count = min(most * BLOCK, length - from);
    for (let r = 0; r < rows; r++) {
      const at = x + xBytes * r + (<usize>from << (path == PATH_I16 ? 1 : 0));
      const blocks = xBlocks + xBytes * r + (<usize>from >> BLOCK_SHIFT);
      order_digits(path, planes, zero, false, scratch + rowBytes * r, at, length, blocks, count, BLOCK);
    }
    const blocks = count / BLOCK;
    const span = rows * planes <= 4 ? blocks : SPAN;
    for (let p = 0; p < each; p++) {
      const n = (panels - p + each - 1) / each;
      const c = out + <usize>p * PANEL_BYTES;
      const panel = w + panelBytes * p + <usize>(from / BLOCK) * Q4_BLOCK_BYTES;
      for (let i = 0; i < blocks; i += span) {
        const first = from + i == 0;
        const a = scratch + blockBytes * i;
        const b = panel + <usize>i * Q4_BLOCK_BYTES;
        const some = min(span, blocks - i);
        if (path == PATH_I8) {
          if (planes == 1) fast_i8(rows, c, cPanel, outBytes, first, a, rowBytes, b, bStride, n, some);
          else exact_i8(rows, c, cPanel, outBytes, first, a, rowBytes, b, bStride, n, some);
        } else if (planes == 1) fast_emulated(rows, c, cPanel, outBytes, first, a, rowBytes, b, bStride, n, some);
        else exact_emulated(rows, c, cPanel, outBytes, first, a, rowBytes, b, bStride, n, some);
      }
    }
  }
}
