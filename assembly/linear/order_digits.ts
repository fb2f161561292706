import { dot_i8, dot_pairs_i8 } from "../math/simd";
import { U8Ptr } from "../types";
import { BLOCK_SHIFT, block_at } from "./block_layout";
import { PATH_I16 } from "./int_dot";
import { DIGIT, DIGIT_BIAS, DIGIT_BITS, PATH_I8 } from "./int_dot_i8";

/** Bytes of a plane of the digits of a group of inputs of a row as order_digits leaves them. */
// @ts-ignore: decorator
@inline
export function digit_bytes(group: i32): usize {
  return <usize>((group + 4) << 2);
}

/** Bytes of a group: those of each plane, and behind a single one its scale, four times. */
// @ts-ignore: decorator
@inline
export function ordered_bytes(planes: i32, group: i32): usize {
  return planes == 1 ? digit_bytes(group) + 16 : digit_bytes(group) * 2;
}

/** The scale of a group of one plane of digits that begins at `a`. */
// @ts-ignore: decorator
@inline
export function scale_of_ordered(a: U8Ptr, group: i32): v128 {
  return v128.load(a + digit_bytes(group));
}

/** Eight integers of 14 bits as i16: from i16, or from two planes of digits. */
// @ts-ignore: decorator
@inline
export function eight_of(path: i32, x: U8Ptr, plane: usize): v128 {
  if (path == PATH_I16) return v128.load(x);
  const upper = i16x8.sub(v128.load8x8_u(x), i16x8.splat(<i16>DIGIT_BIAS));
  return v128.or(i16x8.shl(upper, DIGIT_BITS), v128.load8x8_u(x + plane));
}

/** Eight integers of 7 bits, raised by `bias`: as bytes they are. */
// @ts-ignore: decorator
@inline
function raised_of(path: i32, x: U8Ptr, bias: v128): v128 {
  return path == PATH_I16 ? i16x8.add(v128.load(x), bias) : v128.load8x8_u(x);
}

/** Eight signed integers of 8 bits. */
// @ts-ignore: decorator
@inline
function signed_of(path: i32, x: U8Ptr): v128 {
  return path == PATH_I16 ? v128.load(x) : v128.load8x8_s(x);
}

/**
 * `count` integers of a row, whole groups, as the tile reads them. For a group: where the sums of its digits begin, and for
 * each eight inputs the digits of 0, 4, 1, 5 and those of 2, 6, 3, 7 in each lane. Where `planes` is 2, each upper one follows its lower
 * one; else the scale of their block, which xBlocks has, follows all. The digits are signed, and sums begin with -zero times them, because
 * a weight is its nibble minus zero; or the uppermost are `raised` to be 7 bits, and what they are raised by stands in place of sums.
 */
export function order_digits(
  path: i32,
  planes: i32,
  zero: i32,
  raised: bool,
  to: U8Ptr,
  x: U8Ptr,
  plane: usize,
  xBlocks: usize,
  count: i32,
  group: i32,
): void {
  const zeros = i8x16.splat(<i8>zero);
  const digit = i16x8.splat(<i16>DIGIT);
  const step = <usize>planes << 4;
  for (; count > 0; count -= group) {
    let sums = i32x4.splat(0);
    let at = to + step;
    const block = block_at(xBlocks);
    const raise = raised ? (planes == 1 ? load<i32>(block, 4) : DIGIT_BIAS) : 0;
    const bias = i16x8.splat(<i16>raise);
    for (let i = 0; i < group; i += 8) {
      const eight = planes == 2 ? eight_of(path, x, plane) : raised ? raised_of(path, x, bias) : signed_of(path, x);
      x += path == PATH_I16 ? 16 : 8;
      const low = planes == 1 ? eight : v128.and(eight, digit);
      let digits = i8x16.narrow_i16x8_s(low, i16x8.add(i16x8.shr_s(eight, DIGIT_BITS), bias));
      digits = i8x16.shuffle(digits, digits, 0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15);
      sums = path == PATH_I8 ? dot_i8(zeros, digits, sums) : dot_pairs_i8(zeros, digits, sums);
      v128.store(at, v128.shuffle<i32>(digits, digits, 0, 0, 0, 0));
      if (planes == 2) v128.store(at, v128.shuffle<i32>(digits, digits, 1, 1, 1, 1), 16);
      at += step;
      v128.store(at, v128.shuffle<i32>(digits, digits, 2, 2, 2, 2));
      if (planes == 2) v128.store(at, v128.shuffle<i32>(digits, digits, 3, 3, 3, 3), 16);
      at += step;
    }
    const others = v128.shuffle<i32>(sums, sums, 2, 3, 0, 1);
    if (raised) sums = path == PATH_I8 ? i32x4.splat(raise) : bias;
    else sums = path == PATH_I8 ? i32x4.neg(i32x4.add(sums, others)) : i16x8.neg(i16x8.add(sums, others));
    v128.store(to, v128.shuffle<i32>(sums, sums, 0, 0, 0, 0));
    if (planes == 2) v128.store(to, v128.shuffle<i32>(sums, sums, 1, 1, 1, 1), 16);
    else {
      v128.store(at, v128.load32_splat(block));
      xBlocks += <usize>(group >> BLOCK_SHIFT);
      at += 16;
    }
    to = at;
  }
}
