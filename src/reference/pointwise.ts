// What acts on each row or head by itself: norms, rotations, the order of heads, activations, sums and caps.

import { ACT_GELU, ACT_GELU_TANH, ACT_RELU, ACT_SIGMOID, ACT_SWISH } from "../../assembly/layout.ts";
import type { Reference } from "../wasm/abi.ts";
import { normalCdf, quantized } from "./numbers.ts";

/** out[r, i] = x[r, i] / sqrt(mean(x[r]²) + eps) · gain[i], for rows begin..end. */
export const rms_norm_f32: Reference["rms_norm_f32"] = (out, x, gain, n, stride, eps, begin, end) => {
  for (let r = begin; r < end; r++) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += x[r * stride + i]! ** 2;
    const inverse = 1 / Math.sqrt(sum / n + eps);
    for (let i = 0; i < n; i++) out[r * stride + i] = x[r * stride + i]! * inverse * gain[i]!;
  }
};

/** out[r, i] = (x[r, i] - mean) / sqrt(variance + eps) · gain[i] + bias[i] of row r, for rows begin..end. */
export const layer_norm_f32: Reference["layer_norm_f32"] = (out, x, gain, bias, { n, stride, eps }, begin, end) => {
  for (let r = begin; r < end; r++) {
    const row = Float64Array.from(x.subarray(r * stride, r * stride + n));
    const mean = row.reduce((sum, v) => sum + v, 0) / n;
    const variance = row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / n;
    const inverse = 1 / Math.sqrt(variance + eps);
    for (const [i, v] of row.entries()) out[r * stride + i] = (v - mean) * inverse * gain[i]! + (bias ? bias[i]! : 0);
  }
};

/** (a, b) -> (a·cos - b·sin, b·cos + a·sin) for the ropeDim / 2 pairs of every head of tokens begin..end, in place. */
export const rope_f32: Reference["rope_f32"] = (x, cos, sin, shape, begin, end) => {
  const { numHeads, headDim, ropeDim, interleaved, stride } = shape;
  const half = ropeDim / 2;
  for (let t = begin; t < end; t++)
    for (let h = 0; h < numHeads; h++)
      for (let i = 0; i < half; i++) {
        const head = t * stride + h * headDim;
        const first = head + (interleaved ? 2 * i : i);
        const second = head + (interleaved ? 2 * i + 1 : i + half);
        const a = x[first]!;
        const b = x[second]!;
        const c = cos[t * half + i]!;
        const s = sin[t * half + i]!;
        x[first] = a * c - b * s;
        x[second] = b * c + a * s;
      }
};

/** out[h, t] = x[t, h] for tokens t in begin..end; x [rows, numHeads, headDim]. */
export const split_heads_f32: Reference["split_heads_f32"] = (out, x, rows, numHeads, headDim, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < numHeads; h++)
      for (let d = 0; d < headDim; d++) out[(h * rows + t) * headDim + d] = x[(t * numHeads + h) * headDim + d]!;
};

/** out[t, h] = x[h, t] for tokens t in begin..end; x [numHeads, rows, headDim]. */
export const merge_heads_f32: Reference["merge_heads_f32"] = (out, x, rows, numHeads, headDim, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < numHeads; h++)
      for (let d = 0; d < headDim; d++) out[(t * numHeads + h) * headDim + d] = x[(h * rows + t) * headDim + d]!;
};

/** act(x), by ACT_SWISH and so on (assembly/layout.ts). */
function activation(kind: number, x: number, alpha: number): number {
  if (kind === ACT_SWISH) return x / (1 + Math.exp(-alpha * x));
  if (kind === ACT_SIGMOID) return 1 / (1 + Math.exp(-x));
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

/** x[r, i] = x[r, i], not beyond limit on either side, for i < n, in rows begin..end. */
export const limit_f32: Reference["limit_f32"] = (x, n, stride, limit, begin, end) => {
  for (let r = begin; r < end; r++)
    for (let i = r * stride; i < r * stride + n; i++) x[i] = Math.max(-limit, Math.min(x[i]!, limit));
};

/** x[r, i] = s · round(x[r, i] / s), halves to even, with s = max(|x[r]|, 1e-5) / 127, for i < n, in rows begin..end. */
export const round_rows_f32: Reference["round_rows_f32"] = (x, n, stride, begin, end) => {
  for (let r = begin; r < end; r++) {
    const row = x.subarray(r * stride, r * stride + n);
    const { integers, scale } = quantized([...row, Math.fround(1e-5)], 127);
    // Zeros have no sign.
    for (let i = 0; i < n; i++) row[i] = integers[i]! * scale + 0;
  }
};

/** x[r, i] = positive · x² + beta · x above 0, and negative · (e^x - 1 - x) + beta · x elsewhere, for i < n, in rows begin..end. */
export const xielu_f32: Reference["xielu_f32"] = (x, n, stride, positive, negative, beta, begin, end) => {
  for (let r = begin; r < end; r++)
    for (let i = r * stride; i < r * stride + n; i++) {
      const v = x[i]!;
      x[i] = (v > 0 ? positive * v * v : negative * (Math.expm1(v) - v)) + beta * v;
    }
};
