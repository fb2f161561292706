import { BLOCK, LINEAR_SCRATCH, PANEL_BYTES, Q4_K_BYTES, SUPER_BLOCK } from "../layout";
import { F32Ptr, U8Ptr } from "../types";
import { BLOCK_SHIFT, Q4_K_NIBBLES, Q4_K_SCALES } from "./block_layout";
import { PATH_I16 } from "./int_dot";
import { PATH_I8, PATH_I8_EMULATED } from "./int_dot_i8";
import { dot_nibbles, NIBBLE } from "./int_dot_q4";
import { add_block, add_super, BLOCKS, q4_k_dot_nx8, scale_at, scale_high, scale_low, super_bytes } from "./int_dot_q4_k";
import { order_digits, ordered_bytes } from "./order_digits";

// A few integer rows by super-blocks of 4 bits: rows in the order of nibbles, and tiles (int_dot_q4_k.ts) in turn.

/** Panels that are read at a time, a super-block of each after the other: each is the next one of a part of the matrix of its own. */
const STREAMS = 4;

/** Bytes of the totals of a tile. */
const TOTALS: usize = 128;

/** sum + the products of eight digits of a column and the nibbles of 16 bytes. */
// @ts-ignore: decorator
@inline
function dot_eight(path: i32, low: v128, high: v128, nibbles: v128, mask: v128, sum: v128): v128 {
  sum = dot_nibbles(path, low, v128.and(nibbles, mask), sum);
  return dot_nibbles(path, high, v128.and(i16x8.shr_u(nibbles, 4), mask), sum);
}

/**
 * q4_k_dot_nx8 for one row of one plane by two panels, which are bStride apart, as are their C by cPanel: digits are loaded once.
 *
 * 1x16 tile, 13 v128: acc00..acc03 = 4 | totals = 4 | low high = 2 | b0, product, mask = 3
 */
// @ts-ignore: decorator
@inline
function q4_k_dot_1x16(
  path: i32,
  c: F32Ptr,
  cPanel: usize,
  first: bool,
  a: U8Ptr,
  b: U8Ptr,
  bStride: usize,
  supers: i32,
): void {
  const mask = v128.load(NIBBLE);
  for (; supers > 0; supers--) {
    let aPtr0 = a + 16;
    let total00 = i32x4.splat(0);
    let total01 = total00;
    let total02 = total00;
    let total03 = total00;
    let bPtr0 = b + Q4_K_NIBBLES;
    let bPtr1 = bPtr0 + bStride;
    let scales = b + Q4_K_SCALES;
    for (const end = scales + BLOCKS * 8; scales < end; scales += 8) {
      let low = v128.load(aPtr0, 16);
      let high = v128.load(aPtr0, 32);
      const zero = i32x4.splat(0);
      let acc00 = dot_eight(path, low, high, v128.load(bPtr0), mask, zero);
      let acc01 = dot_eight(path, low, high, v128.load(bPtr0, 16), mask, zero);
      let acc02 = dot_eight(path, low, high, v128.load(bPtr1), mask, zero);
      let acc03 = dot_eight(path, low, high, v128.load(bPtr1, 16), mask, zero);
      low = v128.load(aPtr0, 48);
      high = v128.load(aPtr0, 64);
      acc00 = dot_eight(path, low, high, v128.load(bPtr0, 32), mask, acc00);
      acc01 = dot_eight(path, low, high, v128.load(bPtr0, 48), mask, acc01);
      acc02 = dot_eight(path, low, high, v128.load(bPtr1, 32), mask, acc02);
      acc03 = dot_eight(path, low, high, v128.load(bPtr1, 48), mask, acc03);
      low = v128.load(aPtr0, 80);
      high = v128.load(aPtr0, 96);
      acc00 = dot_eight(path, low, high, v128.load(bPtr0, 64), mask, acc00);
      acc01 = dot_eight(path, low, high, v128.load(bPtr0, 80), mask, acc01);
      acc02 = dot_eight(path, low, high, v128.load(bPtr1, 64), mask, acc02);
      acc03 = dot_eight(path, low, high, v128.load(bPtr1, 80), mask, acc03);
      low = v128.load(aPtr0, 112);
      high = v128.load(aPtr0, 128);
      acc00 = dot_eight(path, low, high, v128.load(bPtr0, 96), mask, acc00);
      acc01 = dot_eight(path, low, high, v128.load(bPtr0, 112), mask, acc01);
      acc02 = dot_eight(path, low, high, v128.load(bPtr1, 96), mask, acc02);
      acc03 = dot_eight(path, low, high, v128.load(bPtr1, 112), mask, acc03);
      aPtr0 += 160;
      bPtr0 += BLOCK * 4;
      bPtr1 += BLOCK * 4;
      let eight = v128.load8x8_u(scales);
      total00 = add_block(path, 1, total00, scale_low(path, eight), acc00, acc00);
      total01 = add_block(path, 1, total01, scale_high(path, eight), acc01, acc01);
      eight = v128.load8x8_u(scales + bStride);
      total02 = add_block(path, 1, total02, scale_low(path, eight), acc02, acc02);
      total03 = add_block(path, 1, total03, scale_high(path, eight), acc03, acc03);
    }
    add_super(1, c, first, b, a, scale_at(a), total00, total01);
    add_super(1, c + cPanel, first, b + bStride, a, scale_at(a), total02, total03);
    first = false;
    a += super_bytes(1);
    b += Q4_K_BYTES;
  }
}

/** q4_k_dot_nx8 for any number of rows; `path` and `planes` are constants. */
// @ts-ignore: decorator
@inline
function dot_rows(
  path: i32,
  rows: i32,
  planes: i32,
  c: F32Ptr,
  cPanel: usize,
  cStride: usize,
  first: bool,
  a: U8Ptr,
  aStride: usize,
  b: U8Ptr,
  bStride: usize,
  panels: i32,
  supers: i32,
  totals: U8Ptr,
): void {
  while (rows > 0) {
    const digits = min(rows * planes, 4);
    if (digits == 4) q4_k_dot_nx8(path, 4, planes, c, cPanel, cStride, first, a, aStride, b, bStride, panels, supers, totals);
    else if (planes == 1 && digits == 3)
      q4_k_dot_nx8(path, 3, 1, c, cPanel, cStride, first, a, aStride, b, bStride, panels, supers, totals);
    else if (planes == 2 || digits == 2)
      q4_k_dot_nx8(path, 2, planes, c, cPanel, cStride, first, a, aStride, b, bStride, panels, supers, totals);
    else
      for (let p = 0; p < panels; p += 2) {
        // A panel that is left is multiplied twice, the second time for nothing.
        const o = c + cPanel * p;
        const two = p + 1 < panels;
        q4_k_dot_1x16(path, o, two ? cPanel : totals + 64 - o, first, a, b + bStride * p, two ? bStride : 0, supers);
      }
    const taken = digits / planes;
    rows -= taken;
    c += cStride * taken;
    a += aStride * taken;
  }
}

// A function each, so that a path and its number of planes are constants in their tiles.

function fast_i8(rows: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, supers: i32, totals: U8Ptr): void {
  dot_rows(PATH_I8, rows, 1, c, cPanel, cStride, first, a, aStride, b, bStride, panels, supers, totals);
}

function exact_i8(rows: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, supers: i32, totals: U8Ptr): void {
  dot_rows(PATH_I8, rows, 2, c, cPanel, cStride, first, a, aStride, b, bStride, panels, supers, totals);
}

function fast_emulated(rows: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, supers: i32, totals: U8Ptr): void {
  dot_rows(PATH_I8_EMULATED, rows, 1, c, cPanel, cStride, first, a, aStride, b, bStride, panels, supers, totals);
}

function exact_emulated(rows: i32, c: F32Ptr, cPanel: usize, cStride: usize, first: bool, a: U8Ptr, aStride: usize, b: U8Ptr, bStride: usize, panels: i32, supers: i32, totals: U8Ptr): void {
  dot_rows(PATH_I8_EMULATED, rows, 2, c, cPanel, cStride, first, a, aStride, b, bStride, panels, supers, totals);
}

/**
 * out[rows, 8·panels] = the sums of a few rows, before their own scales count, for weights as linear_q4_k has them and rows of k
 * integers in the form of `path`, whose blocks begin at xBlocks where `planes` is 1. scratch: LINEAR_SCRATCH bytes.
 */
export function q4_k_dot_skinny(
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
  scratch: U8Ptr,
): void {
  const panelBytes = <usize>(k / SUPER_BLOCK) * Q4_K_BYTES;
  // An odd number: parts that begin at multiples of a power of two would share a few sets of the caches.
  const each = ((panels + STREAMS - 1) / STREAMS) | 1;
  const cPanel = <usize>each * PANEL_BYTES;
  const bStride = panelBytes * each;
  const digits = scratch + TOTALS;
  const superBytes = super_bytes(planes);
  const most = (LINEAR_SCRATCH - <i32>TOTALS) / (<i32>superBytes * rows);
  const rowBytes = superBytes * <usize>min(most, k / SUPER_BLOCK);
  for (let from = 0; from < k; from += most * SUPER_BLOCK) {
    const supers = min(most, (k - from) / SUPER_BLOCK);
    for (let r = 0; r < rows; r++) {
      const at = x + xBytes * r + (<usize>from << (path == PATH_I16 ? 1 : 0));
      order_row(path, planes, digits + rowBytes * r, at, k, xBlocks + xBytes * r + (<usize>from >> BLOCK_SHIFT), supers);
    }
    for (let p = 0; p < each; p++) {
      const n = (panels - p + each - 1) / each;
      const c = out + <usize>p * PANEL_BYTES;
      const b = w + panelBytes * p + <usize>(from / SUPER_BLOCK) * Q4_K_BYTES;
      if (path == PATH_I8) {
        if (planes == 1) fast_i8(rows, c, cPanel, outBytes, from == 0, digits, rowBytes, b, bStride, n, supers, scratch);
        else exact_i8(rows, c, cPanel, outBytes, from == 0, digits, rowBytes, b, bStride, n, supers, scratch);
      } else if (planes == 1)
        fast_emulated(rows, c, cPanel, outBytes, from == 0, digits, rowBytes, b, bStride, n, supers, scratch);
      else exact_emulated(rows, c, cPanel, outBytes, from == 0, digits, rowBytes, b, bStride, n, supers, scratch);
    }
  }
}

/** `supers` super-blocks of a row in the order of nibbles: before each, the sums of its blocks, where there are two planes those of both. */
function order_row(path: i32, planes: i32, to: U8Ptr, x: U8Ptr, plane: usize, xBlocks: usize, supers: i32): void {
  for (; supers > 0; supers--) {
    const blocks = to + (<usize>planes << 4);
    // Blocks begin with minus the sums of their digits.
    order_digits(path, planes, 1, false, blocks, x, plane, xBlocks, SUPER_BLOCK, BLOCK);
    for (let i: usize = 0; i < <usize>(SUPER_BLOCK / BLOCK); i++)
      for (let j: usize = 0; j < <usize>planes << 4; j += 16) {
        const sums = blocks + ordered_bytes(planes, BLOCK) * i + j;
        const both = path == PATH_I8 ? load<i32>(sums) : <i32>load<i16>(sums) + <i32>load<i16>(sums, 2);
        store<i16>(to + (i << 1) + j, <i16>-both);
      }
    to += super_bytes(planes);
    xBlocks += SUPER_BLOCK >> BLOCK_SHIFT;
    x += <usize>SUPER_BLOCK << (path == PATH_I16 ? 1 : 0);
  }
}
