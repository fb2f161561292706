// What recurrent layers have instead of attention: a convolution, decays, and states that keys write and queries read.

import type { Reference } from "../wasm/abi.ts";
import { stateAt } from "./pages.ts";

/** out[t, c] = after · act(bias + Σ weights[j, c] · (before · x)[t + j - (taps - 1), c]), for channels begin..end. */
export const causal_conv_f32: Reference["causal_conv_f32"] = (out, x, state, weights, bias, shape, begin, end) => {
  const { rows, channels, taps, xStride, outStride, silu, from, before, after } = shape;
  const last = taps - 1;
  for (let c = begin; c < end; c++) {
    const input = (t: number) => {
      if (t < 0) return from[(last + t) * channels + c]!;
      return x[t * xStride + c]! * (before ? before[t * xStride + c]! : 1);
    };
    for (let t = 0; t < rows; t++) {
      let y = bias ? bias[c]! : 0;
      for (let j = 0; j < taps; j++) y += weights[j * channels + c]! * input(t + j - last);
      if (silu) y /= 1 + Math.exp(-y);
      out[t * outStride + c] = after ? y * after[t * xStride + c]! : y;
    }
    for (let j = 0; j < last; j++) state[j * channels + c] = input(rows + j - last);
  }
};

const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/** step[r, i] = softplus(x[r, i] + bias[i]) within low and high; decay[r, i] = exp(-rate[i] · step[r, i]), for rows begin..end. */
export const decay_f32: Reference["decay_f32"] = (decay, step, x, bias, rate, shape, begin, end) => {
  const { n, xStride, outStride, low, high } = shape;
  for (let r = begin; r < end; r++)
    for (let i = 0; i < n; i++) {
      const length = Math.max(low, Math.min(high, softplus(x[r * xStride + i]! + bias[i]!)));
      if (step) step[r * outStride + i] = length;
      decay[r * outStride + i] = Math.exp(-rate[i]! * length);
    }
};

/** S = decay · S + k · (beta · (v - kᵀ S))ᵀ and out = scale · qᵀ S + skip · v, row after row, for heads begin..end. */
export const linear_attention_f32: Reference["linear_attention_f32"] = (out, state, q, k, v, shape, begin, end) => {
  const { rows, keyDim, valueDim, group, keyHeads, keyStride, valueStride, outStride, delta, scale, from } = shape;
  const { decay, decayStride, perChannel, beta, betaStride, skip } = shape;
  for (let head = begin; head < end; head++)
    for (let column = 0; column < valueDim; column++) {
      const at = (i: number) => stateAt(keyDim, valueDim, head, i, column);
      const s = Float64Array.from({ length: keyDim }, (_, i) => from[at(i)]!);
      for (let t = 0; t < rows; t++) {
        const row = t * keyStride + (group ? Math.floor(head / group) : head % keyHeads) * keyDim;
        const value = v[t * valueStride + head * valueDim + column]!;
        let held = 0;
        for (let i = 0; i < keyDim; i++) {
          s[i]! *= decay[t * decayStride + (perChannel ? head * keyDim + i : head)]!;
          held += k[row + i]! * s[i]!;
        }
        const written = (delta ? value - held : value) * (beta ? beta[t * betaStride + head]! : 1);
        let sum = 0;
        for (let i = 0; i < keyDim; i++) {
          s[i]! += k[row + i]! * written;
          sum += q[row + i]! * s[i]!;
        }
        out[t * outStride + head * valueDim + column] = scale * sum + (skip ? skip[head]! * value : 0);
      }
      for (let i = 0; i < keyDim; i++) state[at(i)] = s[i]!;
    }
};

/** S = exp(-rate · length) · S + k · w and out = q · S + skip · x for each of channels begin..end, row after row. */
export const channel_scan_f32: Reference["channel_scan_f32"] = (out, state, x, step, shape, begin, end) => {
  const { rows, channels, stateDim, stride, stepStride, keyStride, first, from, rate, q, k, write, skip } = shape;
  const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
  for (let c = begin; c < end; c++) {
    const s = Float64Array.from({ length: stateDim }, (_, i) => from[i * channels + c]!);
    for (let t = 0; t < rows; t++) {
      const [value, given] = [x[t * stride + c]!, step[t * stepStride + c]!];
      const length = write ? sigmoid(given) : softplus(given);
      let written = value * (write ? sigmoid(write[t * stepStride + c]!) : length);
      if (write && (t > 0 || !first)) written *= Math.sqrt(-Math.expm1(-2 * rate[c]! * length));
      let sum = skip ? skip[c]! * value : 0;
      for (let i = 0; i < stateDim; i++) {
        s[i] = Math.exp(-rate[i * channels + c]! * length) * s[i]! + (k ? k[t * keyStride + i]! : 1) * written;
        sum += (q ? q[t * keyStride + i]! : 1) * s[i]!;
      }
      out[t * stride + c] = sum;
    }
    for (let i = 0; i < stateDim; i++) state[i * channels + c] = s[i]!;
  }
};
