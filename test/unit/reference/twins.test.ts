// The twins, one after the other, as a layer calls them.

import { describe, expect, test } from "vitest";
import { PAGE } from "../../../assembly/layout.ts";
import type { CheckedConfig } from "../../../src/layers/attention/config.ts";
import { attendReference, type ReferenceWeights } from "../../../src/reference/attend.ts";
import { reference } from "../../../src/reference/index.ts";
import { createRandom, type Random } from "../../../src/tools/diagnostics/random.ts";
import { type AttentionShape, KERNEL_NAMES, type Plain } from "../../../src/wasm/abi.ts";
import { floats } from "../../support/harness.ts";

const FAR = Number.POSITIVE_INFINITY;

function configOf(fields: Partial<CheckedConfig>): CheckedConfig {
  const { dModel = 4, numHeads = 1, headDim = 4 } = fields;
  return {
    dModel,
    numHeads,
    numKvHeads: numHeads,
    headDim,
    valueDim: headDim,
    kdim: dModel,
    vdim: dModel,
    causal: false,
    window: { left: FAR, right: FAR },
    scale: 1 / Math.sqrt(headDim),
    softcap: 0,
    slopes: undefined,
    rope: undefined,
    qkNorm: undefined,
    addZeroAttn: false,
    ...fields,
  };
}

function weightsOf(random: Random, config: CheckedConfig): ReferenceWeights {
  const { dModel, numHeads, numKvHeads, headDim, valueDim, kdim, vdim } = config;
  const matrix = (rows: number, width: number) => floats(random, rows * width).map((w) => w / Math.sqrt(width));
  return {
    wq: matrix(numHeads * headDim, dModel),
    wk: matrix(numKvHeads * headDim, kdim),
    wv: matrix(numKvHeads * valueDim, vdim),
    wo: matrix(dModel, numHeads * valueDim),
    bq: floats(random, numHeads * headDim),
    bk: floats(random, numKvHeads * headDim),
    bv: floats(random, numKvHeads * valueDim),
    bo: floats(random, dModel),
  };
}

const largestDifference = (got: ArrayLike<number>, want: ArrayLike<number>) => {
  expect(got.length).toBe(want.length);
  return Array.from(got).reduce((most, one, i) => Math.max(most, Math.abs(one - want[i]!)), 0);
};

test("there is a twin for each kernel, and nothing else", () => {
  expect(Object.keys(reference).sort()).toEqual([...KERNEL_NAMES].sort());
});

describe("the twins one after the other", () => {
  /** The same layer by the twins: projections in float64, then everything in float32 arrays. */
  function attendByTwins(
    config: CheckedConfig,
    weights: ReferenceWeights,
    x: Float32Array,
    qStart: number,
    keys: Float32Array,
    rules: Pick<Plain<AttentionShape>, "keep" | "bias">,
  ): { y: Float32Array; maps: Float32Array } {
    const { dModel, numHeads, numKvHeads, headDim, valueDim } = config;
    const [qLen, kvLen] = [x.length / dModel, keys.length / dModel];
    const project = (from: Float32Array, w: ArrayLike<number>, b: ArrayLike<number>, width: number) => {
      const n = b.length;
      return Float32Array.from({ length: (from.length / width) * n }, (_, i) => {
        const row = Math.floor(i / n) * width;
        return from.subarray(row, row + width).reduce((sum, one, d) => sum + one * w[(i % n) * width + d]!, b[i % n]!);
      });
    };
    const q = project(x, weights.wq, weights.bq!, dModel);
    const k = project(keys, weights.wk, weights.bk!, dModel);
    const v = project(keys, weights.wv, weights.bv!, dModel);
    const [eps, half] = [config.qkNorm!.eps, config.rope!.dim / 2];
    reference.rms_norm_f32(q, q, Float32Array.from(weights.qNorm!), headDim, headDim, eps, 0, qLen * numHeads);
    reference.rms_norm_f32(k, k, Float32Array.from(weights.kNorm!), headDim, headDim, eps, 0, kvLen * numKvHeads);
    const table = (f: (angle: number) => number) =>
      Float32Array.from({ length: Math.max(qLen, kvLen) * half }, (_, i) =>
        f(Math.floor(i / half) * config.rope!.theta ** (-(i % half) / half)),
      );
    const [cos, sin] = [table(Math.cos), table(Math.sin)];
    const interleaved = Number(config.rope!.pairing === "interleaved");
    const shapeOf = (heads: number) => {
      return { numHeads: heads, headDim, ropeDim: 2 * half, interleaved, stride: heads * headDim };
    };
    reference.rope_f32(q, cos, sin, shapeOf(numHeads), 0, qLen);
    reference.rope_f32(k, cos, sin, shapeOf(numKvHeads), 0, kvLen);
    const cache = {
      numKvHeads,
      headDim,
      valueDim,
      kStride: numKvHeads * headDim,
      kHeadStride: headDim,
      vStride: numKvHeads * valueDim,
      vHeadStride: valueDim,
    };
    const pageFloats = numKvHeads * PAGE * (headDim + Math.ceil(valueDim / 8) * 8);
    const pages = Array.from({ length: Math.ceil(kvLen / PAGE) }, () => new Float32Array(pageFloats));
    reference.append_f32(pages, k, v, cache, 0, 0, kvLen);
    const shape: Plain<AttentionShape> = {
      ...rules,
      qLen,
      kvLen,
      qStart,
      left: config.window.left,
      right: config.causal ? 0 : config.window.right,
      numHeads,
      numKvHeads,
      headDim,
      valueDim,
      qStride: numHeads * headDim,
      qHeadStride: headDim,
      outStride: numHeads * valueDim,
      outHeadStride: valueDim,
      scale: config.scale,
      softcap: config.softcap,
      slopes: config.slopes ?? null,
      sinks: Float32Array.from(weights.sinkLogits!),
      extraKey: Float32Array.from(weights.biasK!),
      extraValue: Float32Array.from(weights.biasV!),
      zeroKey: Number(config.addZeroAttn),
      keepHeadStride: qLen * kvLen,
      keepRowStride: kvLen,
      biasHeadStride: qLen * kvLen,
      biasRowStride: kvLen,
      lse: null,
      formats: 0,
    };
    const columns = kvLen + 1 + shape.zeroKey;
    const maps = new Float32Array(numHeads * qLen * columns);
    const heads = new Float32Array(qLen * numHeads * valueDim);
    for (let h = 0; h < numHeads; h++) {
      const rows = maps.subarray(h * qLen * columns, (h + 1) * qLen * columns);
      reference.scores_f32(rows, q, pages, shape, h, 2, 0, qLen);
      reference.masked_softmax_f32(rows, rows, shape, h, 0, qLen);
      reference.weighted_sum_f32(heads, rows, pages, shape, h, 0, qLen);
    }
    return { y: project(heads, weights.wo, weights.bo!, numHeads * valueDim), maps };
  }

  test.each([1, 2, 3, 4, 5, 6])("are the whole forward within 2^-17 of its largest output, seed %i", (seed) => {
    const random = createRandom(seed);
    const config = configOf({
      dModel: 12,
      numHeads: 4,
      numKvHeads: [1, 2, 4][seed % 3]!,
      headDim: 6,
      valueDim: 5,
      causal: seed % 2 === 0,
      window: seed % 3 === 0 ? { left: 4, right: 2 } : { left: FAR, right: FAR },
      softcap: seed % 2 ? 3 : 0,
      slopes: seed % 3 ? Float32Array.of(0.5, 0.25, 0.125, 0.0625) : undefined,
      rope: { theta: 1000, pairing: seed % 2 ? "half" : "interleaved", dim: 4 },
      qkNorm: { kind: "per-head", eps: 1e-6, onePlus: false },
      addZeroAttn: seed % 2 === 0,
    });
    const { numHeads, numKvHeads, headDim, valueDim } = config;
    const weights: ReferenceWeights = {
      ...weightsOf(random, config),
      qNorm: floats(random, headDim),
      kNorm: floats(random, headDim),
      sinkLogits: floats(random, numHeads),
      biasK: floats(random, numKvHeads * headDim),
      biasV: floats(random, numKvHeads * valueDim),
    };
    const [qLen, kvLen, qStart] = [7, 9, 2];
    const x = floats(random, qLen * config.dModel);
    const keys = floats(random, kvLen * config.dModel);
    const keep = Uint8Array.from({ length: numHeads * qLen * kvLen }, () => Number(random.next() < 0.7));
    const bias = floats(random, keep.length).map((b) => (b > 1.5 ? -FAR : b));
    const at = (h: number, t: number, j: number) => (h * qLen + t) * kvLen + j;
    const want = attendReference(config, weights, x, {
      keys,
      qStart,
      keep: (h, t, j) => keep[at(h, t, j)] !== 0,
      bias: (h, t, j) => bias[at(h, t, j)]!,
    });
    const got = attendByTwins(config, weights, x, qStart, keys, { keep, bias });
    expect(largestDifference(got.maps, want.maps)).toBeLessThan(2 ** -17);
    const largest = want.y.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
    expect(largestDifference(got.y, want.y)).toBeLessThan(largest * 2 ** -17);
  });
});
