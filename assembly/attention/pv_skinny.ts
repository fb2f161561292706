import { STATE_ALPHA, STATE_BYTES, STRIP_BYTES } from "./state";
import { finite } from "./pv";
import { VALUE_PANEL_BYTES } from "../cache/page";
import { madd } from "../math/simd";
import { F32Ptr } from "../types";

// The tiles of attention_values.ts for strips of up to three rows: more columns at a time, for as many chains. The
// panels of a tile lie `step` panels apart, and three rows read each weight twice, both for the reasons in
// attention_scores_wide.ts.

/** o[:3] = alpha[:3] · o + p[:3, :n] · v[:n] for two panels, n > 0. Checked: 1, and o as it was, where not finite. */
export function weigh_3x16(
  o: F32Ptr,
  row: usize,
  state: F32Ptr,
  p: F32Ptr,
  v: F32Ptr,
  n: i32,
  check: i32,
  step: usize,
): i32 {
  const o1 = o + row;
  const o2 = o1 + row;
  const apart = step << 5;
  let v1 = v + VALUE_PANEL_BYTES * step;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  let a02 = f32x4.mul(v128.load(o + apart), alpha0);
  let a03 = f32x4.mul(v128.load(o + apart, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  let a12 = f32x4.mul(v128.load(o1 + apart), alpha1);
  let a13 = f32x4.mul(v128.load(o1 + apart, 16), alpha1);
  const alpha2 = v128.load32_splat(state, STATE_BYTES * 2 + STATE_ALPHA);
  let a20 = f32x4.mul(v128.load(o2), alpha2);
  let a21 = f32x4.mul(v128.load(o2, 16), alpha2);
  let a22 = f32x4.mul(v128.load(o2 + apart), alpha2);
  let a23 = f32x4.mul(v128.load(o2 + apart, 16), alpha2);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x00 = v128.load32_splat(p);
    a00 = madd(x00, b0, a00);
    a01 = madd(x00, b1, a01);
    const x10 = v128.load32_splat(p, STRIP_BYTES);
    a10 = madd(x10, b0, a10);
    a11 = madd(x10, b1, a11);
    const x20 = v128.load32_splat(p, STRIP_BYTES * 2);
    a20 = madd(x20, b0, a20);
    a21 = madd(x20, b1, a21);
    const b2 = v128.load(v1);
    const b3 = v128.load(v1, 16);
    const x01 = f32x4.splat(load<f32>(p));
    a02 = madd(x01, b2, a02);
    a03 = madd(x01, b3, a03);
    const x11 = f32x4.splat(load<f32>(p, STRIP_BYTES));
    a12 = madd(x11, b2, a12);
    a13 = madd(x11, b3, a13);
    const x21 = f32x4.splat(load<f32>(p, STRIP_BYTES * 2));
    a22 = madd(x21, b2, a22);
    a23 = madd(x21, b3, a23);
    p += 4;
    v += 32;
    v1 += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a02);
    sum = f32x4.add(sum, a03);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a12);
    sum = f32x4.add(sum, a13);
    sum = f32x4.add(sum, a20);
    sum = f32x4.add(sum, a21);
    sum = f32x4.add(sum, a22);
    sum = f32x4.add(sum, a23);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o + apart, a02);
  v128.store(o + apart, a03, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o1 + apart, a12);
  v128.store(o1 + apart, a13, 16);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  v128.store(o2 + apart, a22);
  v128.store(o2 + apart, a23, 16);
  return 0;
}

/** o[:2] = alpha[:2] · o + p[:2, :n] · v[:n] for two panels, n > 0. Checked: 1, and o as it was, where not finite. */
export function weigh_2x16(
  o: F32Ptr,
  row: usize,
  state: F32Ptr,
  p: F32Ptr,
  v: F32Ptr,
  n: i32,
  check: i32,
  step: usize,
): i32 {
  const o1 = o + row;
  const apart = step << 5;
  let v1 = v + VALUE_PANEL_BYTES * step;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  let a02 = f32x4.mul(v128.load(o + apart), alpha0);
  let a03 = f32x4.mul(v128.load(o + apart, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  let a12 = f32x4.mul(v128.load(o1 + apart), alpha1);
  let a13 = f32x4.mul(v128.load(o1 + apart, 16), alpha1);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const b2 = v128.load(v1);
    const b3 = v128.load(v1, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    a02 = madd(x0, b2, a02);
    a03 = madd(x0, b3, a03);
    const x1 = v128.load32_splat(p, STRIP_BYTES);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    a12 = madd(x1, b2, a12);
    a13 = madd(x1, b3, a13);
    p += 4;
    v += 32;
    v1 += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a02);
    sum = f32x4.add(sum, a03);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a12);
    sum = f32x4.add(sum, a13);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o + apart, a02);
  v128.store(o + apart, a03, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o1 + apart, a12);
  v128.store(o1 + apart, a13, 16);
  return 0;
}

/** o[:1] = alpha[:1] · o + p[:1, :n] · v[:n] for four panels, n > 0. Checked: 1, and o as it was, where not finite. */
export function weigh_1x32(
  o: F32Ptr,
  row: usize,
  state: F32Ptr,
  p: F32Ptr,
  v: F32Ptr,
  n: i32,
  check: i32,
  step: usize,
): i32 {
  const apart = step << 5;
  const run = VALUE_PANEL_BYTES * step;
  let v1 = v + run;
  let v2 = v1 + run;
  let v3 = v2 + run;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  let a02 = f32x4.mul(v128.load(o + apart), alpha0);
  let a03 = f32x4.mul(v128.load(o + apart, 16), alpha0);
  let a04 = f32x4.mul(v128.load(o + apart * 2), alpha0);
  let a05 = f32x4.mul(v128.load(o + apart * 2, 16), alpha0);
  let a06 = f32x4.mul(v128.load(o + apart * 3), alpha0);
  let a07 = f32x4.mul(v128.load(o + apart * 3, 16), alpha0);
  const end = p + (<usize>n << 2);
  do {
    const x = v128.load32_splat(p);
    a00 = madd(x, v128.load(v), a00);
    a01 = madd(x, v128.load(v, 16), a01);
    a02 = madd(x, v128.load(v1), a02);
    a03 = madd(x, v128.load(v1, 16), a03);
    a04 = madd(x, v128.load(v2), a04);
    a05 = madd(x, v128.load(v2, 16), a05);
    a06 = madd(x, v128.load(v3), a06);
    a07 = madd(x, v128.load(v3, 16), a07);
    p += 4;
    v += 32;
    v1 += 32;
    v2 += 32;
    v3 += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a02);
    sum = f32x4.add(sum, a03);
    sum = f32x4.add(sum, a04);
    sum = f32x4.add(sum, a05);
    sum = f32x4.add(sum, a06);
    sum = f32x4.add(sum, a07);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o + apart, a02);
  v128.store(o + apart, a03, 16);
  v128.store(o + apart * 2, a04);
  v128.store(o + apart * 2, a05, 16);
  v128.store(o + apart * 3, a06);
  v128.store(o + apart * 3, a07, 16);
  return 0;
}
