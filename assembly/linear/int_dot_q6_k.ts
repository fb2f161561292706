import { PANEL, Q6_K_BYTES, SUPER_BLOCK } from "../layout";
import { F32Ptr, U8Ptr } from "../types";
import { Q6_K_SCALES, Q6_K_STEP, Q6_K_WEIGHTS } from "./block_layout";
import { add_scaled } from "./int_dot_i16";
import { digits_of, dot_nibbles, NIBBLE } from "./int_dot_q4";
import { add_block, scale_high, scale_low } from "./int_dot_q4_k";
import { ordered_bytes } from "./order_digits";

// Products of a few integer rows and super-blocks of 6 bits where these lie packed (pack_q6_k.ts), by bytes. Rows are digits in
// the order of nibbles (order_digits.ts), which begin anew with each 16 inputs. Strides are in bytes.

/** Inputs that have a scale, and inputs whose sums are added up as integers: 32 · 128 · 8191 · 64 < 2^31. */
export const PART = 16;
export const QUARTER = 64;

const zeros = memory.data(32, 16);

// From memory: V8 makes constants anew at each use.
const UPPER = memory.data<u8>([48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48]);

/** Bytes of the digits of a super-block of a row. */
// @ts-ignore: decorator
@inline
export function super_bytes(planes: i32): usize {
  return ordered_bytes(planes, PART) * (SUPER_BLOCK / PART);
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

/**
 * C[8·panels] (+)= d[8·panels] · Σ scale · (A[16] · (sixes[16, 8·panels] - 32)) over a quarter of a super-block, for one after the other,
 * of which the first may start from 0, and up to four rows of digits: as many rows of A, or where `planes` is 2, the lower and the
 * upper digits of half as many. `path`, `rows`, from 1 to 4, and `planes` are constants.
 *
 * 4x8 tile, 14 v128: acc00..acc31 = 8 | low0 high0 low1 high1 = 4 | a0, product = 2; masks and totals go through memory
 * A rows aStride apart · B panels bStride apart · C rows cStride, panels cPanel apart · totals [rows][8] i32
 * 8 k a step · 16 bits hold the sums of 8 products of two digits, less 32 of them, where these begin · sums of a quarter are exact
 */
// @ts-ignore: decorator
@inline
export function q6_k_dot_nx8(
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
  const step = <usize>planes << 5;
  const owners = rows / planes;
  for (; supers > 0; supers--) {
    let panel = b;
    for (let p = 0; p < panels; p++) {
      let aPtr0 = a;
      let aPtr1 = planes == 2 ? aPtr0 + 16 : aPtr0 + aStride;
      let aPtr2 = planes == 2 ? aPtr0 + aStride : aPtr1 + aStride;
      let aPtr3 = planes == 2 ? aPtr2 + 16 : aPtr2 + aStride;
      let bPtr0 = panel + Q6_K_WEIGHTS;
      let scales = panel + Q6_K_SCALES;
      let fresh = first;
      for (const end = scales + (SUPER_BLOCK / PART) * PANEL; scales < end; ) {
        for (let at: usize = 0; at < <usize>owners << 5; at += 16) v128.store(totals + at, i32x4.splat(0));
        for (const quarter = scales + (QUARTER / PART) * PANEL; scales < quarter; scales += PANEL) {
          let acc00 = v128.load(aPtr0);
          let acc01 = acc00;
          let acc10 = rows > 1 ? v128.load(aPtr1) : acc00;
          let acc11 = acc10;
          let acc20 = rows > 2 ? v128.load(aPtr2) : acc00;
          let acc21 = acc20;
          let acc30 = rows > 3 ? v128.load(aPtr3) : acc00;
          let acc31 = acc30;
          const bEnd = bPtr0 + Q6_K_STEP * (PART / 8);
          do {
            const mask = v128.load(NIBBLE);
            const upper = v128.load(UPPER);
            const two = v128.load(bPtr0, 32);
            let high0 = v128.load(bPtr0);
            let high1 = v128.load(bPtr0, 16);
            const low0 = v128.or(v128.and(high0, mask), v128.and(i16x8.shl(two, 4), upper));
            const low1 = v128.or(v128.and(high1, mask), v128.and(two, upper));
            high0 = v128.or(v128.and(i16x8.shr_u(high0, 4), mask), v128.and(i16x8.shl(two, 2), upper));
            high1 = v128.or(v128.and(i16x8.shr_u(high1, 4), mask), v128.and(i16x8.shr_u(two, 2), upper));
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
            bPtr0 += Q6_K_STEP;
          } while (bPtr0 < bEnd);
          aPtr0 += step / 2;
          aPtr1 += step / 2;
          aPtr2 += step / 2;
          aPtr3 += step / 2;
          const eight = v128.load8x8_s(scales);
          const scale0 = scale_low(path, eight);
          const scale1 = scale_high(path, eight);
          if (planes == 2) {
            add_totals(path, 2, totals, scale0, scale1, acc00, acc01, acc10, acc11);
            if (rows > 2) add_totals(path, 2, totals + 32, scale0, scale1, acc20, acc21, acc30, acc31);
          } else {
            add_totals(path, 1, totals, scale0, scale1, acc00, acc01, acc00, acc01);
            if (rows > 1) add_totals(path, 1, totals + 32, scale0, scale1, acc10, acc11, acc10, acc11);
            if (rows > 2) add_totals(path, 1, totals + 64, scale0, scale1, acc20, acc21, acc20, acc21);
            if (rows > 3) add_totals(path, 1, totals + 96, scale0, scale1, acc30, acc31, acc30, acc31);
          }
        }
        let cPtr0 = c + cPanel * p;
        const d0 = v128.load(panel);
        const d1 = v128.load(panel, 16);
        for (let r: usize = 0; r < <usize>owners; r++) {
          const init = fresh ? zeros : cPtr0;
          add_scaled(cPtr0, init, v128.load(totals + (r << 5)), d0);
          add_scaled(cPtr0 + 16, init + 16, v128.load(totals + (r << 5), 16), d1);
          cPtr0 += cStride;
        }
        fresh = false;
      }
      panel += bStride;
    }
    first = false;
    a += super_bytes(planes);
    b += Q6_K_BYTES;
  }
}
