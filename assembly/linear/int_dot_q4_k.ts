import { BLOCK, Q4_K_BYTES, SUPER_BLOCK } from "../layout";
import { dot_i16 } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { Q4_K_MINS, Q4_K_NIBBLES, Q4_K_SCALES, SCALES } from "./block_layout";
import { DIGIT_BITS, joined, PATH_I8 } from "./int_dot_i8";
import { digits_of, dot_nibbles, NIBBLE } from "./int_dot_q4";
import { digit_bytes, ordered_bytes } from "./order_digits";

// Products of a few integer rows and super-blocks of 4 bits where these lie packed (pack_q4_k.ts), by bytes. Rows are digits in
// the order of nibbles (order_digits.ts), and before each super-block the sums of its blocks. Strides are in bytes.

/** Blocks of a super-block. */
export const BLOCKS = SUPER_BLOCK / BLOCK;

/** Bytes of the digits of a super-block of a row: the sums of its blocks, 16 bits each, then the blocks. */
// @ts-ignore: decorator
@inline
export function super_bytes(planes: i32): usize {
  return (<usize>planes << 4) + ordered_bytes(planes, BLOCK) * BLOCKS;
}

/** Where a super-block of one plane has its scale: that of its first block. */
// @ts-ignore: decorator
@inline
export function scale_at(a: U8Ptr): usize {
  return a + 16 + digit_bytes(BLOCK);
}

const zeros = memory.data(32, 16);

/** Scales of 16 bits for the sums of columns 0 to 3, or of 4 to 7: 32 bits each, or the same for both sums of a column. */
// @ts-ignore: decorator
@inline
export function scale_low(path: i32, scales: v128): v128 {
  if (path == PATH_I8) return i32x4.extend_low_i16x8_u(scales);
  return v128.shuffle<i16>(scales, scales, 0, 0, 1, 1, 2, 2, 3, 3);
}

// @ts-ignore: decorator
@inline
export function scale_high(path: i32, scales: v128): v128 {
  if (path == PATH_I8) return i32x4.extend_high_i16x8_u(scales);
  return v128.shuffle<i16>(scales, scales, 4, 4, 5, 5, 6, 6, 7, 7);
}

/** total + scale · the sums of a block, whose upper digits count 128 times. */
// @ts-ignore: decorator
@inline
export function add_block(path: i32, planes: i32, total: v128, scale: v128, lower: v128, upper: v128): v128 {
  if (path == PATH_I8) return i32x4.add(total, i32x4.mul(planes == 1 ? lower : joined(upper, lower), scale));
  total = dot_i16(lower, scale, total);
  return planes == 1 ? total : dot_i16(upper, i16x8.shl(scale, DIGIT_BITS), total);
}

/** total + Σ minimum · the sum of a block of A, for two blocks of four columns: `m` are bytes, those of a column together. */
// @ts-ignore: decorator
@inline
function add_mins(planes: i32, m: U8Ptr, sums: U8Ptr, total: v128): v128 {
  const least = v128.load8x8_u(m);
  total = dot_i16(v128.load32_splat(sums), least, total);
  return planes == 1 ? total : dot_i16(v128.load32_splat(sums, 16), i16x8.shl(least, DIGIT_BITS), total);
}

/** The same for all eight blocks. */
// @ts-ignore: decorator
@inline
function dot_mins(planes: i32, m: U8Ptr, sums: U8Ptr): v128 {
  let total = add_mins(planes, m, sums, i32x4.splat(0));
  total = add_mins(planes, m + 16, sums + 4, total);
  total = add_mins(planes, m + 32, sums + 8, total);
  return add_mins(planes, m + 48, sums + 12, total);
}

/** C[4] (+)= d · total - least · minimums, each rounded, times the scale at aBlock, if there is one. */
// @ts-ignore: decorator
@inline
function store_four(c: F32Ptr, init: F32Ptr, heads: F32Ptr, aBlock: usize, total: v128, minimums: v128): void {
  const product = f32x4.mul(f32x4.convert_i32x4_s(total), v128.load(heads));
  const less = f32x4.mul(f32x4.convert_i32x4_s(minimums), v128.load(heads, SCALES));
  let sum = f32x4.sub(product, less);
  if (aBlock) sum = f32x4.mul(sum, v128.load32_splat(aBlock));
  v128.store(c, f32x4.add(v128.load(init), sum));
}

/** C[8] (+)= a super-block of a panel: totals, and minimums by the sums of the blocks of A. `planes` is a constant. */
// @ts-ignore: decorator
@inline
export function add_super(planes: i32, c: F32Ptr, first: bool, panel: U8Ptr, sums: U8Ptr, aBlock: usize, total0: v128, total1: v128): void {
  const init = first ? zeros : c;
  const m = panel + Q4_K_MINS;
  store_four(c, init, panel, aBlock, total0, dot_mins(planes, m, sums));
  store_four(c + 16, init + 16, panel + 16, aBlock, total1, dot_mins(planes, m + 8, sums));
}

/** The same of totals [8] i32 in memory, as a function: tiles of many rows have many. */
export function store_super(planes: i32, c: F32Ptr, first: bool, panel: U8Ptr, sums: U8Ptr, aBlock: usize, totals: U8Ptr): void {
  if (planes == 1) add_super(1, c, first, panel, sums, aBlock, v128.load(totals), v128.load(totals, 16));
  else add_super(2, c, first, panel, sums, aBlock, v128.load(totals), v128.load(totals, 16));
}

/**
 * C[8·panels] (+)= d[8·panels] · Σ scale · (A[32] · nibbles[32, 8·panels]) - least[8·panels] · Σ minimum · ΣA[32] over the blocks of
 * a super-block, for one after the other, of which the first may start from 0, and up to four rows of digits: as many rows of A, or
 * where `planes` is 2, the lower and the upper digits of half as many. `path`, `rows`, from 1 to 4, and `planes` are constants.
 *
 * 4x8 tile, 15 v128: acc00..acc31 = 8 | low0 high0 low1 high1 = 4 | a0, product, mask = 3; totals of a super-block go through memory
 * A rows aStride apart · B panels bStride apart · C rows cStride, panels cPanel apart · totals [rows][8] i32
 * 8 k a step · sums of a super-block are exact: 63 · 15 · 8191 · 256 < 2^31
 */
// @ts-ignore: decorator
@inline
export function q4_k_dot_nx8(
  path: i32,
  rows: i32,
  planes: i32,
  c: F32Ptr,
  cPanel: usize,
  cStride: usize,
  first: bool,
  a: U8Ptr,
  aStride: usize,
  b: U8Ptr,
  bStride: usize,
  panels: i32,
  supers: i32,
  totals: U8Ptr,
): void {
  const mask = v128.load(NIBBLE);
  const step = <usize>planes << 5;
  const owners = rows / planes;
  for (; supers > 0; supers--) {
    let panel = b;
    for (let p = 0; p < panels; p++) {
      let aPtr0 = a + (<usize>planes << 4);
      let aPtr1 = planes == 2 ? aPtr0 + 16 : aPtr0 + aStride;
      let aPtr2 = planes == 2 ? aPtr0 + aStride : aPtr1 + aStride;
      let aPtr3 = planes == 2 ? aPtr2 + 16 : aPtr2 + aStride;
      let total00 = i32x4.splat(0);
      let total01 = total00;
      if (owners > 1)
        for (let at: usize = 0; at < <usize>owners << 5; at += 16) v128.store(totals + at, total00);
      let bPtr0 = panel + Q4_K_NIBBLES;
      let scales = panel + Q4_K_SCALES;
      for (const end = scales + BLOCKS * 8; scales < end; scales += 8) {
        let acc00 = i32x4.splat(0);
        let acc01 = acc00;
        let acc10 = acc00;
        let acc11 = acc00;
        let acc20 = acc00;
        let acc21 = acc00;
        let acc30 = acc00;
        let acc31 = acc00;
        const bEnd = bPtr0 + BLOCK * 4;
        do {
          let high0 = v128.load(bPtr0);
          let high1 = v128.load(bPtr0, 16);
          const low0 = v128.and(high0, mask);
          const low1 = v128.and(high1, mask);
          high0 = v128.and(i16x8.shr_u(high0, 4), mask);
          high1 = v128.and(i16x8.shr_u(high1, 4), mask);
          let a0 = digits_of(planes, 0, aPtr0);
          acc00 = dot_nibbles(path, a0, low0, acc00);
          acc01 = dot_nibbles(path, a0, low1, acc01);
          a0 = digits_of(planes, 1, aPtr0);
          acc00 = dot_nibbles(path, a0, high0, acc00);
          acc01 = dot_nibbles(path, a0, high1, acc01);
          aPtr0 += step;
          if (rows > 1) {
            a0 = digits_of(planes, 0, aPtr1);
            acc10 = dot_nibbles(path, a0, low0, acc10);
            acc11 = dot_nibbles(path, a0, low1, acc11);
            a0 = digits_of(planes, 1, aPtr1);
            acc10 = dot_nibbles(path, a0, high0, acc10);
            acc11 = dot_nibbles(path, a0, high1, acc11);
            aPtr1 += step;
          }
          if (rows > 2) {
            a0 = digits_of(planes, 0, aPtr2);
            acc20 = dot_nibbles(path, a0, low0, acc20);
            acc21 = dot_nibbles(path, a0, low1, acc21);
            a0 = digits_of(planes, 1, aPtr2);
            acc20 = dot_nibbles(path, a0, high0, acc20);
            acc21 = dot_nibbles(path, a0, high1, acc21);
            aPtr2 += step;
          }
          if (rows > 3) {
            a0 = digits_of(planes, 0, aPtr3);
            acc30 = dot_nibbles(path, a0, low0, acc30);
            acc31 = dot_nibbles(path, a0, low1, acc31);
            a0 = digits_of(planes, 1, aPtr3);
            acc30 = dot_nibbles(path, a0, high0, acc30);
            acc31 = dot_nibbles(path, a0, high1, acc31);
            aPtr3 += step;
          }
          bPtr0 += 32;
        } while (bPtr0 < bEnd);
        const behind = planes == 1 ? step : step / 2;
        aPtr0 += behind;
        aPtr1 += behind;
        aPtr2 += behind;
        aPtr3 += behind;
        const eight = v128.load8x8_u(scales);
        const scale0 = scale_low(path, eight);
        const scale1 = scale_high(path, eight);
        if (owners == 1) {
          total00 = add_block(path, planes, total00, scale0, acc00, acc10);
          total01 = add_block(path, planes, total01, scale1, acc01, acc11);
        } else if (planes == 2) {
          add_totals(path, 2, totals, scale0, scale1, acc00, acc01, acc10, acc11);
          add_totals(path, 2, totals + 32, scale0, scale1, acc20, acc21, acc30, acc31);
        } else {
          add_totals(path, 1, totals, scale0, scale1, acc00, acc01, acc00, acc01);
          add_totals(path, 1, totals + 32, scale0, scale1, acc10, acc11, acc10, acc11);
          if (rows > 2) add_totals(path, 1, totals + 64, scale0, scale1, acc20, acc21, acc20, acc21);
          if (rows > 3) add_totals(path, 1, totals + 96, scale0, scale1, acc30, acc31, acc30, acc31);
        }
      }
      if (owners == 1) {
        v128.store(totals, total00);
        v128.store(totals, total01, 16);
      }
      let cPtr0 = c + cPanel * p;
      for (let r: usize = 0; r < <usize>owners; r++) {
        const row = a + aStride * r;
        store_super(planes, cPtr0, first, panel, row, planes == 1 ? scale_at(row) : 0, totals + (r << 5));
        cPtr0 += cStride;
      }
      panel += bStride;
    }
    first = false;
    a += super_bytes(planes);
    b += Q4_K_BYTES;
  }
}

/** add_block to totals [8] in memory. */
// @ts-ignore: decorator
@inline
function add_totals(
  path: i32,
  planes: i32,
  to: U8Ptr,
  scale0: v128,
  scale1: v128,
  lower0: v128,
  lower1: v128,
  upper0: v128,
  upper1: v128,
): void {
  v128.store(to, add_block(path, planes, v128.load(to), scale0, lower0, upper0));
  v128.store(to, add_block(path, planes, v128.load(to, 16), scale1, lower1, upper1), 16);
}
