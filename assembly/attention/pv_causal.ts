import { STATE_ALPHA, STATE_BYTES, STRIP_BYTES } from "./state";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";

/**
 * o[:rows, :8] = alpha[:rows] · o + p · v for a strip of 6 rows if `tall`, a constant, else 4, where row r attends r keys
 * more than row 0: the first n keys belong to all rows, then key n + step to the rows above `step`, for the steps below
 * `steps`. No pair outside is multiplied, so nothing needs a check. p and v point at the first key that any row attends;
 * n < 0 when row 0 attends none and -n rows none before it.
 */
// @ts-ignore: decorator
@inline
function weigh_staircase(
  tall: bool,
  o: F32Ptr,
  row: usize,
  state: F32Ptr,
  p: F32Ptr,
  v: F32Ptr,
  n: i32,
  steps: i32,
): void {
  const o1 = o + row;
  const o2 = o1 + row;
  const o3 = o2 + row;
  const o4 = o3 + row;
  const o5 = o4 + row;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE_BYTES * 2 + STATE_ALPHA);
  let a20 = f32x4.mul(v128.load(o2), alpha2);
  let a21 = f32x4.mul(v128.load(o2, 16), alpha2);
  const alpha3 = v128.load32_splat(state, STATE_BYTES * 3 + STATE_ALPHA);
  let a30 = f32x4.mul(v128.load(o3), alpha3);
  let a31 = f32x4.mul(v128.load(o3, 16), alpha3);
  let a40 = a00;
  let a41 = a01;
  let a50 = a00;
  let a51 = a01;
  if (tall) {
    const alpha4 = v128.load32_splat(state, STATE_BYTES * 4 + STATE_ALPHA);
    a40 = f32x4.mul(v128.load(o4), alpha4);
    a41 = f32x4.mul(v128.load(o4, 16), alpha4);
    const alpha5 = v128.load32_splat(state, STATE_BYTES * 5 + STATE_ALPHA);
    a50 = f32x4.mul(v128.load(o5), alpha5);
    a51 = f32x4.mul(v128.load(o5, 16), alpha5);
  }
  const end = n > 0 ? p + (<usize>n << 2) : p;
  while (p < end) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    const x1 = v128.load32_splat(p, STRIP_BYTES);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    const x2 = v128.load32_splat(p, STRIP_BYTES * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP_BYTES * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    if (tall) {
      const x4 = v128.load32_splat(p, STRIP_BYTES * 4);
      a40 = madd(x4, b0, a40);
      a41 = madd(x4, b1, a41);
      const x5 = v128.load32_splat(p, STRIP_BYTES * 5);
      a50 = madd(x5, b0, a50);
      a51 = madd(x5, b1, a51);
    }
    p += 4;
    v += 32;
  }
  if (n >= 0 && steps > 0) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x1 = v128.load32_splat(p, STRIP_BYTES);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    const x2 = v128.load32_splat(p, STRIP_BYTES * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP_BYTES * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    if (tall) {
      const x4 = v128.load32_splat(p, STRIP_BYTES * 4);
      a40 = madd(x4, b0, a40);
      a41 = madd(x4, b1, a41);
      const x5 = v128.load32_splat(p, STRIP_BYTES * 5);
      a50 = madd(x5, b0, a50);
      a51 = madd(x5, b1, a51);
    }
    p += 4;
    v += 32;
  }
  if (n >= -1 && steps > 1) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x2 = v128.load32_splat(p, STRIP_BYTES * 2);
    a20 = madd(x2, b0, a20);
    a21 = madd(x2, b1, a21);
    const x3 = v128.load32_splat(p, STRIP_BYTES * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    if (tall) {
      const x4 = v128.load32_splat(p, STRIP_BYTES * 4);
      a40 = madd(x4, b0, a40);
      a41 = madd(x4, b1, a41);
      const x5 = v128.load32_splat(p, STRIP_BYTES * 5);
      a50 = madd(x5, b0, a50);
      a51 = madd(x5, b1, a51);
    }
    p += 4;
    v += 32;
  }
  if (n >= -2 && steps > 2) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x3 = v128.load32_splat(p, STRIP_BYTES * 3);
    a30 = madd(x3, b0, a30);
    a31 = madd(x3, b1, a31);
    if (tall) {
      const x4 = v128.load32_splat(p, STRIP_BYTES * 4);
      a40 = madd(x4, b0, a40);
      a41 = madd(x4, b1, a41);
      const x5 = v128.load32_splat(p, STRIP_BYTES * 5);
      a50 = madd(x5, b0, a50);
      a51 = madd(x5, b1, a51);
    }
    p += 4;
    v += 32;
  }
  if (tall && n >= -3 && steps > 3) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x4 = v128.load32_splat(p, STRIP_BYTES * 4);
    a40 = madd(x4, b0, a40);
    a41 = madd(x4, b1, a41);
    const x5 = v128.load32_splat(p, STRIP_BYTES * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
    p += 4;
    v += 32;
  }
  if (tall && n >= -4 && steps > 4) {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x5 = v128.load32_splat(p, STRIP_BYTES * 5);
    a50 = madd(x5, b0, a50);
    a51 = madd(x5, b1, a51);
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  v128.store(o3, a30);
  v128.store(o3, a31, 16);
  if (tall) {
    v128.store(o4, a40);
    v128.store(o4, a41, 16);
    v128.store(o5, a50);
    v128.store(o5, a51, 16);
  }
}

export function weigh_causal_4(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, steps: i32): void {
  weigh_staircase(false, o, row, state, p, v, n, steps);
}

export function weigh_causal_6(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, steps: i32): void {
  weigh_staircase(true, o, row, state, p, v, n, steps);
}
