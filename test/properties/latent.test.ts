// Latent attention: both paths against float64 and against each other, the same bits within a path however tokens are divided,
// and caches that a call leaves as they were.

import { describe, expect, test, vi } from "vitest";
import { PAGE } from "../../assembly/layout.ts";
import {
  type AttendOptions,
  type Attention,
  attend,
  attendAsync,
  attendMany,
  attendWithMaps,
  type Cache,
  createAttention,
  createCache,
  type createKvCache,
  HeadwiseError,
  type Kernels,
} from "../../src/entries/core.ts";
import { createLatentAttention, type LatentAttention, type LatentConfig } from "../../src/entries/latent.ts";
import { exportPages, importPages } from "../../src/entries/models.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { failKernels } from "../support/failing-kernels.ts";
import { floats } from "../support/harness.ts";
import {
  latentWeights,
  PATHS,
  type Path,
  plainOf,
  randomLatentConfig,
  randomLatentLayer,
} from "../support/latent-layers.ts";
import {
  attendLatentReference,
  type ReferenceLatentOptions,
  type ReferenceLatentResult,
  type ReferenceLatentWeights,
} from "../support/latent-oracle.ts";
import { firstDifference, kernelsOf, randomWeights, shippedBuilds, threadedKernels } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";

// Six in a row have every format, twice each.
const SEEDS = sampled([...Array(24).keys()], 1, (seed) => seed % 6);

const largest = (data: ArrayLike<number>) => Array.from(data).reduce((most, one) => Math.max(most, Math.abs(one)), 0);

/** Every float moved by up to 16 ulp, in float64. */
const STEP = 2 ** -20;
const moved = (random: Random, data: ArrayLike<number>) =>
  Float64Array.from(data, (value) => value * (1 + (random.next() < 0.5 ? STEP : -STEP)));

/** The largest |got - want| over what is allowed: what moving every input by 16 ulp does, and 4 ulp of the largest. */
function excess(got: Float32Array, want: Float64Array, other: Float64Array): number {
  expect(got.length).toBe(want.length);
  const allowed = largest(want.map((one, i) => one - other[i]!)) + largest(want) * 2 ** -22;
  const error = largest(want.map((one, i) => one - got[i]!));
  return error === 0 ? 0 : error / allowed;
}

/** A random call: masks and positions as `attend` takes them, and as the reference does. */
function randomCall(random: Random, { config }: LatentAttention, len: number): [AttendOptions, ReferenceLatentOptions] {
  const { numHeads } = config;
  const some = (probability: number) => random.next() < probability;
  const [perHead, perRow] = [some(0.5), some(0.5)];
  const shape = [perHead ? numHeads : 1, perRow ? len : 1, len];
  const cells = (shape[0] as number) * (shape[1] as number) * len;
  const at = (h: number, t: number, j: number) => ((perHead ? h : 0) * (perRow ? len : 1) + (perRow ? t : 0)) * len + j;
  const keep = some(0.3)
    ? Uint8Array.from({ length: cells }, (_, i) => Number(i % len === 0 || random.next() < 0.7))
    : undefined;
  const bias = some(0.3) ? floats(random, cells).map((b) => (b > 1.5 ? -Infinity : b)) : undefined;
  // The first key stays, so that no row is empty: `maps` of the reference would be NaN.
  if (bias) for (let i = 0; i < cells; i += len) bias[i] = 1;
  const positions = config.rope && some(0.3) ? Int32Array.from({ length: len }, () => random.int(0, 500)) : undefined;
  return [
    { ...(keep && { keep: { data: keep, shape } }), ...(bias && { bias: { data: bias, shape } }), positions },
    {
      ...(keep && { keep: (h: number, t: number, j: number) => keep[at(h, t, j)] === 1 }),
      ...(bias && { bias: (h: number, t: number, j: number) => bias[at(h, t, j)]! }),
      positions,
    },
  ];
}

/**
 * How far y [len, dModel] and maps [numHeads, len, len] of the two paths may differ, as docs/numerics.md says, in terms of the
 * queries, latents and rotated keys that both start from.
 */
function differences(
  config: LatentAttention["config"],
  { wkvUp, wo, bo }: ReferenceLatentWeights,
  { queries, latents, rotated, maps }: ReferenceLatentResult,
): { y: Float64Array; maps: Float64Array } {
  const { dModel, numHeads, headDim, nopeDim, ropeDim, valueDim, kvLoraRank: rank, scale } = config;
  const len = latents.length / rank;
  const width = numHeads * valueDim;
  const y = Float64Array.from({ length: len * dModel }, (_, i) => 2 ** -20 * Math.abs(bo?.[i % dModel] ?? 0));
  const off = new Float64Array(maps.length);
  for (let h = 0; h < numHeads; h++) {
    const from = h * (nopeDim + valueDim) * rank;
    const up = Float64Array.from({ length: (nopeDim + valueDim) * rank }, (_, i) => Math.abs(wkvUp[from + i]!));
    for (let t = 0; t < len; t++) {
      const q = queries.subarray((t * numHeads + h) * headDim, (t * numHeads + h + 1) * headDim).map(Math.abs);
      const met = new Float64Array(rank);
      for (let d = 0; d < nopeDim; d++) for (let i = 0; i < rank; i++) met[i]! += up[d * rank + i]! * q[d]!;
      const weights = maps.subarray((h * len + t) * len, (h * len + t + 1) * len);
      const sums = new Float64Array(rank);
      let most = 0;
      for (const [j, weight] of weights.entries()) {
        if (weight === 0) continue;
        let terms = 0;
        for (let i = 0; i < rank; i++) {
          terms += met[i]! * Math.abs(latents[j * rank + i]!);
          sums[i]! += weight * Math.abs(latents[j * rank + i]!);
        }
        for (let d = 0; d < ropeDim; d++) terms += q[nopeDim + d]! * Math.abs(rotated[j * ropeDim + d]!);
        most = Math.max(most, Math.abs(scale) * terms);
      }
      const share = 2 ** -20 * (1 + most / 2);
      for (const [j, weight] of weights.entries()) off[(h * len + t) * len + j] = share * weight;
      for (let v = 0; v < valueDim; v++) {
        let value = 0;
        for (let i = 0; i < rank; i++) value += up[(nopeDim + v) * rank + i]! * sums[i]!;
        const column = h * valueDim + v;
        for (let n = 0; n < dModel; n++) y[t * dModel + n]! += share * value * Math.abs(wo[n * width + column]!);
      }
    }
  }
  return { y, maps: off };
}

/** Tokens [begin, end) of x. */
const rowsOf = ({ config }: Attention, x: Float32Array, begin: number, end: number) =>
  x.subarray(begin * config.dModel, end * config.dModel);

function randomPieces(random: Random, total: number): number[] {
  const lengths: number[] = [];
  for (let left = total; left > 0; ) {
    const length = random.int(1, Math.max(1, Math.min(left, random.int(0, 3) === 0 ? left : 40)));
    lengths.push(length);
    left -= length;
  }
  return lengths;
}

/** Feeds x in pieces through a cache, which it returns. */
function feed(cache: Cache, x: Float32Array, lengths: readonly number[], pathOf: () => Path): Float32Array {
  const { attention } = cache;
  const { dModel } = attention.config;
  const y = new Float32Array(lengths.reduce((a, b) => a + b) * dModel);
  let at = 0;
  for (const length of lengths) {
    y.set(attend(attention, rowsOf(attention, x, at, at + length), { cache, path: pathOf() }), at * dModel);
    at += length;
  }
  return y;
}

/** Leaves NaN in memory that the next caches and calls take. */
function soil({ memory }: Kernels, bytes: number): void {
  const at = memory.allocate("soil", bytes);
  memory.u8(at, bytes).fill(0xff);
  memory.free(at);
}

const small: LatentConfig = {
  ...{ dModel: 10, numHeads: 3, kvLoraRank: 13, nopeDim: 6, ropeDim: 4, valueDim: 5, causal: true },
  rope: { theta: 100, pairing: "interleaved" },
};
function layerOf(kernels: Kernels, config = small, seed = 3): LatentAttention {
  return createLatentAttention(kernels, config, latentWeights(createRandom(seed), config), { expanded: true });
}

const CACHE_FORMATS = ["f32", "f16", "q8"] as const;
const formatOf = (seed: number) => CACHE_FORMATS[Math.floor(seed / 2) % 3];

describe.each(shippedBuilds)("latent attention in the %s build", (build) => {
  test("both paths are as far from float64 as moving every input by 16 ulp, and from each other as docs/numerics.md says", async () => {
    using kernels = await kernelsOf(build);
    // One in ten is long, one in twenty is of the sizes of a model.
    for (const seed of sampled([...Array(60).keys()], 2, (each) => Math.min(2, each % 10), build.length)) {
      const random = createRandom(seed);
      const drawn = { ...randomLatentConfig(random), causal: random.next() < 0.8 };
      const config = seed % 20 === 1 ? { ...small, kvLoraRank: 512, nopeDim: 128, ropeDim: 64, valueDim: 128 } : drawn;
      const weights = latentWeights(random, config, seed % 2 === 0);
      using attention = createLatentAttention(kernels, config, weights, { expanded: true });
      const len = random.int(1, seed % 10 === 0 ? 140 : 40);
      const x = floats(random, len * config.dModel);
      const [options, given] = randomCall(random, attention, len);
      const [absorbed, expanded] = PATHS.map((path) => {
        const { y, maps } = attendWithMaps(attention, x, { ...options, path });
        expect(maps.shape).toEqual([config.numHeads, len, len]);
        return { y, maps: maps.data };
      }) as [Results, Results];
      const plain = plainOf(weights);
      const shaken = Object.fromEntries(
        Object.entries(plain).map(([name, data]) => [name, moved(random, data)]),
      ) as unknown as ReferenceLatentWeights;
      const want = attendLatentReference(attention.config, plain, x, given);
      const other = attendLatentReference(attention.config, shaken, moved(random, x), given);
      for (const [i, { y, maps }] of [absorbed, expanded].entries()) {
        expect(excess(y, want.y, other.y), `seed ${seed}, ${PATHS[i]}, y`).toBeLessThanOrEqual(1);
        expect(excess(maps, want.maps, other.maps), `seed ${seed}, ${PATHS[i]}, maps`).toBeLessThanOrEqual(1);
      }
      const allowed = differences(attention.config, plain, want);
      for (const part of ["y", "maps"] as const) {
        const tooFar = absorbed[part].findIndex((one, i) => !(Math.abs(one - expanded[part][i]!) <= allowed[part][i]!));
        expect(tooFar, `seed ${seed}, ${part}`).toBe(-1);
      }
    }
  });

  test.each(PATHS)("%s: a prefill, any chunks of it and one token at a time give the same bits", async (path) => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const { attention, random } = randomLatentLayer(kernels, seed);
      const tokens = random.int(1, 300);
      const x = floats(random, tokens * attention.config.dModel);
      const format = formatOf(seed);
      using whole = createCache(attention, { maxSeqLen: tokens, format });
      const once = attend(attention, x, { cache: whole, path });
      if (format === "f32") expect(firstDifference(attend(attention, x, { path }), once), `seed ${seed}`).toBe(-1);
      const lengths = randomPieces(random, tokens);
      using cache = createCache(attention, { maxSeqLen: tokens, format });
      expect(
        firstDifference(
          feed(cache, x, lengths, () => path),
          once,
        ),
        `seed ${seed}, chunks ${lengths}`,
      ).toBe(-1);
      const kept = random.int(0, tokens - 1);
      cache.truncate(kept);
      const again = attend(attention, rowsOf(attention, x, kept, tokens), { cache, path });
      expect(firstDifference(again, rowsOf(attention, once, kept, tokens)), `seed ${seed}, from ${kept}`).toBe(-1);
      if (seed % 3 === 0) {
        using single = createCache(attention, { maxSeqLen: tokens, format });
        const singly = feed(single, x, Array<number>(tokens).fill(1), () => path);
        expect(firstDifference(singly, once), `seed ${seed}, one at a time`).toBe(-1);
      }
      attention.release();
    }
  });

  test("a layer that does not rotate is one whose tokens are all at position 0", async () => {
    using kernels = await kernelsOf(build);
    using rotating = layerOf(kernels);
    using still = layerOf(kernels, { ...small, rope: false });
    const x = floats(createRandom(5), 9 * small.dModel);
    for (const path of PATHS)
      expect(attend(still, x, { path })).toEqual(attend(rotating, x, { path, positions: new Int32Array(9) }));
    expect(attend(still, x)).not.toEqual(attend(rotating, x));
    expect(() => layerOf(kernels, { ...small, rope: undefined })).toThrow("rope expected for ropeDim 4, got undefined");
  });

  test("a cache holds the same bits whichever path appended to it, and calls may take either", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const { attention, random } = randomLatentLayer(kernels, seed + 100);
      const tokens = random.int(1, 200);
      const x = floats(random, tokens * attention.config.dModel);
      const makeCache = () => createCache(attention, { maxSeqLen: tokens, format: formatOf(seed) });
      const once = Object.fromEntries(
        PATHS.map((path) => {
          using cache = makeCache();
          return [path, attend(attention, x, { cache, path })];
        }),
      );
      const caches = [...PATHS, undefined].map(makeCache);
      const taken: Path[] = [];
      const lengths = randomPieces(random, tokens);
      const ys = caches.map((cache, i) =>
        feed(cache, x, lengths, () => {
          const path = PATHS[i] ?? (PATHS[random.int(0, 1)] as Path);
          if (i === 2) taken.push(path);
          return path;
        }),
      );
      const [first, ...others] = caches.map((cache) => exportPages(cache));
      for (const pages of others) expect(pages, `seed ${seed}`).toEqual(first);
      let at = 0;
      for (const [i, length] of lengths.entries()) {
        const want = rowsOf(attention, once[taken[i] as Path] as Float32Array, at, at + length);
        const got = rowsOf(attention, ys[2] as Float32Array, at, at + length);
        expect(firstDifference(got, want), `seed ${seed}, ${taken} at ${at}`).toBe(-1);
        at += length;
      }
      attention.release();
      for (const cache of caches) cache.release();
    }
  });

  test.each(PATHS)("%s: a sequence has the same bits in a batch, in attendMany and in attendAsync", async (path) => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const { attention, random } = randomLatentLayer(kernels, seed + 200, { causal: seed % 4 > 0 });
      const { dModel } = attention.config;
      const [batch, tokens] = [random.int(2, 4), random.int(1, 130)];
      const x = floats(random, batch * tokens * dModel);
      const format = formatOf(seed);
      const alone = Array.from({ length: batch }, (_, b) => {
        using cache = createCache(attention, { maxSeqLen: tokens, format });
        return attend(attention, rowsOf(attention, x, b * tokens, (b + 1) * tokens), { cache, path });
      });
      const parts = (y: Float32Array) => alone.map((_, b) => rowsOf(attention, y, b * tokens, (b + 1) * tokens));
      const expectAlone = (ys: readonly Float32Array[], what: string) =>
        expect(
          ys.map((y, b) => firstDifference(y, alone[b]!)),
          `seed ${seed}, ${what}`,
        ).toEqual(alone.map(() => -1));
      if (format === "f32") expectAlone(parts(attend(attention, x, { batch, path })), "batch");
      using cache = createCache(attention, { maxSeqLen: tokens, batch, format });
      expectAlone(parts(attend(attention, x, { cache, path })), "cached batch");
      const caches = alone.map((_, b) =>
        b > 0 && format === "f32" ? undefined : createCache(attention, { maxSeqLen: tokens, format }),
      );
      const calls = caches.map((one, b) => ({
        ...{ x: rowsOf(attention, x, b * tokens, (b + 1) * tokens), path },
        cache: one,
      }));
      expectAlone(attendMany(attention, calls), "many");
      expect(caches[0]?.length).toBe(tokens);
      for (const one of caches) one?.release();
      let between = 0;
      using sliced = createCache(attention, { maxSeqLen: tokens, batch, format });
      const y = await attendAsync(attention, x, {
        ...{ cache: sliced, path, sliceMs: 1e-9 },
        onProgress() {
          attend(attention, rowsOf(attention, x, 0, 1), { path: PATHS[between++ % 2] });
        },
      });
      expect(between).toBeGreaterThan(1);
      expectAlone(parts(y), "async");
      expect(exportPages(sliced)).toEqual(exportPages(cache));
      attention.release();
    }
  });

  test.each(PATHS)(
    "%s: attendWithMaps has the bits of attend, and rows of maps that sum to 1 within 2e-6",
    async (path) => {
      using kernels = await kernelsOf(build);
      for (const seed of SEEDS) {
        const { attention, random } = randomLatentLayer(kernels, seed + 300, { causal: seed % 4 > 0 });
        const tokens = random.int(1, 270);
        const x = floats(random, tokens * attention.config.dModel);
        const { y, maps } = attendWithMaps(attention, x, { path });
        expect(firstDifference(y, attend(attention, x, { path })), `seed ${seed}`).toBe(-1);
        for (let r = 0; r < maps.data.length; r += tokens) {
          const sum = maps.data.subarray(r, r + tokens).reduce((total, weight) => total + weight, 0);
          expect(Math.abs(sum - 1), `seed ${seed}, row ${r / tokens}`).toBeLessThan(2e-6);
        }
        if (attention.config.causal) {
          // The last rows of a cached call are those of the whole, with maps over all keys.
          const last = Math.min(tokens, random.int(1, 20));
          using cache = createCache(attention, { maxSeqLen: tokens });
          if (tokens > last) attend(attention, rowsOf(attention, x, 0, tokens - last), { cache, path });
          const rest = attendWithMaps(attention, rowsOf(attention, x, tokens - last, tokens), { cache, path });
          expect(firstDifference(rest.y, rowsOf(attention, y, tokens - last, tokens)), `seed ${seed}, rest`).toBe(-1);
          const lastMaps = Array.from({ length: attention.config.numHeads }, (_, h) => [
            ...maps.data.subarray(((h + 1) * tokens - last) * tokens, (h + 1) * tokens * tokens),
          ]);
          expect(firstDifference(rest.maps.data, lastMaps.flat()), `seed ${seed}, maps`).toBe(-1);
        }
        attention.release();
      }
    },
  );

  test("1 to 4 threads give the bits of one on both paths", async () => {
    const run = (kernels: Kernels) =>
      [0, 3, 7, 9].flatMap((seed) => {
        const { attention, random } = randomLatentLayer(kernels, seed + 400);
        const tokens = random.int(1, 40) + (seed === 3 ? 260 : 0);
        const x = floats(random, tokens * attention.config.dModel);
        const ys = PATHS.flatMap((path) => {
          using cache = createCache(attention, { maxSeqLen: tokens, format: formatOf(seed) });
          const { y, maps } = attendWithMaps(attention, x, { path });
          const chunks = feed(cache, x, randomPieces(createRandom(seed), tokens), () => path);
          return [y, maps.data, chunks, cache.read().key.data];
        });
        attention.release();
        return ys;
      });
    using alone = await kernelsOf(build);
    const want = run(alone);
    for (const threads of sampled([1, 2, 4], 1, (each) => (each === 4 ? each : 0))) {
      using kernels = await threadedKernels(build, threads);
      expect([kernels.latent, kernels.threads.used]).toEqual([true, threads]);
      expect(run(kernels).map((data, i) => firstDifference(data, want[i]!))).toEqual(want.map(() => -1));
    }
  });

  test.each(PATHS)("%s: what is not finite reaches exactly the rows that attend its token", async (path) => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      // Weights are floats: a row of integers is one number with its scale.
      const { attention, random } = randomLatentLayer(kernels, 4 * seed + 500);
      const { dModel, numHeads } = attention.config;
      const tokens = random.int(2, 200);
      const x = floats(random, tokens * dModel);
      // The first token would attend nothing without its own key.
      const nonFinite = random.int(1, tokens - 1);
      const poisoned = x.slice();
      poisoned[nonFinite * dModel + random.int(0, dModel - 1)] = [Number.NaN, Infinity, -Infinity][seed % 3]!;
      // Its own row, whose query is not finite, and all rows that may attend it.
      const isNonFinite = (t: number, excluded: boolean) => t === nonFinite || (t > nonFinite && !excluded);
      const excluding = Uint8Array.from({ length: tokens }, (_, j) => Number(j !== nonFinite));
      const per = {
        data: new Uint8Array(numHeads * tokens).map((_, i) => excluding[i % tokens]!),
        shape: [numHeads, 1, tokens],
      };
      for (const keep of [undefined, { data: excluding, shape: [tokens] }, per]) {
        const [clean, got] = [x, poisoned].map((rows) => {
          using cache = createCache(attention, { maxSeqLen: tokens, format: formatOf(seed) });
          const y = attend(attention, rows, { cache, path, keep });
          soil(kernels, 2 ** 20);
          return y;
        }) as [Float32Array, Float32Array];
        for (let t = 0; t < tokens; t++) {
          const row = rowsOf(attention, got, t, t + 1);
          // An infinity may stay one.
          const isOff = seed % 3 === 0 ? Number.isNaN : (y: number) => !Number.isFinite(y);
          if (isNonFinite(t, keep !== undefined)) expect(row.every(isOff), `seed ${seed}, row ${t}`).toBe(true);
          else expect(firstDifference(row, rowsOf(attention, clean, t, t + 1)), `seed ${seed}, row ${t}`).toBe(-1);
        }
      }
      attention.release();
    }
  });

  test.each(PATHS)("%s: what memory held before, and tokens that were truncated, change no bit", async (path) => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const { attention, random } = randomLatentLayer(kernels, seed + 600);
      const tokens = random.int(2, 200);
      const x = floats(random, tokens * attention.config.dModel);
      const format = formatOf(seed);
      using whole = createCache(attention, { maxSeqLen: tokens, format });
      const want = attend(attention, x, { cache: whole, path });
      using dirty = await kernelsOf(build);
      soil(dirty, 2 ** 21);
      const { attention: other } = randomLatentLayer(dirty, seed + 600);
      using cache = createCache(other, { maxSeqLen: tokens, format });
      attend(other, x.slice().fill(Number.NaN), { cache, path });
      cache.truncate(0);
      expect(
        firstDifference(
          feed(cache, x, randomPieces(random, tokens), () => path),
          want,
        ),
        `seed ${seed}`,
      ).toBe(-1);
      soil(dirty, 2 ** 16);
      using again = createCache(other, { maxSeqLen: tokens, format });
      expect(firstDifference(attendWithMaps(other, x, { cache: again, path }).y, want), `seed ${seed}, maps`).toBe(-1);
      attention.release();
    }
  });
});

type Results = { readonly y: Float32Array; readonly maps: Float32Array };

test("a cache takes kvLoraRank and ropeDim floats a token, each in whole eights, and read gives what both are", async () => {
  using kernels = await kernelsOf("simd");
  for (const [rank, ropeDim, floatsOfToken] of [
    [512, 64, 576],
    [13, 4, 24],
    [8, 0, 8],
    [1, 2, 16],
  ] as const) {
    const config = { ...small, kvLoraRank: rank, ropeDim, rope: ropeDim > 0 ? small.rope : undefined };
    const attention = layerOf(kernels, config);
    for (const [maxSeqLen, batch] of [
      [1, 1],
      [128, 1],
      [129, 3],
      [8192, 1],
    ] as const) {
      const pages = Math.ceil(maxSeqLen / PAGE);
      // An address for each page, and the pages; a token of integers has two scales.
      const ofToken = [4 * floatsOfToken, 2 * floatsOfToken, floatsOfToken + 8];
      const bytes = ofToken.map((each) => batch * (64 * Math.ceil((4 * pages) / 64) + pages * PAGE * each));
      for (const [i, format] of CACHE_FORMATS.entries()) {
        const before = kernels.usedBytes;
        using cache = createCache(attention, { maxSeqLen, batch, format });
        expect(cache.bytes).toBe(bytes[i]);
        expect(kernels.usedBytes - before).toBe(cache.bytes);
      }
    }
    using cache = createCache(attention, { maxSeqLen: 9 });
    const x = floats(createRandom(rank), 5 * small.dModel);
    attend(attention, x, { cache });
    const { key, value } = cache.read();
    expect([key.shape, value.shape]).toEqual([
      [1, 1, 5, rank],
      [1, 1, 5, ropeDim],
    ]);
    const { latents, rotated } = attendLatentReference(
      attention.config,
      plainOf(latentWeights(createRandom(3), config)),
      x,
    );
    expect(largest(latents.map((one, i) => one - key.data[i]!))).toBeLessThan(1e-5);
    expect(largest(rotated.map((one, i) => one - value.data[i]!))).toBeLessThan(1e-5);
    attention.release();
  }
});

test.each(PATHS)(
  "%s: outputs of a cache of f16 or q8 are as far from those of float32 as docs/numerics.md says",
  async (path) => {
    using kernels = await kernelsOf("simd");
    const rope = { theta: 10_000, pairing: "interleaved" } as const;
    const config = { dModel: 512, numHeads: 8, kvLoraRank: 256, nopeDim: 64, ropeDim: 32, causal: true, rope };
    const random = createRandom(1);
    const attention = createLatentAttention(kernels, config, latentWeights(random, config), { expanded: true });
    const x = floats(random, 512 * 512);
    const [want, ...others] = CACHE_FORMATS.map((format) => {
      using cache = createCache(attention, { maxSeqLen: 512, format });
      return attend(attention, x, { cache, path });
    }) as [Float32Array, Float32Array, Float32Array];
    const squares = (y: Float32Array) => y.reduce((sum, one) => sum + one ** 2, 0);
    for (const [i, measured] of [2.6e-4, 9e-3].entries()) {
      const relative = Math.sqrt(squares(want.map((y, at) => y - others[i]![at]!)) / squares(want));
      expect(relative, CACHE_FORMATS[i + 1]).toBeLessThan(1.2 * measured);
      expect(relative, CACHE_FORMATS[i + 1]).toBeGreaterThan(measured / 1.2);
    }
  },
);

test("pages that were exported and imported in other kernels continue with the same bits", async () => {
  using kernels = await kernelsOf("simd");
  using others = await kernelsOf("simd");
  for (const format of CACHE_FORMATS) {
    const ropeDim = format === "f16" ? 0 : 4;
    const config = { ...small, ropeDim, rope: ropeDim > 0 ? small.rope : undefined };
    const [attention, other] = [layerOf(kernels, config), layerOf(others, config)];
    const x = floats(createRandom(7), 400 * small.dModel);
    const cache = createCache(attention, { maxSeqLen: 400, format });
    const copy = createCache(other, { maxSeqLen: 300, format });
    attend(attention, rowsOf(attention, x, 0, 131), { cache });
    soil(others, 2 ** 18);
    importPages(copy, exportPages(cache), 131);
    expect(exportPages(copy)).toEqual(exportPages(cache));
    for (const path of PATHS) {
      const part = rowsOf(attention, x, cache.length, cache.length + 60);
      const want = attend(attention, part, { cache, path });
      expect(firstDifference(attend(other, part, { cache: copy, path }), want)).toBe(-1);
    }
    copy.truncate(0);
    importPages(copy, exportPages(cache).slice(0, 1), 100);
    cache.truncate(100);
    const part = rowsOf(attention, x, 100, 250);
    expect(firstDifference(attend(other, part, { cache: copy }), attend(attention, part, { cache }))).toBe(-1);
  }
});

test("pages of caches of other shapes, batches and kinds are refused", async () => {
  using kernels = await kernelsOf("simd");
  const pagesOf = (cache: ReturnType<typeof createKvCache>, width = small.dModel) => {
    const x = floats(createRandom(1), 3 * width * cache.batch);
    attend((cache as Cache).attention, x, { cache: cache as Cache });
    return exportPages(cache);
  };
  const of = (rules: Partial<LatentConfig>) => createCache(layerOf(kernels, { ...small, ...rules }), { maxSeqLen: 9 });
  // One kv head whose keys and values have the sizes of latents and rotated keys, and pages of as many bytes.
  const plain = { dModel: 10, numHeads: 2, numKvHeads: 1, headDim: 16, valueDim: 8, causal: true };
  const ordinary = createCache(createAttention(kernels, plain, randomWeights(createRandom(2), plain)), {
    maxSeqLen: 9,
  });
  const latents = of({ kvLoraRank: 16, ropeDim: 8 });
  const twin = of({ kvLoraRank: 16, ropeDim: 8 });
  const floatsOnly = 'keys "f32" and values "f32"';
  expect(() => importPages(latents, pagesOf(ordinary), 3)).toThrow(
    `importPages: pages[0].bytes expected latents, ${floatsOnly}, got ${floatsOnly}`,
  );
  const pages = pagesOf(twin);
  ordinary.truncate(0);
  expect(() => importPages(ordinary, pages, 3)).toThrow(
    `importPages: pages[0].bytes expected ${floatsOnly}, got latents, ${floatsOnly}`,
  );
  expect(() => importPages(latents, pagesOf(of({ kvLoraRank: 15, ropeDim: 8 })), 3)).toThrow(
    "importPages: pages[0].bytes expected headDim 16, got 15",
  );
  expect(() => importPages(latents, pagesOf(of({ kvLoraRank: 16, ropeDim: 6 })), 3)).toThrow(
    "importPages: pages[0].bytes expected valueDim 8, got 6",
  );
  expect(() => importPages(createCache(latents.attention, { maxSeqLen: 9, format: "q8" }), pages, 3)).toThrow(
    `importPages: pages[0].bytes expected latents, keys "q8" and values "q8", got latents, ${floatsOnly}`,
  );
  const two = createCache(latents.attention, { maxSeqLen: 9, batch: 2 });
  expect(() => importPages(two, pages, 3)).toThrow("importPages: pages[0].bytes expected batch 2, got 1");
  expect(latents.length).toBe(0);
  importPages(latents, pages, 3);
  expect(latents.length).toBe(3);
});

test.each(PATHS)(
  "%s: a call that fails, wherever it fails, leaves the cache, the memory and the next call as they were",
  async (path) => {
    using kernels = await kernelsOf("simd");
    const attention = layerOf(kernels);
    const x = floats(createRandom(9), 340 * small.dModel);
    const cache = createCache(attention, { maxSeqLen: 320 });
    attend(attention, rowsOf(attention, x, 0, 20), { cache, path });
    const call = { cache, path } as const;
    const more = rowsOf(attention, x, 20, 320);
    const want = attend(attention, more, call);
    cache.truncate(20);
    const { usedBytes } = kernels;
    const expectAsBefore = (what: string) => {
      expect([cache.length, kernels.usedBytes], what).toEqual([20, usedBytes]);
      expect(firstDifference(attend(attention, more, call), want), what).toBe(-1);
      cache.truncate(20);
    };
    expect(() => attend(attention, rowsOf(attention, x, 20, 321), call)).toThrow(
      "attend: past 20 + qLen 301 exceeds maxSeqLen 320",
    );
    expectAsBefore("full");
    const names = [
      "append_latents",
      "gather_latents",
      "attention_latents",
      "attention_f32",
      "linear_f32",
      "rope_f32",
    ] as const;
    let failures = 0;
    for (let count = 1; ; count += 3) {
      const restore = failKernels(kernels, names, count);
      let failed = false;
      try {
        attend(attention, more, call);
      } catch (error) {
        expect((error as Error).message).toBe("failed");
        failed = true;
      } finally {
        restore();
      }
      if (!failed) break;
      failures++;
      expectAsBefore(`kernel ${count}`);
    }
    expect(failures).toBeGreaterThan(5);
    cache.truncate(20);
    // Memory that cannot grow: nothing was computed yet, so that `out` is as it was. Absorbed, a call allocates for maps only.
    for (const [name, run] of [["attend", attend] as const, ["attendWithMaps", attendWithMaps] as const]) {
      const out = new Float32Array(more.length).fill(7);
      const allocate = vi.spyOn(kernels.memory, "allocate").mockImplementation((where) => {
        throw new HeadwiseError("OUT_OF_MEMORY", `${where}: no memory`);
      });
      const allocates = name === "attendWithMaps" || path === "expanded";
      if (allocates) expect(() => run(attention, more, { ...call, out })).toThrow(`${name}: no memory`);
      else run(attention, more, { ...call, out });
      expect(
        out.every((y) => y === 7),
        name,
      ).toBe(allocates);
      allocate.mockRestore();
      if (!allocates) cache.truncate(20);
      expectAsBefore(`${name} without memory`);
    }
    const many = () =>
      attendMany(
        attention,
        [call, { path: "sideways" as Path }].map((each) => ({ ...each, x: more })),
      );
    expect(many).toThrow('attendMany, call 1: path expected "absorbed" or "expanded", got "sideways"');
    expectAsBefore("another path");
    let steps = 0;
    for (let last = 1; ; last++) {
      const stop = new AbortController();
      steps = 0;
      const running = attendAsync(attention, more, {
        ...{ ...call, sliceMs: 1e-9, signal: stop.signal },
        onProgress() {
          if (++steps === last) stop.abort(new Error("stop"));
        },
      });
      const ended = await running.then(
        () => true,
        () => false,
      );
      if (ended) break;
      expectAsBefore(`aborted after step ${last}`);
    }
    expect(steps).toBeGreaterThan(2);
  },
);
