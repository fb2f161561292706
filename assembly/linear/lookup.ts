import { LONGEST_BLOCK, PANEL, PANEL_BYTES } from "../layout";
import { widen_f16_high, widen_f16_low, zip_high, zip_low } from "../math/half";
import { swizzle } from "../math/simd";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr, U8Ptr } from "../types";
import {
  BLOCK_SHIFT,
  gap_of,
  inputs_of,
  LOOKUP_GROUPS,
  LOOKUP_HEAD,
  LOOKUP_ROWS,
  panel_bytes,
  panel_sum_bytes,
  place_of,
  SCALES,
  summed_of,
} from "./block_layout";
import { FAST, PATH_I16, path_of } from "./int_dot";
import { add_scaled } from "./int_dot_i16";
import { make_tables, RAISED } from "./lookup_tables";
import { BLOCK_PANELS, KC, scale_rows, sum_products } from "./q8";
import { blocks_of, ROW_HEAD, row_bytes } from "./quantize_rows";
import { unpack_lookup } from "./unpack_lookup";
import { store_sums } from "./weight_sums";

// Weights of 1 and 2 bits. Four bits, the codes of four inputs or of two, are an index into a table of the sums that these inputs can
// give: a look-up for 16 outputs takes one instruction instead of four products. A block is 32 such groups of each of 8 outputs: 8 rows
// of 16 bytes, which hold two bytes of each output, the lower four bits of a byte before its upper four. Before each block stand 8
// scales of 16 bits, or before all of them 8 of 32.

/** Bytes of the tables of a block: for each group 16 sums of 16 bits, their lower bytes before their upper ones. */
const TABLES: usize = LOOKUP_GROUPS * 32;

/** Blocks whose tables are made at a time: 16 KB, which stay in a first-level cache. */
const CHUNK: i32 = 16;

/** Each row has tables of its own up to so many rows of 1 bit; of 2 bits up to half as many. */
const FEW_ROWS = 64;

const zeros = memory.data(32, 16);

// From memory: V8 makes constants anew at each use.
const NIBBLE = memory.data<u8>([15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15]);
const LOWER_UPPER = memory.data<i16>([1, 256, 1, 256, 1, 256, 1, 256]);

/**
 * The same as linear_q8 with blocks of 128, weights of 1 bit that are -1 or 1; or with blocks of 64, weights of 2 bits that are their
 * code less 1; or such with one scale a row, which are summed 1024 at a time (block 1024). w is packed as pack_lookup does. scratch: LINEAR_SCRATCH bytes
 * (layout.ts), 16-byte aligned.
 */
export function linear_lookup(
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
  assert(panels > 0 && k > 0 && k % inputs_of(block) == 0, "linear_lookup: panels must be positive, and k whole blocks");
  assert(s.outStride >= panels * PANEL, "linear_lookup: the stride must hold a row");
  const rows = end - begin;
  const outBytes = <usize>s.outStride << 2;
  const xBytes = row_bytes(k);
  const panelBytes = place_of(k, block);
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  if (rows * LONGEST_BLOCK <= FEW_ROWS * inputs_of(block))
    for (let r = 0; r < rows; r++)
      sum_row(out + outBytes * r, x + xBytes * r, w, panelBytes, panels, k, block, mode, scratch);
  else {
    const path = path_of(mode);
    const blocks = blocks_of(x, k, mode);
    const sums = scratch + panel_bytes(KC, LONGEST_BLOCK / 2) * BLOCK_PANELS;
    for (let p = 0; p < panels; p += BLOCK_PANELS) {
      const n = min(BLOCK_PANELS, panels - p);
      for (let i = 0; i < k; i += KC) {
        const count = min(KC, k - i);
        // Inputs that share scales, of weights and of x.
        const each = mode & FAST ? summed_of(block) : min(block, count);
        const from = w + panelBytes * p;
        for (let q = 0; q < n; q++) {
          const panel = scratch + panel_bytes(count, each) * q;
          unpack_lookup(panel, from + panelBytes * q, i, count, block, each);
          store_sums(sums + panel_sum_bytes(count, each) * q, panel + SCALES, count, summed_of(each), gap_of(each));
        }
        const o = out + <usize>p * PANEL_BYTES;
        const integers = x + ROW_HEAD + (<usize>i << (path == PATH_I16 ? 1 : 0));
        const xBlocks = blocks ? blocks + (<usize>i >> BLOCK_SHIFT) : 0;
        sum_products(o, outBytes, i > 0, integers, xBytes, k, xBlocks, scratch, sums, count, each, n, 0, count, mode, rows);
      }
    }
  }
  scale_rows(out, outBytes, x, xBytes, bias, panels, rows);
}

/** out[8·panels] = the sums of one row. Two panels are read at a time, of which one is half of the matrix behind the other. */
function sum_row(
  out: F32Ptr,
  x: U8Ptr,
  w: U8Ptr,
  panelBytes: usize,
  panels: i32,
  k: i32,
  block: i32,
  mode: i32,
  scratch: U8Ptr,
): void {
  const path = path_of(mode);
  const planes = mode & FAST ? 1 : 2;
  const blocks = blocks_of(x, k, mode);
  x += ROW_HEAD;
  const each = (panels + 1) / 2;
  const whole = block > LONGEST_BLOCK;
  const inputs = inputs_of(block);
  const nothing = scratch + TABLES * CHUNK;
  for (let i = 0; i < k; i += inputs * CHUNK) {
    const count = min(inputs * CHUNK, k - i);
    const xBlocks = blocks + (<usize>i >> BLOCK_SHIFT);
    make_tables(scratch, x + (<usize>i << (path == PATH_I16 ? 1 : 0)), path, planes, k, xBlocks, count, inputs);
    const at = place_of(i, block);
    for (let p = 0; p < each; p++) {
      const q = p + each < panels ? p + each : p;
      const c0 = out + <usize>p * PANEL_BYTES;
      const c1 = q == p ? nothing : out + <usize>q * PANEL_BYTES;
      const s0 = w + panelBytes * p;
      const s1 = w + panelBytes * q;
      const n = count / inputs;
      if (planes == 1) look_up_1x16(1, whole, c0, c1, i == 0, scratch, xBlocks, inputs, s0, s1, s0 + at, s1 + at, n);
      else look_up_1x16(2, whole, c0, c1, i == 0, scratch, 0, inputs, s0, s1, s0 + at, s1 + at, n);
    }
  }
}

/**
 * C[2][8] (+)= Σ scales[2][8] · the sums of a block, for blocks one after the other, of which the first may start from 0. Where `whole`,
 * a row has one scale, and blocks of two planes are up to 1024 inputs. `planes` is a constant: with one, each `inputs` of x have a scale,
 * at xBlocks, and upper bytes are from -2 to 1.
 *
 * 14 v128: lower, lowerOdd, upper, upperOdd = 4 | a, b, index, look-up, sixteen, mask
 * T tables of 32 groups a block · B two panels · outputs 0 to 3 are the even bytes of eight, 4 to 7 the odd ones
 * 16 bits hold the sums of 32 bytes · sums of a block are exact
 */
// @ts-ignore: decorator
@inline
function look_up_1x16(
  planes: i32,
  whole: bool,
  c0: F32Ptr,
  c1: F32Ptr,
  first: bool,
  t: U8Ptr,
  xBlocks: usize,
  inputs: i32,
  scales0: F32Ptr,
  scales1: F32Ptr,
  b0: U8Ptr,
  b1: U8Ptr,
  blocks: i32,
): void {
  const mask = v128.load(NIBBLE);
  let acc00 = i32x4.splat(0);
  let acc01 = acc00;
  let acc10 = acc00;
  let acc11 = acc00;
  for (; blocks > 0; blocks--) {
    const halves0 = v128.load(b0);
    const halves1 = v128.load(b1);
    let lower = i32x4.splat(0);
    let lowerOdd = i32x4.splat(0);
    let upper = i32x4.splat(0);
    let upperOdd = i32x4.splat(0);
    if (!whole) {
      b0 += LOOKUP_HEAD;
      b1 += LOOKUP_HEAD;
    }
    for (const end = b0 + LOOKUP_ROWS; b0 < end; b0 += 16) {
      const row0 = v128.load(b0);
      const row1 = v128.load(b1);
      const bytes0 = v128.shuffle<i64>(row0, row1, 0, 2);
      const bytes1 = v128.shuffle<i64>(row0, row1, 1, 3);
      let index = v128.and(bytes0, mask);
      let found = swizzle(v128.load(t), index);
      lower = i16x8.add(lower, found);
      lowerOdd = i16x8.add(lowerOdd, i16x8.shr_u(found, 8));
      found = swizzle(v128.load(t, 16), index);
      upper = planes == 1 ? i8x16.add(upper, found) : i16x8.add(upper, found);
      if (planes == 2) upperOdd = i16x8.add(upperOdd, i16x8.shr_u(found, 8));
      index = v128.and(i16x8.shr_u(bytes0, 4), mask);
      found = swizzle(v128.load(t, 32), index);
      lower = i16x8.add(lower, found);
      lowerOdd = i16x8.add(lowerOdd, i16x8.shr_u(found, 8));
      found = swizzle(v128.load(t, 48), index);
      upper = planes == 1 ? i8x16.add(upper, found) : i16x8.add(upper, found);
      if (planes == 2) upperOdd = i16x8.add(upperOdd, i16x8.shr_u(found, 8));
      index = v128.and(bytes1, mask);
      found = swizzle(v128.load(t, 64), index);
      lower = i16x8.add(lower, found);
      lowerOdd = i16x8.add(lowerOdd, i16x8.shr_u(found, 8));
      found = swizzle(v128.load(t, 80), index);
      upper = planes == 1 ? i8x16.add(upper, found) : i16x8.add(upper, found);
      if (planes == 2) upperOdd = i16x8.add(upperOdd, i16x8.shr_u(found, 8));
      index = v128.and(i16x8.shr_u(bytes1, 4), mask);
      found = swizzle(v128.load(t, 96), index);
      lower = i16x8.add(lower, found);
      lowerOdd = i16x8.add(lowerOdd, i16x8.shr_u(found, 8));
      found = swizzle(v128.load(t, 112), index);
      upper = planes == 1 ? i8x16.add(upper, found) : i16x8.add(upper, found);
      if (planes == 2) upperOdd = i16x8.add(upperOdd, i16x8.shr_u(found, 8));
      b1 += 16;
      t += 128;
    }
    if (planes == 1) upperOdd = i16x8.shr_s(upper, 8);
    const lowerEven = i16x8.sub(lower, i16x8.shl(lowerOdd, 8));
    const upperEven = planes == 1 ? i16x8.shr_s(i16x8.shl(upper, 8), 8) : i16x8.sub(upper, i16x8.shl(upperOdd, 8));
    const both = v128.load(LOWER_UPPER);
    const less = i32x4.splat(planes == 1 ? 0 : RAISED * LOOKUP_GROUPS);
    const sum00 = i32x4.sub(i32x4.dot_i16x8_s(zip_low(lowerEven, upperEven), both), less);
    const sum01 = i32x4.sub(i32x4.dot_i16x8_s(zip_low(lowerOdd, upperOdd), both), less);
    const sum10 = i32x4.sub(i32x4.dot_i16x8_s(zip_high(lowerEven, upperEven), both), less);
    const sum11 = i32x4.sub(i32x4.dot_i16x8_s(zip_high(lowerOdd, upperOdd), both), less);
    if (planes == 1) {
      const scale = v128.load32_splat(xBlocks);
      xBlocks += inputs >> BLOCK_SHIFT;
      add_scaled_1x8(c0, first, sum00, sum01, scaled_by(whole, scales0, halves0, 0, scale), scaled_by(whole, scales0, halves0, 1, scale));
      add_scaled_1x8(c1, first, sum10, sum11, scaled_by(whole, scales1, halves1, 0, scale), scaled_by(whole, scales1, halves1, 1, scale));
      first = false;
    } else if (whole) {
      acc00 = i32x4.add(acc00, sum00);
      acc01 = i32x4.add(acc01, sum01);
      acc10 = i32x4.add(acc10, sum10);
      acc11 = i32x4.add(acc11, sum11);
    } else {
      add_scaled_1x8(c0, first, sum00, sum01, widen_f16_low(halves0), widen_f16_high(halves0));
      add_scaled_1x8(c1, first, sum10, sum11, widen_f16_low(halves1), widen_f16_high(halves1));
      first = false;
    }
  }
  if (planes == 2 && whole) {
    add_scaled_1x8(c0, first, acc00, acc01, v128.load(scales0), v128.load(scales0, 16));
    add_scaled_1x8(c1, first, acc10, acc11, v128.load(scales1), v128.load(scales1, 16));
  }
}

/** Four scales, those of a row or of a block, times that of x. */
// @ts-ignore: decorator
@inline
function scaled_by(whole: bool, ofRow: F32Ptr, ofBlock: v128, half: usize, scale: v128): v128 {
  if (whole) return f32x4.mul(v128.load(ofRow + (half << 4)), scale);
  return f32x4.mul(half ? widen_f16_high(ofBlock) : widen_f16_low(ofBlock), scale);
}

/** C[8] (+)= scales[8] · sums[8]. */
// @ts-ignore: decorator
@inline
function add_scaled_1x8(c: F32Ptr, first: bool, sum0: v128, sum1: v128, scale0: v128, scale1: v128): void {
  const init = first ? zeros : c;
  add_scaled(c, init, sum0, scale0);
  add_scaled(c + 16, init + 16, sum1, scale1);
}
