import type { Reference } from "../wasm/abi.ts";
import { widenBf16, widenF16 } from "./half.ts";

/** out[m, n] = x[m, k] · w[n, k]ᵀ + bias[n] for rows m in begin..end; w packed [panels][k][8] in f16, or bf16. */
export const linear_f16: Reference["linear_f16"] = (out, x, w, _scratch, bias, shape, begin, end) => {
  const { panels, k, bf16, outStride, xStride } = shape;
  const widen = bf16 ? widenBf16 : widenF16;
  for (let m = begin; m < end; m++)
    for (let n = 0; n < 8 * panels; n++) {
      const panel = Math.floor(n / 8);
      const column = n % 8;
      let sum = bias ? bias[n]! : 0;
      for (let i = 0; i < k; i++) sum += x[m * xStride + i]! * widen(w[(panel * k + i) * 8 + column]!);
      out[m * outStride + n] = sum;
    }
};
