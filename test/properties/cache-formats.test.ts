// The identity law for caches in every format: the same bits for one prefill, any chunks of it, token by token, any
// batch and many calls at once, while pages change their format as they age.

import { describe, expect, test, vi } from "vitest";
import { pageTable } from "../../src/cache/pages.ts";
import {
  type Attention,
  attend,
  attendAsync,
  attendMany,
  attendWithMaps,
  type CacheOptions,
  createAttention,
  createCache,
  HeadwiseError,
  type Kernels,
  plan,
} from "../../src/entries/core.ts";
import { chunkRows } from "../../src/forward/scratch.ts";
import { createRandom, floats, type Random } from "../kernels/harness.ts";
import {
  firstDifference,
  kernelsOf,
  randomLayer,
  randomWeights,
  shippedBuilds,
  threadedKernels,
} from "../support/layers.ts";

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
  test.each(named)("prefill, chunks, tokens and batches have the same bits with $name", async ({ format }) => {
    using kernels = await kernelsOf(build);
    for (let seed = 0; seed < 6; seed++) {
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
    expect([key.shape[2], value.shape[2]]).toEqual([tokens, tokens]);
    attention.release();
  });

  test("what an excluded key holds changes no bit, and what an attended one holds reaches its row", async () => {
    using kernels = await kernelsOf(build);
    const random = createRandom(9);
    const config = { dModel: 16, numHeads: 4, numKvHeads: 2, headDim: 8, causal: true } as const;
    const attention = createAttention(kernels, config, randomWeights(random, config));
    const tokens = 300;
    const x = floats(random, tokens * 16);
    const spoiled = x.slice();
    spoiled.fill(Number.NaN, 100 * 16, 101 * 16);
    const keep = { data: Uint8Array.from({ length: tokens }, (_, j) => Number(j !== 100)), shape: [tokens] };
    for (const { format, name } of named) {
      const outputs = [x, spoiled].map((data) => {
        using cache = createCache(attention, { maxSeqLen: tokens, format });
        return attend(attention, data, { cache, keep });
      }) as [Float32Array, Float32Array];
      // The row whose own query is spoiled is all that may differ.
      for (const y of outputs) y.fill(0, 100 * 16, 101 * 16);
      expect(firstDifference(outputs[1], outputs[0]), name).toBe(-1);
      using cache = createCache(attention, { maxSeqLen: tokens, format });
      const y = attend(attention, spoiled, { cache });
      for (let t = 0; t < tokens; t++)
        expect(y.subarray(t * 16, t * 16 + 16).every(Number.isNaN), `${name}: row ${t}`).toBe(t >= 100);
    }
    attention.release();
  });

  test.each([2, 3, 4])("%i threads leave the bits of one", async (threads) => {
    using alone = await kernelsOf(build);
    using team = await threadedKernels(build, threads);
    for (const { format, name } of named) {
      const [want, got] = [alone, team].map((kernels) => {
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

  test("says what it keeps", async () => {
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

test("keys of more than 2048 components stay floats: integer products of more could leave 32 bits", async () => {
  using kernels = await kernelsOf("simd");
  for (const headDim of [2048, 2052]) {
    const config = { dModel: 4, numHeads: 1, headDim, valueDim: 4 };
    const attention = createAttention(kernels, config, randomWeights(createRandom(1), config));
    const keysAs = (keys: "q8" | "q4" | "f16") =>
      createCache(attention, { maxSeqLen: 1, format: { keys, values: "q8" } });
    expect(keysAs("f16").length).toBe(0);
    for (const keys of ["q8", "q4"] as const)
      if (headDim === 2048) expect(keysAs(keys).length).toBe(0);
      else
        expect(() => keysAs(keys)).toThrow(
          new RangeError(`createCache: format.keys expected "f32" or "f16" for headDim above 2048, got "${keys}"`),
        );
    attention.release();
  }
});

describe("a cache whose tokens age", () => {
  /** A layer with an aged cache that holds `tokens` tokens of x, and one that was fed the same. */
  async function aged(kernels: Kernels, tokens: number) {
    const { attention, random } = causalLayer(kernels, 11);
    const { dModel } = attention.config;
    const x = floats(random, 1200 * dModel);
    const feed = () => {
      const cache = createCache(attention, { maxSeqLen: 1200, format: AGING });
      attend(attention, x.subarray(0, tokens * dModel), { cache });
      return cache;
    };
    return { attention, x, dModel, cache: feed(), other: feed() };
  }

  test("holds each page in the format of its age", async () => {
    using kernels = await kernelsOf("simd");
    const { attention, cache } = await aged(kernels, 900);
    const table = kernels.memory.u32(pageTable(cache.pages, 0), 8);
    // The query's page and one before it, two, and the rest.
    const [f32, q8, q8q4] = [0, 10, 14];
    expect(Array.from(table, (entry) => entry & 15)).toEqual([q8q4, q8q4, q8q4, q8q4, q8, q8, f32, f32]);
    attention.release();
  });

  test("is as it was when a call ends early, also where pages had aged meanwhile", async () => {
    using kernels = await kernelsOf("simd");
    for (const tokens of [130, 256, 500, 770]) {
      const { attention, x, dModel, cache, other } = await aged(kernels, tokens);
      const more = x.subarray(tokens * dModel, (tokens + 400) * dModel);
      // Between steps, and when all is done but not yet part of the cache.
      for (const end of [0.3, 0.6, 0.9, 1]) {
        const stop = new AbortController();
        const formats = () =>
          Array.from(kernels.memory.u32(pageTable(cache.pages, 0), Math.ceil(tokens / 128)), (entry) => entry & 15);
        const before = formats();
        let meanwhile = before;
        const onProgress = (done: number) => {
          if (done < end) return;
          meanwhile = formats();
          stop.abort();
        };
        await expect(
          attendAsync(attention, more, { cache, signal: stop.signal, onProgress, sliceMs: 1e-6 }),
        ).rejects.toThrow();
        // The first 108 rows may end in the page that the last token is in.
        if (end > 0.5) expect(meanwhile).not.toEqual(before);
        expect(formats()).toEqual(before);
        expect(cache.pages.aging?.old).toEqual([]);
        expect(cache.length).toBe(tokens);
        expect(cache.read()).toEqual(other.read());
      }
      const [got, want] = [cache, other].map((one) => attend(attention, more, { cache: one })) as [
        Float32Array,
        Float32Array,
      ];
      expect(firstDifference(got, want), `${tokens} tokens`).toBe(-1);
      attention.release();
    }
  });

  test.each(["truncate", "read", "attend", "release"])(
    "is as it was for %s after a kernel has failed",
    async (next) => {
      using kernels = await kernelsOf("simd");
      const { attention, x, dModel, cache, other } = await aged(kernels, 500);
      const { table } = kernels;
      let calls = 0;
      const failing = vi.spyOn(kernels, "table", "get").mockReturnValue({
        ...table,
        attention_pages(...args) {
          if (++calls === 5) throw new Error("failed");
          table.attention_pages(...args);
        },
      });
      const more = x.subarray(500 * dModel, 1000 * dModel);
      expect(() => attend(attention, more, { cache })).toThrow("failed");
      failing.mockRestore();
      expect(cache.pages.aging?.old).not.toEqual([]);
      expect(cache.length).toBe(500);
      if (next === "release") cache.release();
      else if (next === "read") expect(cache.read()).toEqual(other.read());
      else {
        for (const one of next === "truncate" ? [cache, other] : []) one.truncate(0);
        const [got, want] = [cache, other].map((one) => attend(attention, more, { cache: one })) as [
          Float32Array,
          Float32Array,
        ];
        expect(firstDifference(got, want)).toBe(-1);
        expect(cache.read()).toEqual(other.read());
      }
      expect(cache.pages.aging?.old).toEqual([]);
      attention.release();
    },
  );

  test.each([
    {
      format: [
        { keys: "q8", values: "q8", tokens: 128 },
        { keys: "q8", values: "q4" },
      ] as Format,
      part: "key",
    },
    {
      format: [
        { keys: "q8", values: "q8", tokens: 128 },
        { keys: "q4", values: "q8" },
      ] as Format,
      part: "value",
    },
  ] as const)("keeps every bit of the $part that changes no format", async ({ format, part }) => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: 4, numHeads: 1, causal: true } as const;
    const eye = { data: Float32Array.from({ length: 16 }, (_, i) => Number(i % 5 === 0)), shape: [4, 4] };
    const attention = createAttention(kernels, config, { wq: eye, wk: eye, wv: eye, wo: eye });
    const x = floats(createRandom(12), 700 * 4);
    // Its scale times 127 overflows: encoded once more, all four would be NaN.
    x[4] = (2 - 2 ** -23) * 2 ** 127;
    const [aged, plain] = ([format, "q8"] as const).map((one) => {
      using cache = createCache(attention, { maxSeqLen: 700, format: one });
      attend(attention, x, { cache });
      return cache.read()[part].data;
    }) as [Float32Array, Float32Array];
    expect(Array.from(plain.subarray(4, 8), Number.isNaN)).toEqual([false, false, false, false]);
    expect(firstDifference(aged, plain)).toBe(-1);
    attention.release();
  });

  test("is cut where nothing has aged since, and says to what it can be", async () => {
    using kernels = await kernelsOf("simd");
    const { attention, x, dModel, cache, other } = await aged(kernels, 700);
    expect(() => cache.truncate(640)).toThrow(
      new RangeError("truncate: length expected 0 or at least 641, because older tokens aged, got 640"),
    );
    expect(cache.length).toBe(700);
    const tail = x.subarray(641 * dModel, 700 * dModel);
    cache.truncate(641);
    attend(attention, tail, { cache });
    expect(cache.read()).toEqual(other.read());
    cache.truncate(0);
    const [again, once] = [cache, createCache(attention, { maxSeqLen: 1200, format: AGING })].map((one) =>
      attend(attention, x, { cache: one }),
    ) as [Float32Array, Float32Array];
    expect(firstDifference(again, once)).toBe(-1);

    const young = createCache(attention, { maxSeqLen: 1200, format: AGING });
    attend(attention, x.subarray(0, 256 * dModel), { cache: young });
    young.truncate(3);
    expect(young.length).toBe(3);
    attention.release();
  });

  test("has slots for a prompt of any length, cut anyhow, and for cross-attention", async () => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: 8, numHeads: 1, causal: false } as const;
    const random = createRandom(6);
    const attention = createAttention(kernels, config, randomWeights(random, config));
    const x = floats(random, 1200 * 8);
    const [once, twice] = [[1200], [77, 1123]].map((lengths) => {
      const cache = createCache(attention, { maxSeqLen: 1200, format: AGING });
      let past = 0;
      for (const length of lengths) {
        attend(attention, x.subarray(0, 8), { cache, keys: x.subarray(past * 8, (past + length) * 8) });
        past += length;
      }
      return attend(attention, x.subarray(0, 80), { cache, append: false });
    }) as [Float32Array, Float32Array];
    expect(firstDifference(twice, once)).toBe(-1);
    attention.release();
  });

  test("is as old as its last key for queries placed elsewhere, also where their rows are the keys", async () => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: 8, numHeads: 1, causal: true } as const;
    const random = createRandom(6);
    const attention = createAttention(kernels, config, randomWeights(random, config));
    const [x, more] = [floats(random, 300 * 8), floats(random, 600 * 8)];
    const [same, copied] = [more, more.slice()].map((keys) => {
      using cache = createCache(attention, { maxSeqLen: 900, format: AGING });
      attend(attention, x, { cache });
      return { y: attend(attention, more, { cache, keys, align: "start" }), read: cache.read() };
    });
    expect(same).toEqual(copied);
    attention.release();
  });

  test("has slots for chunks of 256 rows that begin anywhere in a page", async () => {
    using kernels = await kernelsOf("relaxed");
    const config = { dModel: 1100, numHeads: 40, headDim: 16, causal: true } as const;
    const random = createRandom(3);
    const attention = createAttention(kernels, config, randomWeights(random, config));
    expect(chunkRows(attention.config, 640)).toBe(256);
    const x = floats(random, 640 * 1100);
    const once = inPieces(attention, x, AGING, [640]);
    expect(firstDifference(inPieces(attention, x, AGING, [127, 256, 257]), once)).toBe(-1);
    attention.release();
  });

  test.each([
    { format: "q8" as Format, ages: false },
    { format: AGING, ages: true },
  ])("is for a call that appends alone, and for any that read, where tokens age: $ages", async ({ format, ages }) => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: 16, numHeads: 2, headDim: 8, causal: true } as const;
    const random = createRandom(1);
    const attention = createAttention(kernels, config, randomWeights(random, config));
    using cache = createCache(attention, { maxSeqLen: 1000, format });
    attend(attention, floats(random, 300 * 16), { cache });
    const [long, one] = [floats(random, 400 * 16), floats(random, 16)];
    const reads = { cache, append: false, align: "end" } as const;
    const refused = (error: Error, run: () => unknown) =>
      ages ? expect(run).toThrow(error) : expect(run).not.toThrow();
    const inUse = (where: string) =>
      new HeadwiseError("IN_USE", `${where}: cache expected one that no attendAsync is using`);

    const reading = attendAsync(attention, long, { ...reads, sliceMs: 1e-6 });
    const y = attend(attention, one, reads);
    expect(cache.read().key.shape[2]).toBe(300);
    refused(inUse("attend"), () => attend(attention, one, { cache }));
    await reading;

    const appending = attendAsync(attention, long, { cache, sliceMs: 1e-6 });
    refused(inUse("attend"), () => attend(attention, one, reads));
    refused(inUse("read"), () => cache.read());
    expect(() => attend(attention, one, { cache })).toThrow(inUse("attend"));
    await appending;

    cache.truncate(0);
    attend(attention, long, { cache });
    const alone = attend(attention, one, reads);
    expect(
      attendMany(attention, [
        { x: one, ...reads },
        { x: one, ...reads },
      ]),
    ).toEqual([alone, alone]);
    expect(firstDifference(y, alone)).not.toBe(-1);
    const shared = new RangeError("attendMany, call 1: cache expected one of its own, got that of call 0");
    refused(shared, () =>
      attendMany(attention, [
        { x: one, cache },
        { x: one, ...reads },
      ]),
    );
    refused(shared, () =>
      attendMany(attention, [
        { x: one, ...reads },
        { x: one, cache },
      ]),
    );
    expect(() =>
      attendMany(attention, [
        { x: one, cache },
        { x: one, cache },
      ]),
    ).toThrow(shared);
    attention.release();
  });
});

test.each<[unknown, string]>([
  ["q5", 'format expected "f32" or "f16" or "q8" or "q4", got "q5"'],
  [7, "format expected a format's name, { keys, values } or an array of stages, got 7"],
  [null, "format expected a format's name, { keys, values } or an array of stages, got null"],
  [new Float32Array(3), "format expected a format's name, { keys, values } or an array of stages, got Float32Array"],
  [new Array(1), "format[0] expected an object, got undefined"],
  // biome-ignore lint/suspicious/noSparseArray: a hole is what must not slip through.
  [[, { keys: "q8", values: "q8" }], "format[0] expected an object, got undefined"],
  [
    // biome-ignore lint/suspicious/noSparseArray: as above.
    [{ keys: "f32", values: "f32", tokens: 128 }, , { keys: "q8", values: "q8" }],
    "format[1] expected an object, got undefined",
  ],
  [[], "format expected one stage or more, got none"],
  [{ keys: "q8" }, 'format.values expected "f32" or "f16" or "q8" or "q4", got undefined'],
  [{ keys: "q8", values: "q8", tokens: 128 }, 'format expected only keys, values, got "tokens"'],
  [
    [
      { keys: "f32", values: "f32", tokens: 100 },
      { keys: "q8", values: "q8" },
    ],
    "format[0].tokens expected an integer >= 128, got 100",
  ],
  [
    [
      { keys: "f32", values: "f32", tokens: 200 },
      { keys: "q8", values: "q8" },
    ],
    "format[0].tokens expected a multiple of 128, got 200",
  ],
  [
    [
      { keys: "q8", values: "q8", tokens: 128 },
      { keys: "q8", values: "f16" },
    ],
    'format[1].values expected no more bits than before ("q8"), got "f16"',
  ],
  [
    [
      { keys: "q8", values: "q8", tokens: 128 },
      { keys: "q8", values: "q8" },
    ],
    "format[1] expected other formats than the stage before, got the same",
  ],
])("createCache refuses the format %j", async (format, text) => {
  using kernels = await kernelsOf("simd");
  const { attention } = randomLayer(kernels, 1);
  const used = kernels.usedBytes;
  const make = () => createCache(attention, { maxSeqLen: 10, format: format as Format });
  expect(make).toThrow(`createCache: ${text}`);
  expect(kernels.usedBytes).toBe(used);
});
