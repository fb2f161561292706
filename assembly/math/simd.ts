// The few vector operations that depend on the build, and those that are longer than one instruction. The only file
// that asks which build it is.

/** a · b + c: one rounding in the relaxed build where the engine fuses, two in the simd build. */
// @ts-ignore: decorator
@inline
export function madd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(c, f32x4.mul(a, b));
}

/**
 * Whether madd is one instruction. Where it is two, tiles want a register for the product and have fewer rows. A variable:
 * modules hold the tiles of both builds, so that src/wasm/rewrite.ts can make the one out of the other. Never asked in an
 * inner loop.
 */
export let MADD_FUSES: bool = ASC_FEATURE_RELAXED_SIMD;

/** Whether there are products of bytes: in the same build. */
// @ts-ignore: decorator
@inline
export function has_byte_dots(): bool {
  return MADD_FUSES;
}

/** The bytes of a table of 16 at indices below 16. */
// @ts-ignore: decorator
@inline
export function swizzle(table: v128, indices: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i8x16.relaxed_swizzle(table, indices);
  return i8x16.swizzle(table, indices);
}

/** sum + the dot products of two i16 a lane. */
// @ts-ignore: decorator
@inline
export function dot_i16(x: v128, w: v128, sum: v128): v128 {
  return i32x4.add(sum, i32x4.dot_i16x8_s(x, w));
}

/**
 * sum + the dot products of four bytes a lane: x in [0, 127], so that no engine may round or saturate, w signed. The simd
 * build has no such product and never comes here.
 */
// @ts-ignore: decorator
@inline
export function dot_i8(x: v128, w: v128, sum: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(w, x, sum);
  return sum;
}

/** The same by way of i16 pairs: what an engine does where the CPU lacks the instruction, without a constant made each time. */
// @ts-ignore: decorator
@inline
export function dot_i8_emulated(x: v128, w: v128, sum: v128, ones: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD)
    return i32x4.add(sum, i32x4.dot_i16x8_s(i16x8.relaxed_dot_i8x16_i7x16_s(w, x), ones));
  return sum;
}

/** Sums of i16, two a lane of 32 bits, + the products of pairs of bytes: x in [0, 127], w signed. For sums that fit. */
// @ts-ignore: decorator
@inline
export function dot_pairs_i8(x: v128, w: v128, sums: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i16x8.add(sums, i16x8.relaxed_dot_i8x16_i7x16_s(w, x));
  return sums;
}

/** (v0 + v2) + (v1 + v3). */
// @ts-ignore: decorator
@inline
export function hsum(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 2) + (f32x4.extract_lane(v, 1) + f32x4.extract_lane(v, 3));
}

/** The first n floats at `at`, `fill` in the lanes behind; nothing beyond them is read. n >= 1; from 4 on all lanes. */
// @ts-ignore: decorator
@inline
export function load_first(at: usize, n: i32, fill: f32): v128 {
  if (n >= 4) return v128.load(at);
  const fill_f32x4 = f32x4.splat(fill);
  if (n == 1) return v128.load_lane<f32>(at, fill_f32x4, 0);
  const two_f32x4 = v128.load_lane<f64>(at, fill_f32x4, 0);
  return n == 2 ? two_f32x4 : v128.load_lane<f32>(at + 8, two_f32x4, 2);
}

/** Stores the first n lanes and nothing beyond them. Any n; none below 1, all from 4 on. */
// @ts-ignore: decorator
@inline
export function store_first(at: usize, n: i32, v: v128): void {
  if (n >= 4) v128.store(at, v);
  else {
    if (n >= 1) v128.store_lane<f32>(at, v, 0);
    if (n >= 2) v128.store_lane<f32>(at + 4, v, 1);
    if (n >= 3) v128.store_lane<f32>(at + 8, v, 2);
  }
}
