import { BLOCK, LINEAR_SCRATCH, PANEL_BYTES } from "../layout";
import { dot_i8, dot_i16, dot_pairs_i8 } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { Q4_BLOCK_BYTES, SCALES } from "./block_layout";
import { PATH_I16 } from "./int_dot";
import { DIGIT, DIGIT_BIAS, DIGIT_BITS, PATH_I8, PATH_I8_EMULATED } from "./int_dot_i8";
import { add_scaled } from "./int_dot_i16";

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

/** Bytes of 32 inputs of a row as order_digits leaves them. */
// @ts-ignore: decorator
@inline
function ordered_bytes(planes: i32): usize {
  return <usize>planes * 144;
}

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

/** Eight integers of a row as i16: from i16, or from one or two planes of digits. */
// @ts-ignore: decorator
@inline
function eight_of(path: i32, planes: i32, x: U8Ptr, plane: usize): v128 {
  if (path == PATH_I16) return v128.load(x);
  const upper = i16x8.sub(v128.load8x8_u(x), i16x8.splat(<i16>DIGIT_BIAS));
  return planes == 1 ? upper : v128.or(i16x8.shl(upper, DIGIT_BITS), v128.load8x8_u(x + plane));
}

/**
 * `count` integers of a row, whole blocks, as the tile reads them. For a block: where the sums of its digits begin, and for
 * each eight inputs the digits of 0, 4, 1, 5 and those of 2, 6, 3, 7 in each lane. The digits are signed; where `planes` is
 * 2, each upper one follows its lower one. Sums begin with -8 times the digits, because a weight is its nibble minus 8.
 */
function order_digits(path: i32, planes: i32, to: U8Ptr, x: U8Ptr, plane: usize, count: i32): void {
  const eights = i8x16.splat(8);
  const digit = i16x8.splat(<i16>DIGIT);
  for (; count > 0; count -= BLOCK) {
    const starts = to;
    let lower = i32x4.splat(0);
    let upper = i32x4.splat(0);
    to += <usize>planes << 4;
    for (let i = 0; i < BLOCK; i += 8) {
      const eight = eight_of(path, planes, x, plane);
      x += path == PATH_I16 ? 16 : 8;
      const low = planes == 1 ? eight : v128.and(eight, digit);
      let digits = i8x16.narrow_i16x8_s(low, i16x8.shr_s(eight, DIGIT_BITS));
      digits = i8x16.shuffle(digits, digits, 0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15);
      for (let half = 0; half < 2; half++) {
        const low4 = i32x4.splat(i32x4.extract_lane(digits, 0));
        v128.store(to, low4);
        lower = path == PATH_I8 ? dot_nibbles(PATH_I8, low4, eights, lower) : dot_nibbles(PATH_I8_EMULATED, low4, eights, lower);
        to += 16;
        if (planes == 2) {
          const high4 = i32x4.splat(i32x4.extract_lane(digits, 1));
          v128.store(to, high4);
          upper = path == PATH_I8 ? dot_nibbles(PATH_I8, high4, eights, upper) : dot_nibbles(PATH_I8_EMULATED, high4, eights, upper);
          to += 16;
        }
        digits = i8x16.shuffle(digits, digits, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
      }
    }
    v128.store(starts, path == PATH_I8 ? i32x4.neg(lower) : i16x8.neg(lower));
    if (planes == 2) v128.store(starts, path == PATH_I8 ? i32x4.neg(upper) : i16x8.neg(upper), 16);
  }
}

/**
 * C[8·panels] = init[8·panels] + scales[8·panels] · (starts + A[32] · nibbles[32, 8·panels]). `path` and `planes` are
 * constants. Where init is not C, it is 8 floats for every panel.
 *
 * 1x8 tile, 12 v128: acc00 acc01, and those of upper digits = 4 | b0 and its nibbles = 2 | a0..a3 = 4 | product, mask = 2
 * A as order_digits leaves it · B 4 steps of two rows: columns 0 to 3, then 4 to 7; panels bStride apart · C, init [8]
 * 8 k a step · the sums are exact: 16 bits hold 17 products of two digits and two nibbles
 */
// @ts-ignore: decorator
@inline
function q4_dot_1x8(
  path: i32,
  planes: i32,
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  a: U8Ptr,
  block: U8Ptr,
  bStride: usize,
  panels: i32,
): void {
  const initStep: usize = initPtr == cPtr0 ? <usize>PANEL_BYTES : 0;
  for (const cEnd = cPtr0 + <usize>panels * PANEL_BYTES; cPtr0 < cEnd; cPtr0 += PANEL_BYTES) {
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
    add_scaled(cPtr0, initPtr, sum_of(path, planes, acc00, acc00_upper), v128.load(block));
    add_scaled(cPtr0 + 16, initPtr + 16, sum_of(path, planes, acc01, acc01_upper), v128.load(block, 16));
    block += bStride;
    initPtr += initStep;
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
    for (let p = 0; p < panels; p += STREAMS) {
      const n = min(STREAMS, panels - p);
      let block = w + panelBytes * p + <usize>(from / BLOCK) * Q4_BLOCK_BYTES;
      let digits = scratch;
      for (let i = from; i < from + count; i += BLOCK) {
        let c = out + <usize>p * PANEL_BYTES;
        let a = digits;
        for (let r = 0; r < rows; r++) {
          const init = i == 0 ? zeros : c;
          if (path == PATH_I8) {
            if (planes == 1) q4_dot_1x8(PATH_I8, 1, c, init, a, block, panelBytes, n);
            else q4_dot_1x8(PATH_I8, 2, c, init, a, block, panelBytes, n);
          } else {
            if (planes == 1) q4_dot_1x8(PATH_I8_EMULATED, 1, c, init, a, block, panelBytes, n);
            else q4_dot_1x8(PATH_I8_EMULATED, 2, c, init, a, block, panelBytes, n);
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
