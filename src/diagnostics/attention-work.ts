import type { scaledDotProductAttention } from "../api/sdpa.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { exp } from "../util/math.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { DeviationSum } from "./error-stats.ts";
import type { Work } from "./linear-work.ts";
import { createRandom } from "./random.ts";

/** Of each head, every COMPARED-th query is compared with float64. */
const COMPARED = 73;

/** scaledDotProductAttention on a causal prompt, including copies in and out. */
export function createAttentionWork(
  attention: typeof scaledDotProductAttention,
  kernels: Kernels,
  heads: number,
  tokens: number,
  headDim: number,
): Work {
  const { floats } = createRandom(heads);
  const tensor = (): Tensor => ({ data: floats(heads * tokens * headDim), shape: [1, heads, tokens, headDim] });
  const [q, k, v] = [tensor(), tensor(), tensor()];
  let output: Float32Array = new Float32Array(0);
  return {
    name: "attention",
    shape: `${heads} heads of ${headDim}, ${tokens} tokens, causal`,
    // A product with each key and each value that is not masked.
    flops: 4 * heads * headDim * ((tokens * (tokens + 1)) / 2),
    run() {
      output = attention(kernels, q, k, v, { causal: true }).output.data;
    },
    error() {
      const sum = new DeviationSum();
      for (let head = 0; head < heads; head++)
        for (let t = head % COMPARED; t < tokens; t += COMPARED) {
          const row = (head * tokens + t) * headDim;
          const exact = attendRow(q.data, k.data, v.data, head * tokens * headDim, t, headDim);
          sum.add(exact, output.subarray(row, row + headDim), 0, headDim);
        }
      return sum.result();
    },
    release() {},
  };
}

/** Query t of the head whose rows begin at `from`, in float64. */
function attendRow(q: Float32Array, k: Float32Array, v: Float32Array, from: number, t: number, headDim: number) {
  const scores = Array.from({ length: t + 1 }, (_, j) => {
    let dot = 0;
    for (let d = 0; d < headDim; d++) dot += q[from + t * headDim + d]! * k[from + j * headDim + d]!;
    return dot / Math.sqrt(headDim);
  });
  const largest = Math.max(...scores);
  const terms = scores.map((score) => exp(score - largest));
  const total = terms.reduce((a, b) => a + b);
  return Float64Array.from({ length: headDim }, (_, d) => {
    let sum = 0;
    for (const [j, term] of terms.entries()) sum += (term / total) * v[from + j * headDim + d]!;
    return sum;
  });
}
