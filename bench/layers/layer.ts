// A whole attention layer of a real model's shape, with random weights.

import {
  type Attention,
  type AttentionConfig,
  type AttentionWeights,
  createAttention,
  type Kernels,
  type Tensor,
} from "../../src/entries/core.ts";
import { expectNear } from "../lib/case.ts";
import { randomFloats } from "../lib/random.ts";
import type { LayerShape } from "../lib/shapes.ts";
import { createOracle, type Oracle } from "./oracle.ts";

/** Relative error: far above that of a correct layer, far below that of a wrong one. */
const TOLERANCE = 2e-5;

export function configOf({ dModel, numHeads, numKvHeads, ropeTheta }: LayerShape): AttentionConfig {
  const rope = ropeTheta === undefined ? undefined : { theta: ropeTheta, pairing: "half" as const };
  return { dModel, numHeads, numKvHeads, causal: true, rope };
}

/** Scaled so that outputs are about as large as inputs. */
export function weightsOf({ dModel, numHeads, numKvHeads, bias }: LayerShape): AttentionWeights<Tensor> {
  const kvWidth = (dModel / numHeads) * numKvHeads;
  const scaled = (length: number, seed: number) => randomFloats(length, seed, Math.sqrt(3 / dModel));
  const matrix = (rows: number, seed: number): Tensor => ({
    data: scaled(rows * dModel, seed),
    shape: [rows, dModel],
  });
  return {
    wq: matrix(dModel, 1),
    wk: matrix(kvWidth, 2),
    wv: matrix(kvWidth, 3),
    wo: matrix(dModel, 4),
    ...(bias && { bq: scaled(dModel, 5), bk: scaled(kvWidth, 6), bv: scaled(kvWidth, 7), bo: scaled(dModel, 8) }),
  };
}

/** A layer, and its output in float64. */
export function layerOf(kernels: Kernels, shape: LayerShape): { attention: Attention; oracle: Oracle } {
  const weights = weightsOf(shape);
  const attention = createAttention(kernels, configOf(shape), weights);
  const { data: wq } = weights.wq!;
  const { data: wk } = weights.wk!;
  const { data: wv } = weights.wv!;
  const { data: wo } = weights.wo!;
  const { bq, bk, bv, bo } = weights;
  return { attention, oracle: createOracle(attention.config, { wq, wk, wv, wo, bq, bk, bv, bo }) };
}

/** Throws unless rows of `y`, whose first is that of token `first`, agree with float64. */
export function expectRows(what: string, y: Float32Array, oracle: Oracle, first: number, rows: Iterable<number>): void {
  for (const t of new Set(rows)) {
    const want = oracle(t);
    const at = (t - first) * want.length;
    expectNear(what, y.subarray(at, at + want.length), want, TOLERANCE);
  }
}
