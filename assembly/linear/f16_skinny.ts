import { madd } from "../math/simd";
import { F32Ptr, U16Ptr } from "../types";

// The tiles of linear_f16 for one to five rows, which widen as they multiply. A register holds a line of a panel as four
// pairs: columns 0, 2, 4, 6 in the lower halves, 1, 3, 5, 7 in the upper ones, and each of the two has accumulators of
// its own. Strides are in bytes.
//
// f16: the sign and the 15 other bits, moved to where float32 has them, are the weight times 2^-112, whose product with x
// times 2^112 is the same number: `x` is already scaled, and one instruction less a weight is done. This is wrong for an
// infinity or NaN. A tile that has met a weight of magnitude 2 or more, which all of these are, stores nothing and
// returns false. bf16: a weight is the upper half of its float32; every tile is right.

/** Bits of a float32 that come from f16, and those that come from bf16; bit 14 of each half. */
const ROWS = memory.data<u32>([0x8fffe000, 0xffff0000, 0x40004000]);

// @ts-ignore: decorator
@inline
function kept_bits(bf16: bool): v128 {
  return v128.load32_splat(bf16 ? ROWS + 4 : ROWS);
}

/** Pointers into panels stand so many bytes in front of a line. */
const LINE = 2;

/**
 * Columns 0, 2, 4, 6 of the line h, LINE bytes behind `at`. f16 loads the line again from two bytes lower, which has them
 * in the upper halves: a load is free where shifts are scarce. What lies in front of the matrix is read so, and dropped.
 */
// @ts-ignore: decorator
@inline
function even(bf16: bool, at: usize, h: v128, kept: v128): v128 {
  if (bf16) return i32x4.shl(h, 16);
  return v128.and(i32x4.shr_s(v128.load(at), 3), kept);
}

/** Columns 1, 3, 5, 7. */
// @ts-ignore: decorator
@inline
function odd(bf16: bool, h: v128, kept: v128): v128 {
  return v128.and(bf16 ? h : i32x4.shr_s(h, 3), kept);
}

/** All bits that any line had. */
// @ts-ignore: decorator
@inline
function note(bf16: bool, seen: v128, h: v128): v128 {
  return bf16 ? seen : v128.or(seen, h);
}

// @ts-ignore: decorator
@inline
function has_large(bf16: bool, seen: v128): bool {
  return !bf16 && v128.any_true(v128.and(seen, v128.load32_splat(ROWS + 8)));
}

/** Even and odd columns of the eight floats at `at`. */
// @ts-ignore: decorator
@inline
function load_even(at: usize): v128 {
  return v128.shuffle<f32>(v128.load(at), v128.load(at, 16), 0, 2, 4, 6);
}

// @ts-ignore: decorator
@inline
function load_odd(at: usize): v128 {
  return v128.shuffle<f32>(v128.load(at), v128.load(at, 16), 1, 3, 5, 7);
}

// @ts-ignore: decorator
@inline
function store_columns(at: usize, evens: v128, odds: v128): void {
  v128.store(at, v128.shuffle<f32>(evens, odds, 0, 4, 1, 5));
  v128.store(at, v128.shuffle<f32>(evens, odds, 2, 6, 3, 7), 16);
}

/** out[32] = init[32] + x[k] · w[k, 32] from four panels `wStride` apart. */
// @ts-ignore: decorator
@inline
export function half_1x32(bf16: bool, out: F32Ptr, init: F32Ptr, x: F32Ptr, w: U16Ptr, k: i32, wStride: usize): bool {
  const kept = kept_bits(bf16);
  let seen = i32x4.splat(0);
  let acc0 = load_even(init);
  let acc1 = load_odd(init);
  let acc2 = load_even(init + 32);
  let acc3 = load_odd(init + 32);
  let acc4 = load_even(init + 64);
  let acc5 = load_odd(init + 64);
  let acc6 = load_even(init + 96);
  let acc7 = load_odd(init + 96);
  let w0 = w - LINE;
  let w1 = w0 + wStride;
  let w2 = w1 + wStride;
  let w3 = w2 + wStride;
  for (const end = x + (<usize>k << 2); x != end; x += 4) {
    const v = v128.load32_splat(x);
    let h = v128.load(w0, LINE);
    seen = note(bf16, seen, h);
    acc0 = madd(v, even(bf16, w0, h, kept), acc0);
    acc1 = madd(v, odd(bf16, h, kept), acc1);
    h = v128.load(w1, LINE);
    seen = note(bf16, seen, h);
    acc2 = madd(v, even(bf16, w1, h, kept), acc2);
    acc3 = madd(v, odd(bf16, h, kept), acc3);
    h = v128.load(w2, LINE);
    seen = note(bf16, seen, h);
    acc4 = madd(v, even(bf16, w2, h, kept), acc4);
    acc5 = madd(v, odd(bf16, h, kept), acc5);
    h = v128.load(w3, LINE);
    seen = note(bf16, seen, h);
    acc6 = madd(v, even(bf16, w3, h, kept), acc6);
    acc7 = madd(v, odd(bf16, h, kept), acc7);
    w0 += 16;
    w1 += 16;
    w2 += 16;
    w3 += 16;
  }
  if (has_large(bf16, seen)) return false;
  store_columns(out, acc0, acc1);
  store_columns(out + 32, acc2, acc3);
  store_columns(out + 64, acc4, acc5);
  store_columns(out + 96, acc6, acc7);
  return true;
}

/** out[2, 16] = init[2, 16] + x[2, k] · w[k, 16] from two panels `wStride` apart. */
// @ts-ignore: decorator
@inline
export function half_2x16(
  bf16: bool,
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: U16Ptr,
  k: i32,
  outStride: usize,
  initStride: usize,
  xStride: usize,
  wStride: usize,
): bool {
  const kept = kept_bits(bf16);
  let seen = i32x4.splat(0);
  let acc00 = load_even(init);
  let acc01 = load_odd(init);
  let acc02 = load_even(init + 32);
  let acc03 = load_odd(init + 32);
  const init1 = init + initStride;
  let acc10 = load_even(init1);
  let acc11 = load_odd(init1);
  let acc12 = load_even(init1 + 32);
  let acc13 = load_odd(init1 + 32);
  let x1 = x + xStride;
  w -= LINE;
  let w1 = w + wStride;
  for (const end = x + (<usize>k << 2); x != end; x += 4) {
    const v0 = v128.load32_splat(x);
    const v1 = v128.load32_splat(x1);
    let h = v128.load(w, LINE);
    seen = note(bf16, seen, h);
    let b = even(bf16, w, h, kept);
    acc00 = madd(v0, b, acc00);
    acc10 = madd(v1, b, acc10);
    b = odd(bf16, h, kept);
    acc01 = madd(v0, b, acc01);
    acc11 = madd(v1, b, acc11);
    h = v128.load(w1, LINE);
    seen = note(bf16, seen, h);
    b = even(bf16, w1, h, kept);
    acc02 = madd(v0, b, acc02);
    acc12 = madd(v1, b, acc12);
    b = odd(bf16, h, kept);
    acc03 = madd(v0, b, acc03);
    acc13 = madd(v1, b, acc13);
    x1 += 4;
    w += 16;
    w1 += 16;
  }
  if (has_large(bf16, seen)) return false;
  store_columns(out, acc00, acc01);
  store_columns(out + 32, acc02, acc03);
  store_columns(out + outStride, acc10, acc11);
  store_columns(out + outStride + 32, acc12, acc13);
  return true;
}

/** out[rows, 8] = init[rows, 8] + x[rows, k] · w[k, 8]. `rows` is a constant from 1 to 5. */
// @ts-ignore: decorator
@inline
export function half_x8(
  bf16: bool,
  rows: i32,
  out: F32Ptr,
  init: F32Ptr,
  x: F32Ptr,
  w: U16Ptr,
  k: i32,
  outStride: usize,
  initStride: usize,
  xStride: usize,
): bool {
  const kept = kept_bits(bf16);
  let seen = i32x4.splat(0);
  let acc00 = load_even(init);
  let acc01 = load_odd(init);
  init += initStride;
  let acc10 = rows > 1 ? load_even(init) : acc00;
  let acc11 = rows > 1 ? load_odd(init) : acc01;
  init += initStride;
  let acc20 = rows > 2 ? load_even(init) : acc00;
  let acc21 = rows > 2 ? load_odd(init) : acc01;
  init += initStride;
  let acc30 = rows > 3 ? load_even(init) : acc00;
  let acc31 = rows > 3 ? load_odd(init) : acc01;
  init += initStride;
  let acc40 = rows > 4 ? load_even(init) : acc00;
  let acc41 = rows > 4 ? load_odd(init) : acc01;
  let x1 = x + xStride;
  let x2 = x1 + xStride;
  let x3 = x2 + xStride;
  let x4 = x3 + xStride;
  w -= LINE;
  for (const end = x + (<usize>k << 2); x != end; x += 4) {
    const h = v128.load(w, LINE);
    seen = note(bf16, seen, h);
    const b0 = even(bf16, w, h, kept);
    const b1 = odd(bf16, h, kept);
    let v = v128.load32_splat(x);
    acc00 = madd(v, b0, acc00);
    acc01 = madd(v, b1, acc01);
    if (rows > 1) {
      v = v128.load32_splat(x1);
      acc10 = madd(v, b0, acc10);
      acc11 = madd(v, b1, acc11);
    }
    if (rows > 2) {
      v = v128.load32_splat(x2);
      acc20 = madd(v, b0, acc20);
      acc21 = madd(v, b1, acc21);
    }
    if (rows > 3) {
      v = v128.load32_splat(x3);
      acc30 = madd(v, b0, acc30);
      acc31 = madd(v, b1, acc31);
    }
    if (rows > 4) {
      v = v128.load32_splat(x4);
      acc40 = madd(v, b0, acc40);
      acc41 = madd(v, b1, acc41);
    }
    x1 += 4;
    x2 += 4;
    x3 += 4;
    x4 += 4;
    w += 16;
  }
  if (has_large(bf16, seen)) return false;
  store_columns(out, acc00, acc01);
  if (rows > 1) store_columns(out + outStride, acc10, acc11);
  if (rows > 2) store_columns(out + outStride * 2, acc20, acc21);
  if (rows > 3) store_columns(out + outStride * 3, acc30, acc31);
  if (rows > 4) store_columns(out + outStride * 4, acc40, acc41);
  return true;
}
