import { describe, expect, test } from "vitest";
import {
  applyRope,
  attend,
  attendWithMaps,
  loadKernels,
  ropeTables,
  type Tensor,
} from "../../../../src/entries/index.ts";
import { type TraceOptions, traceAttention } from "../../../../src/entries/inspect.ts";
import { createLatentAttention, type LatentConfig, latent } from "../../../../src/entries/latent.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { latentWeights } from "../../../support/latent-layers.ts";

const kernels = await loadKernels({ latent });
const [BATCH, LEN, D] = [2, 9, 24];
const SIZES = { dModel: D, numHeads: 3, kvLoraRank: 13, nopeDim: 10, ropeDim: 6, valueDim: 7, causal: true } as const;
const ROPE = { theta: 100, pairing: "half" } as const;
const keep = { data: Array.from({ length: LEN * LEN }, (_, i) => i % LEN !== (i / LEN + 3) % LEN), shape: [LEN, LEN] };

const CASES: readonly [name: string, config: LatentConfig, options: TraceOptions, names: string][] = [
  ["latents", { ...SIZES, rope: ROPE }, {}, "split norm rotate absorb scores mask"],
  [
    "latents of queries, and a softcap",
    { ...SIZES, qLoraRank: 11, softcap: 2, rope: { ...ROPE, pairing: "interleaved" } },
    {},
    "split norm rotate absorb scores softcap mask",
  ],
  ["no norm, no rotation", { ...SIZES, ropeDim: 0, latentNorm: false }, {}, "split absorb scores mask"],
  [
    "both directions, with a mask",
    { ...SIZES, rope: ROPE, causal: false },
    { keep },
    "split norm rotate absorb scores mask",
  ],
];

describe.each(CASES)("%s", (_, config, options, names) => {
  const random = createRandom(5);
  const weights = latentWeights(random, config, true);
  const attention = createLatentAttention(kernels, config, weights);
  const { numHeads, headDim, kvLoraRank, nopeDim, ropeDim, valueDim, scale, softcap, normEps } = attention.config;
  const x = floats(random, BATCH * LEN * D);
  const call = { ...options, batch: BATCH };
  const stages = traceAttention(attention, x, call);
  const tensor = (name: string, letter: string) =>
    stages.find((stage) => stage.name === name)?.tensors[letter] as Tensor;
  const of = (name: string, letter: string) => tensor(name, letter).data;
  const near = (got: number | undefined, want: number, all: Float32Array) =>
    expect(Math.abs((got as number) - want)).toBeLessThan(1e-6 * Math.max(1, ...all.map(Math.abs)));

  test("has the stages of latents, with sentences, formulas and shapes", () => {
    expect(stages.map(({ name }) => name).join(" ")).toBe(`project chunk ${names} softmax sum expand merge output`);
    for (const { text, formula, tensors } of stages) {
      expect(text).toMatch(/^[A-Z].*\.$/);
      expect(formula).not.toMatch(/undefined|NaN|false/);
      for (const { data, shape } of Object.values(tensors)) {
        expect(shape[0]).toBe(BATCH);
        expect(data.length).toBe(shape.reduce((size, length) => size * length));
      }
    }
  });

  test("weights and y have the bits of attendWithMaps and attend", () => {
    expect(tensor("softmax", "weights")).toEqual(attendWithMaps(attention, x, call).maps);
    expect(of("output", "y")).toEqual(attend(attention, x, call));
  });

  test("projections, norms and rotations are what their formulas make of the stage before, within 1e-6", () => {
    const kv = of("project", "kv");
    const width = kvLoraRank + ropeDim;
    for (const [i, value] of kv.entries()) {
      const [row, n] = [Math.floor(i / width), i % width];
      near(value, (weights.bkvDown?.[n] as number) + dot(D, x, row * D, weights.wkvDown.data, n * D), kv);
      expect(value).toBe(
        n < kvLoraRank ? of("chunk", "c")[row * kvLoraRank + n] : of("chunk", "r")[row * ropeDim + n - kvLoraRank],
      );
    }
    const q = of("project", "q");
    if (!config.qLoraRank)
      for (const [i, value] of q.entries()) {
        const [row, n] = [Math.floor(i / (numHeads * headDim)), i % (numHeads * headDim)];
        near(value, (weights.bq?.[n] as number) + dot(D, x, row * D, weights.wq?.data as Float32Array, n * D), q);
      }
    for (const [i, value] of of("split", "q").entries()) {
      const [c, t, h] = [i % headDim, Math.floor(i / headDim) % LEN, Math.floor(i / headDim / LEN) % numHeads];
      const b = Math.floor(i / headDim / LEN / numHeads);
      expect(value).toBe(q[((b * LEN + t) * numHeads + h) * headDim + c]);
    }
    if (weights.kvNorm)
      for (const [i, value] of of("norm", "c").entries()) {
        const from = i - (i % kvLoraRank);
        const c = of("chunk", "c");
        const root = Math.sqrt(dot(kvLoraRank, c, from, c, from) / kvLoraRank + normEps);
        near(value, ((c[i] as number) / root) * (weights.kvNorm[i % kvLoraRank] as number), of("norm", "c"));
      }
    if (!config.rope) return;
    const { pairing, theta } = config.rope;
    const tables = ropeTables(
      { theta, pairing, dim: ropeDim },
      Array.from({ length: LEN }, (_, t) => t),
    );
    const r = { data: of("chunk", "r"), shape: [BATCH, 1, LEN, ropeDim] };
    expect(of("rotate", "r")).toEqual(applyRope(kernels, r, { ...tables, pairing }).data);
    const part = (name: string) => of(name, "q").filter((_, i) => i % headDim >= nopeDim);
    const parts = { data: part("split"), shape: [BATCH, numHeads, LEN, ropeDim] };
    expect(part("rotate")).toEqual(applyRope(kernels, parts, { ...tables, pairing }).data);
  });

  test("scores, weights and outputs of heads are what their formulas make of the stage before, within 1e-6", () => {
    const width = kvLoraRank + ropeDim;
    const [q, k, v] = [of("absorb", "q"), of("absorb", "k"), of("absorb", "v")];
    const placed = config.rope ? of("rotate", "q") : of("split", "q");
    const [scores, masked, all] = [of("scores", "scores"), of("mask", "scores"), of("softmax", "weights")];
    const [s, z, y] = [of("sum", "s"), of("expand", "z"), of("output", "y")];
    const up = weights.wkvUp.data;
    for (let row = 0; row < BATCH * numHeads * LEN; row++) {
      const [b, h, i] = [Math.floor(row / LEN / numHeads), Math.floor(row / LEN) % numHeads, row % LEN];
      const matrix = h * (nopeDim + valueDim) * kvLoraRank;
      for (let c = 0; c < width; c++) {
        const own = sum(
          nopeDim,
          (n) => (placed[row * headDim + n] as number) * (up[matrix + n * kvLoraRank + c] as number),
        );
        near(
          q[row * width + c],
          c < kvLoraRank ? own : (placed[row * headDim + nopeDim + c - kvLoraRank] as number),
          q,
        );
      }
      const total = sum(LEN, (j) => Math.exp(masked[row * LEN + j] as number));
      for (let j = 0; j < LEN; j++) {
        const at = row * LEN + j;
        near(scores[at], scale * dot(width, q, row * width, k, (b * LEN + j) * width), scores);
        const capped = softcap > 0 ? softcap * Math.tanh((scores[at] as number) / softcap) : (scores[at] as number);
        const seen = options.keep ? keep.data[i * LEN + j] : j <= i;
        if (seen) near(masked[at], capped, scores);
        else expect(masked[at]).toBe(-Infinity);
        near(all[at], Math.exp(masked[at] as number) / total, all);
      }
      for (let c = 0; c < kvLoraRank; c++) {
        const at = row * kvLoraRank + c;
        near(
          s[at],
          sum(LEN, (j) => (all[row * LEN + j] as number) * (v[(b * LEN + j) * kvLoraRank + c] as number)),
          v,
        );
      }
      for (let c = 0; c < valueDim; c++) {
        const want = dot(kvLoraRank, s, row * kvLoraRank, up, matrix + (nopeDim + c) * kvLoraRank);
        near(z[row * valueDim + c], want, z);
        const merged = of("merge", "z")[((b * LEN + i) * numHeads + h) * valueDim + c];
        expect(merged).toBe(z[row * valueDim + c]);
      }
    }
    for (const [i, value] of y.entries()) {
      const [row, n, size] = [Math.floor(i / D), i % D, numHeads * valueDim];
      near(value, (weights.bo?.[n] as number) + dot(size, of("merge", "z"), row * size, weights.wo.data, n * size), y);
    }
  });
});

test("calls of more rows than a chunk have the bits of attend; no rows have stages without data", () => {
  const random = createRandom(8);
  const config = { ...SIZES, rope: ROPE };
  const attention = createLatentAttention(kernels, config, latentWeights(random, config));
  const x = floats(random, 300 * D);
  const stages = traceAttention(attention, x);
  expect(stages.at(-1)?.tensors.y?.data).toEqual(attend(attention, x));
  const parts = traceAttention(attention, x.subarray(0, 290 * D));
  const rotated = (of: typeof stages) => of.find(({ name }) => name === "rotate")?.tensors.r?.data;
  expect(rotated(stages)?.subarray(0, 290 * 6)).toEqual(rotated(parts));
  for (const { tensors } of traceAttention(attention, new Float32Array(0)))
    for (const { data } of Object.values(tensors)) expect(data.length).toBe(0);
});

test("keys of other rows are refused", () => {
  const attention = createLatentAttention(kernels, { ...SIZES, rope: ROPE }, latentWeights(createRandom(1), SIZES));
  const x = new Float32Array(D);
  expect(() => traceAttention(attention, x, { keys: x })).toThrow(
    "traceAttention: keys expected none with latent attention, got Float32Array",
  );
});

function sum(count: number, term: (i: number) => number): number {
  let all = 0;
  for (let i = 0; i < count; i++) all += term(i);
  return all;
}

function dot(n: number, a: Float32Array, from: number, b: Float32Array, at: number): number {
  return sum(n, (i) => (a[from + i] as number) * (b[at + i] as number));
}
