import { exp_f32x4 } from "./exp";

/** -0, whose only bit is the sign, and 1: from memory, for the reason in exp.ts. */
const SIGMOID = memory.data<f32>([-0.0, 1]);

/**
 * 1 / (1 + e^-x) for any x: 0.5 at 0, 1 from 17.4 on, +0 below -87.7, NaN for NaN. Within 2.5 ulp above -87; between,
 * within 2^-125. The exponential is never of a number above 0, so that nothing overflows.
 */
// @ts-ignore: decorator
@inline
export function sigmoid_f32x4(x: v128): v128 {
  const one = v128.load32_splat(SIGMOID, 4);
  const e = exp_f32x4(v128.or(x, v128.load32_splat(SIGMOID)));
  const above = v128.bitselect(e, one, i32x4.shr_s(x, 31));
  return f32x4.div(above, f32x4.add(one, e));
}
