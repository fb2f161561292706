import { BYTE_DOTS } from "../math/simd";
import { F32Ptr, I32Ptr, U8Ptr } from "../types";
import { int_dot_i8_nx8, PATH_I8, PATH_I8_EMULATED } from "./int_dot_i8";
import { int_dot_i16_nx8 } from "./int_dot_i16";

// Exact products of integer rows: what linear_q8 and linear_q4 are made of. Strides are in bytes.
//
// The second factor w is a panel of 8 columns in pairs of k, [k/2][8][2] int8, k a multiple of 4. The first one, x, has 14
// bits, or 7, in one of two forms. On the path of i16 pairs it is int16 in sequence, and a pair is multiplied in one
// instruction. On the two paths of i8 it is one or two planes of 7-bit digits, the upper one first, and four k are
// multiplied at a time: in one instruction on CPUs that have it, in five on others, or emulated in three. Sums are exact
// either way: up to 2048 k of 14 bits, they fit an i32.

/** i16 pairs: the path that every build has. */
export const PATH_I16: i32 = 0;

/** Bit 0 of a mode: x has 7 bits instead of 14. The bits above it are the path. */
export const FAST: i32 = 1;

/**
 * out[rows, 8] = from[rows, 8] + Σ scales[8] · (x[rows] · w[8] over a group of k) for 1 to 4 rows: the products and their sum
 * are exact; then each group is scaled and added, unfused, in ascending order. A group is `group` k, the last may have
 * fewer. The weights of one group and the next lie `gap` bytes apart, and where that is not 0, the scales of the next lie
 * there. On the paths of i8, x is `planes` planes of digits `plane` bytes apart, and the sums of a group begin with
 * starts[8]: zeros, or for signed numbers, whose upper digits are raised by DIGIT_BIAS, those of start_sums. out may be
 * from.
 */
export function int_dot_nx8(
  path: i32,
  rows: i32,
  planes: i32,
  starts: I32Ptr,
  out: F32Ptr,
  outStride: usize,
  from: F32Ptr,
  fromStride: usize,
  scales: F32Ptr,
  x: U8Ptr,
  xStride: usize,
  plane: usize,
  w: U8Ptr,
  k: i32,
  group: i32,
  gap: usize,
): void {
  if (!BYTE_DOTS || path == PATH_I16) {
    if (rows == 4) int_dot_i16_nx8(4, out, outStride, from, fromStride, scales, x, xStride, w, k, group, gap);
    else if (rows == 3) int_dot_i16_nx8(3, out, outStride, from, fromStride, scales, x, xStride, w, k, group, gap);
    else if (rows == 2) int_dot_i16_nx8(2, out, outStride, from, fromStride, scales, x, xStride, w, k, group, gap);
    else int_dot_i16_nx8(1, out, outStride, from, fromStride, scales, x, xStride, w, k, group, gap);
    return;
  }
  while (rows > 0) {
    const n = rows < 4 ? 1 : 4;
    const o = outStride;
    const f = fromStride;
    if (path == PATH_I8) {
      if (n == 4)
        int_dot_i8_nx8(PATH_I8, 4, planes, starts, out, o, from, f, scales, x, xStride, plane, w, k, group, gap);
      else int_dot_i8_nx8(PATH_I8, 1, planes, starts, out, o, from, f, scales, x, xStride, plane, w, k, group, gap);
    } else {
      if (n == 4)
        int_dot_i8_nx8(
          PATH_I8_EMULATED,
          4,
          planes,
          starts,
          out,
          o,
          from,
          f,
          scales,
          x,
          xStride,
          plane,
          w,
          k,
          group,
          gap,
        );
      else
        int_dot_i8_nx8(
          PATH_I8_EMULATED,
          1,
          planes,
          starts,
          out,
          o,
          from,
          f,
          scales,
          x,
          xStride,
          plane,
          w,
          k,
          group,
          gap,
        );
    }
    rows -= n;
    out += outStride * n;
    from += fromStride * n;
    x += xStride * n;
  }
}
