import { FORMAT_F16, FORMAT_Q8, PAIR_BYTES, PANEL_BYTES_16 } from "../layout";
import { widen_f16_high, widen_f16_low } from "./half";
import { load_first } from "./simd";

// Rows of floats as integers times one scale, the largest magnitude over the largest integer; and what pages that are not
// float32 hold, as floats again. Rounding to the nearest integer, halves to even, is that of adding a number so large that
// its unit is 1. Largest magnitudes are found among the bits, where NaN is the largest of all.

/** 1.5 · 2^23, and all of a float but its sign: from memory, for the reason in exp.ts. */
const TERMS = memory.data<u32>([0x4b400000, 0x7fffffff]);
const INFINITY_BITS: u32 = 0x7f800000;
/** 2^-110: rows of nothing larger count as zeros, so that no scale and no factor leaves float32's range. */
const LEAST: f32 = 7.70371977754894e-34;

/** Whether the bits of a magnitude are those of NaN or an infinity. */
// @ts-ignore: decorator
@inline
export function is_non_finite(top: u32): bool {
  return top >= INFINITY_BITS;
}

/** The bits of four magnitudes. */
// @ts-ignore: decorator
@inline
export function magnitudes(v: v128): v128 {
  return v128.and(v, v128.load32_splat(TERMS, 4));
}

/** The largest lane as unsigned integers. */
// @ts-ignore: decorator
@inline
export function largest_lane(v: v128): u32 {
  let top = i32x4.max_u(v, i8x16.shuffle(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  top = i32x4.max_u(top, i8x16.shuffle(top, top, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  return <u32>i32x4.extract_lane(top, 0);
}

/** The bits of max |x[i]|, of NaN if any x is NaN. */
export function magnitude(x: usize, n: i32): u32 {
  let most = i32x4.splat(0);
  for (; n >= 4; n -= 4) {
    most = i32x4.max_u(most, magnitudes(v128.load(x)));
    x += 16;
  }
  if (n > 0) most = i32x4.max_u(most, magnitudes(load_first(x, n, 0)));
  return largest_lane(most);
}

/** What the integers of a row, whose largest magnitude has these bits, are multiplied by: NaN where it is not finite. */
// @ts-ignore: decorator
@inline
export function scale_of(top: u32, most: f32): f32 {
  if (is_non_finite(top)) return f32.NaN;
  const size = reinterpret<f32>(top);
  return size >= LEAST ? size / most : <f32>0;
}

/** What its floats are multiplied by; 0 makes zeros of them, whatever they are. */
// @ts-ignore: decorator
@inline
export function factor_of(top: u32, most: f32): f32 {
  const size = reinterpret<f32>(top);
  return !is_non_finite(top) && size >= LEAST ? most / size : <f32>0;
}

/** What `rounded` wants beside a factor: all bits of the lanes, or none where the factor makes zeros. */
// @ts-ignore: decorator
@inline
export function some_of(factor: v128): v128 {
  return f32x4.ne(factor, f32x4.splat(0));
}

/** Four floats times the factor as integers in the lanes. */
// @ts-ignore: decorator
@inline
export function rounded(v: v128, factor: v128, some: v128): v128 {
  const magic = v128.load32_splat(TERMS);
  return v128.and(i32x4.sub(f32x4.add(f32x4.mul(v, factor), magic), magic), some);
}

/** Component d of eight integer keys of a panel of q8 or q4, as i16. */
// @ts-ignore: decorator
@inline
function key_codes(format: i32, panel: usize, d: i32): v128 {
  let v: v128;
  if (format == FORMAT_Q8) v = v128.load(panel + <usize>(d >> 1) * PAIR_BYTES);
  else {
    v = v128.load(panel + <usize>(d >> 2) * PAIR_BYTES);
    v = i8x16.sub(d & 2 ? i8x16.shr_u(v, 4) : v128.and(v, i8x16.splat(15)), i8x16.splat(8));
  }
  return i16x8.shr_s(d & 1 ? v : i16x8.shl(v, 8), 8);
}

/** Component d of keys 0 to 3 of a panel of f16, q8 or q4, of which the integers have these scales. */
// @ts-ignore: decorator
@inline
export function keys_low(format: i32, panel: usize, scales: usize, d: i32): v128 {
  if (format == FORMAT_F16) return widen_f16_low(v128.load(panel + <usize>d * PANEL_BYTES_16));
  return f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(key_codes(format, panel, d))), v128.load(scales));
}

/** Of keys 4 to 7. */
// @ts-ignore: decorator
@inline
export function keys_high(format: i32, panel: usize, scales: usize, d: i32): v128 {
  if (format == FORMAT_F16) return widen_f16_high(v128.load(panel + <usize>d * PANEL_BYTES_16));
  return f32x4.mul(
    f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(key_codes(format, panel, d))),
    v128.load(scales, 16),
  );
}
