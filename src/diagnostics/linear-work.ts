import { linearShape, packedFloats, panelsOf } from "../linear/formats.ts";
import { type F32Ptr, LINEAR_SHAPE_BYTES, storeLinearShape } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { type Deviation, DeviationSum } from "./error-stats.ts";
import { createRandom } from "./random.ts";
import type { Load } from "./timing.ts";

/** A fixed workload for kernels. */
export interface Work extends Load {
  readonly name: string;
  /** Its sizes, as text. */
  readonly shape: string;
  /** The error of the last run against float64, over some of its rows. */
  error(): Deviation;
  release(): void;
}

/** Every COMPARED-th row is compared with float64, because that is slow. */
const COMPARED = 31;

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
    shape: layout.take(LINEAR_SHAPE_BYTES),
  };
  const base = memory.allocate("projection", layout.bytes);
  const at = (part: keyof typeof place): F32Ptr => pointer.f32(base + place[part]);
  memory.f32(at("x"), x.length).set(x);
  memory.f32(at("bias"), n).set(bias);
  memory.f32(at("y"), w.length).set(w);
  table.pack_rows_f32(at("w"), at("y"), n, k, 0, panelsOf(n));
  const shape = pointer.linearShape(base + place.shape);
  const sizes = { panels: panelsOf(n), k, outStride: n, xStride: k };
  storeLinearShape(memory.view(), shape, linearShape("f32", sizes));
  return {
    name: "linear",
    shape: `[${m}, ${k}] x [${k}, ${n}]`,
    flops: 2 * m * n * k,
    run: () => table.linear_f32(at("y"), at("x"), at("w"), at("bias"), shape, 0, m),
    error() {
      const sum = new DeviationSum();
      const y = memory.f32(at("y"), m * n);
      for (let r = 0; r < m; r += COMPARED) {
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
