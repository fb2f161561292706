import { BLOCK, GGML_IQ4_XS, PANEL, PANEL_BYTES, SUPER_BLOCK } from "../layout";
import { dot_i16, has_byte_dots, swizzle } from "../math/simd";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr, U8Ptr } from "../types";
import { BLOCK_SHIFT, panel_bytes, q8_block_bytes, SCALES } from "./block_layout";
import { codebook_bytes_of, entries_of, group_of, is_wide, scales_bytes, widen_scales } from "./codebook_layout";
import { codebook_dot_skinny, WIDENED } from "./codebook_skinny";
import { FAST, path_of } from "./int_dot";
import { NIBBLE } from "./int_dot_q4";
import { add_scaled } from "./int_dot_i16";
import { offset_of } from "./q4";
import { KC, scale_rows, sum_products } from "./q8";
import { blocks_of, ROW_HEAD, row_bytes } from "./quantize_rows";

/** Up to so many rows, weights are unpacked a panel at a time; of more, so many panels, for which there is room beside their scales. */
const FEW_ROWS = 4;
const BLOCK_PANELS = 8;

/**
 * So many rows at a time are multiplied by products of bytes where weights are packed, fewer where entries are int8. On the path of i16
 * pairs, more rows are multiplied as pairs, which is faster.
 */
const SKINNY_ROWS = 8;
const WIDE_ROWS = 2;

/** What is added to entries that are multiplied as pairs where weights are packed: none is below 0 then. */
const RAISED = 128;

/** Panels that a single row reads at a time: each is the next one of a part of the matrix of its own. */
const STREAMS = 4;

/** Inputs whose scales are widened at a time for them: 8 KB. */
const SPAN = 1024;

const zeros = memory.data(32, 16);
// From memory: V8 makes constants anew at each use.
const LOWER = memory.data<u16>([255, 255, 255, 255, 255, 255, 255, 255]);

/**
 * The same as linear_q8 for weights that are indices of 4 bits into the 16 int8 of a codebook, with scales as GGUF's IQ4_NL, IQ4_XS, MXFP4
 * or NVFP4 have them, of which shape.type is one: a group are 32 inputs, of NVFP4 16. w is packed [panels] of scales
 * (codebook_layout.ts) and [K / 32] nibbles as linear_q4 has them. scratch: LINEAR_SCRATCH bytes (layout.ts), 16-byte aligned.
 */
export function linear_codebook(
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
  const mode = s.mode;
  const type = s.type;
  assert(panels > 0 && k > 0, "linear_codebook: panels and k must be positive");
  assert(k % (type == GGML_IQ4_XS ? SUPER_BLOCK : BLOCK) == 0, "linear_codebook: k must be whole blocks");
  assert(s.outStride >= panels * PANEL, "linear_codebook: the stride must hold a row");
  const rows = end - begin;
  const outBytes = <usize>s.outStride << 2;
  const xBytes = row_bytes(k);
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  const integers = x + ROW_HEAD;
  const blocks = blocks_of(x, k, mode);
  const panelBytes = codebook_bytes_of(type, k);
  if (has_byte_dots() && (rows <= (is_wide(type) ? WIDE_ROWS : SKINNY_ROWS) || mode != 0)) {
    const planes = mode & FAST ? 1 : 2;
    for (let r = 0; r < rows; r += SKINNY_ROWS) {
      const n = min(SKINNY_ROWS, rows - r);
      codebook_dot_skinny(path_of(mode), planes, out + outBytes * r, outBytes, integers + xBytes * r, xBytes, blocks + xBytes * r, w, panels, k, n, type, scratch);
    }
  } else if (rows == 1 && mode == 0) {
    const each = (panels + STREAMS - 1) / STREAMS;
    const oStep = <usize>each * PANEL_BYTES;
    for (let p = 0; p < each; p++)
      sum_row(out + <usize>p * PANEL_BYTES, oStep, integers, w + panelBytes * p, panelBytes * each, (panels - p + each - 1) / each, k, type, scratch);
  } else {
    const block = group_of(type);
    const step = rows <= FEW_ROWS ? 1 : BLOCK_PANELS;
    const unpacked = scratch + WIDENED;
    for (let p = 0; p < panels; p += step) {
      const n = min(step, panels - p);
      for (let i = 0; i < k; i += KC) {
        const count = min(KC, k - i);
        for (let q = 0; q < n; q++) unpack(unpacked + panel_bytes(count, block) * q, w + panelBytes * (p + q), k, type, i, count, scratch);
        const xBlocks = blocks ? blocks + (<usize>i >> BLOCK_SHIFT) : 0;
        sum_products(out + <usize>p * PANEL_BYTES, outBytes, i > 0, integers + (<usize>i << 1), xBytes, k, xBlocks, unpacked, 0, count, block, n, 0, count, mode, rows);
      }
    }
  }
  scale_rows(out, outBytes, x, xBytes, bias, panels, rows);
}

/** The inputs from..from+count of a panel as linear_q8 has it. */
function unpack(to: U8Ptr, panel: U8Ptr, k: i32, type: i32, from: i32, count: i32, scales: F32Ptr): void {
  widen_scales(scales, type, panel, k, from, count);
  const table = entries_of(type);
  const mask = i8x16.splat(15);
  const group = group_of(type);
  let nibbles = panel + scales_bytes(type, k) + (<usize>from << 2);
  for (; count > 0; count -= group) {
    v128.store(to, v128.load(scales));
    v128.store(to, v128.load(scales, 16), 16);
    scales += PANEL_BYTES;
    const next = to + q8_block_bytes(group);
    for (to += SCALES; to < next; to += 64) {
      const both0 = v128.load(nibbles);
      const both1 = v128.load(nibbles, 16);
      const low0 = swizzle(table, v128.and(both0, mask));
      const low1 = swizzle(table, v128.and(both1, mask));
      const high0 = swizzle(table, v128.and(i16x8.shr_u(both0, 4), mask));
      const high1 = swizzle(table, v128.and(i16x8.shr_u(both1, 4), mask));
      v128.store(to, even_of(low0, low1));
      v128.store(to, even_of(high0, high1), 16);
      v128.store(to, odd_of(low0, low1), 32);
      v128.store(to, odd_of(high0, high1), 48);
      nibbles += 32;
    }
  }
}

/** The even bytes of a and b. */
// @ts-ignore: decorator
@inline
function even_of(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

/** The odd ones. */
// @ts-ignore: decorator
@inline
function odd_of(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

/** out[8·panels] = the sums of one row by up to STREAMS panels, a group of each after the other. */
function sum_row(
  out: F32Ptr,
  outStep: usize,
  x: U8Ptr,
  w: U8Ptr,
  wStep: usize,
  panels: i32,
  k: i32,
  type: i32,
  scratch: U8Ptr,
): void {
  const group = group_of(type);
  const table = i8x16.add(entries_of(type), i8x16.splat(<i8>RAISED));
  const sStep = <usize>(SPAN / group) * PANEL_BYTES;
  let nibbles = w + scales_bytes(type, k);
  for (let i = 0; i < k; i += SPAN) {
    const count = min(SPAN, k - i);
    for (let p = 0; p < panels; p++) widen_scales(scratch + sStep * p, type, w + wStep * p, k, i, count);
    let scales = scratch;
    for (let j = i; j < i + count; j += group) {
      const offset = offset_of(x, RAISED, group);
      let o = out;
      for (let p = 0; p < panels; p++) {
        dot_1x8(o, j > 0 ? o : zeros, x, nibbles + wStep * p, scales + sStep * p, table, offset, group);
        o += outStep;
      }
      x += <usize>group << 1;
      nibbles += <usize>group << 2;
      scales += PANEL_BYTES;
    }
  }
}

/**
 * C[8] = init[8] + scales[8] · (offset + A[group] · table[nibbles[group, 8]]) for a table of bytes without a sign.
 *
 * 1x8 tile, 12 v128: acc00 acc01 = 2 | low or high, product = 2 | a0..a3 = 4 | mask, lower, table, offset = 4
 * A [group] int16 · B group / 8 steps of two rows: columns 0 to 3, then 4 to 7, inputs 0 and 4, 1 and 5, 2 and 6, 3 and 7 a byte each
 * C, init [8] · 8 k a step, two a product · the sum is exact
 */
// @ts-ignore: decorator
@inline
function dot_1x8(c: F32Ptr, init: F32Ptr, aPtr0: U8Ptr, bPtr0: U8Ptr, scales: F32Ptr, table: v128, offset: v128, group: i32): void {
  const mask = v128.load(NIBBLE);
  const lower = v128.load(LOWER);
  let acc00 = offset;
  let acc01 = offset;
  const bEnd = bPtr0 + (<usize>group << 2);
  do {
    const a0 = v128.load32_splat(aPtr0);
    const a1 = v128.load32_splat(aPtr0, 4);
    const a2 = v128.load32_splat(aPtr0, 8);
    const a3 = v128.load32_splat(aPtr0, 12);
    acc00 = dot_eight(a0, a1, a2, a3, v128.load(bPtr0), mask, lower, table, acc00);
    acc01 = dot_eight(a0, a1, a2, a3, v128.load(bPtr0, 16), mask, lower, table, acc01);
    aPtr0 += 16;
    bPtr0 += 32;
  } while (bPtr0 < bEnd);
  add_scaled(c, init, acc00, v128.load(scales));
  add_scaled(c + 16, init + 16, acc01, v128.load(scales, 16));
}

/** sum + four pairs by the entries of four columns. */
// @ts-ignore: decorator
@inline
function dot_eight(a0: v128, a1: v128, a2: v128, a3: v128, nibbles: v128, mask: v128, lower: v128, table: v128, sum: v128): v128 {
  const low = swizzle(table, v128.and(nibbles, mask));
  sum = dot_i16(a0, v128.and(low, lower), sum);
  sum = dot_i16(a2, i16x8.shr_u(low, 8), sum);
  const high = swizzle(table, v128.and(i16x8.shr_u(nibbles, 4), mask));
  sum = dot_i16(a1, v128.and(high, lower), sum);
  return dot_i16(a3, i16x8.shr_u(high, 8), sum);
}
