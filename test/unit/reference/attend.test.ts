import { describe, expect, test } from "vitest";
import type { CheckedConfig } from "../../../src/layers/attention/config.ts";
import { attendReference, type ReferenceOptions, type ReferenceWeights } from "../../../src/reference/attend.ts";
import { createRandom, type Random } from "../../../src/tools/diagnostics/random.ts";
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

const identity = (n: number) => Float32Array.from({ length: n * n }, (_, i) => Number(i % (n + 1) === 0));

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

describe("attendReference", () => {
  test("gives what a page of arithmetic by hand gives", () => {
    // q = k = v = x, one head of 2, scale ln 3: the scores of row 0 are ln 3 and 0, of row 1 0 and ln 3.
    const config = configOf({ dModel: 2, headDim: 2, scale: Math.log(3) });
    const [one, x] = [identity(2), [1, 0, 0, 1]];
    const weights = { wq: one, wk: one, wv: one, wo: [0, 2, 1, 0], bo: [10, 20] };
    const { y, maps } = attendReference(config, weights, x);
    expect(largestDifference(maps, [0.75, 0.25, 0.25, 0.75])).toBeLessThan(1e-15);
    expect(largestDifference(y, [10.5, 20.75, 11.5, 20.25])).toBeLessThan(1e-14);
    const causal = attendReference({ ...config, causal: true }, weights, x);
    expect(largestDifference(causal.maps, [1, 0, 0.25, 0.75])).toBeLessThan(1e-15);
    const sunk = attendReference(config, { ...weights, sinkLogits: [Math.log(4)] }, x);
    expect(largestDifference(sunk.maps, [0.375, 0.125, 0.125, 0.375])).toBeLessThan(1e-15);
    const zero = attendReference({ ...config, addZeroAttn: true }, weights, x);
    expect(largestDifference(zero.maps, [0.6, 0.2, 0.2, 0.2, 0.6, 0.2])).toBeLessThan(1e-15);
    const alibi = attendReference({ ...config, slopes: Float32Array.of(1) }, { ...weights, wk: [0, 0, 0, 0] }, x);
    expect(alibi.maps[1]! / alibi.maps[0]!).toBeCloseTo(Math.exp(-1), 14);
    const capped = attendReference({ ...config, softcap: 0.5 }, weights, x);
    expect(Math.log(capped.maps[0]! / capped.maps[1]!)).toBeCloseTo(0.5 * Math.tanh(Math.log(3) / 0.5), 14);
  });

  test("norms a head to root mean square 1 times its gain, before it rotates", () => {
    const one = identity(4);
    const config = configOf({ qkNorm: { kind: "per-head", eps: 1e-9, onePlus: true }, scale: 1 });
    const weights = { wq: one, wk: one, wv: one, wo: one, qNorm: [0, 0, 0, 0], kNorm: [1, 1, 1, 1] };
    // q = (1, 1, 1, 1) and k = 2q: the score is 8 whatever the length of x. The other key is -k.
    const { maps } = attendReference(config, weights, [3, 3, 3, 3, -3, -3, -3, -3]);
    expect(Math.log(maps[0]! / maps[1]!)).toBeCloseTo(16, 7);
  });

  test("gives zeros where nothing may be attended, and never reads what is excluded", () => {
    const random = createRandom(1);
    const config = configOf({});
    const weights = { ...weightsOf(random, config), bo: undefined };
    const x = floats(random, 3 * 4);
    const none = attendReference(config, weights, x, { keep: (_, t) => t !== 1 });
    expect(Array.from(none.maps.slice(3, 6))).toEqual([0, 0, 0]);
    expect(Array.from(none.y.slice(4, 8))).toEqual([0, 0, 0, 0]);
    const keys = floats(random, 4 * 4).fill(Number.NaN, 12);
    const masked: ReferenceOptions[] = [
      { keys, kvLength: 3 },
      { keys, keep: (_, __, j) => j !== 3 },
      { keys, bias: (_, __, j) => (j === 3 ? -FAR : 0) },
    ];
    const [first, ...others] = masked.map((options) => attendReference(config, weights, x, options).y);
    expect(first!.some(Number.isNaN)).toBe(false);
    for (const other of others) expect(other).toEqual(first);
  });

  test("sees positions only through their differences", () => {
    const random = createRandom(2);
    const config = configOf({
      headDim: 8,
      numHeads: 2,
      causal: true,
      rope: { theta: 100, pairing: "half", dim: 6 },
    });
    const weights = weightsOf(random, config);
    const x = floats(random, 5 * 4);
    const { y } = attendReference(config, weights, x);
    const shifted = [7, 8, 9, 10, 11];
    const moved = attendReference(config, weights, x, { positions: shifted, keyPositions: shifted });
    expect(largestDifference(moved.y, y)).toBeLessThan(1e-13);
    const apart = attendReference(config, weights, x, { positions: shifted });
    expect(largestDifference(apart.y, y)).toBeGreaterThan(1e-3);
  });
});
