import type { Reference } from "../wasm/abi.ts";

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
