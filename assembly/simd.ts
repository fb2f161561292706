// The few vector operations that depend on the build, and those that are longer than one instruction. The only file
// that asks which build it is.

/** a · b + c: one rounding in the relaxed build where the engine fuses, two in the simd build. */
// @ts-ignore: decorator
@inline
export function madd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(c, f32x4.mul(a, b));
}

/** (v0 + v2) + (v1 + v3). */
// @ts-ignore: decorator
@inline
export function hsum(v: v128): f32 {
  return (
    f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 2) + (f32x4.extract_lane(v, 1) + f32x4.extract_lane(v, 3))
  );
}
