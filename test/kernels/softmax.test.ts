import { describe, expect, test } from "vitest";
import { masked_softmax_f32 } from "../../src/reference/attention.ts";
import { countColumns } from "../../src/reference/pages.ts";
import type { AttentionShape, Plain } from "../../src/wasm/abi.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  pieces,
  runKernel,
  worst,
} from "../support/harness.ts";
import { sampled } from "../support/sampled.ts";

type Shape = Plain<AttentionShape>;

const EXCLUDED = Number.NEGATIVE_INFINITY;

const base: Shape = {
  qLen: 1,
  kvLen: 1,
  qStart: 0,
  left: 0,
  right: 0,
  numHeads: 2,
  numKvHeads: 1,
  headDim: 1,
  valueDim: 1,
  qStride: 1,
  qHeadStride: 1,
  outStride: 1,
  outHeadStride: 1,
  scale: 1,
  softcap: 0,
  slopes: null,
  sinks: null,
  extraKey: null,
  extraValue: null,
  zeroKey: 0,
  keep: null,
  keepHeadStride: 0,
  keepRowStride: 0,
  bias: null,
  biasHeadStride: 0,
  biasRowStride: 0,
  lse: null,
  formats: 0,
};

/**
 * How far weight j of a row may be off. An exponential's argument is off by half an ulp of itself, and the weight by
 * that share; the sum by the mean of these shares and by an addition a key of a lane; 10 roundings come at any size.
 * What is below 2^-125 may become 0.
 */
function allowedError(scores: Float32Array, sink: number, weights: Float32Array, j: number): number {
  if (weights[j] === 0) return 2 ** -125;
  const largest = scores.reduce((a, b) => Math.max(a, b), sink);
  let shares = sink === EXCLUDED ? 0 : largest - sink;
  for (const [i, score] of scores.entries()) if (weights[i] !== 0) shares += weights[i]! * (largest - score);
  const roundings = largest - scores[j]! + shares + scores.length / 4 + 10;
  return weights[j]! * roundings * 2 ** -24 + 2 ** -125;
}

describe.each(builds)("masked_softmax_f32 in the %s build", (build) => {
  const instance = load(build);

  /** One row of weights, in place. */
  const softmax = (scores: readonly number[], sinks: readonly number[] | null = null): Float32Array => {
    const shape = { ...base, kvLen: scores.length, sinks: sinks && Float32Array.from(sinks) };
    const row = Float32Array.from(scores);
    runKernel(instance, "masked_softmax_f32", [row, row, shape, 1, 0, 1]);
    return row;
  };

  test.each([0, 1, 3, 4, 5, 31, 67, 300])("is within the rounding of differences, sum and exp at kvLen %i", (kvLen) => {
    const random = createRandom(kvLen + 1);
    const cases = (["normal", "outlier", "equal", "tiny"] as const).flatMap((kind) =>
      [0, 1, 2].flatMap((extras) =>
        [null, Float32Array.of(9, -0.5), Float32Array.of(9, 30)].map((sinks) => ({ kind, extras, sinks })),
      ),
    );
    for (const { kind, extras, sinks } of sampled(cases, 1, (each) => `${each.kind} ${each.extras}`, kvLen)) {
      const extraKey = extras > 1 ? new Float32Array(1) : null;
      const shape: Shape = {
        ...base,
        qLen: 5,
        kvLen,
        sinks,
        zeroKey: Math.min(extras, 1),
        extraKey,
        extraValue: extraKey,
      };
      const columns = countColumns(shape);
      const scores = floats(random, shape.qLen * columns, kind).map((score) => 5 * score);
      for (let i = 0; i < scores.length; i++)
        if (i % columns < kvLen && (random.next() < 0.3 || i < columns)) scores[i] = EXCLUDED;
      const args: Arguments<"masked_softmax_f32"> = [scores.slice().fill(7), scores, shape, 1, 0, shape.qLen];
      const twin = copyArguments<"masked_softmax_f32">(args);
      const split = copyArguments<"masked_softmax_f32">(args);
      masked_softmax_f32(...twin);
      runKernel(instance, "masked_softmax_f32", args);
      const { excess, at } = worst(args[0], twin[0], (i) => {
        const first = i - (i % columns);
        const row = scores.subarray(first, first + columns);
        return allowedError(row, sinks?.[1] ?? EXCLUDED, twin[0].subarray(first), i - first);
      });
      expect(excess, `${kind}, ${extras} extras, sink ${sinks}, element ${at}`).toBeLessThanOrEqual(0);
      for (const [i, score] of scores.entries()) if (score === EXCLUDED) expect(args[0][i]).toBe(0);

      for (const [begin, end] of pieces(random, shape.qLen)) {
        split[4] = begin;
        split[5] = end;
        runKernel(instance, "masked_softmax_f32", split);
      }
      expect(split[0]).toEqual(args[0]);
    }
  });

  test("gives zeros to a row with no key, with and without a sink", () => {
    const nothing = [EXCLUDED, EXCLUDED, EXCLUDED, EXCLUDED, EXCLUDED];
    expect(softmax(nothing)).toEqual(new Float32Array(5));
    expect(softmax(nothing, [0, 3])).toEqual(new Float32Array(5));
    expect(softmax(nothing, [0, EXCLUDED])).toEqual(new Float32Array(5));
    const row = new Float32Array(3).fill(EXCLUDED);
    runKernel(instance, "masked_softmax_f32", [row, row, { ...base, kvLen: 2, zeroKey: 1 }, 0, 0, 1]);
    expect(row).toEqual(new Float32Array(3));
  });

  test("gives the same bits with a sink of -Infinity as without one, and 1/2 to a key beside an equal sink", () => {
    expect(softmax([1, 2, 3, EXCLUDED, 4], [0, EXCLUDED])).toEqual(softmax([1, 2, 3, EXCLUDED, 4]));
    expect(softmax([3], [0, 3])).toEqual(Float32Array.of(0.5));
  });

  test("leaves nothing to keys far below the sink, and nothing to a sink far below the keys", () => {
    expect(softmax([1, 2, EXCLUDED, -30], [0, 300])).toEqual(new Float32Array(4));
    expect(softmax([300, 300], [0, 1])).toEqual(Float32Array.of(0.5, 0.5));
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])(
    "%d makes every weight of its row NaN but those of excluded keys",
    (bad) => {
      for (let at = 0; at < 6; at++) {
        const scores = [1, -300, EXCLUDED, 2, 3, 4, EXCLUDED];
        scores[at] = bad;
        const want = scores.map((score) => (score === EXCLUDED ? 0 : Number.NaN));
        expect(softmax(scores)).toEqual(Float32Array.from(want));
      }
      expect(softmax([1, EXCLUDED], [0, Number.NaN])).toEqual(Float32Array.of(Number.NaN, 0));
    },
  );
});
