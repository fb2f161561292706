// Caches in every format: the same bits for one prefill, any chunks of it, token by token, and any batch.

import { describe, expect, test } from "vitest";
import {
  type Attention,
  attend,
  attendAsync,
  attendMany,
  attendWithMaps,
  type CacheOptions,
  createAttention,
  createCache,
  type Kernels,
  plan,
} from "../../src/entries/core.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import {
  firstDifference,
  kernelsOf,
  randomLayer,
  randomWeights,
  shippedBuilds,
  threadedKernels,
} from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";

type Format = NonNullable<CacheOptions["format"]>;

const AGING: Format = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q8", values: "q8", tokens: 256 },
  { keys: "q8", values: "q4" },
];

const FORMATS: readonly Format[] = [
  "f32",
  "f16",
  "q8",
  "q4",
  { keys: "q8", values: "f16" },
  { keys: "f32", values: "q4" },
  { keys: "q4", values: "q8" },
  AGING,
  [
    { keys: "f16", values: "f32", tokens: 128 },
    { keys: "q4", values: "f16" },
  ],
];

const named = FORMATS.map((format) => ({ format, name: JSON.stringify(format) }));

/** Feeds x through a new cache in pieces of the given lengths. */
function inPieces(attention: Attention, x: Float32Array, format: Format, lengths: readonly number[]): Float32Array {
  const { dModel } = attention.config;
  using cache = createCache(attention, { maxSeqLen: x.length / dModel, format });
  const y = new Float32Array(x.length);
  let past = 0;
  for (const length of lengths) {
    y.set(attend(attention, x.subarray(past * dModel, (past + length) * dModel), { cache }), past * dModel);
    past += length;
  }
  return y;
}

function randomPieces(random: Random, total: number): number[] {
  const lengths: number[] = [];
  for (let left = total; left > 0; left -= lengths.at(-1) as number) lengths.push(random.int(1, Math.min(left, 300)));
  return lengths;
}

/** A causal layer: only there a prompt and its tokens one by one are the same question. */
function causalLayer(kernels: Kernels, seed: number) {
  for (let n = seed; ; n += 100) {
    const layer = randomLayer(kernels, n);
    if (layer.attention.config.causal) return layer;
    layer.attention.release();
  }
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test.each(named)("prefill, chunks, tokens and batches have the same bits with $name", async ({ format, name }) => {
    using kernels = await kernelsOf(build);
    // Only the first two are also fed token by token; odd ones are short. Formats have names of different lengths.
    const groupOf = (seed: number) => Number(seed < 2);
    for (const seed of sampled([0, 1, 2, 3, 4, 5], 1, groupOf, name.length + build.length)) {
      const { attention, random } = causalLayer(kernels, seed);
      const { dModel } = attention.config;
      const tokens = seed % 2 ? random.int(1, 140) : random.int(500, 900);
      const x = floats(random, tokens * dModel);
      const once = inPieces(attention, x, format, [tokens]);
      const lengths = randomPieces(random, tokens);
      expect(firstDifference(inPieces(attention, x, format, lengths), once), `seed ${seed}: ${lengths}`).toBe(-1);
      const singly = Array<number>(tokens).fill(1);
      if (seed < 2) expect(firstDifference(inPieces(attention, x, format, singly), once), `seed ${seed}`).toBe(-1);

      const other = floats(random, tokens * dModel);
      using both = createCache(attention, { maxSeqLen: tokens, batch: 2, format });
      const pair = new Float32Array(2 * x.length);
      let past = 0;
      for (const length of randomPieces(random, tokens)) {
        const part = new Float32Array(2 * length * dModel);
        const [begin, end] = [past * dModel, (past + length) * dModel];
        part.set(other.subarray(begin, end));
        part.set(x.subarray(begin, end), length * dModel);
        const y = attend(attention, part, { cache: both, batch: 2 });
        pair.set(y.subarray(length * dModel), x.length + begin);
        past += length;
      }
      expect(firstDifference(pair.subarray(x.length), once), `seed ${seed}, batch`).toBe(-1);

      const half = tokens >> 1;
      using a = createCache(attention, { maxSeqLen: tokens, format });
      using b = createCache(attention, { maxSeqLen: tokens, format });
      attend(attention, x.subarray(0, half * dModel), { cache: a });
      const [ya] = attendMany(attention, [
        { x: x.subarray(half * dModel), cache: a },
        { x: other, cache: b },
      ]) as [Float32Array];
      expect(firstDifference(ya, once.subarray(half * dModel)), `seed ${seed}, many`).toBe(-1);
      attention.release();
    }
  });

  test.each(named)("maps, slices and what is given back agree with $name", async ({ format }) => {
    using kernels = await kernelsOf(build);
    const { attention, random } = causalLayer(kernels, 7);
    const { dModel } = attention.config;
    const tokens = 700;
    const x = floats(random, tokens * dModel);
    const once = inPieces(attention, x, format, [tokens]);
    {
      using cache = createCache(attention, { maxSeqLen: tokens, format });
      const { y } = attendWithMaps(attention, x, { cache });
      expect(firstDifference(y, once)).toBe(-1);
    }
    using cache = createCache(attention, { maxSeqLen: tokens, format });
    expect(firstDifference(await attendAsync(attention, x, { cache, sliceMs: 0.01 }), once)).toBe(-1);
    const { key, value } = cache.read();
    const kept = tokens - cache.start;
    expect([key.shape[2], value.shape[2]]).toEqual([kept, kept]);
    attention.release();
  });

  test("what an excluded key holds changes no bit, and what an attended one holds reaches its row", async () => {
    using kernels = await kernelsOf(build);
    const random = createRandom(9);
    const config = { dModel: 16, numHeads: 4, numKvHeads: 2, headDim: 8, causal: true } as const;
    const attention = createAttention(kernels, config, randomWeights(random, config));
    const tokens = 300;
    const x = floats(random, tokens * 16);
    const withNaN = x.slice();
    withNaN.fill(Number.NaN, 100 * 16, 101 * 16);
    const keep = { data: Uint8Array.from({ length: tokens }, (_, j) => Number(j !== 100)), shape: [tokens] };
    for (const { format, name } of named) {
      const outputs = [x, withNaN].map((data) => {
        using cache = createCache(attention, { maxSeqLen: tokens, format });
        return attend(attention, data, { cache, keep });
      }) as [Float32Array, Float32Array];
      // The row whose own query holds NaN is all that may differ.
      for (const y of outputs) y.fill(0, 100 * 16, 101 * 16);
      expect(firstDifference(outputs[1], outputs[0]), name).toBe(-1);
      using cache = createCache(attention, { maxSeqLen: tokens, format });
      const y = attend(attention, withNaN, { cache });
      for (let t = 0; t < tokens; t++)
        expect(y.subarray(t * 16, t * 16 + 16).every(Number.isNaN), `${name}: row ${t}`).toBe(t >= 100);
    }
    attention.release();
  });

  test.each(sampled([2, 3, 4], 1, undefined, build.length))("%i threads leave the bits of one", async (threads) => {
    using alone = await kernelsOf(build);
    using threaded = await threadedKernels(build, threads);
    for (const { format, name } of named) {
      const [want, got] = [alone, threaded].map((kernels) => {
        const { attention, random } = randomLayer(kernels, 3);
        const x = floats(random, 500 * attention.config.dModel);
        const y = inPieces(attention, x, format, [300, 1, 199]);
        attention.release();
        return y;
      }) as [Float32Array, Float32Array];
      expect(firstDifference(got, want), name).toBe(-1);
    }
  });
});

describe("a cache of any format", () => {
  test.each(named)("takes the bytes that are planned with $name, and no more while it is used", async ({ format }) => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: 24, numHeads: 6, numKvHeads: 2, headDim: 20, valueDim: 12, causal: true } as const;
    const random = createRandom(4);
    const attention = createAttention(kernels, config, randomWeights(random, config));
    for (const maxSeqLen of [100, 300, 5000]) {
      const planned = plan(config, { maxSeqLen, qLen: 100, format });
      const before = kernels.usedBytes;
      const cache = createCache(attention, { maxSeqLen, format });
      expect(kernels.usedBytes - before).toBe(cache.bytes);
      expect(cache.bytes).toBe(planned.cache);
      attend(attention, floats(random, 100 * 24), { cache });
      expect(kernels.memory.scratchBytes).toBe(planned.scratch);
      cache.release();
    }
    attention.release();
  });

  test("gives back numbers as near as its format: half a unit of the last place, or of the scale", async () => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: 16, numHeads: 2, headDim: 8, causal: true } as const;
    const random = createRandom(5);
    const attention = createAttention(kernels, config, randomWeights(random, config));
    const x = floats(random, 200 * 16);
    const readAs = (format: Format) => {
      using cache = createCache(attention, { maxSeqLen: 200, format });
      attend(attention, x, { cache });
      return cache.read();
    };
    const exact = readAs("f32");
    // One rounding more for the product with the scale, and one for the scale.
    const steps = { f16: 0, q8: 127, q4: 7 } as const;
    for (const format of ["f16", "q8", "q4"] as const) {
      const got = readAs(format);
      for (const part of ["key", "value"] as const)
        for (let at = 0; at < exact[part].data.length; at += 8) {
          const row = exact[part].data.subarray(at, at + 8);
          const largest = row.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
          for (const [d, want] of row.entries()) {
            const allowed =
              format === "f16" ? Math.max(Math.abs(want) * 2 ** -11, 2 ** -25) : largest / (2 * steps[format]);
            const error = Math.abs((got[part].data[at + d] as number) - want);
            expect(error, `${format} ${part}`).toBeLessThanOrEqual(allowed + largest * 2 ** -21);
          }
        }
    }
    attention.release();
  });

  test("reports its format and its bytes", async () => {
    using kernels = await kernelsOf("simd");
    const { attention } = randomLayer(kernels, 1);
    const formatOf = (format: Format | undefined) => {
      using cache = createCache(attention, { maxSeqLen: 10, ...(format && { format }) });
      return cache.format;
    };
    expect(formatOf(undefined)).toEqual([{ keys: "f32", values: "f32" }]);
    expect(formatOf("q8")).toEqual([{ keys: "q8", values: "q8" }]);
    expect(formatOf(AGING)).toEqual(AGING);
    const stages = formatOf(AGING);
    expect([stages, ...stages].every(Object.isFrozen)).toBe(true);
    attention.release();
  });

  test("has outputs as far from those of a float32 cache as docs/numerics.md says", async () => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: 512, numHeads: 16, numKvHeads: 4, headDim: 64, causal: true } as const;
    const random = createRandom(8);
    const attention = createAttention(kernels, config, randomWeights(random, config));
    const x = floats(random, 512 * 512);
    const want = inPieces(attention, x, "f32", [512]);
    const squares = (y: Float32Array) => y.reduce((sum, one) => sum + one ** 2, 0);
    for (const [format, measured] of [
      ["f16", 2.7e-4],
      ["q8", 7.7e-3],
      ["q4", 1.4e-1],
      [{ keys: "q8", values: "q4" }, 1.1e-1],
    ] as [Format, number][]) {
      const error = inPieces(attention, x, format, [512]).map((y, i) => y - (want[i] as number));
      const relative = Math.sqrt(squares(error) / squares(want));
      expect(relative, JSON.stringify(format)).toBeLessThan(1.2 * measured);
      expect(relative, JSON.stringify(format)).toBeGreaterThan(measured / 1.2);
    }
    attention.release();
  });
});
