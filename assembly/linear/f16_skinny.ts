import { PANEL_BYTES, PANEL_BYTES_16 } from "../layout";
import { madd } from "../math/simd";
import { F32Ptr, U16Ptr } from "../types";

// Tiles of linear_f16 for one to five rows, which widen weights in registers as they multiply. A register holds a row of a
// panel as four pairs: columns 0, 2, 4, 6 in the lower halves, 1, 3, 5, 7 in the upper ones, and each of the two has
// accumulators of its own: acc<row><0, 2, ..> are even columns, acc<row><1, 3, ..> odd ones. Strides are in bytes.
//
// f16: the sign and the 15 other bits, moved to where float32 has them, are the weight times 2^-112, whose product with A
// times 2^112 is the same number: A is already scaled, which saves one instruction a weight. This is wrong for an infinity
// or NaN. A tile that has met a weight of magnitude 2 or more, which all of these are, stores nothing and returns false.
// bf16: a weight is the upper half of its float32, and every tile is right.

/** Bits of a float32 that come from f16, and those that come from bf16; bit 14 of each half. */
const BITS = memory.data<u32>([0x8fffe000, 0xffff0000, 0x40004000]);

// @ts-ignore: decorator
@inline
export function kept_bits(bf16: bool): v128 {
  return v128.load32_splat(bf16 ? BITS + 4 : BITS);
}

/** Bytes that pointers into panels stand in front of a row. */
export const BEFORE = 2;

/**
 * Columns 0, 2, 4, 6 of `line`, the row BEFORE bytes behind `at`. For f16 the row is loaded again from two bytes lower, which
 * has these columns in the upper halves: a load is free where shifts are scarce. What lies in front of the matrix is read
 * so, and dropped.
 */
// @ts-ignore: decorator
@inline
export function even(bf16: bool, at: usize, line: v128, kept: v128): v128 {
  if (bf16) return i32x4.shl(line, 16);
  return v128.and(i32x4.shr_s(v128.load(at), 3), kept);
}

/** Columns 1, 3, 5, 7. */
// @ts-ignore: decorator
@inline
export function odd(bf16: bool, line: v128, kept: v128): v128 {
  return v128.and(bf16 ? line : i32x4.shr_s(line, 3), kept);
}

/** All bits that any row had, of f16. */
// @ts-ignore: decorator
@inline
function note(bf16: bool, seen: v128, line: v128): v128 {
  return bf16 ? seen : v128.or(seen, line);
}

// @ts-ignore: decorator
@inline
function has_large(bf16: bool, seen: v128): bool {
  return !bf16 && v128.any_true(v128.and(seen, v128.load32_splat(BITS + 8)));
}

/** Even and odd columns of the eight floats at `at`. */
// @ts-ignore: decorator
@inline
export function load_even(at: usize): v128 {
  return v128.shuffle<f32>(v128.load(at), v128.load(at, 16), 0, 2, 4, 6);
}

// @ts-ignore: decorator
@inline
export function load_odd(at: usize): v128 {
  return v128.shuffle<f32>(v128.load(at), v128.load(at, 16), 1, 3, 5, 7);
}

// @ts-ignore: decorator
@inline
export function store_columns(at: usize, evens: v128, odds: v128): void {
  v128.store(at, v128.shuffle<f32>(evens, odds, 0, 4, 1, 5));
  v128.store(at, v128.shuffle<f32>(evens, odds, 2, 6, 3, 7), 16);
}

/**
 * C[32] = init[32] + A[k] · B[k, 32].
 *
 * 1x32 tile, 13 v128: acc00..acc07 = 8 | line, its even or odd columns = 2 | a0 = 1 | kept, seen = 2
 * A [k] · B four panels [k][8] of 16 bits, bStride apart · C, init [4][8], cPanel and initPanel apart
 * k not unrolled · every sum takes k in ascending order
 */
// @ts-ignore: decorator
@inline
export function linear_f16_1x32(
  bf16: bool,
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: U16Ptr,
  k: i32,
  cPanel: usize,
  initPanel: usize,
  bStride: usize,
): bool {
  const kept = kept_bits(bf16);
  let seen = i32x4.splat(0);
  let acc00 = load_even(initPtr);
  let acc01 = load_odd(initPtr);
  initPtr += initPanel;
  let acc02 = load_even(initPtr);
  let acc03 = load_odd(initPtr);
  initPtr += initPanel;
  let acc04 = load_even(initPtr);
  let acc05 = load_odd(initPtr);
  initPtr += initPanel;
  let acc06 = load_even(initPtr);
  let acc07 = load_odd(initPtr);
  bPtr0 -= BEFORE;
  let bPtr1 = bPtr0 + bStride;
  let bPtr2 = bPtr1 + bStride;
  let bPtr3 = bPtr2 + bStride;
  for (const aEnd = aPtr0 + (<usize>k << 2); aPtr0 != aEnd; aPtr0 += 4) {
    const a0 = v128.load32_splat(aPtr0);
    let line = v128.load(bPtr0, BEFORE);
    seen = note(bf16, seen, line);
    acc00 = madd(a0, even(bf16, bPtr0, line, kept), acc00);
    acc01 = madd(a0, odd(bf16, line, kept), acc01);
    line = v128.load(bPtr1, BEFORE);
    seen = note(bf16, seen, line);
    acc02 = madd(a0, even(bf16, bPtr1, line, kept), acc02);
    acc03 = madd(a0, odd(bf16, line, kept), acc03);
    line = v128.load(bPtr2, BEFORE);
    seen = note(bf16, seen, line);
    acc04 = madd(a0, even(bf16, bPtr2, line, kept), acc04);
    acc05 = madd(a0, odd(bf16, line, kept), acc05);
    line = v128.load(bPtr3, BEFORE);
    seen = note(bf16, seen, line);
    acc06 = madd(a0, even(bf16, bPtr3, line, kept), acc06);
    acc07 = madd(a0, odd(bf16, line, kept), acc07);
    bPtr0 += PANEL_BYTES_16;
    bPtr1 += PANEL_BYTES_16;
    bPtr2 += PANEL_BYTES_16;
    bPtr3 += PANEL_BYTES_16;
  }
  if (has_large(bf16, seen)) return false;
  store_columns(cPtr0, acc00, acc01);
  cPtr0 += cPanel;
  store_columns(cPtr0, acc02, acc03);
  cPtr0 += cPanel;
  store_columns(cPtr0, acc04, acc05);
  cPtr0 += cPanel;
  store_columns(cPtr0, acc06, acc07);
  return true;
}

/**
 * C[2, 16] = init[2, 16] + A[2, k] · B[k, 16].
 *
 * 2x16 tile, 14 v128: acc00..acc13 = 8 | line, b0 = 2 | a0 a1 = 2 | kept, seen = 2
 * A [2][k] row stride aStride · B two panels [k][8] of 16 bits, bStride apart · C, init [2][2][8] by their strides
 * k not unrolled · every sum takes k in ascending order
 */
// @ts-ignore: decorator
@inline
export function linear_f16_2x16(
  bf16: bool,
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: U16Ptr,
  k: i32,
  cPanel: usize,
  cStride: usize,
  initPanel: usize,
  initStride: usize,
  aStride: usize,
  bStride: usize,
): bool {
  const kept = kept_bits(bf16);
  let seen = i32x4.splat(0);
  let acc00 = load_even(initPtr);
  let acc01 = load_odd(initPtr);
  let acc02 = load_even(initPtr + initPanel);
  let acc03 = load_odd(initPtr + initPanel);
  const initPtr1 = initPtr + initStride;
  let acc10 = load_even(initPtr1);
  let acc11 = load_odd(initPtr1);
  let acc12 = load_even(initPtr1 + initPanel);
  let acc13 = load_odd(initPtr1 + initPanel);
  let aPtr1 = aPtr0 + aStride;
  bPtr0 -= BEFORE;
  let bPtr1 = bPtr0 + bStride;
  for (const aEnd = aPtr0 + (<usize>k << 2); aPtr0 != aEnd; aPtr0 += 4) {
    const a0 = v128.load32_splat(aPtr0);
    const a1 = v128.load32_splat(aPtr1);
    let line = v128.load(bPtr0, BEFORE);
    seen = note(bf16, seen, line);
    let b0 = even(bf16, bPtr0, line, kept);
    acc00 = madd(a0, b0, acc00);
    acc10 = madd(a1, b0, acc10);
    b0 = odd(bf16, line, kept);
    acc01 = madd(a0, b0, acc01);
    acc11 = madd(a1, b0, acc11);
    line = v128.load(bPtr1, BEFORE);
    seen = note(bf16, seen, line);
    b0 = even(bf16, bPtr1, line, kept);
    acc02 = madd(a0, b0, acc02);
    acc12 = madd(a1, b0, acc12);
    b0 = odd(bf16, line, kept);
    acc03 = madd(a0, b0, acc03);
    acc13 = madd(a1, b0, acc13);
    aPtr1 += 4;
    bPtr0 += PANEL_BYTES_16;
    bPtr1 += PANEL_BYTES_16;
  }
  if (has_large(bf16, seen)) return false;
  store_columns(cPtr0, acc00, acc01);
  store_columns(cPtr0 + cPanel, acc02, acc03);
  store_columns(cPtr0 + cStride, acc10, acc11);
  store_columns(cPtr0 + cStride + cPanel, acc12, acc13);
  return true;
}

/**
 * C[rows, 8] = init[rows, 8] + A[rows, k] · B[k, 8]. `rows` is a constant from 1 to 5.
 *
 * 5x8 tile, 15 v128: acc00..acc41 = 10 | b0 b1 = 2 | a0 = 1 | kept, seen = 2
 * A [rows][k] row stride aStride · B [k][8] of 16 bits · C, init [rows][8] by their strides
 * k not unrolled · every sum takes k in ascending order
 */
// @ts-ignore: decorator
@inline
export function linear_f16_nx8(
  bf16: bool,
  rows: i32,
  cPtr0: F32Ptr,
  initPtr: F32Ptr,
  aPtr0: F32Ptr,
  bPtr0: U16Ptr,
  k: i32,
  cStride: usize,
  initStride: usize,
  aStride: usize,
): bool {
  const kept = kept_bits(bf16);
  let seen = i32x4.splat(0);
  let acc00 = load_even(initPtr);
  let acc01 = load_odd(initPtr);
  initPtr += initStride;
  let acc10 = rows > 1 ? load_even(initPtr) : acc00;
  let acc11 = rows > 1 ? load_odd(initPtr) : acc01;
  initPtr += initStride;
  let acc20 = rows > 2 ? load_even(initPtr) : acc00;
  let acc21 = rows > 2 ? load_odd(initPtr) : acc01;
  initPtr += initStride;
  let acc30 = rows > 3 ? load_even(initPtr) : acc00;
  let acc31 = rows > 3 ? load_odd(initPtr) : acc01;
  initPtr += initStride;
  let acc40 = rows > 4 ? load_even(initPtr) : acc00;
  let acc41 = rows > 4 ? load_odd(initPtr) : acc01;
  let aPtr1 = aPtr0 + aStride;
  let aPtr2 = aPtr1 + aStride;
  let aPtr3 = aPtr2 + aStride;
  let aPtr4 = aPtr3 + aStride;
  bPtr0 -= BEFORE;
  for (const aEnd = aPtr0 + (<usize>k << 2); aPtr0 != aEnd; aPtr0 += 4) {
    const line = v128.load(bPtr0, BEFORE);
    seen = note(bf16, seen, line);
    const b0 = even(bf16, bPtr0, line, kept);
    const b1 = odd(bf16, line, kept);
    let a0 = v128.load32_splat(aPtr0);
    acc00 = madd(a0, b0, acc00);
    acc01 = madd(a0, b1, acc01);
    if (rows > 1) {
      a0 = v128.load32_splat(aPtr1);
      acc10 = madd(a0, b0, acc10);
      acc11 = madd(a0, b1, acc11);
    }
    if (rows > 2) {
      a0 = v128.load32_splat(aPtr2);
      acc20 = madd(a0, b0, acc20);
      acc21 = madd(a0, b1, acc21);
    }
    if (rows > 3) {
      a0 = v128.load32_splat(aPtr3);
      acc30 = madd(a0, b0, acc30);
      acc31 = madd(a0, b1, acc31);
    }
    if (rows > 4) {
      a0 = v128.load32_splat(aPtr4);
      acc40 = madd(a0, b0, acc40);
      acc41 = madd(a0, b1, acc41);
    }
    aPtr1 += 4;
    aPtr2 += 4;
    aPtr3 += 4;
    aPtr4 += 4;
    bPtr0 += PANEL_BYTES_16;
  }
  if (has_large(bf16, seen)) return false;
  store_columns(cPtr0, acc00, acc01);
  if (rows > 1) store_columns(cPtr0 + cStride, acc10, acc11);
  if (rows > 2) store_columns(cPtr0 + cStride * 2, acc20, acc21);
  if (rows > 3) store_columns(cPtr0 + cStride * 3, acc30, acc31);
  if (rows > 4) store_columns(cPtr0 + cStride * 4, acc40, acc41);
  return true;
}
