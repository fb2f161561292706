import { BLOCK, PANEL, PANEL_BYTES } from "../layout";
import { dot_i16, has_byte_dots } from "../math/simd";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr, U8Ptr } from "../types";
import { BLOCK_SHIFT, panel_bytes, Q4_BLOCK_BYTES, SCALES } from "./block_layout";
import { FAST, path_of } from "./int_dot";
import { add_scaled } from "./int_dot_i16";
import { BLOCK_PANELS, KC, scale_rows, sum_products } from "./q8";
import { q4_dot_skinny } from "./q4_skinny";
import { blocks_of, padded, ROW_HEAD, row_bytes } from "./quantize_rows";

/** Up to so many rows, weights are unpacked a panel at a time. */
const FEW_ROWS = 4;

/**
 * So many rows at a time are multiplied by products of bytes where weights are packed. On the path of i16 pairs, more rows are
 * multiplied as pairs, which is faster.
 */
const SKINNY_ROWS = 8;

/** Panels that a single row reads at a time: each is the next one of a part of the matrix of its own. */
const STREAMS = 4;

const zeros = memory.data(32, 16);

/**
 * The same as linear_q8 with blocks of 32, for weights of 4 bits: w[n, k] = scale · (nibble - zero). w is packed [panels][K / 32]
 * of 8 scales and, for each 8 inputs, 8 rows of two units of 16 bits: unit e of a row has the nibbles of its inputs e,
 * 2 + e, 4 + e, 6 + e, the first in the lowest bits. Fast rows are SIGNED. scratch: LINEAR_SCRATCH bytes (layout.ts), 16-byte aligned.
 */
export function linear_q4(
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
  assert(panels > 0 && k > 0, "linear_q4: panels and k must be positive");
  assert(s.outStride >= panels * PANEL, "linear_q4: the stride must hold a row");
  const rows = end - begin;
  const outBytes = <usize>s.outStride << 2;
  const xBytes = row_bytes(k);
  const length = padded(k);
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  const panelBytes = <usize>(length / BLOCK) * Q4_BLOCK_BYTES;
  const blocks = blocks_of(x, k, mode);
  if (has_byte_dots() && (rows <= SKINNY_ROWS || mode != 0)) {
    const planes = mode & FAST ? 1 : 2;
    for (let r = 0; r < rows; r += SKINNY_ROWS) {
      const o = out + outBytes * r;
      const from = x + ROW_HEAD + xBytes * r;
      const n = min(SKINNY_ROWS, rows - r);
      const xBlocks = blocks + xBytes * r;
      q4_dot_skinny(path_of(mode), planes, o, outBytes, from, xBytes, xBlocks, w, panels, length, n, s.zero, scratch);
    }
  } else if (rows == 1 && mode == 0) {
    const each = (panels + STREAMS - 1) / STREAMS;
    const oStep = <usize>each * PANEL_BYTES;
    const wStep = panelBytes * each;
    for (let p = 0; p < each; p++) {
      const n = (panels - p + each - 1) / each;
      sum_row(out + <usize>p * PANEL_BYTES, oStep, x + ROW_HEAD, w + panelBytes * p, wStep, n, length / BLOCK, s.zero);
    }
  } else {
    const step = rows <= FEW_ROWS ? 1 : BLOCK_PANELS;
    for (let p = 0; p < panels; p += step) {
      const n = min(step, panels - p);
      for (let i = 0; i < length; i += KC) {
        const count = min(KC, length - i);
        const unpackedBytes = panel_bytes(count, BLOCK);
        const from = w + panelBytes * p + <usize>(i / BLOCK) * Q4_BLOCK_BYTES;
        for (let q = 0; q < n; q++) unpack(scratch + unpackedBytes * q, from + panelBytes * q, count, s.zero);
        const o = out + <usize>p * PANEL_BYTES;
        const integers = x + ROW_HEAD + (<usize>i << 1);
        const xBlocks = blocks ? blocks + (<usize>i >> BLOCK_SHIFT) : 0;
        sum_products(o, outBytes, i > 0, integers, xBytes, length, xBlocks, scratch, 0, count, BLOCK, n, 0, count, mode, rows);
      }
    }
  }
  scale_rows(out, outBytes, x, xBytes, bias, panels, rows);
}

/** The four nibbles of each unit of 16 bits, one of them in each. */
// @ts-ignore: decorator
@inline
export function nibble(v: v128, j: i32): v128 {
  if (j == 0) return v128.and(v, i16x8.splat(15));
  if (j == 3) return i16x8.shr_u(v, 12);
  return v128.and(i16x8.shr_u(v, j << 2), i16x8.splat(15));
}

/** A panel of `count` inputs as linear_q8 has it. */
function unpack(to: U8Ptr, from: U8Ptr, count: i32, zero: i32): void {
  const zeros_i8x16 = i8x16.splat(<i8>zero);
  for (; count > 0; count -= BLOCK) {
    v128.store(to, v128.load(from));
    v128.store(to, v128.load(from, 16), 16);
    to += SCALES;
    from += SCALES;
    for (const end = from + BLOCK * 4; from < end; from += 32) {
      const low = v128.load(from);
      const high = v128.load(from, 16);
      v128.store(to, i8x16.sub(i8x16.narrow_i16x8_s(nibble(low, 0), nibble(high, 0)), zeros_i8x16));
      v128.store(to, i8x16.sub(i8x16.narrow_i16x8_s(nibble(low, 1), nibble(high, 1)), zeros_i8x16), 16);
      v128.store(to, i8x16.sub(i8x16.narrow_i16x8_s(nibble(low, 2), nibble(high, 2)), zeros_i8x16), 32);
      v128.store(to, i8x16.sub(i8x16.narrow_i16x8_s(nibble(low, 3), nibble(high, 3)), zeros_i8x16), 48);
      to += 64;
    }
  }
}

/** out[8·panels] = the sums of one row by up to STREAMS panels, a block of each after the other. */
function sum_row(
  out: F32Ptr,
  outStep: usize,
  x: U8Ptr,
  w: U8Ptr,
  wStep: usize,
  panels: i32,
  blocks: i32,
  zero: i32,
): void {
  for (let i = 0; i < blocks; i++) {
    const offset = offset_of(x, zero, BLOCK);
    let o = out;
    let block = w;
    for (let p = 0; p < panels; p++) {
      dot_1x8(o, i > 0 ? o : zeros, x, block, offset);
      o += outStep;
      block += wStep;
    }
    x += BLOCK * 2;
    w += Q4_BLOCK_BYTES;
  }
}

/** -zero · the sum of `count` integers, a multiple of 16, in every lane. */
// @ts-ignore: decorator
@inline
export function offset_of(x: U8Ptr, zero: i32, count: i32): v128 {
  const minus = i16x8.splat(<i16>-zero);
  let sum = i32x4.splat(0);
  for (const end = x + (<usize>count << 1); x < end; x += 32)
    sum = dot_i16(v128.load(x, 16), minus, dot_i16(v128.load(x), minus, sum));
  sum = i32x4.add(sum, i8x16.shuffle(sum, sum, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  return i32x4.add(sum, i8x16.shuffle(sum, sum, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
}

/** Masks of the nibbles that are multiplied where they stand, from memory: V8 makes constants anew at each use. */
export const MASKS = memory.data<u16>([
  15, 15, 15, 15, 15, 15, 15, 15, 240, 240, 240, 240, 240, 240, 240, 240, 3840, 3840, 3840, 3840, 3840, 3840, 3840,
  3840,
]);

/**
 * C[8] = init[8] + scales[8] · (offset + A[32] · nibbles[32, 8]).
 *
 * 1x8 tile, 14 v128: acc00 acc01, and those of the second and third nibbles = 6 | b0 = 1 | a0..a3 = 4 | masks = 3
 * A [32] int16 · B 4 steps of two rows: columns 0 to 3, then 4 to 7, two units of 16 bits each · C, init [8]
 * 8 k a step, two a product · the sum is exact
 */
// @ts-ignore: decorator
@inline
function dot_1x8(cPtr0: F32Ptr, initPtr: F32Ptr, aPtr0: U8Ptr, block: U8Ptr, offset: v128): void {
  const mask0 = v128.load(MASKS);
  const mask1 = v128.load(MASKS, 16);
  const mask2 = v128.load(MASKS, 32);
  // 16 and 256 times the sums of the second and the third nibbles stay below 2^28.
  let acc00 = offset;
  let acc00_16 = i32x4.splat(0);
  let acc00_256 = i32x4.splat(0);
  let acc01 = offset;
  let acc01_16 = i32x4.splat(0);
  let acc01_256 = i32x4.splat(0);
  let bPtr0 = block + SCALES;
  const bEnd = bPtr0 + BLOCK * 4;
  do {
    const a0 = v128.load32_splat(aPtr0);
    const a1 = v128.load32_splat(aPtr0, 4);
    const a2 = v128.load32_splat(aPtr0, 8);
    const a3 = v128.load32_splat(aPtr0, 12);
    let b0 = v128.load(bPtr0);
    acc00 = dot_i16(a0, v128.and(b0, mask0), acc00);
    acc00_16 = dot_i16(a1, v128.and(b0, mask1), acc00_16);
    acc00_256 = dot_i16(a2, v128.and(b0, mask2), acc00_256);
    acc00 = dot_i16(a3, i16x8.shr_u(b0, 12), acc00);
    b0 = v128.load(bPtr0, 16);
    acc01 = dot_i16(a0, v128.and(b0, mask0), acc01);
    acc01_16 = dot_i16(a1, v128.and(b0, mask1), acc01_16);
    acc01_256 = dot_i16(a2, v128.and(b0, mask2), acc01_256);
    acc01 = dot_i16(a3, i16x8.shr_u(b0, 12), acc01);
    aPtr0 += 16;
    bPtr0 += 32;
  } while (bPtr0 < bEnd);
  acc00 = i32x4.add(acc00, i32x4.add(i32x4.shr_s(acc00_16, 4), i32x4.shr_s(acc00_256, 8)));
  acc01 = i32x4.add(acc01, i32x4.add(i32x4.shr_s(acc01_16, 4), i32x4.shr_s(acc01_256, 8)));
  add_scaled(cPtr0, initPtr, acc00, v128.load(block));
  add_scaled(cPtr0 + 16, initPtr + 16, acc01, v128.load(block, 16));
}
