import { PANEL_BYTES } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";
import { STATE_ALPHA, STATE_BYTES, STRIP_BYTES } from "./state";

// The tile of attention_f32's PV product at the causal diagonal.

/**
 * C[rows, 8] = alpha[rows] · C + A · B for a strip of 6 rows if `tall`, a constant, else 4, where row r attends r keys more
 * than row 0: the first n keys belong to all rows, then key n + step to the rows above `step`, for the steps below `steps`.
 * No pair outside is multiplied, so nothing needs a check. A and B begin at the first key that any row attends; n < 0 when
 * row 0 attends none and -n rows none before it.
 *
 * 6x8 tile, 15 v128: acc00..acc51 = 12 | b0 b1 = 2 | a<row> = 1
 * A [rows][keys] row stride STRIP_BYTES · B [keys][8] · C [rows][8] row stride cStride
 * keys not unrolled · every sum takes the keys in ascending order
 */
// @ts-ignore: decorator
@inline
function pv_causal_x8(
  tall: bool,
  cPtr0: F32Ptr,
  cStride: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  n: i32,
  steps: i32,
): void {
  const cPtr1 = cPtr0 + cStride;
  const cPtr2 = cPtr1 + cStride;
  const cPtr3 = cPtr2 + cStride;
  const cPtr4 = cPtr3 + cStride;
  const cPtr5 = cPtr4 + cStride;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let acc00 = f32x4.mul(v128.load(cPtr0), alpha0);
  let acc01 = f32x4.mul(v128.load(cPtr0, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
  let acc10 = f32x4.mul(v128.load(cPtr1), alpha1);
  let acc11 = f32x4.mul(v128.load(cPtr1, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE_BYTES * 2 + STATE_ALPHA);
  let acc20 = f32x4.mul(v128.load(cPtr2), alpha2);
  let acc21 = f32x4.mul(v128.load(cPtr2, 16), alpha2);
  const alpha3 = v128.load32_splat(state, STATE_BYTES * 3 + STATE_ALPHA);
  let acc30 = f32x4.mul(v128.load(cPtr3), alpha3);
  let acc31 = f32x4.mul(v128.load(cPtr3, 16), alpha3);
  let acc40 = acc00;
  let acc41 = acc01;
  let acc50 = acc00;
  let acc51 = acc01;
  if (tall) {
    const alpha4 = v128.load32_splat(state, STATE_BYTES * 4 + STATE_ALPHA);
    acc40 = f32x4.mul(v128.load(cPtr4), alpha4);
    acc41 = f32x4.mul(v128.load(cPtr4, 16), alpha4);
    const alpha5 = v128.load32_splat(state, STATE_BYTES * 5 + STATE_ALPHA);
    acc50 = f32x4.mul(v128.load(cPtr5), alpha5);
    acc51 = f32x4.mul(v128.load(cPtr5, 16), alpha5);
  }
  const aEnd = n > 0 ? aPtr0 + (<usize>n << 2) : aPtr0;
  while (aPtr0 < aEnd) {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, b0, acc00);
    acc01 = madd(a0, b1, acc01);
    const a1 = v128.load32_splat(aPtr0, STRIP_BYTES);
    acc10 = madd(a1, b0, acc10);
    acc11 = madd(a1, b1, acc11);
    const a2 = v128.load32_splat(aPtr0, STRIP_BYTES * 2);
    acc20 = madd(a2, b0, acc20);
    acc21 = madd(a2, b1, acc21);
    const a3 = v128.load32_splat(aPtr0, STRIP_BYTES * 3);
    acc30 = madd(a3, b0, acc30);
    acc31 = madd(a3, b1, acc31);
    if (tall) {
      const a4 = v128.load32_splat(aPtr0, STRIP_BYTES * 4);
      acc40 = madd(a4, b0, acc40);
      acc41 = madd(a4, b1, acc41);
      const a5 = v128.load32_splat(aPtr0, STRIP_BYTES * 5);
      acc50 = madd(a5, b0, acc50);
      acc51 = madd(a5, b1, acc51);
    }
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
  }
  if (n >= 0 && steps > 0) {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const a1 = v128.load32_splat(aPtr0, STRIP_BYTES);
    acc10 = madd(a1, b0, acc10);
    acc11 = madd(a1, b1, acc11);
    const a2 = v128.load32_splat(aPtr0, STRIP_BYTES * 2);
    acc20 = madd(a2, b0, acc20);
    acc21 = madd(a2, b1, acc21);
    const a3 = v128.load32_splat(aPtr0, STRIP_BYTES * 3);
    acc30 = madd(a3, b0, acc30);
    acc31 = madd(a3, b1, acc31);
    if (tall) {
      const a4 = v128.load32_splat(aPtr0, STRIP_BYTES * 4);
      acc40 = madd(a4, b0, acc40);
      acc41 = madd(a4, b1, acc41);
      const a5 = v128.load32_splat(aPtr0, STRIP_BYTES * 5);
      acc50 = madd(a5, b0, acc50);
      acc51 = madd(a5, b1, acc51);
    }
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
  }
  if (n >= -1 && steps > 1) {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const a2 = v128.load32_splat(aPtr0, STRIP_BYTES * 2);
    acc20 = madd(a2, b0, acc20);
    acc21 = madd(a2, b1, acc21);
    const a3 = v128.load32_splat(aPtr0, STRIP_BYTES * 3);
    acc30 = madd(a3, b0, acc30);
    acc31 = madd(a3, b1, acc31);
    if (tall) {
      const a4 = v128.load32_splat(aPtr0, STRIP_BYTES * 4);
      acc40 = madd(a4, b0, acc40);
      acc41 = madd(a4, b1, acc41);
      const a5 = v128.load32_splat(aPtr0, STRIP_BYTES * 5);
      acc50 = madd(a5, b0, acc50);
      acc51 = madd(a5, b1, acc51);
    }
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
  }
  if (n >= -2 && steps > 2) {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const a3 = v128.load32_splat(aPtr0, STRIP_BYTES * 3);
    acc30 = madd(a3, b0, acc30);
    acc31 = madd(a3, b1, acc31);
    if (tall) {
      const a4 = v128.load32_splat(aPtr0, STRIP_BYTES * 4);
      acc40 = madd(a4, b0, acc40);
      acc41 = madd(a4, b1, acc41);
      const a5 = v128.load32_splat(aPtr0, STRIP_BYTES * 5);
      acc50 = madd(a5, b0, acc50);
      acc51 = madd(a5, b1, acc51);
    }
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
  }
  if (tall && n >= -3 && steps > 3) {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const a4 = v128.load32_splat(aPtr0, STRIP_BYTES * 4);
    acc40 = madd(a4, b0, acc40);
    acc41 = madd(a4, b1, acc41);
    const a5 = v128.load32_splat(aPtr0, STRIP_BYTES * 5);
    acc50 = madd(a5, b0, acc50);
    acc51 = madd(a5, b1, acc51);
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
  }
  if (tall && n >= -4 && steps > 4) {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const a5 = v128.load32_splat(aPtr0, STRIP_BYTES * 5);
    acc50 = madd(a5, b0, acc50);
    acc51 = madd(a5, b1, acc51);
  }
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr1, acc10);
  v128.store(cPtr1, acc11, 16);
  v128.store(cPtr2, acc20);
  v128.store(cPtr2, acc21, 16);
  v128.store(cPtr3, acc30);
  v128.store(cPtr3, acc31, 16);
  if (tall) {
    v128.store(cPtr4, acc40);
    v128.store(cPtr4, acc41, 16);
    v128.store(cPtr5, acc50);
    v128.store(cPtr5, acc51, 16);
  }
}

export function pv_causal_4x8(
  cPtr0: F32Ptr,
  cStride: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  n: i32,
  steps: i32,
): void {
  pv_causal_x8(false, cPtr0, cStride, state, aPtr0, bPtr0, n, steps);
}

export function pv_causal_6x8(
  cPtr0: F32Ptr,
  cStride: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  n: i32,
  steps: i32,
): void {
  pv_causal_x8(true, cPtr0, cStride, state, aPtr0, bPtr0, n, steps);
}
