import { PANEL_BYTES } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";
import { four_heads_4x8 } from "./four_heads";
import { is_finite } from "./pv";
import { STATE_ALPHA, STATE_BYTES, STRIP_BYTES, takes_3x16 } from "./state";

// Tiles of attention_f32 for strips of up to three rows: more panels at a time, for as many independent sums. The panels of a
// tile lie bApart bytes apart, so that each pointer walks through a part of the page from end to end: a few long streams come
// from memory up to twice as fast as many short ones. Those of four_heads.ts are longer still.
//
// They compute the PV product; with sums of 0 and an alpha of 1, scores of two and three rows too.

/**
 * C[3, 16] = alpha[3] · C + A[3, n] · B[n, 16], n > 0. With `check`, returns 1 and leaves C as it was where a result is not
 * finite.
 *
 * 3x16 tile, 15 v128: acc00..acc23 = 12 | b0 b1, then b2 b3 = 2 | a<row><panel> = 1
 * A [3][n] row stride STRIP_BYTES · B two panels [n][8] · C [3] rows of two panels, row stride cStride
 * n not unrolled · every sum takes n in ascending order
 *
 * Each element of A is read twice, once as a broadcast and once as a float that is spread: read twice alike, V8 would
 * keep all three in registers, which are one too few.
 */
function few_3x16(
  cPtr0: F32Ptr,
  cStride: usize,
  cApart: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  bApart: usize,
  n: i32,
  check: i32,
): i32 {
  const cPtr1 = cPtr0 + cStride;
  const cPtr2 = cPtr1 + cStride;
  let bPtr1 = bPtr0 + bApart;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let acc00 = f32x4.mul(v128.load(cPtr0), alpha0);
  let acc01 = f32x4.mul(v128.load(cPtr0, 16), alpha0);
  let acc02 = f32x4.mul(v128.load(cPtr0 + cApart), alpha0);
  let acc03 = f32x4.mul(v128.load(cPtr0 + cApart, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
  let acc10 = f32x4.mul(v128.load(cPtr1), alpha1);
  let acc11 = f32x4.mul(v128.load(cPtr1, 16), alpha1);
  let acc12 = f32x4.mul(v128.load(cPtr1 + cApart), alpha1);
  let acc13 = f32x4.mul(v128.load(cPtr1 + cApart, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE_BYTES * 2 + STATE_ALPHA);
  let acc20 = f32x4.mul(v128.load(cPtr2), alpha2);
  let acc21 = f32x4.mul(v128.load(cPtr2, 16), alpha2);
  let acc22 = f32x4.mul(v128.load(cPtr2 + cApart), alpha2);
  let acc23 = f32x4.mul(v128.load(cPtr2 + cApart, 16), alpha2);
  const aEnd = aPtr0 + (<usize>n << 2);
  do {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const a00 = v128.load32_splat(aPtr0);
    acc00 = madd(a00, b0, acc00);
    acc01 = madd(a00, b1, acc01);
    const a10 = v128.load32_splat(aPtr0, STRIP_BYTES);
    acc10 = madd(a10, b0, acc10);
    acc11 = madd(a10, b1, acc11);
    const a20 = v128.load32_splat(aPtr0, STRIP_BYTES * 2);
    acc20 = madd(a20, b0, acc20);
    acc21 = madd(a20, b1, acc21);
    const b2 = v128.load(bPtr1);
    const b3 = v128.load(bPtr1, 16);
    const a01 = f32x4.splat(load<f32>(aPtr0));
    acc02 = madd(a01, b2, acc02);
    acc03 = madd(a01, b3, acc03);
    const a11 = f32x4.splat(load<f32>(aPtr0, STRIP_BYTES));
    acc12 = madd(a11, b2, acc12);
    acc13 = madd(a11, b3, acc13);
    const a21 = f32x4.splat(load<f32>(aPtr0, STRIP_BYTES * 2));
    acc22 = madd(a21, b2, acc22);
    acc23 = madd(a21, b3, acc23);
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
    bPtr1 += PANEL_BYTES;
  } while (aPtr0 < aEnd);
  if (check) {
    let sum = f32x4.add(acc00, acc01);
    sum = f32x4.add(sum, acc02);
    sum = f32x4.add(sum, acc03);
    sum = f32x4.add(sum, acc10);
    sum = f32x4.add(sum, acc11);
    sum = f32x4.add(sum, acc12);
    sum = f32x4.add(sum, acc13);
    sum = f32x4.add(sum, acc20);
    sum = f32x4.add(sum, acc21);
    sum = f32x4.add(sum, acc22);
    sum = f32x4.add(sum, acc23);
    if (!is_finite(sum)) return 1;
  }
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr0 + cApart, acc02);
  v128.store(cPtr0 + cApart, acc03, 16);
  v128.store(cPtr1, acc10);
  v128.store(cPtr1, acc11, 16);
  v128.store(cPtr1 + cApart, acc12);
  v128.store(cPtr1 + cApart, acc13, 16);
  v128.store(cPtr2, acc20);
  v128.store(cPtr2, acc21, 16);
  v128.store(cPtr2 + cApart, acc22);
  v128.store(cPtr2 + cApart, acc23, 16);
  return 0;
}

/**
 * The same for two rows.
 *
 * 2x16 tile, 13 v128: acc00..acc13 = 8 | b0..b3 = 4 | a<row> = 1
 * A [2][n] row stride STRIP_BYTES · B two panels [n][8] · C [2] rows of two panels, row stride cStride
 * n not unrolled · every sum takes n in ascending order
 */
function few_2x16(
  cPtr0: F32Ptr,
  cStride: usize,
  cApart: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  bApart: usize,
  n: i32,
  check: i32,
): i32 {
  const cPtr1 = cPtr0 + cStride;
  let bPtr1 = bPtr0 + bApart;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let acc00 = f32x4.mul(v128.load(cPtr0), alpha0);
  let acc01 = f32x4.mul(v128.load(cPtr0, 16), alpha0);
  let acc02 = f32x4.mul(v128.load(cPtr0 + cApart), alpha0);
  let acc03 = f32x4.mul(v128.load(cPtr0 + cApart, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
  let acc10 = f32x4.mul(v128.load(cPtr1), alpha1);
  let acc11 = f32x4.mul(v128.load(cPtr1, 16), alpha1);
  let acc12 = f32x4.mul(v128.load(cPtr1 + cApart), alpha1);
  let acc13 = f32x4.mul(v128.load(cPtr1 + cApart, 16), alpha1);
  const aEnd = aPtr0 + (<usize>n << 2);
  do {
    const b0 = v128.load(bPtr0);
    const b1 = v128.load(bPtr0, 16);
    const b2 = v128.load(bPtr1);
    const b3 = v128.load(bPtr1, 16);
    const a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, b0, acc00);
    acc01 = madd(a0, b1, acc01);
    acc02 = madd(a0, b2, acc02);
    acc03 = madd(a0, b3, acc03);
    const a1 = v128.load32_splat(aPtr0, STRIP_BYTES);
    acc10 = madd(a1, b0, acc10);
    acc11 = madd(a1, b1, acc11);
    acc12 = madd(a1, b2, acc12);
    acc13 = madd(a1, b3, acc13);
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
    bPtr1 += PANEL_BYTES;
  } while (aPtr0 < aEnd);
  if (check) {
    let sum = f32x4.add(acc00, acc01);
    sum = f32x4.add(sum, acc02);
    sum = f32x4.add(sum, acc03);
    sum = f32x4.add(sum, acc10);
    sum = f32x4.add(sum, acc11);
    sum = f32x4.add(sum, acc12);
    sum = f32x4.add(sum, acc13);
    if (!is_finite(sum)) return 1;
  }
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr0 + cApart, acc02);
  v128.store(cPtr0 + cApart, acc03, 16);
  v128.store(cPtr1, acc10);
  v128.store(cPtr1, acc11, 16);
  v128.store(cPtr1 + cApart, acc12);
  v128.store(cPtr1 + cApart, acc13, 16);
  return 0;
}

/**
 * The same for one row and four panels.
 *
 * 1x32 tile, 10 v128: acc00..acc07 = 8 | a row of B = 1 | a0 = 1
 * A [n] · B four panels [n][8] · C four panels
 * n not unrolled · every sum takes n in ascending order
 */
function few_1x32(
  cPtr0: F32Ptr,
  cStride: usize,
  cApart: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  bApart: usize,
  n: i32,
  check: i32,
): i32 {
  let bPtr1 = bPtr0 + bApart;
  let bPtr2 = bPtr1 + bApart;
  let bPtr3 = bPtr2 + bApart;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let acc00 = f32x4.mul(v128.load(cPtr0), alpha0);
  let acc01 = f32x4.mul(v128.load(cPtr0, 16), alpha0);
  let acc02 = f32x4.mul(v128.load(cPtr0 + cApart), alpha0);
  let acc03 = f32x4.mul(v128.load(cPtr0 + cApart, 16), alpha0);
  let acc04 = f32x4.mul(v128.load(cPtr0 + cApart * 2), alpha0);
  let acc05 = f32x4.mul(v128.load(cPtr0 + cApart * 2, 16), alpha0);
  let acc06 = f32x4.mul(v128.load(cPtr0 + cApart * 3), alpha0);
  let acc07 = f32x4.mul(v128.load(cPtr0 + cApart * 3, 16), alpha0);
  const aEnd = aPtr0 + (<usize>n << 2);
  do {
    const a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, v128.load(bPtr0), acc00);
    acc01 = madd(a0, v128.load(bPtr0, 16), acc01);
    acc02 = madd(a0, v128.load(bPtr1), acc02);
    acc03 = madd(a0, v128.load(bPtr1, 16), acc03);
    acc04 = madd(a0, v128.load(bPtr2), acc04);
    acc05 = madd(a0, v128.load(bPtr2, 16), acc05);
    acc06 = madd(a0, v128.load(bPtr3), acc06);
    acc07 = madd(a0, v128.load(bPtr3, 16), acc07);
    aPtr0 += 4;
    bPtr0 += PANEL_BYTES;
    bPtr1 += PANEL_BYTES;
    bPtr2 += PANEL_BYTES;
    bPtr3 += PANEL_BYTES;
  } while (aPtr0 < aEnd);
  if (check) {
    let sum = f32x4.add(acc00, acc01);
    sum = f32x4.add(sum, acc02);
    sum = f32x4.add(sum, acc03);
    sum = f32x4.add(sum, acc04);
    sum = f32x4.add(sum, acc05);
    sum = f32x4.add(sum, acc06);
    sum = f32x4.add(sum, acc07);
    if (!is_finite(sum)) return 1;
  }
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  v128.store(cPtr0 + cApart, acc02);
  v128.store(cPtr0 + cApart, acc03, 16);
  v128.store(cPtr0 + cApart * 2, acc04);
  v128.store(cPtr0 + cApart * 2, acc05, 16);
  v128.store(cPtr0 + cApart * 3, acc06);
  v128.store(cPtr0 + cApart * 3, acc07, 16);
  return 0;
}

/**
 * The tile for up to three rows of a kv head, or for one row of each of four, which is 4 rows, and of floats only. n is what a row of A has, and
 * at most QUERY_CHUNK.
 */
export function few_rows<P>(
  rows: i32,
  cPtr0: F32Ptr,
  cStride: usize,
  cApart: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  bApart: usize,
  n: i32,
  check: i32,
): i32 {
  switch (rows) {
    case 4:
      return isFloat<P>() ? four_heads_4x8(cPtr0, cStride, state, aPtr0, bPtr0, bApart, n) : 0;
    case 3:
      return takes_3x16() ? few_3x16(cPtr0, cStride, cApart, state, aPtr0, bPtr0, bApart, n, check) : 0;
    case 2:
      return few_2x16(cPtr0, cStride, cApart, state, aPtr0, bPtr0, bApart, n, check);
    default:
      return few_1x32(cPtr0, cStride, cApart, state, aPtr0, bPtr0, bApart, n, check);
  }
}
