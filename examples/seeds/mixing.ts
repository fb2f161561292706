// Mixing before splitting: eight numbers, each of which a matrix mixes of all eight of x0; then a small layer, from the same stream
// of random numbers.

import { attendWithMaps, createAttention, type Kernels, type Tensor } from "headwise";
import { product } from "./layers.ts";
import { TorchRandom } from "./torch-random.ts";

/** Sizes of the small layer, whose rows are those of x0. */
export const SMALL = { batch: 2, seqLen: 4, dModel: 8, numHeads: 2 } as const;

/** What the seed 1 gives, in the order in which it is drawn. */
export interface Mixing {
  /** [8]: a row. */
  readonly x0: Tensor;
  /** [8, 8]: how it is mixed. */
  readonly W: Tensor;
  /** [1, 8]: x0 · W. */
  readonly q0: Tensor;
  /** [2, 4, 8]: what the small layer reads, and its matrices [in, out]. */
  readonly x: Tensor;
  readonly weights: { readonly wq: Tensor; readonly wk: Tensor; readonly wv: Tensor; readonly wo: Tensor };
}

export function drawMixing(): Mixing {
  const random = new TorchRandom(1);
  const { batch, seqLen, dModel } = SMALL;
  const square = () => random.randn([dModel, dModel]);
  const x0 = random.randn([dModel]);
  const W = square();
  const x = random.randn([batch, seqLen, dModel]);
  const weights = { wq: square(), wk: square(), wv: square(), wo: square() };
  return { x0, W, q0: product({ data: x0.data, shape: [1, dModel] }, W), x, weights };
}

/** The small layer: rows of y, and weights [batch, heads, tokens, tokens]. */
export function runSmall(kernels: Kernels, { x, weights }: Mixing): ReturnType<typeof attendWithMaps> {
  const { batch, dModel, numHeads } = SMALL;
  const attention = createAttention(kernels, { dModel, numHeads }, { ...weights, layout: "in-out" });
  const result = attendWithMaps(attention, x.data as Float32Array, { batch });
  attention.release();
  return result;
}
