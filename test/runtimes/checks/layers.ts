// Seeded layers and inputs.

import type {
  Attention,
  AttentionConfig,
  AttentionWeights,
  Cache,
  Kernels,
  SeparateWeights,
  Tensor,
} from "../../../src/entries/core.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { attend, createAttention } from "../given.ts";

/** Two kv heads for eight heads, rotated: what a layer of a current model looks like, small. */
export const GROUPED: AttentionConfig = {
  dModel: 64,
  numHeads: 8,
  numKvHeads: 2,
  causal: true,
  rope: { theta: 10_000, pairing: "half" },
};

/** Weights that fit a configuration. */
export function weightsOf(config: AttentionConfig, seed: number): SeparateWeights {
  const { floats } = createRandom(seed);
  const { dModel, numHeads, numKvHeads = numHeads, headDim = dModel / numHeads, kdim = dModel, vdim = dModel } = config;
  const matrix = (rows: number, columns: number): Tensor => ({
    data: floats(rows * columns).map((w) => w / Math.sqrt(columns)),
    shape: [rows, columns],
  });
  return {
    wq: matrix(numHeads * headDim, dModel),
    wk: matrix(numKvHeads * headDim, kdim),
    wv: matrix(numKvHeads * headDim, vdim),
    wo: matrix(dModel, numHeads * headDim),
  };
}

/** A layer, for as long as `use` runs. */
export async function withLayer<T>(
  kernels: Kernels,
  config: AttentionConfig,
  use: (attention: Attention) => T | Promise<T>,
  weights: AttentionWeights = weightsOf(config, 1),
): Promise<T> {
  const attention = createAttention(kernels, config, weights);
  try {
    return await use(attention);
  } finally {
    attention.release();
  }
}

/** y of the first `prefill` rows of x at once and of the rest one by one, on a cache. */
export function decodeRows(attention: Attention, cache: Cache, x: Float32Array, prefill: number): Float32Array {
  const { dModel } = attention.config;
  const y = new Float32Array(x.length);
  y.set(attend(attention, x.subarray(0, prefill * dModel), { cache }));
  for (let at = prefill * dModel; at < x.length; at += dModel)
    y.set(attend(attention, x.subarray(at, at + dModel), { cache }), at);
  return y;
}
