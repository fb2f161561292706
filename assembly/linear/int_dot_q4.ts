import { BLOCK, LINEAR_SCRATCH, PANEL_BYTES } from "../layout";
import { dot_i8, dot_i16, dot_pairs_i8 } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { Q4_BLOCK_BYTES, SCALES } from "./block_layout";
import { PATH_I16 } from "./int_dot";
import { DIGIT_BITS, PATH_I8, PATH_I8_EMULATED } from "./int_dot_i8";
import { add_scaled } from "./int_dot_i16";
import { order_digits, ordered_bytes } from "./order_digits";

// Products of a few integer rows and weights of 4 bits where these lie packed (pack_q4.ts). As bytes, a row of a block is
// four columns of eight inputs, four in the low nibbles and four in the high ones. A nibble has less than 7 bits, so that
// digits of A may be signed. Four bytes a lane are multiplied in one instruction where CPUs have it (PATH_I8). On the other
// paths pairs of bytes are, and added up in 16 bits, which hold a block of products. Strides are in bytes.

/** Panels that are read at a time, a block of each after the other: as many streams of weights. */
const STREAMS = 8;

const zeros = memory.data(32, 16);

// From memory: V8 makes constants anew at each use.
const NIBBLE = memory.data<u8>([15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15]);
const ONES = memory.data<u16>([1, 1, 1, 1, 1, 1, 1, 1]);
const UPPER = memory.data<u16>([128, 128, 128, 128, 128, 128, 128, 128]);

/** Four digits of a column by four nibbles: sums of 32 bits, or two of 16. */
// @ts-ignore: decorator
@inline
function dot_nibbles(path: i32, digits: v128, nibbles: v128, sum: v128): v128 {
  return path == PATH_I8 ? dot_i8(nibbles, digits, sum) : dot_pairs_i8(nibbles, digits, sum);
}

/** The sums of a block: those of the lower digits and 128 times those of the upper ones. */
// @ts-ignore: decorator
@inline
function sum_of(path: i32, planes: i32, lower: v128, upper: v128): v128 {
  if (path == PATH_I8) return planes == 1 ? lower : i32x4.add(lower, i32x4.shl(upper, DIGIT_BITS));
  const sum = i32x4.dot_i16x8_s(lower, v128.load(ONES));
  return planes == 1 ? sum : dot_i16(upper, v128.load(UPPER), sum);
}

/**
 * C[8·panels] (+)= scales[8·panels] · (starts + A[32] · nibbles[32, 8·panels]) for one block after the other, of which the
 * first may start from 0. `path` and `planes` are constants.
 *
 * 1x8 tile, 12 v128: acc00 acc01, and those of upper digits = 4 | b0 and its nibbles = 2 | a0..a3 = 4 | product, mask = 2
 * A as order_digits leaves it · B 4 steps of two rows: columns 0 to 3, then 4 to 7; panels bStride apart · C [8·panels]
 * 8 k a step · the sums are exact: 16 bits hold 17 products of two digits and two nibbles
 */
// @ts-ignore: decorator
@inline
function q4_dot_1x8(
  path: i32,
  planes: i32,
  c: F32Ptr,
  first: bool,
  a: U8Ptr,
  b: U8Ptr,
  bStride: usize,
  panels: i32,
  blocks: i32,
): void {
  for (; blocks > 0; blocks--) {
    let block = b;
    let cPtr0 = c;
    for (const cEnd = c + <usize>panels * PANEL_BYTES; cPtr0 < cEnd; cPtr0 += PANEL_BYTES) {
      const mask = v128.load(NIBBLE);
      let acc00 = v128.load(a);
      let acc01 = acc00;
      let acc00_upper = planes == 2 ? v128.load(a, 16) : acc00;
      let acc01_upper = acc00_upper;
      let aPtr0 = a + (<usize>planes << 4);
      let bPtr0 = block + SCALES;
      const bEnd = bPtr0 + BLOCK * 4;
      do {
        const a0 = v128.load(aPtr0);
        const a1 = v128.load(aPtr0, 16);
        const a2 = planes == 2 ? v128.load(aPtr0, 32) : a1;
        const a3 = planes == 2 ? v128.load(aPtr0, 48) : a1;
        let b0 = v128.load(bPtr0);
        let nibbles = v128.and(b0, mask);
        acc00 = dot_nibbles(path, a0, nibbles, acc00);
        if (planes == 2) acc00_upper = dot_nibbles(path, a1, nibbles, acc00_upper);
        nibbles = v128.and(i16x8.shr_u(b0, 4), mask);
        acc00 = dot_nibbles(path, a2, nibbles, acc00);
        if (planes == 2) acc00_upper = dot_nibbles(path, a3, nibbles, acc00_upper);
        b0 = v128.load(bPtr0, 16);
        nibbles = v128.and(b0, mask);
        acc01 = dot_nibbles(path, a0, nibbles, acc01);
        if (planes == 2) acc01_upper = dot_nibbles(path, a1, nibbles, acc01_upper);
        nibbles = v128.and(i16x8.shr_u(b0, 4), mask);
        acc01 = dot_nibbles(path, a2, nibbles, acc01);
        if (planes == 2) acc01_upper = dot_nibbles(path, a3, nibbles, acc01_upper);
        aPtr0 += <usize>planes << 5;
        bPtr0 += 32;
      } while (bPtr0 < bEnd);
      const initPtr = first ? zeros : cPtr0;
      add_scaled(cPtr0, initPtr, sum_of(path, planes, acc00, acc00_upper), v128.load(block));
      add_scaled(cPtr0 + 16, initPtr + 16, sum_of(path, planes, acc01, acc01_upper), v128.load(block, 16));
      block += bStride;
    }
    first = false;
    a += ordered_bytes(planes);
    b += Q4_BLOCK_BYTES;
  }
}

/**
 * The same for four rows of digits: four rows of A, or where `planes` is 2, the lower and the upper digits of two.
 *
 * 4x8 tile, 14 v128: acc00..acc31 = 8 | low0 high0 low1 high1 = 4 | a0, product = 2
 * A rows aStride apart · B as there, one block of each panel · C rows cStride apart
 */
// @ts-ignore: decorator
@inline
function q4_dot_4x8(
  path: i32,
  planes: i32,
  cPtr0: F32Ptr,
  cStride: usize,
  first: bool,
  a: U8Ptr,
  aStride: usize,
  block: U8Ptr,
  bStride: usize,
  panels: i32,
): void {
  for (const cEnd = cPtr0 + <usize>panels * PANEL_BYTES; cPtr0 < cEnd; cPtr0 += PANEL_BYTES) {
    let aPtr0 = a;
    let aPtr1 = planes == 2 ? a + 16 : a + aStride;
    let aPtr2 = planes == 2 ? a + aStride : aPtr1 + aStride;
    let aPtr3 = planes == 2 ? aPtr2 + 16 : aPtr2 + aStride;
    let acc00 = v128.load(aPtr0);
    let acc01 = acc00;
    let acc10 = v128.load(aPtr1);
    let acc11 = acc10;
    let acc20 = v128.load(aPtr2);
    let acc21 = acc20;
    let acc30 = v128.load(aPtr3);
    let acc31 = acc30;
    let bPtr0 = block + SCALES;
    const bEnd = bPtr0 + BLOCK * 4;
    do {
      let high0 = v128.load(bPtr0);
      let high1 = v128.load(bPtr0, 16);
      const mask = v128.load(NIBBLE);
      const low0 = v128.and(high0, mask);
      const low1 = v128.and(high1, mask);
      high0 = v128.and(i16x8.shr_u(high0, 4), mask);
      high1 = v128.and(i16x8.shr_u(high1, 4), mask);
      aPtr0 += <usize>planes << 4;
      aPtr1 += <usize>planes << 4;
      aPtr2 += <usize>planes << 4;
      aPtr3 += <usize>planes << 4;
      let a0 = v128.load(aPtr0);
      acc00 = dot_nibbles(path, a0, low0, acc00);
      acc01 = dot_nibbles(path, a0, low1, acc01);
      aPtr0 += <usize>planes << 4;
      a0 = v128.load(aPtr0);
      acc00 = dot_nibbles(path, a0, high0, acc00);
      acc01 = dot_nibbles(path, a0, high1, acc01);
      a0 = v128.load(aPtr1);
      acc10 = dot_nibbles(path, a0, low0, acc10);
      acc11 = dot_nibbles(path, a0, low1, acc11);
      aPtr1 += <usize>planes << 4;
      a0 = v128.load(aPtr1);
      acc10 = dot_nibbles(path, a0, high0, acc10);
      acc11 = dot_nibbles(path, a0, high1, acc11);
      a0 = v128.load(aPtr2);
      acc20 = dot_nibbles(path, a0, low0, acc20);
      acc21 = dot_nibbles(path, a0, low1, acc21);
      aPtr2 += <usize>planes << 4;
      a0 = v128.load(aPtr2);
      acc20 = dot_nibbles(path, a0, high0, acc20);
      acc21 = dot_nibbles(path, a0, high1, acc21);
      a0 = v128.load(aPtr3);
      acc30 = dot_nibbles(path, a0, low0, acc30);
      acc31 = dot_nibbles(path, a0, low1, acc31);
      aPtr3 += <usize>planes << 4;
      a0 = v128.load(aPtr3);
      acc30 = dot_nibbles(path, a0, high0, acc30);
      acc31 = dot_nibbles(path, a0, high1, acc31);
      bPtr0 += 32;
    } while (bPtr0 < bEnd);
    const scale0 = v128.load(block);
    const scale1 = v128.load(block, 16);
    let c = cPtr0;
    let init = first ? zeros : c;
    if (planes == 2) {
      add_scaled(c, init, sum_of(path, 2, acc00, acc10), scale0);
      add_scaled(c + 16, init + 16, sum_of(path, 2, acc01, acc11), scale1);
      c += cStride;
      init = first ? zeros : c;
      add_scaled(c, init, sum_of(path, 2, acc20, acc30), scale0);
      add_scaled(c + 16, init + 16, sum_of(path, 2, acc21, acc31), scale1);
    } else {
      add_scaled(c, init, sum_of(path, 1, acc00, acc00), scale0);
      add_scaled(c + 16, init + 16, sum_of(path, 1, acc01, acc01), scale1);
      c += cStride;
      init = first ? zeros : c;
      add_scaled(c, init, sum_of(path, 1, acc10, acc10), scale0);
      add_scaled(c + 16, init + 16, sum_of(path, 1, acc11, acc11), scale1);
      c += cStride;
      init = first ? zeros : c;
      add_scaled(c, init, sum_of(path, 1, acc20, acc20), scale0);
      add_scaled(c + 16, init + 16, sum_of(path, 1, acc21, acc21), scale1);
      c += cStride;
      init = first ? zeros : c;
      add_scaled(c, init, sum_of(path, 1, acc30, acc30), scale0);
      add_scaled(c + 16, init + 16, sum_of(path, 1, acc31, acc31), scale1);
    }
    block += bStride;
  }
}

/**
 * out[rows, 8·panels] = the add_scaled sums of a few rows, for weights as linear_q4 has them and rows of `length` integers in
 * the form of `path`. scratch: LINEAR_SCRATCH bytes.
 */
export function q4_dot_skinny(
  path: i32,
  planes: i32,
  out: F32Ptr,
  outBytes: usize,
  x: U8Ptr,
  xBytes: usize,
  w: U8Ptr,
  panels: i32,
  length: i32,
  rows: i32,
  scratch: U8Ptr,
): void {
  const panelBytes = <usize>(length / BLOCK) * Q4_BLOCK_BYTES;
  const blockBytes = ordered_bytes(planes);
  const most = LINEAR_SCRATCH / (<i32>blockBytes * rows);
  const rowBytes = blockBytes * <usize>min(most, length / BLOCK);
  for (let from = 0; from < length; from += most * BLOCK) {
    const count = min(most * BLOCK, length - from);
    for (let r = 0; r < rows; r++) {
      const at = x + xBytes * r + (<usize>from << (path == PATH_I16 ? 1 : 0));
      order_digits(path, planes, scratch + rowBytes * r, at, length, count);
    }
    const span = rows == 1 ? count / BLOCK : 1;
    for (let p = 0; p < panels; p += STREAMS) {
      const n = min(STREAMS, panels - p);
      let block = w + panelBytes * p + <usize>(from / BLOCK) * Q4_BLOCK_BYTES;
      let digits = scratch;
      for (let i = from; i < from + count; i += span * BLOCK) {
        let c = out + <usize>p * PANEL_BYTES;
        let a = digits;
        let left = rows;
        for (const strip = 4 / planes; left >= strip; left -= strip) {
          if (path == PATH_I8) {
            if (planes == 1) q4_dot_4x8(PATH_I8, 1, c, outBytes, i == 0, a, rowBytes, block, panelBytes, n);
            else q4_dot_4x8(PATH_I8, 2, c, outBytes, i == 0, a, rowBytes, block, panelBytes, n);
          } else {
            if (planes == 1) q4_dot_4x8(PATH_I8_EMULATED, 1, c, outBytes, i == 0, a, rowBytes, block, panelBytes, n);
            else q4_dot_4x8(PATH_I8_EMULATED, 2, c, outBytes, i == 0, a, rowBytes, block, panelBytes, n);
          }
          c += outBytes * strip;
          a += rowBytes * strip;
        }
        for (; left > 0; left--) {
          if (path == PATH_I8) {
            if (planes == 1) q4_dot_1x8(PATH_I8, 1, c, i == 0, a, block, panelBytes, n, span);
            else q4_dot_1x8(PATH_I8, 2, c, i == 0, a, block, panelBytes, n, span);
          } else {
            if (planes == 1) q4_dot_1x8(PATH_I8_EMULATED, 1, c, i == 0, a, block, panelBytes, n, span);
            else q4_dot_1x8(PATH_I8_EMULATED, 2, c, i == 0, a, block, panelBytes, n, span);
          }
          c += outBytes;
          a += rowBytes;
        }
        block += Q4_BLOCK_BYTES;
        digits += blockBytes;
      }
    }
  }
}
