import { dot_i8, dot_pairs_i8 } from "../math/simd";
import { U8Ptr } from "../types";
import { PATH_I16 } from "./int_dot";
import { DIGIT, DIGIT_BIAS, DIGIT_BITS, PATH_I8 } from "./int_dot_i8";

/** Bytes of a group of inputs of a row as order_digits leaves them. */
// @ts-ignore: decorator
@inline
export function ordered_bytes(planes: i32, group: i32): usize {
  return <usize>(planes * ((group + 4) << 2));
}

/** Eight integers of a row as i16: from i16, or from one or two planes of digits. */
// @ts-ignore: decorator
@inline
export function eight_of(path: i32, planes: i32, x: U8Ptr, plane: usize): v128 {
  if (path == PATH_I16) return v128.load(x);
  const upper = i16x8.sub(v128.load8x8_u(x), i16x8.splat(<i16>DIGIT_BIAS));
  return planes == 1 ? upper : v128.or(i16x8.shl(upper, DIGIT_BITS), v128.load8x8_u(x + plane));
}

/**
 * `count` integers of a row, whole groups, as the tile reads them. For a group: where the sums of its digits begin, and for
 * each eight inputs the digits of 0, 4, 1, 5 and those of 2, 6, 3, 7 in each lane. The digits are signed unless the uppermost are raised
 * by `raise`; where `planes` is 2, each upper one follows its lower one. Sums begin with -zero times the digits, because a weight is
 * its nibble minus zero.
 */
export function order_digits(
  path: i32,
  planes: i32,
  zero: i32,
  raise: i32,
  to: U8Ptr,
  x: U8Ptr,
  plane: usize,
  count: i32,
  group: i32,
): void {
  const zeros = i8x16.splat(<i8>zero);
  const bias = i16x8.splat(<i16>raise);
  const digit = i16x8.splat(<i16>DIGIT);
  const step = <usize>planes << 4;
  for (; count > 0; count -= group) {
    let sums = i32x4.splat(0);
    let at = to + step;
    for (let i = 0; i < group; i += 8) {
      const eight = eight_of(path, planes, x, plane);
      x += path == PATH_I16 ? 16 : 8;
      const low = planes == 1 ? i16x8.add(eight, bias) : v128.and(eight, digit);
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
    sums = path == PATH_I8 ? i32x4.neg(i32x4.add(sums, others)) : i16x8.neg(i16x8.add(sums, others));
    v128.store(to, v128.shuffle<i32>(sums, sums, 0, 0, 0, 0));
    if (planes == 2) v128.store(to, v128.shuffle<i32>(sums, sums, 1, 1, 1, 1), 16);
    to = at;
  }
}
