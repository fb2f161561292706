import { BLOCK, PANEL_BYTES } from "../layout";
import { dot_i8, dot_i16, dot_pairs_i8 } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { Q4_BLOCK_BYTES, SCALES } from "./block_layout";
import { DIGIT_BITS, PATH_I8 } from "./int_dot_i8";
import { add_scaled } from "./int_dot_i16";
import { ordered_bytes, scale_of_ordered } from "./order_digits";

// Products of a few integer rows and weights of 4 bits where these lie packed (pack_q4.ts). As bytes, a row of a block is
// four columns of eight inputs, four in the low nibbles and four in the high ones. A nibble has less than 7 bits, so that
// digits of A may be signed. Four bytes a lane are multiplied in one instruction where CPUs have it (PATH_I8). On the other
// paths pairs of bytes are, and added up in 16 bits, which hold a block of products. Strides are in bytes.

const zeros = memory.data(32, 16);

// From memory: V8 makes constants anew at each use.
export const NIBBLE = memory.data<u8>([15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15]);
const ONES = memory.data<u16>([1, 1, 1, 1, 1, 1, 1, 1]);
const UPPER = memory.data<u16>([128, 128, 128, 128, 128, 128, 128, 128]);

/** Four digits of a column by four nibbles: sums of 32 bits, or two of 16, which hold a block. */
// @ts-ignore: decorator
@inline
export function dot_nibbles(path: i32, digits: v128, nibbles: v128, sum: v128): v128 {
  return path == PATH_I8 ? dot_i8(nibbles, digits, sum) : dot_pairs_i8(nibbles, digits, sum);
}

/** The digits of a step that low nibbles are multiplied by, or, where `high` is 1, those for the high ones: a block begins with its sums. */
// @ts-ignore: decorator
@inline
export function digits_of(planes: i32, high: i32, a: U8Ptr): v128 {
  return v128.load(a + (<usize>(planes * (high + 1)) << 4));
}

/** The sums of a block: those of the lower digits and 128 times those of the upper ones. */
// @ts-ignore: decorator
@inline
function sum_of(path: i32, planes: i32, lower: v128, upper: v128): v128 {
  if (path == PATH_I8) return planes == 1 ? lower : i32x4.add(lower, i32x4.shl(upper, DIGIT_BITS));
  const sum = i32x4.dot_i16x8_s(lower, v128.load(ONES));
  return planes == 1 ? sum : dot_i16(upper, v128.load(UPPER), sum);
}

/** C[8] (+)= scales[8] · the sums of a block: of one plane, scales are first multiplied by that of its digits, at `a`. */
// @ts-ignore: decorator
@inline
function add_block(
  path: i32,
  planes: i32,
  c: F32Ptr,
  first: bool,
  scales: F32Ptr,
  a: U8Ptr,
  lower0: v128,
  lower1: v128,
  upper0: v128,
  upper1: v128,
): void {
  const init = first ? zeros : c;
  let scale0 = v128.load(scales);
  let scale1 = v128.load(scales, 16);
  if (planes == 1) {
    const scale = scale_of_ordered(a);
    scale0 = f32x4.mul(scale0, scale);
    scale1 = f32x4.mul(scale1, scale);
  }
  add_scaled(c, init, sum_of(path, planes, lower0, upper0), scale0);
  add_scaled(c + 16, init + 16, sum_of(path, planes, lower1, upper1), scale1);
}

/**
 * C[8·panels] (+)= scales[8·panels] · (starts + A[32] · nibbles[32, 8·panels]) for one block after the other, of which the
 * first may start from 0, and up to four rows of digits: as many rows of A, or where `planes` is 2, the lower and the upper
 * digits of half as many. `path`, `rows`, from 1 to 4, and `planes` are constants.
 *
 * 4x8 tile, 15 v128: acc00..acc31 = 8 | low0 high0 low1 high1 = 4 | a0, product, mask = 3
 * A as order_digits leaves it, rows aStride apart · B 4 steps of two rows: columns 0 to 3, then 4 to 7; panels bStride apart
 * C rows cStride, panels cPanel apart · 8 k a step · the sums are exact: 16 bits hold 17 products of two digits, of up to 127, and two nibbles
 */
// @ts-ignore: decorator
@inline
export function q4_dot_nx8(
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
  blocks: i32,
): void {
  const mask = v128.load(NIBBLE);
  const step = <usize>planes << 5;
  for (; blocks > 0; blocks--) {
    let block = b;
    let cPtr0 = c;
    for (const cEnd = c + <usize>panels * cPanel; cPtr0 < cEnd; cPtr0 += cPanel) {
      let aPtr0 = a;
      let aPtr1 = planes == 2 ? a + 16 : a + aStride;
      let aPtr2 = planes == 2 ? a + aStride : aPtr1 + aStride;
      let aPtr3 = planes == 2 ? aPtr2 + 16 : aPtr2 + aStride;
      let acc00 = v128.load(aPtr0);
      let acc01 = acc00;
      let acc10 = rows > 1 ? v128.load(aPtr1) : acc00;
      let acc11 = acc10;
      let acc20 = rows > 2 ? v128.load(aPtr2) : acc00;
      let acc21 = acc20;
      let acc30 = rows > 3 ? v128.load(aPtr3) : acc00;
      let acc31 = acc30;
      let bPtr0 = block + SCALES;
      const bEnd = bPtr0 + BLOCK * 4;
      do {
        let high0 = v128.load(bPtr0);
        let high1 = v128.load(bPtr0, 16);
        const low0 = v128.and(high0, mask);
        const low1 = v128.and(high1, mask);
        high0 = v128.and(i16x8.shr_u(high0, 4), mask);
        high1 = v128.and(i16x8.shr_u(high1, 4), mask);
        let a0 = digits_of(planes, 0, aPtr0);
        acc00 = dot_nibbles(path, a0, low0, acc00);
        acc01 = dot_nibbles(path, a0, low1, acc01);
        a0 = digits_of(planes, 1, aPtr0);
        acc00 = dot_nibbles(path, a0, high0, acc00);
        acc01 = dot_nibbles(path, a0, high1, acc01);
        aPtr0 += step;
        if (rows > 1) {
          a0 = digits_of(planes, 0, aPtr1);
          acc10 = dot_nibbles(path, a0, low0, acc10);
          acc11 = dot_nibbles(path, a0, low1, acc11);
          a0 = digits_of(planes, 1, aPtr1);
          acc10 = dot_nibbles(path, a0, high0, acc10);
          acc11 = dot_nibbles(path, a0, high1, acc11);
          aPtr1 += step;
        }
        if (rows > 2) {
          a0 = digits_of(planes, 0, aPtr2);
          acc20 = dot_nibbles(path, a0, low0, acc20);
          acc21 = dot_nibbles(path, a0, low1, acc21);
          a0 = digits_of(planes, 1, aPtr2);
          acc20 = dot_nibbles(path, a0, high0, acc20);
          acc21 = dot_nibbles(path, a0, high1, acc21);
          aPtr2 += step;
        }
        if (rows > 3) {
          a0 = digits_of(planes, 0, aPtr3);
          acc30 = dot_nibbles(path, a0, low0, acc30);
          acc31 = dot_nibbles(path, a0, low1, acc31);
          a0 = digits_of(planes, 1, aPtr3);
          acc30 = dot_nibbles(path, a0, high0, acc30);
          acc31 = dot_nibbles(path, a0, high1, acc31);
          aPtr3 += step;
        }
        bPtr0 += 32;
      } while (bPtr0 < bEnd);
      let o = cPtr0;
      if (planes == 2) {
        add_block(path, 2, o, first, block, a, acc00, acc01, acc10, acc11);
        if (rows > 2) add_block(path, 2, o + cStride, first, block, a, acc20, acc21, acc30, acc31);
      } else {
        add_block(path, 1, o, first, block, a, acc00, acc01, acc00, acc01);
        o += cStride;
        if (rows > 1) add_block(path, 1, o, first, block, a + aStride, acc10, acc11, acc10, acc11);
        o += cStride;
        if (rows > 2) add_block(path, 1, o, first, block, a + aStride * 2, acc20, acc21, acc20, acc21);
        o += cStride;
        if (rows > 3) add_block(path, 1, o, first, block, a + aStride * 3, acc30, acc31, acc30, acc31);
      }
      block += bStride;
    }
    first = false;
    a += ordered_bytes(planes);
    b += Q4_BLOCK_BYTES;
  }
}
