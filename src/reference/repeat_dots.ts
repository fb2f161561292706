import type { Reference } from "../wasm/abi.ts";

/** out[lane] = (end - begin) · Σ over r < 8 and b < 4 of x[4·lane + b] · w[r, 4·lane + b]: both ways give the same sums. */
export const repeat_dots: Reference["repeat_dots"] = (out, x, w, _direct, begin, end) => {
  const weights = new Int8Array(w.buffer, w.byteOffset, 128);
  const lanes = new Int32Array(out.buffer, out.byteOffset, 4);
  for (let lane = 0; lane < 4; lane++) {
    let sum = 0;
    for (let r = 0; r < 8; r++)
      for (let i = 4 * lane; i < 4 * lane + 4; i++) sum += (x[i] as number) * (weights[16 * r + i] as number);
    lanes[lane] = Math.imul(Math.max(0, end - begin), sum);
  }
};
