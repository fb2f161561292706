// Layers whose weights are not float32: the properties of float32 layers hold for every format, and integers are those of the twins.

import { describe, expect, test } from "vitest";
import {
  type Attention,
  type AttentionConfig,
  type AttentionWeights,
  attend,
  attendAsync,
  attendMany,
  attendWithMaps,
  createAttention,
  createCache,
  type Kernels,
  plan,
  type Tensor,
  type WeightOptions,
} from "../../src/entries/core.ts";
import { attendSharded, createShardedAttention, createShardedCache } from "../../src/entries/shards.ts";
import { quantizeTensor, type StoredFormat, toFloats } from "../../src/entries/weights.ts";
import { WEIGHT_FORMATS } from "../../src/layers/linear/formats.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { projectByTwins } from "../support/integer-projection.ts";
import {
  firstDifference,
  kernelsOf,
  matrix,
  quantized,
  randomWeights,
  shippedBuilds,
  threadedKernels,
} from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";

/** Every format by itself, both kinds of activations, and mixes whose neighbours can be joined, or not. */
const OPTIONS: readonly WeightOptions[] = [
  ...WEIGHT_FORMATS.map((weights) => ({ weights })),
  ...(["q8", "q8-row", "q4"] as const).map((weights) => ({ weights, activations: "fast" as const })),
  { weights: { q: "q8", k: "q8", v: "q4", o: "f32" } },
  { weights: { q: "f16", k: "q8-row", v: "q8-row", o: "q8" } },
  { weights: { q: "q4", k: "f32", v: "q8", o: "bf16" } },
];

/** Shapes whose rows fill no block, one block, and several. */
function configOf(random: Random): AttentionConfig {
  const numKvHeads = random.int(1, 2);
  const headDim = [4, 7, 16][random.int(0, 2)] as number;
  return {
    dModel: [5, 32, 50, 96][random.int(0, 3)] as number,
    numHeads: numKvHeads * random.int(1, 3),
    numKvHeads,
    headDim,
    valueDim: random.next() < 0.3 ? 9 : headDim,
    causal: random.next() < 0.8,
    ...(headDim % 2 === 0 && { rope: { theta: 100, pairing: "half" } }),
  };
}

function layerOf(kernels: Kernels, seed: number, options: WeightOptions): { attention: Attention; random: Random } {
  const random = createRandom(seed);
  const config = configOf(random);
  const weights = randomWeights(random, config, { biases: random.next() < 0.5 });
  return { attention: createAttention(kernels, config, weights, options), random };
}

/** A matrix as a file would store it. */
const stored = (tensor: Tensor, format: StoredFormat) => quantizeTensor(tensor, format);
const textOf = (options: WeightOptions) => JSON.stringify(options);

describe.each(shippedBuilds)("in the %s build", (build) => {
  test.each(OPTIONS)("%j: prefill, chunks, tokens, batches, many and async give the same bits", async (options) => {
    using kernels = await kernelsOf(build);
    for (let seed = 0; seed < 6; seed++) {
      const { attention, random } = layerOf(kernels, seed, options);
      const { dModel, causal } = attention.config;
      const [batch, tokens] = [2, random.int(20, 150)];
      const rows = Array.from({ length: batch }, () => floats(random, tokens * dModel));
      const x = Float32Array.from(rows.flatMap((row) => [...row]));
      const once = attend(attention, x, { batch });
      const same = (y: ArrayLike<number>, want: Float32Array, how: string) =>
        expect(firstDifference(y, want), `seed ${seed}, ${how}`).toBe(-1);
      same(attendWithMaps(attention, x, { batch }).y, once, "with maps");
      const own = (b: number) => once.subarray(b * tokens * dModel, (b + 1) * tokens * dModel);
      const calls = rows.map((row) => ({ x: row }));
      for (const [b, y] of attendMany(attention, calls).entries()) same(y, own(b), `many, row ${b}`);
      if (causal) {
        using cache = createCache(attention, { maxSeqLen: tokens, batch: 1 });
        const y = new Float32Array(tokens * dModel);
        for (let past = 0; past < tokens; ) {
          const length = past < 8 ? 1 : Math.min(tokens - past, random.int(1, 60));
          y.set(
            attend(attention, (rows[0] as Float32Array).subarray(past * dModel, (past + length) * dModel), { cache }),
            past * dModel,
          );
          past += length;
        }
        same(y, own(0), "in pieces");
      }
      same(await attendAsync(attention, x, { batch }), once, "async");
      attention.release();
    }
  });

  test("what is planned is what is taken, for every format", async () => {
    for (const options of OPTIONS) {
      const random = createRandom(7);
      for (const maxSeqLen of [undefined, 40]) {
        using kernels = await kernelsOf(build);
        const config = { ...configOf(random), causal: true };
        const planned = plan(config, {
          ...(options.weights && { weights: options.weights }),
          batch: 2,
          qLen: 30,
          maxSeqLen,
        });
        const before = kernels.usedBytes;
        const attention = createAttention(kernels, config, randomWeights(random, config), options);
        expect(kernels.usedBytes - before, textOf(options)).toBe(planned.weights);
        expect(attention.bytes).toBeLessThanOrEqual(planned.weights);
        const cache = maxSeqLen === undefined ? undefined : createCache(attention, { maxSeqLen, batch: 2 });
        attend(attention, floats(random, 2 * 30 * config.dModel), { batch: 2, cache });
        expect(kernels.usedBytes - before, textOf(options)).toBe(planned.total - (cache ? 0 : planned.cache));
        cache?.release();
        attention.release();
        expect(kernels.usedBytes - before).toBe(planned.scratch);
      }
    }
  });

  test.each([
    ["F16", "f16"],
    ["BF16", "bf16"],
  ] as const)(
    "stored %s has the bits of its floats, kept or widened, fused or not, in-out or out-in",
    async (dtype, format) => {
      using kernels = await kernelsOf(build);
      const random = createRandom(5);
      const config = { ...configOf(random), dModel: 50, causal: true, valueDim: undefined };
      const { wq, wk, wv, wo } = randomWeights(random, config) as Required<AttentionWeights<Tensor>>;
      const half = (tensor: Tensor) => stored(tensor, dtype);
      const kept = { wq: half(wq), wk: half(wk), wv: half(wv), wo: half(wo) };
      const widened = Object.fromEntries(
        Object.entries(kept).map(([name, tensor]) => [name, { data: toFloats(tensor), shape: tensor.shape }]),
      ) as unknown as AttentionWeights<Tensor>;
      const data = Float32Array.from([wq, wk, wv].flatMap((tensor) => [...tensor.data]));
      const wqkv = { data, shape: [data.length / 50, 50] };
      const turn = ({ data, shape: [rows = 0, columns = 0] }: Tensor): Tensor => ({
        data: data.map((_, i) => data[(i % rows) * columns + Math.floor(i / rows)] as number),
        shape: [columns, rows],
      });
      const x = floats(random, 33 * 50);
      const run = (weights: AttentionWeights, options?: WeightOptions) => {
        using attention = createAttention(kernels, config, weights, options);
        return { y: attend(attention, x), formats: attention.formats };
      };
      const want = run(widened);
      expect(want.formats).toEqual({ q: "f32", k: "f32", v: "f32", o: "f32" });
      const all = { q: format, k: format, v: format, o: format };
      const same = (got: ReturnType<typeof run>, formats: unknown, how: string) => {
        expect(got.formats).toEqual(formats);
        expect(firstDifference(got.y, want.y), how).toBe(-1);
      };
      same(run(kept), all, "kept");
      same(run(kept, { weights: "f32" }), want.formats, "widened");
      same(run({ wq, wk, wv, wo }, { weights: format }), all, "narrowed");
      same(run({ wqkv: half(wqkv), wo: kept.wo }), all, "fused");
      const turned = { wqkv: half(turn(wqkv)), wo: half(turn(wo)), layout: "in-out" as const };
      same(run(turned), all, "turned");
      same(run(turned, { weights: "f32" }), want.formats, "turned and widened");
      same(
        run({ ...turned, wqkv: turn(wqkv) }, { weights: { q: format, k: format, v: format } }),
        all,
        "turned and narrowed",
      );
    },
  );
});

/** Keys and values [tokens, width] as the cache of one head holds them after one call. */
function projected(
  kernels: Kernels,
  config: AttentionConfig,
  weights: AttentionWeights,
  options: WeightOptions,
  x: Float32Array,
) {
  using attention = createAttention(kernels, config, weights, options);
  using cache = createCache(attention, { maxSeqLen: x.length / config.dModel });
  attend(attention, x, { cache });
  const { key, value } = cache.read();
  return { key: key.data, value: value.data, formats: attention.formats };
}

test.each(["exact", "fast"] as const)(
  "with %s activations, integer projections have the bits of their twins in both builds",
  async (activations) => {
    for (const [n, k, tokens] of [
      [16, 64, 40],
      [9, 96, 7],
      [24, 32, 1],
    ] as const) {
      const random = createRandom(n);
      const config = { dModel: k, numHeads: 1, headDim: n, valueDim: n, causal: true } as const;
      const [wq, wk, wv] = [0, 1, 2].map(() => matrix(random, n, k)) as [Tensor, Tensor, Tensor];
      const wo = matrix(random, k, n);
      const x = floats(random, tokens * k);
      const fast = activations === "fast";
      for (const build of shippedBuilds) {
        using kernels = await kernelsOf(build);
        for (const format of ["q8", "q8-row", "q4"] as const) {
          const { key, value } = projected(kernels, config, { wq, wk, wv, wo }, { weights: format, activations }, x);
          expect(firstDifference(key, projectByTwins(wk, format, x, fast)), `${build} ${format}`).toBe(-1);
          expect(firstDifference(value, projectByTwins(wv, format, x, fast)), `${build} ${format}`).toBe(-1);
        }
        // Formats that need other integers of the same rows.
        const each = { q: "q8", k: "q4", v: "q8-row", o: "q4" } as const;
        const mixed = projected(kernels, config, { wq, wk, wv, wo }, { weights: each, activations }, x);
        expect(firstDifference(mixed.key, projectByTwins(wk, "q4", x, fast)), `${build} mixed`).toBe(-1);
        expect(firstDifference(mixed.value, projectByTwins(wv, "q8-row", x, fast)), `${build} mixed`).toBe(-1);
        // Blocks of a file: integers as they are, whether keys and values come alone or in one matrix with the queries.
        for (const [dtype, format] of [
          ["Q8_0", "q8"],
          ["Q4_0", "q4"],
        ] as const) {
          const [bk, bv] = [stored(wk, dtype), stored(wv, dtype)];
          const got = projected(kernels, config, { wq, wk: bk, wv: bv, wo }, { activations }, x);
          expect(got.formats).toEqual({ q: "f32", k: format, v: format, o: "f32" });
          const [wantKey, wantValue] = [bk, bv].map((w) => projectByTwins(w, format, x, fast));
          expect(firstDifference(got.key, wantKey as Float32Array), `${build} ${dtype}`).toBe(-1);
          expect(firstDifference(got.value, wantValue as Float32Array), `${build} ${dtype}`).toBe(-1);
          const data = Float32Array.from([wq, wk, wv].flatMap((tensor) => [...tensor.data]));
          const wqkv = stored({ data, shape: [3 * n, k] }, dtype);
          const fused = projected(kernels, config, { wqkv, wo }, { activations }, x);
          expect(fused.formats).toEqual({ q: format, k: format, v: format, o: "f32" });
          expect(firstDifference(fused.key, got.key), `${build} ${dtype} fused`).toBe(-1);
          expect(firstDifference(fused.value, got.value), `${build} ${dtype} fused`).toBe(-1);
        }
      }
    }
  },
);

test("a format rounds the values of the weights, whatever they are stored as", async () => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(9);
  const [n, k] = [12, 64];
  const config = { dModel: k, numHeads: 1, headDim: n, causal: true };
  const [wq, wk, wo] = [matrix(random, n, k), matrix(random, n, k), matrix(random, k, n)];
  const x = floats(random, 5 * k);
  for (const dtype of ["F16", "BF16", "Q8_0", "Q4_0"] as const) {
    const from = stored(wk, dtype);
    const same = { data: toFloats(from), shape: from.shape };
    for (const weights of WEIGHT_FORMATS) {
      // Their own formats keep the integers of blocks as they are.
      if ((dtype === "Q8_0" && weights === "q8") || (dtype === "Q4_0" && weights === "q4")) continue;
      const [got, want] = [from, same].map((wk) => projected(kernels, config, { wq, wk, wv: wk, wo }, { weights }, x));
      expect(firstDifference(got!.key, want!.key), `${dtype} as ${weights}`).toBe(-1);
    }
  }
  const wide = {
    name: "w",
    dtype: "F64",
    shape: [n, k],
    bytes: new Uint8Array(Float64Array.from(wk.data).buffer),
  } as const;
  const got = projected(kernels, config, { wq, wk: wide, wv: wk, wo }, {}, x);
  expect(got.formats.k).toBe("f32");
  expect(got.key).toEqual(got.value);
});

test("a matrix that is packed in pieces has the bits of one packed whole, in both layouts", async () => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(10);
  // 131072 weights: two pieces of out-in rows, and of in-out columns gathered for integers.
  const [n, k] = [1024, 128];
  const config = { dModel: k, numHeads: 16, headDim: 64, causal: true };
  const weights = randomWeights(random, config) as Required<AttentionWeights<Tensor>>;
  const x = floats(random, 3 * k);
  const half = { dModel: k, numHeads: 8, headDim: 64, causal: true };
  const rows = ({ data }: Tensor, begin: number, end: number): Tensor => ({
    data: data.slice(begin * k, end * k),
    shape: [end - begin, k],
  });
  const turned = ({ data, shape: [r = 0, c = 0] }: Tensor): Tensor => ({
    data: data.map((_, i) => data[(i % r) * c + Math.floor(i / r)] as number),
    shape: [c, r],
  });
  const turn = Object.fromEntries(
    (["wq", "wk", "wv", "wo"] as const).map((name) => [name, turned(weights[name])]),
  ) as unknown as AttentionWeights<Tensor>;
  for (const format of WEIGHT_FORMATS) {
    const whole = projected(kernels, config, weights, { weights: format }, x);
    const inOut = projected(kernels, config, { ...turn, layout: "in-out" }, { weights: format }, x);
    expect(firstDifference(inOut.key, whole.key), `${format} in-out`).toBe(-1);
    expect(firstDifference(inOut.value, whole.value), `${format} in-out`).toBe(-1);
    const [wq, wk, wv] = [weights.wq, weights.wk, weights.wv].map((w) => rows(w, n / 2, n)) as [Tensor, Tensor, Tensor];
    const wo = matrix(random, k, n / 2);
    const part = projected(kernels, half, { wq, wk, wv, wo }, { weights: format }, x);
    // The cache has head after head: the last eight are the second half.
    expect(firstDifference(part.key, whole.key.slice(whole.key.length / 2)), format).toBe(-1);
  }
});

test.each(shippedBuilds)("threads give the bits of one, for every format, on the %s build", async (build) => {
  using alone = await kernelsOf(build);
  for (const threads of sampled([2, 4], 1, undefined, build.length)) {
    using threaded = await threadedKernels(build, threads);
    for (const options of OPTIONS) {
      const config = { dModel: 96, numHeads: 6, numKvHeads: 2, headDim: 16, causal: true };
      const random = createRandom(threads);
      const weights = randomWeights(random, config, { biases: true });
      const [one, many] = [alone, threaded].map((kernels) => createAttention(kernels, config, weights, options)) as [
        Attention,
        Attention,
      ];
      for (const tokens of [1, 2, 7, 70]) {
        const x = floats(random, tokens * 96);
        expect(firstDifference(attend(many, x), attend(one, x)), `${threads} ${textOf(options)} ${tokens}`).toBe(-1);
      }
      one.release();
      many.release();
    }
  }
});

test("shards give the bits of one engine, for every format: a scale belongs to a row of all heads", async () => {
  const { loadKernels } = await import("../../src/entries/index.ts");
  using kernels = await loadKernels({ quantized });
  const random = createRandom(77);
  const config = { dModel: 40, numHeads: 6, numKvHeads: 3, headDim: 12, valueDim: 10, causal: true };
  const floatWeights = randomWeights(random, config, { biases: true });
  const wide = { ...config, dModel: 64, headDim: 32, valueDim: 32 };
  const { wq, wk, wv, wo } = randomWeights(random, wide) as Required<AttentionWeights<Tensor>>;
  const blocks = { wq: stored(wq, "Q4_0"), wk: stored(wk, "Q8_0"), wv: stored(wv, "F16"), wo: stored(wo, "Q8_0") };
  const cases: [AttentionConfig, AttentionWeights, WeightOptions][] = [
    ...OPTIONS.map((options): [AttentionConfig, AttentionWeights, WeightOptions] => [config, floatWeights, options]),
    [wide, blocks, {}],
  ];
  // Scales of rows and blocks of files are in any sample.
  const groupOf = (given: WeightOptions) => (given.weights === "q8-row" ? 1 : given.weights === undefined ? 2 : 0);
  for (const [config, weights, options] of sampled(cases, 1, ([, , given]) => groupOf(given))) {
    using whole = createAttention(kernels, config, weights, options);
    const sharded = await createShardedAttention(config, weights, { ...options, shards: 3, quantized });
    try {
      expect(sharded.shards.used).toBe(3);
      const [cache, cut] = [
        createCache(whole, { maxSeqLen: 30 }),
        await createShardedCache(sharded, { maxSeqLen: 30 }),
      ];
      for (const tokens of [20, 1, 3]) {
        const x = floats(random, tokens * config.dModel);
        const want = attend(whole, x, { cache });
        expect(firstDifference(await attendSharded(sharded, x, { cache: cut }), want), textOf(options)).toBe(-1);
      }
      cache.release();
    } finally {
      sharded.release();
    }
  }
});

test("a row with NaN changes no other row, and a row of zeros gives the bias", async () => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(3);
  const config = { dModel: 32, numHeads: 2, causal: true };
  for (const weights of ["q8", "q8-row", "q4"] as const) {
    const given = randomWeights(random, config, { biases: true });
    const x = floats(random, 3 * 32);
    x.fill(0, 0, 32);
    const { key } = projected(kernels, { ...config, numHeads: 1, headDim: 32 }, given, { weights }, x);
    expect(key.subarray(0, 32)).toEqual(given.bk);
    const poisoned = x.slice();
    poisoned[2 * 32 + 5] = Number.POSITIVE_INFINITY;
    const { key: got } = projected(kernels, { ...config, numHeads: 1, headDim: 32 }, given, { weights }, poisoned);
    expect(got.subarray(0, 64)).toEqual(key.subarray(0, 64));
    expect([...got.subarray(64)].every(Number.isNaN)).toBe(true);
  }
});

test("outputs are as far from those of float32 as docs/numerics.md says", async () => {
  using kernels = await kernelsOf("simd");
  const config = {
    dModel: 256,
    numHeads: 8,
    numKvHeads: 2,
    causal: true,
    rope: { theta: 10_000, pairing: "half" },
  } as const;
  const most: [WeightOptions, number][] = [
    [{ weights: "f16" }, 5e-4],
    [{ weights: "bf16" }, 4e-3],
    [{ weights: "q8" }, 1e-2],
    [{ weights: "q8-row" }, 1.5e-2],
    [{ weights: "q4" }, 0.2],
    [{ weights: "q8", activations: "fast" }, 4e-2],
  ];
  const random = createRandom(1);
  const weights = randomWeights(random, config);
  const x = floats(random, 64 * 256);
  const run = (options: WeightOptions) => {
    using attention = createAttention(kernels, config, weights, options);
    return attend(attention, x);
  };
  const want = run({});
  for (const [options, bound] of most) {
    const error = Math.sqrt(
      sum(run(options).map((y, i) => (y - (want[i] as number)) ** 2)) / sum(want.map((y) => y ** 2)),
    );
    expect(error, textOf(options)).toBeLessThan(bound);
    expect(error, textOf(options)).toBeGreaterThan(bound / 10);
  }
});

const sum = (values: Float32Array) => values.reduce((total, value) => total + value, 0);
