import type { Reference } from "../wasm/abi.ts";

/** out[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] for rows m in begin..end; w packed [panels][k][8], n = 8·panels. */
export const linear_f32: Reference["linear_f32"] = (out, x, w, bias, shape, begin, end) => {
  const { panels, k, outStride, xStride } = shape;
  for (let m = begin; m < end; m++)
    for (let n = 0; n < 8 * panels; n++) {
      const panel = Math.floor(n / 8);
      const column = n % 8;
      let sum = bias ? bias[n]! : 0;
      for (let i = 0; i < k; i++) sum += x[m * xStride + i]! * w[(panel * k + i) * 8 + column]!;
      out[m * outStride + n] = sum;
    }
};
