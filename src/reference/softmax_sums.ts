import type { Reference } from "../wasm/abi.ts";

/** out[r] = largest, Σ exp(x[r, i] - largest), for rows begin..end. */
export const softmax_sums_f32: Reference["softmax_sums_f32"] = (out, x, n, stride, begin, end) => {
  for (let r = begin; r < end; r++) {
    const row = x.subarray(r * stride, r * stride + n);
    const largest = Math.max(...row);
    out[2 * r] = largest;
    out[2 * r + 1] = row.reduce((sum, each) => sum + Math.exp(each - largest), 0);
  }
};
