import { F32Ptr, U8Ptr } from "../types";

// The road of pairs (integers.ts): x is int16, and two k are multiplied in one instruction.

// @ts-ignore: decorator
@inline
export function add_pairs(x: v128, w: v128, sum: v128): v128 {
  return i32x4.add(sum, i32x4.dot_i16x8_s(x, w));
}

/** out = from + sum · scale, unfused: the same in every build. */
// @ts-ignore: decorator
@inline
export function scaled(out: F32Ptr, from: F32Ptr, sum: v128, scale: v128): void {
  v128.store(out, f32x4.add(v128.load(from), f32x4.mul(f32x4.convert_i32x4_s(sum), scale)));
}

/** The same for up to four rows of 8 columns, whose scales they are. `rows` is a constant. */
// @ts-ignore: decorator
@inline
export function scaled_x8(
  rows: i32,
  out: F32Ptr,
  outStride: usize,
  from: F32Ptr,
  fromStride: usize,
  scales: F32Ptr,
  sum00: v128,
  sum01: v128,
  sum10: v128,
  sum11: v128,
  sum20: v128,
  sum21: v128,
  sum30: v128,
  sum31: v128,
): void {
  const s0 = v128.load(scales);
  const s1 = v128.load(scales, 16);
  scaled(out, from, sum00, s0);
  scaled(out + 16, from + 16, sum01, s1);
  if (rows > 1) {
    out += outStride;
    from += fromStride;
    scaled(out, from, sum10, s0);
    scaled(out + 16, from + 16, sum11, s1);
  }
  if (rows > 2) {
    out += outStride;
    from += fromStride;
    scaled(out, from, sum20, s0);
    scaled(out + 16, from + 16, sum21, s1);
  }
  if (rows > 3) {
    out += outStride;
    from += fromStride;
    scaled(out, from, sum30, s0);
    scaled(out + 16, from + 16, sum31, s1);
  }
}

/**
 * out[rows, 8] = from[rows, 8] + Σ scales[8] · (x[rows] · w[8] over a group of k) on the road of pairs. `rows` is a constant
 * from 1 to 4: more rows and accumulators are no faster.
 */
// @ts-ignore: decorator
@inline
export function pairs_x8(
  rows: i32,
  out: F32Ptr,
  outStride: usize,
  from: F32Ptr,
  fromStride: usize,
  scales: F32Ptr,
  x: U8Ptr,
  xStride: usize,
  w: U8Ptr,
  k: i32,
  group: i32,
  gap: usize,
): void {
  let x0 = x;
  let x1 = x0 + xStride;
  let x2 = x1 + xStride;
  let x3 = x2 + xStride;
  let v: v128;
  for (; k > 0; k -= group) {
    let sum00 = i32x4.splat(0);
    let sum01 = i32x4.splat(0);
    let sum10 = i32x4.splat(0);
    let sum11 = i32x4.splat(0);
    let sum20 = i32x4.splat(0);
    let sum21 = i32x4.splat(0);
    let sum30 = i32x4.splat(0);
    let sum31 = i32x4.splat(0);
    const end = w + (<usize>min(group, k) << 3);
    do {
      let w0 = v128.load8x8_s(w);
      let w1 = v128.load8x8_s(w, 8);
      v = v128.load32_splat(x0);
      sum00 = add_pairs(v, w0, sum00);
      sum01 = add_pairs(v, w1, sum01);
      if (rows > 1) {
        v = v128.load32_splat(x1);
        sum10 = add_pairs(v, w0, sum10);
        sum11 = add_pairs(v, w1, sum11);
      }
      if (rows > 2) {
        v = v128.load32_splat(x2);
        sum20 = add_pairs(v, w0, sum20);
        sum21 = add_pairs(v, w1, sum21);
      }
      if (rows > 3) {
        v = v128.load32_splat(x3);
        sum30 = add_pairs(v, w0, sum30);
        sum31 = add_pairs(v, w1, sum31);
      }
      w0 = v128.load8x8_s(w, 16);
      w1 = v128.load8x8_s(w, 24);
      v = v128.load32_splat(x0, 4);
      sum00 = add_pairs(v, w0, sum00);
      sum01 = add_pairs(v, w1, sum01);
      if (rows > 1) {
        v = v128.load32_splat(x1, 4);
        sum10 = add_pairs(v, w0, sum10);
        sum11 = add_pairs(v, w1, sum11);
      }
      if (rows > 2) {
        v = v128.load32_splat(x2, 4);
        sum20 = add_pairs(v, w0, sum20);
        sum21 = add_pairs(v, w1, sum21);
      }
      if (rows > 3) {
        v = v128.load32_splat(x3, 4);
        sum30 = add_pairs(v, w0, sum30);
        sum31 = add_pairs(v, w1, sum31);
      }
      x0 += 8;
      x1 += 8;
      x2 += 8;
      x3 += 8;
      w += 32;
    } while (w < end);
    scaled_x8(rows, out, outStride, from, fromStride, scales, sum00, sum01, sum10, sum11, sum20, sum21, sum30, sum31);
    from = out;
    fromStride = outStride;
    if (gap) scales = w;
    w += gap;
  }
}
