// 16-bit floats.

import type { Reference } from "../wasm/abi.ts";

/** The float16 with the bits `half`, exactly. A NaN is NaN. */
export function widenF16(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  if (exponent === 0) return (sign * fraction) / 2 ** 24;
  return (sign * (1024 + fraction) * 2 ** exponent) / 2 ** 25;
}

/** The bfloat16 with the bits `half`: the upper half of a float32. */
export function widenBf16(half: number): number {
  return new Float32Array(Uint32Array.of(half << 16).buffer)[0]!;
}

/** The bits of the float16 next to a float32: half to even, infinite from 65520 on. NaN is 0x7e00. */
export function narrowF16(x: number): number {
  const magnitude = Math.abs(x);
  const sign = Object.is(Math.sign(x), -0) || x < 0 ? 0x8000 : 0;
  if (Number.isNaN(x)) return 0x7e00;
  if (magnitude >= 65_520) return sign | 0x7c00;
  // Eleven bits from the leading one on, or what lies above 2^-24.
  let exponent = 1;
  let unit = 2 ** -24;
  for (; magnitude >= 2048 * unit; unit *= 2) exponent++;
  const units = roundEven(magnitude / unit);
  // A carry out of the fraction is a step of the exponent, as it is in the bits.
  return sign | (units + (exponent - 1) * 1024);
}

/** The bits of the bfloat16 next to a float32: half to even. NaN is 0x7fc0. */
export function narrowBf16(x: number): number {
  if (Number.isNaN(x)) return 0x7fc0;
  const bits = new Uint32Array(Float32Array.of(x).buffer)[0]!;
  return roundEven(bits / 65_536);
}

/** The integer next to x >= 0, the even one of two. */
function roundEven(x: number): number {
  const whole = Math.floor(x);
  const rest = x - whole;
  return rest > 0.5 || (rest === 0.5 && whole % 2 === 1) ? whole + 1 : whole;
}

/** out[i] = x[i], begin <= i < end: f16 or bf16 as float32. */
export const widen_f16: Reference["widen_f16"] = (out, x, bf16, begin, end) => {
  const widen = bf16 ? widenBf16 : widenF16;
  for (let i = begin; i < end; i++) out[i] = widen(x[i]!);
};
