import { add_pairs, scaled } from "./int_dot_i16";
import { F32Ptr, U8Ptr } from "../types";

// The forms of pairs_x8 (integers.ts) for one and two rows, whose weights come from memory: several panels at once are as
// many streams, and each pair of x is spread once. `panel` is the bytes between panels.

/** out[32] = from[32] + Σ scales[32] · (x · w[32] over a group of k) from four panels. */
export function pairs_1x32(
  out: F32Ptr,
  from: F32Ptr,
  scales: F32Ptr,
  x: U8Ptr,
  w: U8Ptr,
  panel: usize,
  k: i32,
  group: i32,
  gap: usize,
): void {
  for (; k > 0; k -= group) {
    let sum0 = i32x4.splat(0);
    let sum1 = i32x4.splat(0);
    let sum2 = i32x4.splat(0);
    let sum3 = i32x4.splat(0);
    let sum4 = i32x4.splat(0);
    let sum5 = i32x4.splat(0);
    let sum6 = i32x4.splat(0);
    let sum7 = i32x4.splat(0);
    let w1 = w + panel;
    let w2 = w1 + panel;
    let w3 = w2 + panel;
    const end = w + (<usize>min(group, k) << 3);
    do {
      let v = v128.load32_splat(x);
      sum0 = add_pairs(v, v128.load8x8_s(w), sum0);
      sum1 = add_pairs(v, v128.load8x8_s(w, 8), sum1);
      sum2 = add_pairs(v, v128.load8x8_s(w1), sum2);
      sum3 = add_pairs(v, v128.load8x8_s(w1, 8), sum3);
      sum4 = add_pairs(v, v128.load8x8_s(w2), sum4);
      sum5 = add_pairs(v, v128.load8x8_s(w2, 8), sum5);
      sum6 = add_pairs(v, v128.load8x8_s(w3), sum6);
      sum7 = add_pairs(v, v128.load8x8_s(w3, 8), sum7);
      v = v128.load32_splat(x, 4);
      sum0 = add_pairs(v, v128.load8x8_s(w, 16), sum0);
      sum1 = add_pairs(v, v128.load8x8_s(w, 24), sum1);
      sum2 = add_pairs(v, v128.load8x8_s(w1, 16), sum2);
      sum3 = add_pairs(v, v128.load8x8_s(w1, 24), sum3);
      sum4 = add_pairs(v, v128.load8x8_s(w2, 16), sum4);
      sum5 = add_pairs(v, v128.load8x8_s(w2, 24), sum5);
      sum6 = add_pairs(v, v128.load8x8_s(w3, 16), sum6);
      sum7 = add_pairs(v, v128.load8x8_s(w3, 24), sum7);
      x += 8;
      w += 32;
      w1 += 32;
      w2 += 32;
      w3 += 32;
    } while (w < end);
    scaled(out, from, sum0, v128.load(scales));
    scaled(out + 16, from + 16, sum1, v128.load(scales, 16));
    const scales1 = scales + panel;
    scaled(out + 32, from + 32, sum2, v128.load(scales1));
    scaled(out + 48, from + 48, sum3, v128.load(scales1, 16));
    const scales2 = scales1 + panel;
    scaled(out + 64, from + 64, sum4, v128.load(scales2));
    scaled(out + 80, from + 80, sum5, v128.load(scales2, 16));
    const scales3 = scales2 + panel;
    scaled(out + 96, from + 96, sum6, v128.load(scales3));
    scaled(out + 112, from + 112, sum7, v128.load(scales3, 16));
    from = out;
    if (gap) scales = w;
    w += gap;
  }
}

/** The same for two rows and two panels; rows of out and from lie outStride bytes apart. */
export function pairs_2x16(
  out: F32Ptr,
  outStride: usize,
  from: F32Ptr,
  fromStride: usize,
  scales: F32Ptr,
  x: U8Ptr,
  xStride: usize,
  w: U8Ptr,
  panel: usize,
  k: i32,
  group: i32,
  gap: usize,
): void {
  let x1 = x + xStride;
  for (; k > 0; k -= group) {
    let sum00 = i32x4.splat(0);
    let sum01 = i32x4.splat(0);
    let sum02 = i32x4.splat(0);
    let sum03 = i32x4.splat(0);
    let sum10 = i32x4.splat(0);
    let sum11 = i32x4.splat(0);
    let sum12 = i32x4.splat(0);
    let sum13 = i32x4.splat(0);
    let w1 = w + panel;
    const end = w + (<usize>min(group, k) << 3);
    do {
      const b0 = v128.load8x8_s(w);
      const b1 = v128.load8x8_s(w, 8);
      const b2 = v128.load8x8_s(w1);
      const b3 = v128.load8x8_s(w1, 8);
      let v = v128.load32_splat(x);
      sum00 = add_pairs(v, b0, sum00);
      sum01 = add_pairs(v, b1, sum01);
      sum02 = add_pairs(v, b2, sum02);
      sum03 = add_pairs(v, b3, sum03);
      v = v128.load32_splat(x1);
      sum10 = add_pairs(v, b0, sum10);
      sum11 = add_pairs(v, b1, sum11);
      sum12 = add_pairs(v, b2, sum12);
      sum13 = add_pairs(v, b3, sum13);
      x += 4;
      x1 += 4;
      w += 16;
      w1 += 16;
    } while (w < end);
    const more = scales + panel;
    const o = out + outStride;
    const f = from + fromStride;
    scaled(out, from, sum00, v128.load(scales));
    scaled(out + 16, from + 16, sum01, v128.load(scales, 16));
    scaled(out + 32, from + 32, sum02, v128.load(more));
    scaled(out + 48, from + 48, sum03, v128.load(more, 16));
    scaled(o, f, sum10, v128.load(scales));
    scaled(o + 16, f + 16, sum11, v128.load(scales, 16));
    scaled(o + 32, f + 32, sum12, v128.load(more));
    scaled(o + 48, f + 48, sum13, v128.load(more, 16));
    from = out;
    fromStride = outStride;
    if (gap) scales = w;
    w += gap;
  }
}
