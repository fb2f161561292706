// Activations, and sums and caps of rows.

import { ACT_GELU, ACT_GELU_TANH, ACT_RELU, ACT_SWISH } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";

/** (1 + erf(x / √2)) / 2 to some 13 digits, those of small values included. */
export function normalCdf(x: number): number {
  const tail = upperTail(Math.abs(x));
  return x < 0 ? tail : 1 - tail;
}

/** (1 - erf(x / √2)) / 2 for x >= 0. */
function upperTail(x: number): number {
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (x === Number.POSITIVE_INFINITY) return 0;
  if (x > 3) {
    // Laplace's continued fraction.
    let fraction = x;
    for (let i = 120; i > 0; i--) fraction = x + i / fraction;
    return density / fraction;
  }
  // The integral's series, of positive terms.
  let term = x;
  let sum = x;
  for (let i = 3; i < 120; i += 2) {
    term *= (x * x) / i;
    sum += term;
  }
  return 0.5 - density * sum;
}

/** act(x), by ACT_SWISH and so on (assembly/layout.ts). */
export function activation(kind: number, x: number, alpha: number): number {
  if (kind === ACT_SWISH) return x / (1 + Math.exp(-alpha * x));
  if (kind === ACT_GELU) return x * normalCdf(x);
  if (kind === ACT_GELU_TANH) return x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
  const positive = Math.max(x, 0);
  return kind === ACT_RELU ? positive : positive ** 2;
}

/** out[r, i] = act(gate[r, i]) · up[r, i], both clamped where there is a limit, or act(gate[r, i]), for rows begin..end. */
export const activate_f32: Reference["activate_f32"] = (out, gate, up, shape, begin, end) => {
  const { kind, n, outStride, gateStride, upStride, alpha, limit } = shape;
  for (let r = begin; r < end; r++)
    for (let i = 0; i < n; i++) {
      const x = gate[r * gateStride + i]!;
      const y = activation(kind, limit > 0 ? Math.min(x, limit) : x, alpha);
      const factor = up ? up[r * upStride + i]! : 1;
      const clamped = up && limit > 0 ? Math.max(-limit, Math.min(factor, limit)) + 1 : factor;
      out[r * outStride + i] = y * clamped;
    }
};

/** out[r, i] = x[r, i] + scale · y[r, i], for rows begin..end of n. */
export const add_scaled_f32: Reference["add_scaled_f32"] = (out, x, y, n, scale, begin, end) => {
  for (let i = begin * n; i < end * n; i++) out[i] = x[i]! + scale * y[i]!;
};

/** x[r, i] = softcap · tanh(scale · x[r, i] / softcap), or scale · x[r, i] where softcap is 0, for rows begin..end. */
export const cap_logits_f32: Reference["cap_logits_f32"] = (x, n, stride, scale, softcap, begin, end) => {
  for (let r = begin; r < end; r++)
    for (let i = r * stride; i < r * stride + n; i++)
      x[i] = softcap === 0 ? scale * x[i]! : softcap * Math.tanh((scale * x[i]!) / softcap);
};
