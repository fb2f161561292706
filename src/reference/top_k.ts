import type { Reference } from "../wasm/abi.ts";

/** The places of the k largest, descending; of equal ones the lower first, NaN behind all numbers. */
export function largestOf(x: readonly number[], k: number): number[] {
  const order = (i: number, j: number) => {
    const [a, b] = [x[i]!, x[j]!];
    if (a !== b && !(Number.isNaN(a) && Number.isNaN(b))) return Number.isNaN(a) || a < b ? 1 : -1;
    return i - j;
  };
  return [...x.keys()].sort(order).slice(0, k);
}

/** values[r, :k] and ids[r, :k] are the k largest of x[r, :n] and where they are, for rows begin..end. */
export const top_k_f32: Reference["top_k_f32"] = (values, ids, x, n, stride, k, begin, end) => {
  for (let r = begin; r < end; r++) {
    const row = [...x.subarray(r * stride, r * stride + n)];
    for (const [j, i] of largestOf(row, k).entries()) {
      values[r * k + j] = row[i]!;
      ids[r * k + j] = i;
    }
  }
};
