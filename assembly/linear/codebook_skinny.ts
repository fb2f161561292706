import { LINEAR_SCRATCH, PANEL_BYTES } from "../layout";
import { F32Ptr, U8Ptr } from "../types";
import { BLOCK_SHIFT } from "./block_layout";
import { codebook_bytes_of, entries_of, group_of, is_wide, scales_bytes, widen_scales } from "./codebook_layout";
import { PATH_I16 } from "./int_dot";
import { PATH_I8, PATH_I8_EMULATED } from "./int_dot_i8";
import { SMALL, WIDE } from "./int_dot_q4";
import { order_digits, ordered_bytes } from "./order_digits";
import { q4_dot_rows } from "./q4_skinny";

// A few integer rows by indices into a codebook: scales as float32, rows in the order of nibbles, and tiles (int_dot_q4.ts) in turn.
// Entries of MXFP4 and NVFP4, from -12 to 12, are raised to take the place of nibbles; those of IQ4 are int8, and digits are raised.

/** Panels that are read at a time for each plane of digits, as in q4_skinny.ts. */
const STREAMS = 4;

/** Inputs of each of them whose scales are widened before all rows pass: of more than four rows of digits few, which stay in a first-level cache. */
const SPAN = 512;
const SHORT_SPAN = 128;

/** Bytes at the beginning of scratch for scales: of 32 groups of 8 panels, or of 64 of 4. */
export const WIDENED: usize = 8192;

/** What is added to the entries of MXFP4 and NVFP4. */
const RAISED = 12;

/** q4_dot_rows by a number of planes, in groups of inputs. */
// @ts-ignore: decorator
@inline
function dot_codes(codes: i32, path: i32, rows: i32, planes: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, s: F32Ptr, sStride: usize, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, table: v128, panels: i32, groups: i32, group: i32): void {
  if (planes == 1) q4_dot_rows(codes, path, rows, 1, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, 0, table, panels, groups, group);
  else q4_dot_rows(codes, path, rows, 2, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, 0, table, panels, groups, group);
}

// A function each, so that what nibbles stand for and a path are constants in their tiles.

function small_i8(rows: i32, planes: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, s: F32Ptr, sStride: usize, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, table: v128, panels: i32, groups: i32, group: i32): void {
  dot_codes(SMALL, PATH_I8, rows, planes, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, table, panels, groups, group);
}

function wide_i8(rows: i32, planes: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, s: F32Ptr, sStride: usize, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, table: v128, panels: i32, groups: i32, group: i32): void {
  dot_codes(WIDE, PATH_I8, rows, planes, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, table, panels, groups, group);
}

function small_emulated(rows: i32, planes: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, s: F32Ptr, sStride: usize, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, table: v128, panels: i32, groups: i32, group: i32): void {
  dot_codes(SMALL, PATH_I8_EMULATED, rows, planes, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, table, panels, groups, group);
}

function wide_emulated(rows: i32, planes: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, s: F32Ptr, sStride: usize, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, table: v128, panels: i32, groups: i32, group: i32): void {
  dot_codes(WIDE, PATH_I8_EMULATED, rows, planes, c, cPanel, cStride, first, s, sStride, a, aStride, b, bStride, table, panels, groups, group);
}

/**
 * out[rows, 8·panels] = the add_scaled sums of a few rows, for weights as linear_codebook has them and rows of k integers in the form
 * of `path`, whose blocks begin at xBlocks where `planes` is 1. scratch: LINEAR_SCRATCH bytes.
 */
export function codebook_dot_skinny(
  path: i32,
  planes: i32,
  out: F32Ptr,
  outBytes: usize,
  x: U8Ptr,
  xBytes: usize,
  xBlocks: usize,
  w: U8Ptr,
  panels: i32,
  k: i32,
  rows: i32,
  type: i32,
  scratch: U8Ptr,
): void {
  const isWide = is_wide(type);
  const group = group_of(type);
  const panelBytes = codebook_bytes_of(type, k);
  const nibbles = w + scales_bytes(type, k);
  const table = isWide ? entries_of(type) : i8x16.add(entries_of(type), i8x16.splat(<i8>RAISED));
  // An odd number: parts that begin at multiples of a power of two would share a few sets of the caches.
  const each = ((panels + STREAMS * planes - 1) / (STREAMS * planes)) | 1;
  const cPanel = <usize>each * PANEL_BYTES;
  const bStride = panelBytes * each;
  const digits = scratch + WIDENED;
  const groupBytes = ordered_bytes(planes, group);
  const most = (((LINEAR_SCRATCH - <i32>WIDENED) / (<i32>groupBytes * rows)) * group) & -SPAN;
  const rowBytes = groupBytes * <usize>(min(most, k) / group);
  const span = rows * planes <= 4 ? SPAN : SHORT_SPAN;
  const sStride = <usize>(span / group) * PANEL_BYTES;
  for (let from = 0; from < k; from += most) {
    const count = min(most, k - from);
    for (let r = 0; r < rows; r++) {
      const at = x + xBytes * r + (<usize>from << (path == PATH_I16 ? 1 : 0));
      const blocks = xBlocks + xBytes * r + (<usize>from >> BLOCK_SHIFT);
      order_digits(path, planes, isWide ? 0 : RAISED, isWide, digits + rowBytes * r, at, k, blocks, count, group);
    }
    for (let p = 0; p < each; p++) {
      const n = (panels - p + each - 1) / each;
      const c = out + <usize>p * PANEL_BYTES;
      for (let i = 0; i < count; i += span) {
        const some = min(span, count - i);
        for (let q = 0; q < n; q++)
          widen_scales(scratch + sStride * q, type, w + panelBytes * (p + each * q), k, from + i, some);
        const first = from + i == 0;
        const a = digits + groupBytes * <usize>(i / group);
        const b = nibbles + panelBytes * p + (<usize>(from + i) << 2);
        const groups = some / group;
        if (path == PATH_I8) {
          if (isWide) wide_i8(rows, planes, c, cPanel, outBytes, first, scratch, sStride, a, rowBytes, b, bStride, table, n, groups, group);
          else small_i8(rows, planes, c, cPanel, outBytes, first, scratch, sStride, a, rowBytes, b, bStride, table, n, groups, group);
        } else if (isWide)
          wide_emulated(rows, planes, c, cPanel, outBytes, first, scratch, sStride, a, rowBytes, b, bStride, table, n, groups, group);
        else small_emulated(rows, planes, c, cPanel, outBytes, first, scratch, sStride, a, rowBytes, b, bStride, table, n, groups, group);
      }
    }
  }
}
