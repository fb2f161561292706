import { ACT_GELU, ACT_GELU_TANH, ACT_RELU, ACT_SWISH } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { normalCdf } from "./erf.ts";

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
