import { describe, expect, test } from "vitest";
import { PAGE } from "../assembly/layout.ts";
import type { CheckedConfig } from "../src/attention/config.ts";
import { attendReference, type ReferenceOptions, type ReferenceWeights } from "../src/reference/attend.ts";
import { reference } from "../src/reference/index.ts";
import { rotate } from "../src/reference/rotary.ts";
import type { AttentionShape, Plain } from "../src/wasm/abi.ts";
import { createRandom, floats, type Random } from "./kernels/harness.ts";

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

describe("rotate", () => {
  /** Angle and length of pair i after rotating (1, 0) at position 1. */
  const pairAt = (rope: NonNullable<CheckedConfig["rope"]>, i: number): [angle: number, length: number] => {
    const x = new Float64Array(rope.dim);
    const [first, second] = rope.pairing === "half" ? [i, i + rope.dim / 2] : [2 * i, 2 * i + 1];
    x[first] = 1;
    rotate(x, [1], 1, rope.dim, rope);
    return [Math.atan2(x[second]!, x[first]!), Math.hypot(x[second]!, x[first]!)];
  };

  test("turns pair i by theta^(-2i / dim) a position, by the factor less when it is linear", () => {
    for (const pairing of ["half", "interleaved"] as const) {
      const rope = { theta: 10_000, pairing, dim: 8 };
      for (const [i, want] of [1, 0.1, 0.01, 0.001].entries()) {
        expect(pairAt(rope, i)[0]).toBeCloseTo(want, 14);
        expect(pairAt({ ...rope, scaling: { kind: "linear", factor: 4 } }, i)[0]).toBeCloseTo(want / 4, 14);
      }
    }
  });

  test("ntk keeps the first pair and turns the last by the factor less", () => {
    const rope = { theta: 10_000, pairing: "half", dim: 8 } as const;
    const stretched = { ...rope, scaling: { kind: "ntk", factor: 4 } as const };
    expect(pairAt(stretched, 0)[0]).toBeCloseTo(1, 14);
    expect(pairAt(stretched, 3)[0]).toBeCloseTo(0.001 / 4, 14);
  });

  test("llama3 keeps short wavelengths, divides long ones and mixes between them", () => {
    const scaling = { kind: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 64 } as const;
    const rope = { theta: 10_000, pairing: "half", dim: 8, scaling } as const;
    // 64 tokens are 10.2 turns of pair 0, 1.02 of pair 1 and 0.1 of pair 2.
    const share = (6.4 / (2 * Math.PI) - 1) / 3;
    for (const [i, want] of [1, 0.1 * share + (0.1 / 8) * (1 - share), 0.01 / 8].entries())
      expect(pairAt(rope, i)[0]).toBeCloseTo(want, 14);
  });

  test("yarn keeps the pairs before its ramp, divides those behind it, and grows the length by 0.1 ln factor", () => {
    const scaling = { kind: "yarn", factor: 32, originalMaxSeqLen: 4096, truncate: false } as const;
    const rope = { theta: 150_000, pairing: "half", dim: 64, scaling } as const;
    const trained = (i: number) => 150_000 ** (-i / 32);
    expect(pairAt(rope, 8)[0]).toBeCloseTo(trained(8), 14);
    expect(pairAt(rope, 18)[0]).toBeCloseTo(trained(18) / 32, 14);
    // The ramp of this published model goes from pair 8.093 to pair 17.398.
    const ramp = (13 - 8.092779115512402) / (17.39802450158856 - 8.092779115512402);
    expect(pairAt(rope, 13)[0]).toBeCloseTo(trained(13) * (1 - ramp) + (trained(13) / 32) * ramp, 12);
    expect(pairAt(rope, 0)[1]).toBeCloseTo(1.3465735902799727, 14);
    expect(pairAt({ ...rope, scaling: { ...scaling, mscale: 1, mscaleAllDim: 1 } }, 0)[1]).toBeCloseTo(1, 14);
  });
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
