import { BLOCK, PANEL, PANEL_BYTES, Q4_K_BYTES, SUPER_BLOCK } from "../layout";
import { dot_i16, has_byte_dots } from "../math/simd";
import { F32Ptr, F32PtrOrNull, LinearShape, LinearShapePtr, U8Ptr } from "../types";
import { BLOCK_SHIFT, Q4_K_NIBBLES, Q4_K_SCALES } from "./block_layout";
import { FAST, path_of } from "./int_dot";
import { DIGIT, DIGIT_BITS } from "./int_dot_i8";
import { store_super } from "./int_dot_q4_k";
import { MASKS, nibble } from "./q4";
import { scale_rows } from "./q8";
import { q4_k_dot_skinny } from "./q4_k_skinny";
import { blocks_of, ROW_HEAD, row_bytes } from "./quantize_rows";

/**
 * So many rows at a time are multiplied by products of bytes where weights are packed. On the path of i16 pairs, more rows are
 * multiplied as pairs, which is faster.
 */
const SKINNY_ROWS = 8;

/** Panels that a single row reads at a time: each is the next one of a part of the matrix of its own. */
const STREAMS = 4;

/** Rows whose sums of blocks are kept at a time: 32 KB. */
const MOST_ROWS = 1024;

/** Bytes of the sums of the blocks of a super-block of a row: eight lower parts of 7 bits, then eight upper ones, 16 bits each. */
const SUMS: usize = 32;

/** Bytes of the totals of four rows. */
const TOTALS: usize = 128;

/** Bytes of a super-block of a panel in pairs of integers of 16 bits, [128][8][2]: scale · nibble. */
const PAIRS: usize = SUPER_BLOCK * PANEL * 2;

/**
 * The same as linear_q8 for weights of GGUF's Q4_K: in a super-block of 256 inputs, w[n, k] = d · scale · nibble - least · minimum,
 * where each 32 inputs have a scale and a minimum of 6 bits. Its sums are exact: d · Σ scale·nibble·x - least · Σ minimum·x, both
 * sums converted to f32, products and their difference rounded, of fast rows, which are SIGNED, also its product with their scale, and
 * super-blocks are added in ascending order. w is packed [panels][K / 256] as pack_q4_k
 * does. scratch: LINEAR_SCRATCH bytes (layout.ts), 16-byte aligned.
 */
export function linear_q4_k(
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
  assert(panels > 0 && k > 0 && k % SUPER_BLOCK == 0, "linear_q4_k: panels must be positive, and k whole super-blocks");
  assert(s.outStride >= panels * PANEL, "linear_q4_k: the stride must hold a row");
  const rows = end - begin;
  const outBytes = <usize>s.outStride << 2;
  const xBytes = row_bytes(k);
  out += <usize>begin * outBytes;
  x += <usize>begin * xBytes;
  const blocks = blocks_of(x, k, mode);
  if (has_byte_dots() && (rows <= SKINNY_ROWS || mode != 0)) {
    const planes = mode & FAST ? 1 : 2;
    for (let r = 0; r < rows; r += SKINNY_ROWS) {
      const integers = x + ROW_HEAD + xBytes * r;
      const n = min(SKINNY_ROWS, rows - r);
      const o = out + outBytes * r;
      q4_k_dot_skinny(path_of(mode), planes, o, outBytes, integers, xBytes, blocks + xBytes * r, w, panels, k, n, scratch);
    }
  } else
    for (let r = 0; r < rows; r += MOST_ROWS) {
      const at = xBytes * r;
      const xBlocks = blocks ? blocks + at : 0;
      sum_pairs(out + outBytes * r, outBytes, x + ROW_HEAD + at, xBytes, xBlocks, w, panels, k, min(MOST_ROWS, rows - r), scratch);
    }
  scale_rows(out, outBytes, x, xBytes, bias, panels, rows);
}

/** out[rows, 8·panels] = the sums of up to MOST_ROWS rows of i16. */
function sum_pairs(
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
  const pairs = scratch + TOTALS;
  const sums = pairs + PAIRS;
  const supers = k / SUPER_BLOCK;
  const panelBytes = <usize>supers * Q4_K_BYTES;
  const each = (panels + STREAMS - 1) / STREAMS;
  for (let i = 0; i < supers; i++) {
    for (let r = 0; r < rows; r++) sum_blocks(sums + SUMS * r, x + xBytes * r);
    for (let p = 0; p < each; p++)
      for (let q = p; q < panels; q += each) {
        const panel = w + panelBytes * q;
        const c = out + <usize>q * PANEL_BYTES;
        if (rows == 1) dot_1x8(c, i == 0, x, xBlocks, sums, panel, scratch);
        else {
          unpack(pairs, panel);
          for (let r = 0; r < rows; r += 4) {
            const o = c + outBytes * r;
            const a = x + xBytes * r;
            const t = sums + SUMS * r;
            const s = xBlocks ? xBlocks + xBytes * r : 0;
            if (rows - r >= 4) dot_nx8(4, o, outBytes, i == 0, a, xBytes, s, t, pairs, panel, scratch);
            else if (rows - r == 3) dot_nx8(3, o, outBytes, i == 0, a, xBytes, s, t, pairs, panel, scratch);
            else if (rows - r == 2) dot_nx8(2, o, outBytes, i == 0, a, xBytes, s, t, pairs, panel, scratch);
            else dot_nx8(1, o, outBytes, i == 0, a, xBytes, s, t, pairs, panel, scratch);
          }
        }
      }
    x += SUPER_BLOCK * 2;
    if (xBlocks) xBlocks += SUPER_BLOCK >> BLOCK_SHIFT;
    w += Q4_K_BYTES;
  }
}

/** The sums of the blocks of a super-block, as lower parts of 7 bits and upper ones. */
function sum_blocks(to: U8Ptr, x: U8Ptr): void {
  const ones = i16x8.splat(1);
  for (const end = to + SUMS / 2; to < end; to += 2) {
    let four = i32x4.dot_i16x8_s(v128.load(x), ones);
    four = dot_i16(v128.load(x, 16), ones, four);
    four = dot_i16(v128.load(x, 32), ones, four);
    four = dot_i16(v128.load(x, 48), ones, four);
    four = i32x4.add(four, v128.shuffle<i32>(four, four, 2, 3, 0, 1));
    const sum = i32x4.extract_lane(four, 0) + i32x4.extract_lane(four, 1);
    store<i16>(to, <i16>(sum & DIGIT));
    store<i16>(to, <i16>(sum >> DIGIT_BITS), SUMS / 2);
    x += BLOCK * 2;
  }
}

/** A super-block of a panel in pairs. */
function unpack(to: U8Ptr, panel: U8Ptr): void {
  let from = panel + Q4_K_NIBBLES;
  let scales = panel + Q4_K_SCALES;
  for (const end = scales + SUPER_BLOCK / BLOCK * PANEL; scales < end; scales += PANEL) {
    const eight = v128.load8x8_u(scales);
    const low = v128.shuffle<i16>(eight, eight, 0, 0, 1, 1, 2, 2, 3, 3);
    const high = v128.shuffle<i16>(eight, eight, 4, 4, 5, 5, 6, 6, 7, 7);
    for (const next = from + BLOCK * 4; from < next; from += 32) {
      const units0 = v128.load(from);
      const units1 = v128.load(from, 16);
      v128.store(to, i16x8.mul(nibble(units0, 0), low));
      v128.store(to, i16x8.mul(nibble(units1, 0), high), 16);
      v128.store(to, i16x8.mul(nibble(units0, 1), low), 32);
      v128.store(to, i16x8.mul(nibble(units1, 1), high), 48);
      v128.store(to, i16x8.mul(nibble(units0, 2), low), 64);
      v128.store(to, i16x8.mul(nibble(units1, 2), high), 80);
      v128.store(to, i16x8.mul(nibble(units0, 3), low), 96);
      v128.store(to, i16x8.mul(nibble(units1, 3), high), 112);
      to += 128;
    }
  }
}

/**
 * C[rows, 8] (+)= a super-block: A [rows][256] int16 by pairs B [128][8][2] int16. `rows` is a constant from 1 to 4.
 *
 * 4x8 tile, 11 v128: acc00..acc31 = 8 | b0 b1 = 2 | a0 = 1
 * A rows aStride apart, their sums side by side · C rows cStride apart · two k a step · sums are exact
 */
// @ts-ignore: decorator
@inline
function dot_nx8(
  rows: i32,
  c: F32Ptr,
  cStride: usize,
  first: bool,
  aPtr0: U8Ptr,
  aStride: usize,
  aBlocks: usize,
  sums: U8Ptr,
  bPtr0: U8Ptr,
  panel: U8Ptr,
  totals: U8Ptr,
): void {
  let aPtr1 = aPtr0 + aStride;
  let aPtr2 = aPtr1 + aStride;
  let aPtr3 = aPtr2 + aStride;
  let acc00 = i32x4.splat(0);
  let acc01 = acc00;
  let acc10 = acc00;
  let acc11 = acc00;
  let acc20 = acc00;
  let acc21 = acc00;
  let acc30 = acc00;
  let acc31 = acc00;
  const bEnd = bPtr0 + PAIRS;
  do {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    let a0 = v128.load32_splat(aPtr0);
    acc00 = dot_i16(a0, b0, acc00);
    acc01 = dot_i16(a0, b1, acc01);
    if (rows > 1) {
      a0 = v128.load32_splat(aPtr1);
      acc10 = dot_i16(a0, b0, acc10);
      acc11 = dot_i16(a0, b1, acc11);
    }
    if (rows > 2) {
      a0 = v128.load32_splat(aPtr2);
      acc20 = dot_i16(a0, b0, acc20);
      acc21 = dot_i16(a0, b1, acc21);
    }
    if (rows > 3) {
      a0 = v128.load32_splat(aPtr3);
      acc30 = dot_i16(a0, b0, acc30);
      acc31 = dot_i16(a0, b1, acc31);
    }
    aPtr0 += 4;
    aPtr1 += 4;
    aPtr2 += 4;
    aPtr3 += 4;
    bPtr0 += 32;
  } while (bPtr0 < bEnd);
  v128.store(totals, acc00);
  v128.store(totals, acc01, 16);
  v128.store(totals, acc10, 32);
  v128.store(totals, acc11, 48);
  v128.store(totals, acc20, 64);
  v128.store(totals, acc21, 80);
  v128.store(totals, acc30, 96);
  v128.store(totals, acc31, 112);
  for (let r = 0; r < rows; r++) {
    store_super(2, c, first, panel, sums + SUMS * r, aBlocks, totals + (r << 5));
    c += cStride;
    if (aBlocks) aBlocks += aStride;
  }
}

/**
 * C[8] (+)= a super-block of one row, from nibbles.
 *
 * 1x8 tile, 16 v128: totals of a block, and those of the second and third nibbles, of a super-block = 8 | b0 = 1 | a0..a3 = 4 | masks = 3
 * A [256] int16 · 8 k a step, two a product · sums are exact
 */
function dot_1x8(c: F32Ptr, first: bool, aPtr0: U8Ptr, aBlocks: usize, sums: U8Ptr, panel: U8Ptr, totals: U8Ptr): void {
  const mask0 = v128.load(MASKS);
  const mask1 = v128.load(MASKS, 16);
  const mask2 = v128.load(MASKS, 32);
  let total0 = i32x4.splat(0);
  let total1 = total0;
  let bPtr0 = panel + Q4_K_NIBBLES;
  let scales = panel + Q4_K_SCALES;
  for (const end = scales + SUPER_BLOCK / BLOCK * PANEL; scales < end; scales += PANEL) {
    // 16 and 256 times the sums of the second and the third nibbles stay below 2^28.
    let acc00 = i32x4.splat(0);
    let acc00_16 = acc00;
    let acc00_256 = acc00;
    let acc01 = acc00;
    let acc01_16 = acc00;
    let acc01_256 = acc00;
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
    const eight = v128.load8x8_u(scales);
    total0 = i32x4.add(total0, i32x4.mul(acc00, i32x4.extend_low_i16x8_u(eight)));
    total1 = i32x4.add(total1, i32x4.mul(acc01, i32x4.extend_high_i16x8_u(eight)));
  }
  v128.store(totals, total0);
  v128.store(totals, total1, 16);
  store_super(2, c, first, panel, sums, aBlocks, totals);
}
