// Statistics of attention on layers and in decoders: those of the maps, without the maps.

import { describe, expect, it } from "vitest";
import {
  type AttendOptions,
  type Attention,
  attend,
  attendWithMaps,
  createAttention,
  createCache,
  type Kernels,
  loadKernels,
  scaledDotProductAttention,
} from "../../../../src/entries/core.ts";
import {
  type AttentionStatistics,
  attendWithStatistics,
  scaledDotProductAttentionWithStatistics,
} from "../../../../src/entries/inspect.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { randomLatentLayer } from "../../../support/latent-layers.ts";
import {
  firstDifference,
  kernelsOf,
  randomLayer,
  randomWeights,
  shippedBuilds,
  threadedKernels,
} from "../../../support/layers.ts";
import { modulesOf } from "../../../support/modules.ts";
import { sampled, sampledSeeds } from "../../../support/sampled.ts";

const WANTED = { topK: 3, first: 2, last: 3, received: true } as const;

/** Maps are float32 like the statistics: the scores of these layers, up to 20, have roundings of 1e-6 in both. */
const ROUNDINGS = 4e-6;

/** The statistics of maps [numHeads, qLen, columns] of a causal layer, whose queries begin at `past`. */
function expectOfMaps(statistics: AttentionStatistics, maps: Float32Array, columns: number, past: number): void {
  const [heads, qLen] = statistics.lse.shape as [number, number];
  const kvLen = past + qLen;
  const received = new Float64Array(heads * kvLen);
  for (let row = 0; row < heads * qLen; row++) {
    const position = past + (row % qLen);
    const w = Array.from(maps.subarray(row * columns, row * columns + kvLen));
    const total = (of: (weight: number, j: number) => number) => w.reduce((sum, weight, j) => sum + of(weight, j), 0);
    const mass = total((weight) => weight);
    const near = (name: string, x: number | undefined, y: number, bound: number) => {
      if (!(Math.abs((x as number) - y) <= bound)) expect.fail(`${name} of row ${row}: ${x} is not ${y} ± ${bound}`);
    };
    near("mass", statistics.mass.data[row], mass, ROUNDINGS);
    near(
      "firstMass",
      statistics.firstMass.data[row],
      total((weight, j) => (j < 2 ? weight : 0)),
      1e-6,
    );
    near(
      "lastMass",
      statistics.lastMass.data[row],
      total((weight, j) => (j > position - 3 ? weight : 0)),
      1e-6,
    );
    if (mass < 1e-6) continue;
    const p = w.map((weight) => weight / mass);
    const entropy = -p.reduce((sum, part) => sum + (part > 0 ? part * Math.log(part) : 0), 0);
    const distance = p.reduce((sum, part, j) => sum + part * Math.abs(position - j), 0);
    const effective = 1 / p.reduce((sum, part) => sum + part * part, 0);
    near("entropy", statistics.entropy.data[row], entropy, (ROUNDINGS * (1 + entropy)) / mass);
    near("distance", statistics.distance.data[row], distance, (ROUNDINGS * (128 + distance)) / mass);
    near("effectiveKeys", statistics.effectiveKeys.data[row], effective, (ROUNDINGS * effective) / mass);
    const sorted = [...w].sort((a, b) => b - a);
    for (let i = 0; i < WANTED.topK; i++) {
      const key = statistics.topKeys.data[row * WANTED.topK + i] as number;
      near("topWeights", statistics.topWeights.data[row * WANTED.topK + i], sorted[i] ?? 0, ROUNDINGS);
      if (key >= 0) near("topKeys", w[key], sorted[i] as number, ROUNDINGS);
    }
    for (const [j, weight] of w.entries()) received[Math.floor(row / qLen) * kvLen + j]! += weight;
  }
  if (statistics.received)
    for (const [i, sum] of received.entries())
      expect(Math.abs((statistics.received.data[i] as number) - sum), `received ${i}`).toBeLessThan(
        ROUNDINGS * (1 + sum),
      );
}

const same = (a: AttentionStatistics, b: AttentionStatistics): void => {
  for (const name of Object.keys(a) as (keyof AttentionStatistics)[])
    expect(firstDifference(a[name]?.data ?? [], b[name]?.data ?? []), name).toBe(-1);
};

/** The rows of a part of the queries. */
function rowsOf(statistics: AttentionStatistics, from: number, to: number): number[] {
  const [heads, qLen] = statistics.lse.shape as [number, number];
  const names = ["lse", "mass", "firstMass", "lastMass", "entropy", "distance", "effectiveKeys"] as const;
  return Array.from({ length: heads }, (_, head) =>
    names.flatMap((name) => Array.from(statistics[name].data.subarray(head * qLen + from, head * qLen + to))),
  ).flat();
}

const LAYERS = {
  heads: { create: randomLayer, formats: ["f32", "f16", "q8", "q4"], exact: ["f32", "f16"] },
  // They are measured as floats, whatever their format.
  latents: { create: randomLatentLayer, formats: ["f32", "f16", "q8", "f16"], exact: ["f32", "f16", "q8"] },
} as const;
const CASES = shippedBuilds.flatMap((build) => (["heads", "latents"] as const).map((kind) => [kind, build] as const));

describe.each(CASES)("attendWithStatistics of %s (%s)", (kind, build) => {
  const { create, formats, exact } = LAYERS[kind];

  it("gives the outputs of attend and the statistics of the maps, on any layer, cache and format", async () => {
    const kernels = await kernelsOf(build);
    for (const seed of sampled([...Array(24).keys()], 1, (each) => each % 4, build.length)) {
      const { attention, random } = create(kernels, seed);
      const { dModel, numHeads } = attention.config;
      const format = formats[seed % 4] as (typeof formats)[number];
      const options = seed % 2 ? { keys: format, values: format } : "f32";
      const caches = Array.from({ length: 3 }, () => createCache(attention, { maxSeqLen: 400, format: options }));
      for (let past = 0, step = 0; step < 3; step++) {
        const qLen = [150, 1, 7][step] as number;
        const x = floats(random, qLen * dModel);
        const at = (i: number): AttendOptions => ({ cache: caches[i] as (typeof caches)[number] });
        const want = attend(attention, x, at(0));
        const { maps } = attendWithMaps(attention, x, at(1));
        const { y, statistics } = attendWithStatistics(attention, x, at(2), WANTED);
        expect(firstDifference(y, want), `seed ${seed}`).toBe(-1);
        expect(statistics.topKeys.shape).toEqual([numHeads, qLen, 3]);
        // The unfused scores multiply floats where the fused kernel multiplies integers.
        if (options === "f32" || exact.some((each) => each === format))
          expectOfMaps(statistics, maps.data, maps.shape.at(-1) as number, past);
        past += qLen;
      }
    }
    kernels.release();
  });

  it("gives a row the same bits in one prefill, in chunks and token by token", async () => {
    const kernels = await kernelsOf(build);
    for (const seed of sampled([0, 1, 2, 3, 4, 5], 1, (each) => each % 2, build.length)) {
      const { attention, random } = create(kernels, seed);
      const { dModel } = attention.config;
      const x = floats(random, 140 * dModel);
      const { statistics: whole } = attendWithStatistics(attention, x, {}, { ...WANTED, received: false });
      const cache = createCache(attention, { maxSeqLen: 140 });
      for (let from = 0; from < 140; ) {
        const to = Math.min(140, from + (seed % 2 ? 1 : 37));
        const rows = x.subarray(from * dModel, to * dModel);
        const { statistics } = attendWithStatistics(attention, rows, { cache }, WANTED);
        expect(firstDifference(rowsOf(statistics, 0, to - from), rowsOf(whole, from, to)), `seed ${seed}`).toBe(-1);
        from = to;
      }
    }
    kernels.release();
  });

  it("gives sequences of a batch the bits that they have alone, and of any number of threads those of one", async () => {
    const [kernels, threaded] = await Promise.all([kernelsOf(build), threadedKernels(build, 3)]);
    for (const seed of sampledSeeds(0, 3, 2)) {
      const one = create(kernels, seed);
      const other = create(threaded, seed);
      const { dModel } = one.attention.config;
      const x = floats(one.random, 2 * 90 * dModel);
      const run = (attention: Attention) => attendWithStatistics(attention, x, { batch: 2 }, WANTED).statistics;
      const both = run(one.attention);
      same(run(other.attention), both);
      const { statistics: alone } = attendWithStatistics(one.attention, x.subarray(90 * dModel), {}, WANTED);
      for (const name of Object.keys(alone) as (keyof AttentionStatistics)[]) {
        const data = both[name]?.data ?? [];
        expect(firstDifference(data.slice(data.length / 2), alone[name]?.data ?? []), name).toBe(-1);
      }
    }
    kernels.release();
    threaded.release();
  });
});

/** A layer without weights that matter. */
function layer(kernels: Kernels, more: object = {}): Attention {
  const config = { dModel: 64, numHeads: 2, headDim: 32, causal: true, ...more };
  return createAttention(kernels, config, randomWeights(createRandom(1), config));
}

describe("attendWithStatistics", () => {
  it("takes less than 12 MB beside the cache for 16,384 tokens, where the maps take 2 GB", async () => {
    const kernels = await kernelsOf("relaxed");
    const attention = layer(kernels, { window: undefined });
    const cache = createCache(attention, { maxSeqLen: 16_384 });
    const x = floats(createRandom(2), 16_384 * 64);
    const before = kernels.memoryBytes;
    const { statistics } = attendWithStatistics(
      attention,
      x,
      { cache },
      { topK: 8, first: 4, last: 64, received: true },
    );
    expect(kernels.memoryBytes - before).toBeLessThan(12e6);
    expect(statistics.received?.shape).toEqual([2, 16_384]);
    // What all keys receive is the mass of all queries.
    const sum = (data: Float32Array) => data.reduce((all, one) => all + one, 0);
    expect(sum(statistics.received?.data as Float32Array) / sum(statistics.mass.data)).toBeCloseTo(1, 6);
    kernels.release();
  });

  it("measures given queries, keys and values of any layout and mask, with the bits of scaledDotProductAttention", async () => {
    const kernels = await kernelsOf("relaxed");
    const random = createRandom(9);
    for (const layout of ["bhsd", "bshd"] as const) {
      const shape = (heads: number) => (layout === "bhsd" ? [2, heads, 230, 24] : [2, 230, heads, 24]);
      const tensor = (heads: number) => ({ data: floats(random, 2 * heads * 230 * 24), shape: shape(heads) });
      const [q, k, v] = [tensor(4), tensor(2), tensor(2)];
      const options = { layout, causal: true, window: { left: 140 }, lse: true, scores: "weights" } as const;
      const want = scaledDotProductAttention(kernels, q, k, v, options);
      const got = scaledDotProductAttentionWithStatistics(kernels, q, k, v, options, WANTED);
      for (const name of ["output", "lse", "scores"] as const)
        expect(firstDifference(got[name]?.data ?? [], want[name]?.data ?? []), name).toBe(-1);
      const { statistics } = got;
      expect(statistics.received?.shape).toEqual([2, 4, 230]);
      for (const batchRow of [0, 1]) {
        const part = Object.entries(statistics).map(([name, { data, shape }]) => {
          const size = data.length / 2;
          return [name, { data: data.subarray(batchRow * size, (batchRow + 1) * size), shape: shape.slice(1) }];
        });
        const maps = want.scores?.data.subarray(batchRow * 4 * 230 * 230) as Float32Array;
        expectOfMaps(Object.fromEntries(part) as AttentionStatistics, maps, 230, 0);
      }
    }
    kernels.release();
  });

  it("has for a query that attends nothing an lse of -Infinity, no keys and zeros", async () => {
    const kernels = await kernelsOf("simd");
    const keep = { data: new Uint8Array(9).fill(1), shape: [3, 3] };
    keep.data.fill(0, 3, 6);
    const { statistics } = attendWithStatistics(layer(kernels), new Float32Array(192).fill(1), { keep }, WANTED);
    expect(statistics.lse.data[1]).toBe(Number.NEGATIVE_INFINITY);
    for (const name of ["mass", "firstMass", "lastMass", "entropy", "distance", "effectiveKeys"] as const)
      expect(statistics[name].data[1]).toBe(0);
    expect([...statistics.topKeys.data.subarray(3, 6)]).toEqual([-1, -1, -1]);
    expect([...statistics.topWeights.data.subarray(3, 6)]).toEqual([0, 0, 0]);
    expect(statistics.received?.data.every(Number.isFinite)).toBe(true);
    kernels.release();
  });

  it("says what it expected", async () => {
    const kernels = await kernelsOf("simd");
    const attention = layer(kernels);
    const x = new Float32Array(64);
    const expected: [object, string][] = [
      [{ topK: 0 }, "attendWithStatistics: wanted.topK expected an integer from 1 to 1024, got 0"],
      [{ first: -1 }, "attendWithStatistics: wanted.first expected an integer from 0 to 1073741824, got -1"],
      [{ received: 1 }, "attendWithStatistics: wanted.received expected true or false, got 1"],
    ];
    for (const [wanted, text] of expected) expect(() => attendWithStatistics(attention, x, {}, wanted)).toThrow(text);
    const { attention: latents } = randomLatentLayer(kernels, 1, { dModel: 64 });
    expect(() => attendWithStatistics(latents, x, { path: "expanded" })).toThrow(
      'attendWithStatistics: path expected "absorbed" with statistics, got "expanded"',
    );
    const { module } = modulesOf("simd");
    const without = await loadKernels({ module });
    expect(() => attendWithStatistics(layer(without), x)).toThrow(
      "attendWithStatistics: statistics need loadKernels({ statistics }), with `statistics` of headwise/inspect",
    );
    kernels.release();
    without.release();
  });
});
