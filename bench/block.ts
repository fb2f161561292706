// A whole layer of a real model's shape, with weights from a seed.

import {
  type Attention,
  type AttentionConfig,
  type AttentionWeights,
  createAttention,
  type Kernels,
  type Tensor,
} from "../src/entries/core.ts";
import { expectNear, fill } from "./case.ts";
import { createOracle, type Oracle } from "./oracle.ts";
import type { BlockShape } from "./shapes.ts";

/** Relative error that a correct layer stays far below, and a wrong one does not. */
const TOLERANCE = 2e-5;

export function configOf({ dModel, numHeads, numKvHeads, ropeTheta }: BlockShape): AttentionConfig {
  const rope = ropeTheta === undefined ? undefined : { theta: ropeTheta, pairing: "half" as const };
  return { dModel, numHeads, numKvHeads, causal: true, rope };
}

/** Scaled so that outputs are of the size of inputs. */
export function weightsOf({ dModel, numHeads, numKvHeads, bias }: BlockShape): AttentionWeights<Tensor> {
  const kvWidth = (dModel / numHeads) * numKvHeads;
  const scaled = (length: number, seed: number) => {
    const data = new Float32Array(length);
    fill(data, seed);
    for (let i = 0; i < length; i++) data[i]! /= Math.sqrt(dModel / 3);
    return data;
  };
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

/** A layer beside what float64 says of it. */
export function layerOf(kernels: Kernels, shape: BlockShape): { attention: Attention; oracle: Oracle } {
  const weights = weightsOf(shape);
  const attention = createAttention(kernels, configOf(shape), weights);
  const { data: wq } = weights.wq!;
  const { data: wk } = weights.wk!;
  const { data: wv } = weights.wv!;
  const { data: wo } = weights.wo!;
  const { bq, bk, bv, bo } = weights;
  return { attention, oracle: createOracle(attention.config, { wq, wk, wv, wo, bq, bk, bv, bo }) };
}

/** Operations of a layer for `tokens` tokens behind `past`: four projections, and two products a pair that is attended. */
export function blockFlops({ dModel, numHeads, numKvHeads }: BlockShape, tokens: number, past = 0): number {
  const outputs = 2 * dModel + (2 * dModel * numKvHeads) / numHeads;
  return tokens * 2 * dModel * outputs + 4 * dModel * causalPairs(tokens, past);
}

/** Pairs of a query and a key that it attends. */
export function causalPairs(tokens: number, past: number): number {
  return tokens * past + (tokens * (tokens + 1)) / 2;
}

/** Throws unless rows of `y`, whose first is that of token `first`, agree with float64. */
export function expectRows(what: string, y: Float32Array, oracle: Oracle, first: number, rows: Iterable<number>): void {
  for (const t of new Set(rows)) {
    const want = oracle(t);
    const at = (t - first) * want.length;
    expectNear(what, y.subarray(at, at + want.length), want, TOLERANCE);
  }
}
