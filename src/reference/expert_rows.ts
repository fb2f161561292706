import type { Reference } from "../wasm/abi.ts";

/** out[i, :n] = x[slots[i] / topK, :n], for i in begin..end. */
export const gather_rows_f32: Reference["gather_rows_f32"] = (out, x, slots, topK, n, begin, end) => {
  for (let i = begin; i < end; i++) {
    const token = Math.floor(slots[i]! / topK);
    out.set(x.subarray(token * n, (token + 1) * n), i * n);
  }
};

/** out[slots[i] / topK, :n] += weights[slots[i]] · y[i, :n], for i in begin..end, in ascending order. */
export const scatter_rows_f32: Reference["scatter_rows_f32"] = (out, y, weights, slots, topK, n, begin, end) => {
  for (let i = begin; i < end; i++) {
    const slot = slots[i]!;
    const to = Math.floor(slot / topK) * n;
    for (let j = 0; j < n; j++) out[to + j] = out[to + j]! + weights[slot]! * y[i * n + j]!;
  }
};
