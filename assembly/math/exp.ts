import { madd } from "./simd";

// Constants come from memory: V8 builds a v128 constant anew at every use (three instructions), a broadcast is one
// load. Powers of two are applied by a multiplication with a float whose exponent field is set. Adding to the exponent
// of the polynomial instead would shift the payload of a NaN, and turn some NaNs into numbers.

// 2^f - 1 = f·(k0 + f·(k1 + ...)) on [-1/2, 1/2], then 1.5·2^23 + 127, -127, 1.
const EX2 = memory.data<f32>([
  0.6931469775989922, 0.24022242085262402, 0.055507337434972125, 0.009671512644822257, 0.0013264727123511728, 12583039,
  -127, 1,
]);

/**
 * 2^t for t <= 0: exactly 1 at 0, exactly +0 from -127 down (and at -Infinity), NaN for NaN. Within 2.5 ulp above -126.
 * Part of attention's contract: the same operations in the same order wherever a weight is made.
 */
// @ts-ignore: decorator
@inline
export function ex2_f32x4(t: v128): v128 {
  const magic = ex2_term(5);
  return ex2_with(t, ex2_term(0), ex2_term(1), ex2_term(2), ex2_term(3), ex2_term(4), magic, ex2_term(6), ex2_term(7));
}

/** ex2_f32x4 of one float: the bits of a lane. */
// @ts-ignore: decorator
@inline
export function ex2_f32(t: f32): f32 {
  return f32x4.extract_lane(ex2_f32x4(f32x4.splat(t)), 0);
}

/** Constant i of ex2_with, for loops that keep them in registers. */
// @ts-ignore: decorator
@inline
export function ex2_term(i: usize): v128 {
  return v128.load32_splat(EX2 + (i << 2));
}

/** ex2_f32x4 given its constants. */
// @ts-ignore: decorator
@inline
export function ex2_with(
  t: v128,
  k0: v128,
  k1: v128,
  k2: v128,
  k3: v128,
  k4: v128,
  magic: v128,
  lowest: v128,
  one: v128,
): v128 {
  // pmax keeps its first operand when that is NaN.
  return ex2_clamped(f32x4.pmax(t, lowest), k0, k1, k2, k3, k4, magic, one);
}

/** ex2_with for t of -127 or more. */
// @ts-ignore: decorator
@inline
export function ex2_clamped(
  clamped: v128,
  k0: v128,
  k1: v128,
  k2: v128,
  k3: v128,
  k4: v128,
  magic: v128,
  one: v128,
): v128 {
  const z = f32x4.add(clamped, magic);
  const f = f32x4.sub(clamped, f32x4.sub(z, magic));
  let r = madd(k4, f, k3);
  r = madd(r, f, k2);
  r = madd(r, f, k1);
  r = madd(r, f, k0);
  r = madd(r, f, one);
  return f32x4.mul(r, i32x4.shl(z, 23));
}

// e^r = 1 + r + r²·(p0 + r·(p1 + ...)) on [-ln2/2, ln2/2]; then log2 e, -ln 2 in two parts (the first has 9 bits, so
// that its product with n is exact), 1.5·2^23 + 127, -88, 1.
const EXP = memory.data<f32>([
  0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514, 0.0013814540579915047,
  1.4426950216293335, -0.693359375, 0.00021219444170128554, 12583039, -88, 1,
]);

/**
 * e^x for x in [-Infinity, 88]: exactly 1 at ±0, +0 below -87.7, NaN for NaN. Within 1.2 ulp above -87; between, where
 * floats turn denormal, within 2^-126.
 */
// @ts-ignore: decorator
@inline
export function exp_f32x4(x: v128): v128 {
  const clamped = f32x4.pmax(x, v128.load32_splat(EXP, 36));
  const magic = v128.load32_splat(EXP, 32);
  const z = madd(clamped, v128.load32_splat(EXP, 20), magic);
  const n = f32x4.sub(z, magic);
  let r = madd(n, v128.load32_splat(EXP, 24), clamped);
  r = madd(n, v128.load32_splat(EXP, 28), r);
  let p = madd(v128.load32_splat(EXP, 16), r, v128.load32_splat(EXP, 12));
  p = madd(p, r, v128.load32_splat(EXP, 8));
  p = madd(p, r, v128.load32_splat(EXP, 4));
  p = madd(p, r, v128.load32_splat(EXP));
  p = f32x4.add(madd(f32x4.mul(r, r), p, r), v128.load32_splat(EXP, 40));
  return f32x4.mul(p, i32x4.shl(z, 23));
}

/** exp_f32x4 of one float: the bits of a lane. */
// @ts-ignore: decorator
@inline
export function exp_f32(x: f32): f32 {
  return f32x4.extract_lane(exp_f32x4(f32x4.splat(x)), 0);
}

// tanh z = z + z³·(t0 + z²·(t1 + ...)) for z² < 0.390625; then 0.390625, 9.1, 2.
const TANH = memory.data<f32>([
  -0.3333328068256378, 0.13331441581249237, -0.05373971536755562, 0.0206390880048275, -0.005704987328499556, 0.390625,
  9.1, 2,
]);
const SIGN = memory.data<u32>([0x80000000]);

/**
 * tanh x for any x: odd, ±1 from ±9.1 on, NaN for NaN. Within 1.5 ulp. Most scores are near 0, where the polynomial suffices:
 * the exponential and the division, which take most of the time, only run where a lane needs them.
 */
// @ts-ignore: decorator
@inline
export function tanh_f32x4(x: v128): v128 {
  const sign = v128.load32_splat(SIGN);
  const square = f32x4.mul(x, x);
  let p = madd(v128.load32_splat(TANH, 16), square, v128.load32_splat(TANH, 12));
  p = madd(p, square, v128.load32_splat(TANH, 8));
  p = madd(p, square, v128.load32_splat(TANH, 4));
  p = madd(p, square, v128.load32_splat(TANH));
  let result = madd(f32x4.mul(square, x), p, x);
  const near = f32x4.lt(square, v128.load32_splat(TANH, 20));
  if (i32x4.bitmask(near) != 15) {
    const size = f32x4.pmin(v128.andnot(x, sign), v128.load32_splat(TANH, 24));
    const one = v128.load32_splat(EXP, 40);
    const two = v128.load32_splat(TANH, 28);
    const far = f32x4.sub(one, f32x4.div(two, f32x4.add(exp_f32x4(f32x4.add(size, size)), one)));
    result = v128.bitselect(result, far, near);
  }
  // Also for -0, which the polynomial makes +0.
  return v128.or(result, v128.and(x, sign));
}

/** tanh_f32x4 of one float: the bits of a lane. */
// @ts-ignore: decorator
@inline
export function tanh_f32(x: f32): f32 {
  return f32x4.extract_lane(tanh_f32x4(f32x4.splat(x)), 0);
}

const LN_2: f64 = 0.6931471805599453;

/**
 * ln x for x >= 0 that is not denormal: within 1e-15 of the larger of 1 and |ln x|; -Infinity at 0, Infinity at
 * Infinity, NaN for NaN and below 0. For once-a-row use.
 */
export function ln_f64(x: f64): f64 {
  if (!(x > 0)) return x == 0 ? -Infinity : NaN;
  if (x == Infinity) return x;
  // x = 2^e · m with m in [√½, √2): 0x3fe6a09e is the upper half of √½.
  const bits = reinterpret<i64>(x) - 0x3fe6a09e00000000;
  const e = <i32>(bits >> 52);
  const m = reinterpret<f64>((bits & 0x000fffffffffffff) + 0x3fe6a09e00000000);
  // ln m = 2·artanh s with s = (m - 1) / (m + 1), |s| < 0.172: the series' next term is below 2^-56.
  const s = (m - 1) / (m + 1);
  const u = s * s;
  let sum: f64 = 0;
  for (let i = 21; i > 0; i -= 2) sum = sum * u + 1 / <f64>i;
  return <f64>e * LN_2 + 2 * s * sum;
}
