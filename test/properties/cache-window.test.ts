// Caches that drop the pages behind the window of their layer: the same bits as if every key were kept.

import { createHash } from "node:crypto";
import { describe, expect, test, vi } from "vitest";
import {
  type Attention,
  type AttentionConfig,
  attend,
  attendAsync,
  attendMany,
  attendWithMaps,
  type Cache,
  type CacheOptions,
  createAttention,
  createCache,
  HeadwiseError,
  type Kernels,
  plan,
  type Tensor,
} from "../../src/entries/core.ts";
import { type CachePage, exportPages, importPages } from "../../src/entries/models.ts";
import { chunkRows } from "../../src/layers/attention/heads.ts";
import { pageBytes } from "../../src/layers/state/pages.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { failKernels } from "../support/failing-kernels.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomWeights, shippedBuilds, threadedKernels } from "../support/layers.ts";
import { sampled, sampledSeeds } from "../support/sampled.ts";

type Format = NonNullable<CacheOptions["format"]>;

const AGING: Format = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q8", values: "q8", tokens: 128 },
  { keys: "q8", values: "q4" },
];
const FORMATS: readonly Format[] = ["f32", AGING, "q8", "f32", "f16", { keys: "q4", values: "f32" }];
const WIDTH = 12;

/** A layer with a window to the left whose queries attend no later key. */
function windowLayer(kernels: Kernels, seed: number, left?: number): { attention: Attention; random: Random } {
  const random = createRandom(seed);
  const some = (probability: number) => random.next() < probability;
  const drawn = random.int(0, some(0.5) ? 40 : 400);
  const config: AttentionConfig = {
    ...{ dModel: WIDTH, numHeads: 4, numKvHeads: 2, headDim: 6, valueDim: 5 },
    ...(some(0.5) ? { causal: true, window: { left: left ?? drawn } } : { window: { left: left ?? drawn, right: 0 } }),
    ...(some(0.3) && { softcap: 2 }),
    ...(some(0.3) && { alibi: "geometric" }),
    ...(some(0.4) && { rope: { theta: 100, pairing: "half" } }),
    ...(some(0.3) && { qkNorm: { kind: "per-head" } }),
    addZeroAttn: some(0.2),
  };
  const weights = randomWeights(random, config, { sinks: some(0.3), extraKey: some(0.2), biases: some(0.3) });
  return { attention: createAttention(kernels, config, weights), random };
}

/** Tokens begin..end of x [batch, tokens, WIDTH]. */
function tokensOf(x: Float32Array, batch: number, begin: number, end: number): Float32Array {
  const row = x.length / batch;
  const part = new Float32Array(batch * (end - begin) * WIDTH);
  for (let b = 0; b < batch; b++)
    part.set(x.subarray(b * row + begin * WIDTH, b * row + end * WIDTH), b * (end - begin) * WIDTH);
  return part;
}

function feed(cache: Cache, x: Float32Array, begin: number, end: number): Float32Array {
  return attend(cache.attention, tokensOf(x, cache.batch, begin, end), { cache });
}

/** Leaves NaN in every slot that holds no page. */
function soilFree({ kernels, pages }: Cache): void {
  for (const { next, end, free, bytes } of pages.slots.flat(2)) {
    kernels.memory.u8(next, end - next).fill(0xff);
    for (const slot of free) kernels.memory.u8(slot, bytes).fill(0xff);
  }
}

/** A digest of all that a cache keeps from the page of token `start` on. */
function stateOf(cache: Cache, start = cache.start): string {
  const hash = createHash("sha256").update(`${cache.length} ${start}`);
  for (const { index, bytes } of exportPages(cache))
    if (index >= Math.floor(start / 128)) hash.update(`${index}`).update(bytes);
  return hash.digest("hex");
}

/** An engine without memory for new bytes. */
const refusing = new Proxy(Uint8Array, {
  construct(target, args) {
    if (typeof args[0] === "number") throw new RangeError("Array buffer allocation failed");
    return Reflect.construct(target, args);
  },
});

/** Two caches of a layer, one that drops pages and one that keeps all. */
function twoCaches(attention: Attention, options: CacheOptions): readonly [dropping: Cache, keeping: Cache] {
  const caches = [{}, { truncatable: Number.POSITIVE_INFINITY }].map((more) =>
    createCache(attention, { ...options, ...more }),
  );
  return caches as [Cache, Cache];
}

const drawOf = (random: Random) => [1, 1, random.int(1, 60), random.int(1, 600)][random.int(0, 3)] as number;

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("a window's cache has the bits of one that keeps every key: any window, format, batch, chunks, truncation", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of sampled([...Array(20).keys()], 1, (each) => each % FORMATS.length, build.length)) {
      const { attention, random } = windowLayer(kernels, seed);
      const batch = random.int(1, 3);
      const format = FORMATS[seed % FORMATS.length] as Format;
      const truncatable = [128, 0, 1, 37, 300][random.int(0, 4)] as number;
      const tokens = random.int(1100, 1500);
      const x = floats(random, batch * tokens * WIDTH);
      using whole = createCache(attention, {
        ...{ maxSeqLen: tokens, batch, format },
        truncatable: Number.POSITIVE_INFINITY,
      });
      using cache = createCache(attention, { maxSeqLen: 100_000, batch, format, truncatable });
      const once = feed(whole, x, 0, tokens);
      for (let past = 0; past < tokens; ) {
        const end = Math.min(tokens, past + drawOf(random));
        const y = feed(cache, x, past, end);
        expect(firstDifference(y, tokensOf(once, batch, past, end)), `seed ${seed}, ${past} to ${end}`).toBe(-1);
        past = end;
        soilFree(cache);
        if (format !== AGING && random.int(0, 3) === 0) {
          past -= random.int(0, Math.min(past, truncatable));
          // Back to a length that a shorter truncation has been made at is not further.
          if (cache.start > 0) past = Math.max(past, cache.start + attention.config.window.left);
          cache.truncate(past);
        }
      }
      expect(cache.start).toBeGreaterThan(0);
      attention.release();
    }
  });

  test("maps, masks, kvLengths and queries that append nothing have the same bits", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of sampledSeeds(100, 107, 4)) {
      const { attention, random } = windowLayer(kernels, seed);
      const { config } = attention;
      const batch = random.int(1, 2);
      const format = FORMATS[seed % FORMATS.length] as Format;
      const caches = twoCaches(attention, { maxSeqLen: 3000, batch, format });
      const held = random.int(900, 1000);
      const x = floats(random, batch * (held + 200) * WIDTH);
      for (const cache of caches) {
        for (const [begin, end] of [
          [0, 700],
          [700, held],
        ] as const)
          feed(cache, x, begin, end);
      }
      soilFree(caches[0]);
      const masksOf = (qLen: number, kvLen: number) => {
        const bytes = (n: number) => Uint8Array.from({ length: n }, () => random.int(0, 3));
        return {
          keep: { data: bytes(qLen * kvLen), shape: [qLen, kvLen] },
          ...(random.int(0, 1) === 1 && { drop: { data: bytes(kvLen).map((byte) => byte >> 1), shape: [kvLen] } }),
          ...(random.int(0, 1) === 1 && { bias: { data: floats(random, 4 * kvLen), shape: [4, 1, kvLen] } }),
        };
      };
      const same = (options: object, rows: Float32Array) => {
        const [got, want] = caches.map((cache) => attendWithMaps(attention, rows, { cache, ...options })) as [
          ReturnType<typeof attendWithMaps>,
          ReturnType<typeof attendWithMaps>,
        ];
        expect(firstDifference(got.y, want.y), `seed ${seed}`).toBe(-1);
        expect(firstDifference(got.maps.data, want.maps.data), `seed ${seed}, maps`).toBe(-1);
      };
      // Queries at the last positions, against a cache that stays as it is.
      const reads = (qLen: number) => ({
        ...{ append: false, align: "end" },
        ...(config.rope && { positions: Array.from({ length: qLen }, (_, t) => held - qLen + t) }),
      });
      const rows = tokensOf(x, batch, held, held + 100);
      same({ ...reads(100), ...masksOf(100, held) }, rows);
      same({ ...reads(100), kvLengths: Array<number>(batch).fill(held - 20) }, rows);
      same(masksOf(150, held + 150), tokensOf(x, batch, held, held + 150));
      same({}, tokensOf(x, batch, held + 150, held + 180));
      const last = tokensOf(x, batch, held + 180, held + 200);
      const [got, want] = attendMany(
        attention,
        caches.map((cache) => ({ x: last, cache })),
      ) as [Float32Array, Float32Array];
      expect(firstDifference(got, want), `seed ${seed}, many`).toBe(-1);
      attention.release();
    }
  });

  test("a call that is aborted or fails leaves the cache as it was", async () => {
    using kernels = await kernelsOf(build);
    for (const format of ["f32", AGING] as const)
      for (const held of [640, 901]) {
        const { attention, random } = windowLayer(kernels, held, 200);
        const caches = twoCaches(attention, { maxSeqLen: 3000, batch: 2, format });
        const x = floats(random, 2 * 2000 * WIDTH);
        for (const cache of caches) feed(cache, x, 0, held);
        const [cache, whole] = caches;
        const before = stateOf(whole, cache.start);
        const more = tokensOf(x, 2, held, 2000);
        for (const end of [0.2, 0.6, 1]) {
          const stop = new AbortController();
          const onProgress = (done: number) => {
            if (done >= end) stop.abort();
          };
          const call = attendAsync(attention, more, { cache, signal: stop.signal, onProgress, sliceMs: 1e-6 });
          await expect(call).rejects.toThrow();
          expect(cache.pages.old).toEqual([]);
          expect(stateOf(cache)).toBe(before);
        }
        for (const [i, count] of [1, 3, 9, 20].entries()) {
          const restore = failKernels(kernels, ["attention_f32", "attention_pages"], count);
          const many = [
            { x: more, cache },
            { x: more, batch: 2 },
          ];
          const run = () => (i % 2 === 0 ? attend(attention, more, { cache }) : attendMany(attention, many));
          expect(run).toThrow("failed");
          restore();
          cache.truncate(held);
          expect(stateOf(cache), `kernel ${count}`).toBe(before);
        }
        const [got, want] = caches.map((each) => attend(attention, more, { cache: each })) as [
          Float32Array,
          Float32Array,
        ];
        expect(firstDifference(got, want)).toBe(-1);
        attention.release();
      }
  });
});

test("chunks of 256 rows that begin anywhere in a page have slots, and the same bits", async () => {
  using kernels = await kernelsOf("relaxed");
  const config = { dModel: 1100, numHeads: 40, headDim: 16, causal: true, window: { left: 127 } } as const;
  const random = createRandom(3);
  const attention = createAttention(kernels, config, randomWeights(random, config));
  expect(chunkRows(attention.config, 640)).toBe(256);
  const x = floats(random, 900 * 1100);
  const [cache, whole] = twoCaches(attention, { maxSeqLen: 900 });
  const once = attend(attention, x, { cache: whole });
  for (const [begin, end] of [
    [0, 127],
    [127, 383],
    [383, 900],
  ] as const) {
    const y = attend(attention, x.subarray(begin * 1100, end * 1100), { cache });
    expect(firstDifference(y, once.subarray(begin * 1100, end * 1100)), `${begin} to ${end}`).toBe(-1);
  }
  expect([cache.pages.pagesPerRow, cache.bytes < whole.bytes]).toEqual([8, true]);
  attention.release();
});

test("threads have the same bits", async () => {
  using plain = await kernelsOf("simd");
  using threaded = await threadedKernels("simd", 3);
  const [one, three] = [plain, threaded].map((kernels) => {
    const { attention, random } = windowLayer(kernels, 7, 150);
    const x = floats(random, 2 * 1300 * WIDTH);
    return ([AGING, "f32"] as const).map((format) => {
      using cache = createCache(attention, { maxSeqLen: 1300, batch: 2, format });
      return [feed(cache, x, 0, 900), feed(cache, x, 900, 901), feed(cache, x, 901, 1300), cache.read().value.data];
    });
  });
  expect(three).toEqual(one);
});

describe("a cache of a layer with a window", () => {
  test("takes the bytes that plan gives, some pages whatever maxSeqLen is, or all with truncatable: Infinity", async () => {
    using kernels = await kernelsOf("simd");
    const config = {
      dModel: 16,
      numHeads: 2,
      headDim: 64,
      numKvHeads: 2,
      causal: true,
      window: { left: 127 },
    } as const;
    const attention = createAttention(kernels, config, randomWeights(createRandom(1), config));
    const page = 128 * 2 * 2 * 64 * 4;
    const table = (maxSeqLen: number) => 64 * Math.ceil((4 * Math.ceil(maxSeqLen / 128)) / 64);
    const all = Number.POSITIVE_INFINITY;
    for (const [maxSeqLen, truncatable, pages] of [
      // The query's page, two for the 127 and 128 tokens before it, two for keys that are appended ahead.
      ...[
        [32_768, undefined, 5],
        [4_000_000, undefined, 5],
        [32_768, 0, 4],
        [32_768, 1, 4],
        [32_768, 2, 5],
      ],
      ...[
        [32_768, all, 256],
        [640, undefined, 5],
        [641, undefined, 5],
        [600, undefined, 5],
        [128, undefined, 1],
      ],
    ] as [number, number | undefined, number][]) {
      const options = { maxSeqLen, ...(truncatable !== undefined && { truncatable }) };
      const before = kernels.usedBytes;
      using cache = createCache(attention, options);
      expect(cache.bytes, `${maxSeqLen} ${truncatable}`).toBe(pages * page + table(maxSeqLen));
      expect(kernels.usedBytes - before).toBe(cache.bytes);
      expect(plan(config, options).cache).toBe(cache.bytes);
    }
    // Layers that keep every key: no window to the left, or queries that attend later keys.
    for (const window of [{ right: 0 }, { left: 127, right: 1 }, { left: 127 }])
      expect(plan({ dModel: 16, numHeads: 2, headDim: 64, window }, { maxSeqLen: 32_768 }).cache).toBe(
        256 * page + table(32_768),
      );
    attention.release();
  });

  test("is truncated by as many tokens as truncatable says, and the error names the option", async () => {
    using kernels = await kernelsOf("simd");
    const { attention, random } = windowLayer(kernels, 3, 100);
    const x = floats(random, 2000 * WIDTH);
    using cache = createCache(attention, { maxSeqLen: 2000, truncatable: 200 });
    const once = feed(cache, x, 0, 300);
    expect(cache.start).toBe(0);
    cache.truncate(7); // 300 tokens are no more than 100 + 200
    expect(firstDifference(feed(cache, x, 7, 300), once.subarray(7 * WIDTH))).toBe(-1);
    const later = feed(cache, x, 300, 1000);
    expect(cache.start).toBe(700);
    const tooFar = (least: number, to: number) =>
      new RangeError(`truncate: length expected 0 or at least ${least}, because truncatable is 200, got ${to}`);
    expect(() => cache.truncate(799)).toThrow(tooFar(800, 799));
    cache.truncate(900);
    cache.truncate(800);
    expect([cache.length, cache.start]).toEqual([800, 700]);
    expect(() => cache.truncate(799)).toThrow(tooFar(800, 799));
    expect(firstDifference(feed(cache, x, 800, 1000), later.subarray(500 * WIDTH))).toBe(-1);
    cache.truncate(0);
    expect([cache.length, cache.start]).toEqual([0, 0]);
    expect(firstDifference(feed(cache, x, 0, 300), once)).toBe(-1);
    expect(cache.read().key.shape).toEqual([1, 2, 300, 6]);
    attention.release();
  });

  test("gives and takes pages: those of its window, in any cache that keeps them", async () => {
    using kernels = await kernelsOf("simd");
    for (const format of ["f32", AGING] as const) {
      const { attention, random } = windowLayer(kernels, 5, 300);
      const x = floats(random, 1400 * WIDTH);
      const [cache, whole] = twoCaches(attention, { maxSeqLen: 1400, format });
      const kept: CachePage[] = [];
      let y: Float32Array = new Float32Array(0);
      for (const [begin, end] of [
        [0, 200],
        [200, 650],
        [650, 1100],
      ] as const) {
        y = feed(cache, x, begin, end);
        feed(whole, x, begin, end);
        for (const page of exportPages(cache, begin)) kept[page.index] = page;
      }
      expect(y.length).toBe(450 * WIDTH);
      const pages = exportPages(cache);
      expect(cache.start).toBe(1100 - 300 - 128);
      expect(pages.map(({ index }) => index)).toEqual([5, 6, 7, 8]);
      expect(pages).toEqual(exportPages(whole).slice(5));
      const [values, all] = [cache, whole].map((each) => each.read().value) as [Tensor, Tensor];
      expect(firstDifference(values.data.subarray(0, 428 * 5), all.data.subarray(672 * 5, 1100 * 5))).toBe(-1);

      const next = feed(whole, x, 1100, 1400);
      const continued = (given: Iterable<CachePage>, options: Partial<CacheOptions> = {}) => {
        using copy = createCache(attention, { maxSeqLen: 1400, format, ...options });
        importPages(copy, given, 1100);
        expect(firstDifference(feed(copy, x, 1100, 1400), next)).toBe(-1);
        return copy;
      };
      continued(pages);
      continued(kept); // pages that are not kept any more, and holes, come first
      continued(kept.filter(Boolean), { truncatable: 0 });
      whole.truncate(0);
      feed(whole, x, 0, 1100);
      continued(exportPages(whole));
      const sparse: CachePage[] = [];
      for (const page of pages) sparse[page.index] = page;
      continued(sparse);
      // From page 6 on, token 800 is there, but none that a truncation would need.
      using copy = createCache(attention, { maxSeqLen: 1400, format });
      importPages(copy, pages.slice(1), 1100);
      expect(copy.start).toBe(768);
      expect(() => copy.truncate(1067)).toThrow("length expected 0 or at least");
      expect(firstDifference(feed(copy, x, 1100, 1400), next)).toBe(-1);
      copy.truncate(0);
      expect(() => importPages(copy, pages.slice(2), 1100)).toThrow("importPages: pages[5].index expected 5, got 7");
      expect(() => importPages(copy, pages.slice(0, 3), 1100)).toThrow(
        "importPages: pages expected 4 for length 1100, got 3",
      );
      expect(() => importPages(copy, [...pages, ...pages], 1100)).toThrow(
        "importPages: pages expected 4 for length 1100, got more",
      );
      whole.truncate(0);
      expect(() => importPages(whole, pages, 1100)).toThrow("importPages: pages[0].index expected 0, got 5");
      attention.release();
    }
  });

  test("decodes without copies of pages, and has the same bits behind millions of tokens", async () => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: WIDTH, numHeads: 2, causal: true, window: { left: 300 }, alibi: "geometric" } as const;
    const attention = createAttention(kernels, config, randomWeights(createRandom(2), config));
    const x = floats(createRandom(3), 1500 * WIDTH);
    using cache = createCache(attention, { maxSeqLen: 1500 });
    feed(cache, x, 0, 900);
    const pages = exportPages(cache);
    vi.stubGlobal("Uint8Array", refusing);
    const want = Array.from({ length: 600 }, (_, t) => feed(cache, x, 900 + t, 901 + t));
    vi.unstubAllGlobals();

    const ahead = 2 ** 23 - 8; // pages: 2^30 tokens and a few
    using far = createCache(attention, { maxSeqLen: 2 ** 30 + 2000 });
    importPages(
      far,
      pages.map(({ index, bytes }) => ({ index: index + ahead, bytes })),
      ahead * 128 + 900,
    );
    const got = want.map((_, t) => feed(far, x, 900 + t, 901 + t));
    for (const [t, y] of want.entries()) expect(firstDifference(got[t] as Float32Array, y), `token ${t}`).toBe(-1);
    attention.release();
  });

  test("is as it was if the engine has no memory for the copy of a page, which the error names", async () => {
    using kernels = await kernelsOf("simd");
    for (const format of ["f32", AGING] as const) {
      const { attention, random } = windowLayer(kernels, 4, 200);
      const x = floats(random, 1500 * WIDTH);
      const [cache, whole] = twoCaches(attention, { maxSeqLen: 1500, format });
      for (const each of [cache, whole]) feed(each, x, 0, 700);
      const bytes = pageBytes(cache.pages.layout, (cache.pages.layout.stages.at(-1) as { code: number }).code);
      vi.stubGlobal("Uint8Array", refusing);
      const call = () => feed(cache, x, 700, 1500);
      const size = format === "f32" ? `${bytes}` : "\\d+";
      const text = `^attend: a copy of page [2-4] of ${size} bytes does not fit, the engine refused$`;
      let error = new Error("none");
      try {
        call();
      } catch (thrown) {
        error = thrown as Error;
      }
      vi.unstubAllGlobals();
      expect(error).toBeInstanceOf(HeadwiseError);
      expect(error.message).toMatch(new RegExp(text));
      expect(firstDifference(call(), feed(whole, x, 700, 1500))).toBe(-1);
      attention.release();
    }
  });

  test("refuses queries that would need dropped keys, before anything has changed", async () => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: WIDTH, numHeads: 2, causal: true, window: { left: 100 } } as const;
    const attention = createAttention(kernels, config, randomWeights(createRandom(4), config));
    const x = floats(createRandom(5), 1200 * WIDTH);
    const [cache, whole] = twoCaches(attention, { maxSeqLen: 3000 });
    for (const each of [cache, whole]) feed(each, x, 0, 1000);
    const before = stateOf(cache);
    const rows = (count: number) => x.subarray(0, count * WIDTH);
    const refused = (options: object, count: number, least: number, got: number) => {
      const rule = `positions of at least ${least}, because truncatable of the cache is 128`;
      expect(() => attend(attention, rows(count), { cache, ...options })).toThrow(
        new RangeError(`attend: x expected ${rule}, got ${got}`),
      );
      expect(stateOf(cache)).toBe(before);
    };
    refused({ append: false, align: "start" }, 1, 872, 0);
    refused({ append: false, align: "end" }, 129, 872, 871);
    refused({ append: false, align: "end", kvLengths: [900] }, 50, 872, 850);
    refused({ keys: rows(200), align: "end" }, 150, 1072, 1050);
    for (const options of [
      { append: false, align: "end" },
      { append: false, align: "end", kvLengths: [980] },
      { keys: rows(300), align: "end" },
    ] as const) {
      const [got, want] = [cache, whole].map((each) => attend(attention, rows(100), { cache: each, ...options })) as [
        Float32Array,
        Float32Array,
      ];
      expect(firstDifference(got, want)).toBe(-1);
    }
    attention.release();
  });

  test("is for a call that appends alone, as where tokens age", async () => {
    using kernels = await kernelsOf("simd");
    const { attention, random } = windowLayer(kernels, 9, 100);
    const { rope } = attention.config;
    const [cache, whole] = twoCaches(attention, { maxSeqLen: 3000 });
    const x = floats(random, 1000 * WIDTH);
    const reads = { append: false, align: "end", ...(rope && { positions: [399] }) } as const;
    const inUse = new HeadwiseError("IN_USE", "attend: cache expected one that no unfinished call is using");
    for (const [each, shared] of [
      [cache, false],
      [whole, true],
    ] as const) {
      feed(each, x, 0, 400);
      const appending = attendAsync(attention, x, { cache: each, sliceMs: 1e-6 });
      const read = () => attend(attention, x.subarray(0, WIDTH), { cache: each, ...reads });
      if (shared) expect(read).not.toThrow();
      else expect(read).toThrow(inUse);
      await appending;
      expect(each.length).toBe(1400);
    }
    attention.release();
  });
});
