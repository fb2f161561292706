import { PANEL_BYTES } from "../layout";
import { MADD_FUSES, madd } from "../math/simd";
import { F32Ptr } from "../types";
import { STATE_ALPHA, STATE_BYTES, STRIP_BYTES } from "./state";

// Tiles of attention_f32's PV product: rows of weights x columns of values, one accumulator an output, keys in ascending
// order (qk.ts says why). Rows of outputs lie cStride bytes apart, states of rows STATE_BYTES, rows of weights STRIP_BYTES.

/** Whether a sum of accumulators shows that all of them are finite. It may overflow: a false alarm costs time only. */
// @ts-ignore: decorator
@inline
export function is_finite(sum: v128): bool {
  return !v128.any_true(f32x4.ne(f32x4.sub(sum, sum), f32x4.splat(0)));
}

/**
 * C[rows, 8] = alpha[rows] · C + A[rows, n] · B[n, 8], n > 0. With `check`, returns 1 and leaves C as it was where a result
 * is not finite. `rows` and `paired` are constants, `rows` from 1 to 6. Rows of B lie `step` bytes apart; `paired`, by turns
 * `step` and `pair - step`, and the last 4 columns of one lie 32 bytes behind the first.
 *
 * 6x8 tile, 15 v128: acc00..acc51 = 12 | b0 b1 = 2 | a<row> = 1
 * A [rows][n] row stride STRIP_BYTES · B [n][8] · C [rows][8] row stride cStride
 * n not unrolled · every sum takes the keys in ascending order
 */
// @ts-ignore: decorator
@inline
export function pv_nx8(
  rows: i32,
  cPtr0: F32Ptr,
  cStride: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  n: i32,
  check: i32,
  paired: bool,
  step: usize,
  pair: usize,
): i32 {
  const cPtr1 = cPtr0 + cStride;
  const cPtr2 = cPtr1 + cStride;
  const cPtr3 = cPtr2 + cStride;
  const cPtr4 = cPtr3 + cStride;
  const cPtr5 = cPtr4 + cStride;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let acc00 = f32x4.mul(v128.load(cPtr0), alpha0);
  let acc01 = f32x4.mul(v128.load(cPtr0, 16), alpha0);
  let acc10 = acc00;
  let acc11 = acc01;
  if (rows > 1) {
    const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
    acc10 = f32x4.mul(v128.load(cPtr1), alpha1);
    acc11 = f32x4.mul(v128.load(cPtr1, 16), alpha1);
  }
  let acc20 = acc00;
  let acc21 = acc01;
  if (rows > 2) {
    const alpha2 = v128.load32_splat(state, STATE_BYTES * 2 + STATE_ALPHA);
    acc20 = f32x4.mul(v128.load(cPtr2), alpha2);
    acc21 = f32x4.mul(v128.load(cPtr2, 16), alpha2);
  }
  let acc30 = acc00;
  let acc31 = acc01;
  if (rows > 3) {
    const alpha3 = v128.load32_splat(state, STATE_BYTES * 3 + STATE_ALPHA);
    acc30 = f32x4.mul(v128.load(cPtr3), alpha3);
    acc31 = f32x4.mul(v128.load(cPtr3, 16), alpha3);
  }
  let acc40 = acc00;
  let acc41 = acc01;
  if (rows > 4) {
    const alpha4 = v128.load32_splat(state, STATE_BYTES * 4 + STATE_ALPHA);
    acc40 = f32x4.mul(v128.load(cPtr4), alpha4);
    acc41 = f32x4.mul(v128.load(cPtr4, 16), alpha4);
  }
  let acc50 = acc00;
  let acc51 = acc01;
  if (rows > 5) {
    const alpha5 = v128.load32_splat(state, STATE_BYTES * 5 + STATE_ALPHA);
    acc50 = f32x4.mul(v128.load(cPtr5), alpha5);
    acc51 = f32x4.mul(v128.load(cPtr5, 16), alpha5);
  }
  const aEnd = aPtr0 + (<usize>n << 2);
  do {
    const b0 = v128.load(bPtr0);
    const b1 = paired ? v128.load(bPtr0, 32) : v128.load(bPtr0, 16);
    const a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, b0, acc00);
    acc01 = madd(a0, b1, acc01);
    if (rows > 1) {
      const a1 = v128.load32_splat(aPtr0, STRIP_BYTES);
      acc10 = madd(a1, b0, acc10);
      acc11 = madd(a1, b1, acc11);
    }
    if (rows > 2) {
      const a2 = v128.load32_splat(aPtr0, STRIP_BYTES * 2);
      acc20 = madd(a2, b0, acc20);
      acc21 = madd(a2, b1, acc21);
    }
    if (rows > 3) {
      const a3 = v128.load32_splat(aPtr0, STRIP_BYTES * 3);
      acc30 = madd(a3, b0, acc30);
      acc31 = madd(a3, b1, acc31);
    }
    if (rows > 4) {
      const a4 = v128.load32_splat(aPtr0, STRIP_BYTES * 4);
      acc40 = madd(a4, b0, acc40);
      acc41 = madd(a4, b1, acc41);
    }
    if (rows > 5) {
      const a5 = v128.load32_splat(aPtr0, STRIP_BYTES * 5);
      acc50 = madd(a5, b0, acc50);
      acc51 = madd(a5, b1, acc51);
    }
    aPtr0 += 4;
    bPtr0 += step;
    if (paired) step = pair - step;
  } while (aPtr0 < aEnd);
  if (check) {
    let sum = f32x4.add(acc00, acc01);
    if (rows > 1) {
      sum = f32x4.add(sum, acc10);
      sum = f32x4.add(sum, acc11);
    }
    if (rows > 2) {
      sum = f32x4.add(sum, acc20);
      sum = f32x4.add(sum, acc21);
    }
    if (rows > 3) {
      sum = f32x4.add(sum, acc30);
      sum = f32x4.add(sum, acc31);
    }
    if (rows > 4) {
      sum = f32x4.add(sum, acc40);
      sum = f32x4.add(sum, acc41);
    }
    if (rows > 5) {
      sum = f32x4.add(sum, acc50);
      sum = f32x4.add(sum, acc51);
    }
    if (!is_finite(sum)) return 1;
  }
  v128.store(cPtr0, acc00);
  v128.store(cPtr0, acc01, 16);
  if (rows > 1) {
    v128.store(cPtr1, acc10);
    v128.store(cPtr1, acc11, 16);
  }
  if (rows > 2) {
    v128.store(cPtr2, acc20);
    v128.store(cPtr2, acc21, 16);
  }
  if (rows > 3) {
    v128.store(cPtr3, acc30);
    v128.store(cPtr3, acc31, 16);
  }
  if (rows > 4) {
    v128.store(cPtr4, acc40);
    v128.store(cPtr4, acc41, 16);
  }
  if (rows > 5) {
    v128.store(cPtr5, acc50);
    v128.store(cPtr5, acc51, 16);
  }
  return 0;
}

function pv_6x8(cPtr0: F32Ptr, cStride: usize, state: F32Ptr, aPtr0: F32Ptr, bPtr0: F32Ptr, n: i32, check: i32): i32 {
  return pv_nx8(6, cPtr0, cStride, state, aPtr0, bPtr0, n, check, false, PANEL_BYTES, 0);
}

function pv_5x8(cPtr0: F32Ptr, cStride: usize, state: F32Ptr, aPtr0: F32Ptr, bPtr0: F32Ptr, n: i32, check: i32): i32 {
  return pv_nx8(5, cPtr0, cStride, state, aPtr0, bPtr0, n, check, false, PANEL_BYTES, 0);
}

function pv_4x8(cPtr0: F32Ptr, cStride: usize, state: F32Ptr, aPtr0: F32Ptr, bPtr0: F32Ptr, n: i32, check: i32): i32 {
  return pv_nx8(4, cPtr0, cStride, state, aPtr0, bPtr0, n, check, false, PANEL_BYTES, 0);
}

function pv_3x8(cPtr0: F32Ptr, cStride: usize, state: F32Ptr, aPtr0: F32Ptr, bPtr0: F32Ptr, n: i32, check: i32): i32 {
  return pv_nx8(3, cPtr0, cStride, state, aPtr0, bPtr0, n, check, false, PANEL_BYTES, 0);
}

function pv_2x8(cPtr0: F32Ptr, cStride: usize, state: F32Ptr, aPtr0: F32Ptr, bPtr0: F32Ptr, n: i32, check: i32): i32 {
  return pv_nx8(2, cPtr0, cStride, state, aPtr0, bPtr0, n, check, false, PANEL_BYTES, 0);
}

function pv_1x8(cPtr0: F32Ptr, cStride: usize, state: F32Ptr, aPtr0: F32Ptr, bPtr0: F32Ptr, n: i32, check: i32): i32 {
  return pv_nx8(1, cPtr0, cStride, state, aPtr0, bPtr0, n, check, false, PANEL_BYTES, 0);
}

/** The tile of `rows` rows and 8 columns: see pv_nx8. */
export function pv_panel(
  rows: i32,
  cPtr0: F32Ptr,
  cStride: usize,
  state: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: F32Ptr,
  n: i32,
  check: i32,
): i32 {
  switch (rows) {
    case 6:
      return MADD_FUSES ? pv_6x8(cPtr0, cStride, state, aPtr0, bPtr0, n, check) : 0;
    case 5:
      return pv_5x8(cPtr0, cStride, state, aPtr0, bPtr0, n, check);
    case 4:
      return pv_4x8(cPtr0, cStride, state, aPtr0, bPtr0, n, check);
    case 3:
      return pv_3x8(cPtr0, cStride, state, aPtr0, bPtr0, n, check);
    case 2:
      return pv_2x8(cPtr0, cStride, state, aPtr0, bPtr0, n, check);
    default:
      return pv_1x8(cPtr0, cStride, state, aPtr0, bPtr0, n, check);
  }
}
