import { dot_i8, dot_i16, dot_pairs_i8, swizzle } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { SCALES } from "./block_layout";
import { DIGIT_BITS, dot_fours, ONES, PATH_I8 } from "./int_dot_i8";
import { add_scaled } from "./int_dot_i16";
import { ordered_bytes, scale_of_ordered } from "./order_digits";

// Products of a few integer rows and weights of 4 bits where these lie packed (pack_q4.ts, pack_codebook.ts). As bytes, a row of a
// block is four columns of eight inputs, four in the low nibbles and four in the high ones. A nibble has less than 7 bits, so that
// digits of A may be signed. Four bytes a lane are multiplied in one instruction where CPUs have it (PATH_I8). On the other
// paths pairs of bytes are, and added up in 16 bits, which hold a block of products. Strides are in bytes.

/** What nibbles stand for: themselves; or entries of a table, integers from 0 to 24, which are multiplied as nibbles are; or int8. */
export const PLAIN: i32 = 0;
export const SMALL: i32 = 1;
export const WIDE: i32 = 2;

const zeros = memory.data(32, 16);

// From memory: V8 makes constants anew at each use.
export const NIBBLE = memory.data<u8>([15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15]);
const EACH = memory.data<u8>([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
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

/** Where the sums of a group begin: its first bytes have them, but of raised digits. */
// @ts-ignore: decorator
@inline
function start_of(codes: i32, a: U8Ptr): v128 {
  return codes == WIDE ? i32x4.splat(0) : v128.load(a);
}

/** What a nibble of each byte stands for. */
// @ts-ignore: decorator
@inline
function entries(codes: i32, table: v128, nibbles: v128): v128 {
  return codes == PLAIN ? nibbles : swizzle(table, nibbles);
}

/** dot_nibbles for entries: int8 are multiplied by digits of 7 bits, to sums of 32 bits. */
// @ts-ignore: decorator
@inline
function dot_entries(codes: i32, path: i32, digits: v128, weights: v128, sum: v128, ones: v128): v128 {
  return codes == WIDE ? dot_fours(path, digits, weights, sum, ones) : dot_nibbles(path, digits, weights, sum);
}

/** The sums of int8, for which raised digits are made up for. */
// @ts-ignore: decorator
@inline
function add_entries(path: i32, low: v128, high: v128, sum: v128, each: v128): v128 {
  return dot_nibbles(path, high, each, dot_nibbles(path, low, each, sum));
}

/** What raised digits add to a product: what they are raised by, at `a`, times the sums of entries. */
// @ts-ignore: decorator
@inline
function raised_by(path: i32, a: U8Ptr, sums: v128): v128 {
  return path == PATH_I8 ? i32x4.mul(sums, v128.load(a)) : i32x4.dot_i16x8_s(sums, v128.load(a));
}

/** The sums of a block: those of the lower digits and 128 times those of the upper ones. The uppermost may be raised. */
// @ts-ignore: decorator
@inline
function sum_of(codes: i32, path: i32, planes: i32, a: U8Ptr, lower: v128, upper: v128, sums: v128): v128 {
  if (codes == WIDE) {
    const raised = raised_by(path, a, sums);
    if (planes == 1) return i32x4.sub(lower, raised);
    return i32x4.add(lower, i32x4.shl(i32x4.sub(upper, raised), DIGIT_BITS));
  }
  if (path == PATH_I8) return planes == 1 ? lower : i32x4.add(lower, i32x4.shl(upper, DIGIT_BITS));
  const sum = i32x4.dot_i16x8_s(lower, v128.load(ONES));
  return planes == 1 ? sum : dot_i16(upper, v128.load(UPPER), sum);
}

/** scale, by that of the digits at `a` if they are of one plane. */
// @ts-ignore: decorator
@inline
function scaled_by_ordered(planes: i32, a: U8Ptr, group: i32, scale: v128): v128 {
  return planes == 1 ? f32x4.mul(scale, scale_of_ordered(a, group)) : scale;
}

/** C[8] (+)= scales[8] · the sums of a block of rows of digits that begins at `a`; sums0 and sums1 are those of entries. */
// @ts-ignore: decorator
@inline
function add_block(
  codes: i32,
  path: i32,
  planes: i32,
  group: i32,
  c: F32Ptr,
  first: bool,
  scales: F32Ptr,
  a: U8Ptr,
  lower0: v128,
  lower1: v128,
  upper0: v128,
  upper1: v128,
  sums0: v128,
  sums1: v128,
): void {
  const init = first ? zeros : c;
  add_scaled(c, init, sum_of(codes, path, planes, a, lower0, upper0, sums0), scaled_by_ordered(planes, a, group, v128.load(scales)));
  add_scaled(c + 16, init + 16, sum_of(codes, path, planes, a, lower1, upper1, sums1), scaled_by_ordered(planes, a, group, v128.load(scales, 16)));
}

/**
 * C[8·panels] (+)= scales[8·panels] · (starts + A · weights[group, 8·panels]) for one group of inputs after the other, of which the
 * first may start from 0, and up to four rows of digits: as many rows of A, or where `planes` is 2, the lower and the upper
 * digits of half as many. `codes`, what nibbles stand for, `path`, `rows`, from 1 to 4, and `planes` are constants.
 *
 * 4x8 tile, 15 v128: acc00..acc31 = 8 | low0 high0 low1 high1 = 4 | a0, product, mask = 3; of codes also the table, and of int8 their sums
 * A as order_digits leaves it, rows aStride apart · B for each 8 inputs two rows: columns 0 to 3, then 4 to 7; panels bStride apart, as are
 * scales by sStride; groups `gap` bytes apart, in which the scales of the next lie, or none, where these are side by side
 * C rows cStride, panels cPanel apart · 8 k a step · the sums are exact: 16 bits hold 17 products of a digit, of up to 127, and a nibble,
 * of which a block has 16; with entries of up to 24 they may wrap on the way, and end within 16 products by -12 to 12
 */
// @ts-ignore: decorator
@inline
export function q4_dot_nx8(
  codes: i32,
  path: i32,
  rows: i32,
  planes: i32,
  c: F32Ptr,
  cPanel: usize,
  cStride: usize,
  first: bool,
  scales: F32Ptr,
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
  const mask = v128.load(NIBBLE);
  const ones = codes == WIDE ? v128.load(ONES) : mask;
  const each = codes == WIDE ? v128.load(EACH) : mask;
  const step = <usize>planes << 5;
  const bytes = <usize>group << 2;
  for (; groups > 0; groups--) {
    let bPtr = b;
    let sPtr = scales;
    let cPtr0 = c;
    for (const cEnd = c + <usize>panels * cPanel; cPtr0 < cEnd; cPtr0 += cPanel) {
      let aPtr0 = a;
      let aPtr1 = planes == 2 ? a + 16 : a + aStride;
      let aPtr2 = planes == 2 ? a + aStride : aPtr1 + aStride;
      let aPtr3 = planes == 2 ? aPtr2 + 16 : aPtr2 + aStride;
      let acc00 = start_of(codes, aPtr0);
      let acc01 = acc00;
      let acc10 = rows > 1 ? start_of(codes, aPtr1) : acc00;
      let acc11 = acc10;
      let acc20 = rows > 2 ? start_of(codes, aPtr2) : acc00;
      let acc21 = acc20;
      let acc30 = rows > 3 ? start_of(codes, aPtr3) : acc00;
      let acc31 = acc30;
      let sums0 = i32x4.splat(0);
      let sums1 = sums0;
      let bPtr0 = bPtr;
      const bEnd = bPtr0 + bytes;
      do {
        let high0 = v128.load(bPtr0);
        let high1 = v128.load(bPtr0, 16);
        const low0 = entries(codes, table, v128.and(high0, mask));
        const low1 = entries(codes, table, v128.and(high1, mask));
        high0 = entries(codes, table, v128.and(i16x8.shr_u(high0, 4), mask));
        high1 = entries(codes, table, v128.and(i16x8.shr_u(high1, 4), mask));
        if (codes == WIDE) {
          sums0 = add_entries(path, low0, high0, sums0, each);
          sums1 = add_entries(path, low1, high1, sums1, each);
        }
        let a0 = digits_of(planes, 0, aPtr0);
        acc00 = dot_entries(codes, path, a0, low0, acc00, ones);
        acc01 = dot_entries(codes, path, a0, low1, acc01, ones);
        a0 = digits_of(planes, 1, aPtr0);
        acc00 = dot_entries(codes, path, a0, high0, acc00, ones);
        acc01 = dot_entries(codes, path, a0, high1, acc01, ones);
        aPtr0 += step;
        if (rows > 1) {
          a0 = digits_of(planes, 0, aPtr1);
          acc10 = dot_entries(codes, path, a0, low0, acc10, ones);
          acc11 = dot_entries(codes, path, a0, low1, acc11, ones);
          a0 = digits_of(planes, 1, aPtr1);
          acc10 = dot_entries(codes, path, a0, high0, acc10, ones);
          acc11 = dot_entries(codes, path, a0, high1, acc11, ones);
          aPtr1 += step;
        }
        if (rows > 2) {
          a0 = digits_of(planes, 0, aPtr2);
          acc20 = dot_entries(codes, path, a0, low0, acc20, ones);
          acc21 = dot_entries(codes, path, a0, low1, acc21, ones);
          a0 = digits_of(planes, 1, aPtr2);
          acc20 = dot_entries(codes, path, a0, high0, acc20, ones);
          acc21 = dot_entries(codes, path, a0, high1, acc21, ones);
          aPtr2 += step;
        }
        if (rows > 3) {
          a0 = digits_of(planes, 0, aPtr3);
          acc30 = dot_entries(codes, path, a0, low0, acc30, ones);
          acc31 = dot_entries(codes, path, a0, low1, acc31, ones);
          a0 = digits_of(planes, 1, aPtr3);
          acc30 = dot_entries(codes, path, a0, high0, acc30, ones);
          acc31 = dot_entries(codes, path, a0, high1, acc31, ones);
          aPtr3 += step;
        }
        bPtr0 += 32;
      } while (bPtr0 < bEnd);
      let o = cPtr0;
      if (planes == 2) {
        add_block(codes, path, 2, group, o, first, sPtr, a, acc00, acc01, acc10, acc11, sums0, sums1);
        if (rows > 2) add_block(codes, path, 2, group, o + cStride, first, sPtr, a, acc20, acc21, acc30, acc31, sums0, sums1);
      } else {
        add_block(codes, path, 1, group, o, first, sPtr, a, acc00, acc01, acc00, acc01, sums0, sums1);
        o += cStride;
        if (rows > 1) add_block(codes, path, 1, group, o, first, sPtr, a + aStride, acc10, acc11, acc10, acc11, sums0, sums1);
        o += cStride;
        if (rows > 2) add_block(codes, path, 1, group, o, first, sPtr, a + aStride * 2, acc20, acc21, acc20, acc21, sums0, sums1);
        o += cStride;
        if (rows > 3) add_block(codes, path, 1, group, o, first, sPtr, a + aStride * 3, acc30, acc31, acc30, acc31, sums0, sums1);
      }
      bPtr += bStride;
      sPtr += sStride;
    }
    first = false;
    a += ordered_bytes(planes, group);
    b += bytes + gap;
    scales += gap ? bytes + gap : SCALES;
  }
}
