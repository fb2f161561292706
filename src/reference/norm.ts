import type { Reference } from "../wasm/abi.ts";

/** out[r, :n] = x[r, :n] / sqrt(mean(x[r]²) + eps) · gain[:n] for rows r in begin..end. */
export const rms_norm_f32: Reference["rms_norm_f32"] = (out, x, gain, n, stride, eps, begin, end) => {
  for (let r = begin; r < end; r++) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += x[r * stride + i]! ** 2;
    const inverse = 1 / Math.sqrt(sum / n + eps);
    for (let i = 0; i < n; i++) out[r * stride + i] = x[r * stride + i]! * inverse * gain[i]!;
  }
};
