import { exp_f32x4 } from "./exp";
import { madd } from "./simd";

// ln(1 + e) = 2s + 2s·s²·(l0 + s²·(l1 + ...)) for s = e / (2 + e), where s² is at most 1/9; then -0 and 2.
const SOFTPLUS = memory.data<f32>([
  0.3333333432674408, 0.19999852776527405, 0.142961785197258, 0.1085328757762909, 0.11612164974212646, -0.0, 2,
]);

/**
 * ln(1 + e^x) for any x: x from 17.4 on, +0 below -87.7, NaN for NaN. Within 3.5 ulp above -87. The exponential is never of a
 * number above 0, so that nothing overflows.
 */
// @ts-ignore: decorator
@inline
export function softplus_f32x4(x: v128): v128 {
  const e = exp_f32x4(v128.or(x, v128.load32_splat(SOFTPLUS, 20)));
  const s = f32x4.div(e, f32x4.add(e, v128.load32_splat(SOFTPLUS, 24)));
  const square = f32x4.mul(s, s);
  let p = madd(v128.load32_splat(SOFTPLUS, 16), square, v128.load32_splat(SOFTPLUS, 12));
  p = madd(p, square, v128.load32_splat(SOFTPLUS, 8));
  p = madd(p, square, v128.load32_splat(SOFTPLUS, 4));
  p = madd(p, square, v128.load32_splat(SOFTPLUS));
  const twice = f32x4.add(s, s);
  // pmax keeps its first operand when that is NaN.
  return f32x4.add(f32x4.pmax(x, f32x4.splat(0)), madd(f32x4.mul(twice, square), p, twice));
}
