// A causal layer in float64, in plain loops.

import type { CheckedConfig } from "../../src/layers/attention/config.ts";
import { rotate } from "../../src/reference/attend.ts";
import { randomFloats } from "../lib/random.ts";

type Floats = ArrayLike<number>;

/** Matrices [outputs, inputs] row-major, and biases if there are any. */
export interface LayerWeights {
  readonly wq: Floats;
  readonly wk: Floats;
  readonly wv: Floats;
  readonly wo: Floats;
  readonly bq?: Floats;
  readonly bk?: Floats;
  readonly bv?: Floats;
  readonly bo?: Floats;
}

/** A prompt repeats this many different rows, so that float64 projects no more than these, however long it is. */
const DISTINCT_ROWS = 32;

/** Which of the different rows is at position t: all of them, in an irregular order. */
const sourceOf = (t: number) => Math.imul(t + 1, 0x9e3779b1) >>> 27;

/** x [tokens, dModel]. */
export function inputRows(tokens: number, dModel: number): Float32Array {
  const pool = randomFloats(DISTINCT_ROWS * dModel, 7);
  const x = new Float32Array(tokens * dModel);
  for (let t = 0; t < tokens; t++) {
    const from = sourceOf(t) * dModel;
    x.set(pool.subarray(from, from + dModel), t * dModel);
  }
  return x;
}

/** Returns row t of the layer's output for `inputRows`. */
export type Oracle = (t: number) => Float64Array;

/** Projects the different rows at once, so that a row of output costs only its own attention. */
export function createOracle(config: CheckedConfig, weights: LayerWeights): Oracle {
  const { dModel, numHeads, numKvHeads, headDim, rope, scale } = config;
  const pool = inputRows(DISTINCT_ROWS * DISTINCT_ROWS, dModel);
  const [qWidth, kvWidth] = [numHeads * headDim, numKvHeads * headDim];
  const projected = new Map<number, { q: Float64Array; k: Float64Array; v: Float64Array }>();
  for (let t = 0; projected.size < DISTINCT_ROWS; t++) {
    if (projected.has(sourceOf(t))) continue;
    const row = pool.subarray(t * dModel, (t + 1) * dModel);
    projected.set(sourceOf(t), {
      q: project(row, weights.wq, weights.bq, qWidth),
      k: project(row, weights.wk, weights.bk, kvWidth),
      v: project(row, weights.wv, weights.bv, kvWidth),
    });
  }
  const at = (t: number) => projected.get(sourceOf(t))!;
  const rotated = (row: Float64Array, t: number, heads: number) => {
    if (!rope) return row;
    const copy = row.slice();
    rotate(copy, [t], heads, headDim, rope);
    return copy;
  };
  return (t) => {
    const q = rotated(at(t).q, t, numHeads);
    const keys = Array.from({ length: t + 1 }, (_, j) => rotated(at(j).k, j, numKvHeads));
    const heads = new Float64Array(qWidth);
    for (let h = 0; h < numHeads; h++) {
      const kvAt = Math.floor((h * numKvHeads) / numHeads) * headDim;
      const scores = keys.map((key) => {
        let dot = 0;
        for (let d = 0; d < headDim; d++) dot += q[h * headDim + d]! * key[kvAt + d]!;
        return scale * dot;
      });
      const largest = scores.reduce((a, b) => Math.max(a, b));
      const terms = scores.map((score) => Math.exp(score - largest));
      const sum = terms.reduce((a, b) => a + b);
      for (const [j, term] of terms.entries()) {
        const { v } = at(j);
        for (let d = 0; d < headDim; d++) heads[h * headDim + d]! += (term / sum) * v[kvAt + d]!;
      }
    }
    return project(heads, weights.wo, weights.bo, dModel);
  };
}

function project(row: Floats, w: Floats, bias: Floats | undefined, outputs: number): Float64Array {
  const y = new Float64Array(outputs);
  for (let n = 0; n < outputs; n++) {
    let sum = bias ? bias[n]! : 0;
    for (let i = 0; i < row.length; i++) sum += row[i]! * w[n * row.length + i]!;
    y[n] = sum;
  }
  return y;
}
