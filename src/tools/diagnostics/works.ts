// Calls that the diagnosis times and compares with float64.

import type { Tensor } from "../../base/tensor/tensor.ts";
import { exp } from "../../base/util/math.ts";
import type { scaledDotProductAttention } from "../../layers/api/sdpa.ts";
import { packedFloats, panelsOf } from "../../layers/linear/formats/format.ts";
import { type F32Ptr, LinearShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { type Deviation, DeviationSum } from "./quantize-report.ts";
import { createRandom } from "./random.ts";
import type { Load } from "./timing.ts";

/** Of each head, every COMPARED-th query is compared with float64. */
const COMPARED_QUERIES = 73;

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
        for (let t = head % COMPARED_QUERIES; t < tokens; t += COMPARED_QUERIES) {
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

/** A fixed workload for kernels. */
interface Work extends Load {
  readonly name: string;
  /** Its sizes, as text. */
  readonly shape: string;
  /** The error of the last run against float64, over some of its rows. */
  error(): Deviation;
  release(): void;
}

/** Every COMPARED-th row is compared with float64, because that is slow. */
const COMPARED_ROWS = 31;

/** y[m, n] = x[m, k] · w[n, k]ᵀ + bias[n], by the kernel only. n is a multiple of 8. */
export function createLinearWork(kernels: Kernels, m: number, n: number, k: number): Work {
  const { table, memory } = kernels;
  const { floats } = createRandom(n);
  const [x, w, bias] = [floats(m * k), floats(n * k), floats(n)];
  const layout = new Layout();
  const place = {
    x: layout.floats(m * k),
    w: layout.floats(packedFloats(n, k)),
    bias: layout.floats(n),
    // Rows of w while they are packed, then y.
    y: layout.floats(Math.max(m, k) * n),
    shape: layout.take(LinearShape.bytes),
  };
  const base = memory.allocate("projection", layout.bytes);
  const at = (part: keyof typeof place): F32Ptr => pointer.f32(base + place[part]);
  memory.f32(at("x"), x.length).set(x);
  memory.f32(at("bias"), n).set(bias);
  memory.f32(at("y"), w.length).set(w);
  table.pack_rows_f32(at("w"), at("y"), n, k, 0, panelsOf(n));
  const shape = pointer.linearShape(base + place.shape);
  const integers = { bf16: 0, block: 0, mode: 0, zero: 0 };
  LinearShape.store(memory.view(), shape, { panels: panelsOf(n), k, outStride: n, xStride: k, ...integers });
  return {
    name: "linear",
    shape: `[${m}, ${k}] x [${k}, ${n}]`,
    flops: 2 * m * n * k,
    run: () => table.linear_f32(at("y"), at("x"), at("w"), at("bias"), shape, 0, m),
    error() {
      const sum = new DeviationSum();
      const y = memory.f32(at("y"), m * n);
      for (let r = 0; r < m; r += COMPARED_ROWS) {
        const exact = Float64Array.from({ length: n }, (_, j) => {
          let dot = bias[j]!;
          for (let i = 0; i < k; i++) dot += x[r * k + i]! * w[j * k + i]!;
          return dot;
        });
        sum.add(exact, y.subarray(r * n, (r + 1) * n), 0, n);
      }
      return sum.result();
    },
    release: () => memory.free(base),
  };
}
