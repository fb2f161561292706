import { STATE_ALPHA, STATE_BYTES, STRIP_BYTES } from "./state";
import { MADD_FUSES, madd } from "../math/simd";
import { F32Ptr } from "../types";

// The micro-tiles of attention_f32's values: R rows x C columns, one accumulator an output, ascending keys (see
// attention_scores.ts). Rows of o lie `row` bytes apart, states of rows STATE_BYTES, rows of p a page of floats.

/** Whether a sum of accumulators shows that all of them are finite. It may overflow: a false alarm costs time only. */
// @ts-ignore: decorator
@inline
export function finite(sum: v128): bool {
  return !v128.any_true(f32x4.ne(f32x4.sub(sum, sum), f32x4.splat(0)));
}

/**
 * o[:rows, :8] = alpha[:rows] · o + p[:rows, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, where a result is not
 * finite. `rows` is a constant from 3 to 6 where this is inlined.
 */
// @ts-ignore: decorator
@inline
function weigh_x8(
  rows: i32,
  o: F32Ptr,
  row: usize,
  state: F32Ptr,
  p: F32Ptr,
  v: F32Ptr,
  n: i32,
  check: i32,
): i32 {
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
  let a30 = a00;
  let a31 = a01;
  if (rows > 3) {
    const alpha3 = v128.load32_splat(state, STATE_BYTES * 3 + STATE_ALPHA);
    a30 = f32x4.mul(v128.load(o3), alpha3);
    a31 = f32x4.mul(v128.load(o3, 16), alpha3);
  }
  let a40 = a00;
  let a41 = a01;
  if (rows > 4) {
    const alpha4 = v128.load32_splat(state, STATE_BYTES * 4 + STATE_ALPHA);
    a40 = f32x4.mul(v128.load(o4), alpha4);
    a41 = f32x4.mul(v128.load(o4, 16), alpha4);
  }
  let a50 = a00;
  let a51 = a01;
  if (rows > 5) {
    const alpha5 = v128.load32_splat(state, STATE_BYTES * 5 + STATE_ALPHA);
    a50 = f32x4.mul(v128.load(o5), alpha5);
    a51 = f32x4.mul(v128.load(o5, 16), alpha5);
  }
  const end = p + (<usize>n << 2);
  do {
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
    if (rows > 3) {
      const x3 = v128.load32_splat(p, STRIP_BYTES * 3);
      a30 = madd(x3, b0, a30);
      a31 = madd(x3, b1, a31);
    }
    if (rows > 4) {
      const x4 = v128.load32_splat(p, STRIP_BYTES * 4);
      a40 = madd(x4, b0, a40);
      a41 = madd(x4, b1, a41);
    }
    if (rows > 5) {
      const x5 = v128.load32_splat(p, STRIP_BYTES * 5);
      a50 = madd(x5, b0, a50);
      a51 = madd(x5, b1, a51);
    }
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    sum = f32x4.add(sum, a20);
    sum = f32x4.add(sum, a21);
    if (rows > 3) {
      sum = f32x4.add(sum, a30);
      sum = f32x4.add(sum, a31);
    }
    if (rows > 4) {
      sum = f32x4.add(sum, a40);
      sum = f32x4.add(sum, a41);
    }
    if (rows > 5) {
      sum = f32x4.add(sum, a50);
      sum = f32x4.add(sum, a51);
    }
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  v128.store(o2, a20);
  v128.store(o2, a21, 16);
  if (rows > 3) {
    v128.store(o3, a30);
    v128.store(o3, a31, 16);
  }
  if (rows > 4) {
    v128.store(o4, a40);
    v128.store(o4, a41, 16);
  }
  if (rows > 5) {
    v128.store(o5, a50);
    v128.store(o5, a51, 16);
  }
  return 0;
}

function weigh_6x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  return weigh_x8(6, o, row, state, p, v, n, check);
}

function weigh_5x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  return weigh_x8(5, o, row, state, p, v, n, check);
}

function weigh_4x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  return weigh_x8(4, o, row, state, p, v, n, check);
}

function weigh_3x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  return weigh_x8(3, o, row, state, p, v, n, check);
}

/** o[:2, :8] = alpha[:2] · o + p[:2, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, where not finite. */
function weigh_2x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const o1 = o + row;
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const alpha1 = v128.load32_splat(state, STATE_BYTES + STATE_ALPHA);
  let a10 = f32x4.mul(v128.load(o1), alpha1);
  let a11 = f32x4.mul(v128.load(o1, 16), alpha1);
  const end = p + (<usize>n << 2);
  do {
    const b0 = v128.load(v);
    const b1 = v128.load(v, 16);
    const x0 = v128.load32_splat(p);
    a00 = madd(x0, b0, a00);
    a01 = madd(x0, b1, a01);
    const x1 = v128.load32_splat(p, STRIP_BYTES);
    a10 = madd(x1, b0, a10);
    a11 = madd(x1, b1, a11);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    sum = f32x4.add(sum, a10);
    sum = f32x4.add(sum, a11);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  v128.store(o1, a10);
  v128.store(o1, a11, 16);
  return 0;
}

/** o[:1, :8] = alpha[:1] · o + p[:1, :n] · v[:n, :8], n > 0. Checked: 1, and o as it was, where not finite. */
function weigh_1x8(o: F32Ptr, row: usize, state: F32Ptr, p: F32Ptr, v: F32Ptr, n: i32, check: i32): i32 {
  const alpha0 = v128.load32_splat(state, STATE_ALPHA);
  let a00 = f32x4.mul(v128.load(o), alpha0);
  let a01 = f32x4.mul(v128.load(o, 16), alpha0);
  const end = p + (<usize>n << 2);
  do {
    const x = v128.load32_splat(p);
    a00 = madd(x, v128.load(v), a00);
    a01 = madd(x, v128.load(v, 16), a01);
    p += 4;
    v += 32;
  } while (p < end);
  if (check) {
    let sum = f32x4.add(a00, a01);
    if (!finite(sum)) return 1;
  }
  v128.store(o, a00);
  v128.store(o, a01, 16);
  return 0;
}

/** The tile of `rows` rows and 8 columns. */
export function weigh_columns(
  rows: i32,
  o: F32Ptr,
  row: usize,
  state: F32Ptr,
  p: F32Ptr,
  v: F32Ptr,
  n: i32,
  check: i32,
): i32 {
  switch (rows) {
    case 6:
      return MADD_FUSES ? weigh_6x8(o, row, state, p, v, n, check) : 0;
    case 5:
      return weigh_5x8(o, row, state, p, v, n, check);
    case 4:
      return weigh_4x8(o, row, state, p, v, n, check);
    case 3:
      return weigh_3x8(o, row, state, p, v, n, check);
    case 2:
      return weigh_2x8(o, row, state, p, v, n, check);
    default:
      return weigh_1x8(o, row, state, p, v, n, check);
  }
}
