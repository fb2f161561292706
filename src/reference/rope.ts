import type { Reference } from "../wasm/abi.ts";

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
