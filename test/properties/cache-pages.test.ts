// Caches as bytes: what is exported, kept and imported continues with the bits of a cache that was never gone, and says
// nothing but what the cache holds.

import { describe, expect, test, vi } from "vitest";
import {
  type Attention,
  attend,
  attendAsync,
  type Cache,
  type CacheOptions,
  createAttention,
  createCache,
  HeadwiseError,
  type Kernels,
} from "../../src/entries/core.ts";
import { type CachePage, exportPages, importPages } from "../../src/entries/models.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomWeights, shippedBuilds, threadedKernels } from "../support/layers.ts";

type Format = NonNullable<CacheOptions["format"]>;

const AGING: Format = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q8", values: "q8", tokens: 256 },
  { keys: "q8", values: "q4" },
];
const FORMATS: readonly Format[] = ["f32", "f16", "q8", "q4", { keys: "q4", values: "f32" }, AGING];
const named = FORMATS.map((format) => ({ format, name: JSON.stringify(format) }));

/** The same layer in any kernels: headDim and valueDim are no multiples of what integers are padded to. */
function layerOf(kernels: Kernels, seed = 0): { attention: Attention; random: Random } {
  const random = createRandom(seed);
  const config = {
    ...{ dModel: 12, numHeads: 4, numKvHeads: 2, headDim: 6, valueDim: 5, causal: true },
    rope: { theta: 100, pairing: "half" },
  } as const;
  return { attention: createAttention(kernels, config, randomWeights(random, config)), random };
}

/** Leaves NaN of every kind in memory that the next caches take. */
function soil(attention: Attention, bytes: number): void {
  const { memory } = attention.kernels;
  const at = memory.allocate("soil", bytes);
  memory.u8(at, bytes).fill(0xff);
  memory.free(at);
}

/** Feeds tokens begin..end of x [batch, tokens, 12]. */
function feed(cache: Cache, x: Float32Array, begin: number, end: number): Float32Array {
  const width = 12;
  const tokens = x.length / cache.batch / width;
  const part = new Float32Array(cache.batch * (end - begin) * width);
  for (let b = 0; b < cache.batch; b++) {
    const row = b * tokens;
    part.set(x.subarray((row + begin) * width, (row + end) * width), b * (end - begin) * width);
  }
  return attend(cache.attention, part, { cache, batch: cache.batch });
}

const indices = (pages: readonly CachePage[]) => pages.map(({ index }) => index);

describe.each(shippedBuilds)("in the %s build", (build) => {
  test.each(named)(
    "a cache that moves to other kernels with every call keeps its bits with $name",
    async ({ format }) => {
      using kernels = await kernelsOf(build);
      const { attention, random } = layerOf(kernels);
      for (const batch of [1, 2]) {
        const maxSeqLen = 700;
        const x = floats(random, batch * maxSeqLen * 12);
        using whole = createCache(attention, { maxSeqLen, batch, format });
        const kept: CachePage[] = [];
        for (let past = 0; past < maxSeqLen; ) {
          const end = Math.min(maxSeqLen, past + random.int(1, 200));
          using others = await kernelsOf(build);
          const { attention: other } = layerOf(others);
          soil(other, whole.bytes);
          using moved = createCache(other, { maxSeqLen, batch, format });
          importPages(moved, kept, past);
          expect(firstDifference(feed(moved, x, past, end), feed(whole, x, past, end)), `${past} to ${end}`).toBe(-1);
          for (const page of exportPages(moved, past)) kept[page.index] = page;
          expect(kept, `${past} to ${end}`).toEqual(exportPages(whole));
          const [{ key, value }, expected] = [moved.read(), whole.read()];
          expect(firstDifference(key.data, expected.key.data)).toBe(-1);
          expect(firstDifference(value.data, expected.value.data)).toBe(-1);
          past = end;
        }
      }
    },
  );
});

test.each(named)(
  "pages are the same on threads, and what lies in memory behind the last token stays there with $name",
  async ({ format }) => {
    using plain = await kernelsOf("simd");
    using threaded = await threadedKernels("simd", 3);
    const exported = [plain, threaded].map((kernels) => {
      const { attention, random } = layerOf(kernels);
      soil(attention, 1_000_000);
      using cache = createCache(attention, { maxSeqLen: 300, batch: 2, format });
      feed(cache, floats(random, 2 * 300 * 12), 0, 261);
      const pages = exportPages(cache);
      const other = createCache(attention, { maxSeqLen: 300, batch: 2, format });
      importPages(other, pages, 261);
      expect(exportPages(other)).toEqual(pages);
      return pages;
    });
    expect(exported[1]).toEqual(exported[0]);
    const last = (exported[0] as CachePage[])[2] as CachePage;
    // Of 128 tokens 5 are held: but for the codes of 4 bits, whose zero is 8, the others are zeros.
    const count = (byte: number) => last.bytes.reduce((sum, each) => sum + (each === byte ? 1 : 0), 0);
    expect(count(0) + count(0x88)).toBeGreaterThan(last.bytes.length * 0.93);
  },
);

test("only pages that changed are exported", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = layerOf(kernels);
  const x = floats(random, 900 * 12);
  using cache = createCache(attention, { maxSeqLen: 900 });
  using aging = createCache(attention, { maxSeqLen: 900, format: AGING });
  expect(exportPages(cache)).toEqual([]);
  for (const each of [cache, aging]) feed(each, x, 0, 256);
  expect(indices(exportPages(cache))).toEqual([0, 1]);
  expect(indices(exportPages(cache, 255))).toEqual([1]);
  expect(indices(exportPages(cache, 256))).toEqual([]);
  for (const each of [cache, aging]) feed(each, x, 256, 385);
  expect(indices(exportPages(cache, 256))).toEqual([2, 3]);
  // Of pages at distances 0 and 1 those at 2 and 3 have been encoded anew.
  expect(indices(exportPages(aging, 256))).toEqual([0, 1, 2, 3]);
  for (const each of [cache, aging]) feed(each, x, 385, 640);
  expect(indices(exportPages(aging, 385))).toEqual([0, 2, 3, 4]);
  cache.truncate(200);
  feed(cache, x, 200, 300);
  expect(indices(exportPages(cache, 200))).toEqual([1, 2]);
});

test("a shorter beginning of what was exported can be imported, and has the bits of one", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = layerOf(kernels);
  const x = floats(random, 400 * 12);
  const [whole, fork] = [0, 1].map(() => createCache(attention, { maxSeqLen: 400 })) as [Cache, Cache];
  feed(whole, x, 0, 400);
  importPages(fork, exportPages(whole).slice(0, 2), 150);
  whole.truncate(150);
  expect(exportPages(fork)).toEqual(exportPages(whole));
  expect(firstDifference(feed(fork, x, 150, 400), feed(whole, x, 150, 400))).toBe(-1);
});

test("an import that fails leaves the cache empty, whatever gives the pages does", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = layerOf(kernels);
  const x = floats(random, 700 * 12);
  for (const format of ["f32", AGING] as const) {
    using cache = createCache(attention, { maxSeqLen: 700, format });
    const expected = feed(cache, x, 0, 600);
    const pages = exportPages(cache);
    cache.truncate(0);
    const during = (act: () => void) => () => {
      function* given() {
        yield* pages.slice(0, 3);
        act();
        yield* pages.slice(3);
      }
      importPages(cache, given(), 600);
    };
    const { usedBytes } = kernels;
    const failing: readonly (readonly [run: () => void, text: string])[] = [
      [() => importPages(cache, pages.slice(0, 4), 600), "importPages: pages expected 5 for length 600, got 4"],
      [() => importPages(cache, [...pages, ...pages], 600), "importPages: pages expected 5 for length 600, got more"],
      [() => importPages(cache, [...pages].reverse(), 600), "importPages: pages[0].index expected 0, got 4"],
      [
        during(() => {
          throw new Error("the disk is gone");
        }),
        "the disk is gone",
      ],
      [during(() => feed(cache, x, 0, 1)), "attend: cache expected one that no unfinished call is using"],
      [during(() => cache.truncate(0)), "truncate: cache expected one that no unfinished call is using"],
    ];
    for (const [run, text] of failing) {
      expect(run).toThrow(text);
      expect([cache.length, kernels.usedBytes]).toEqual([0, usedBytes]);
      expect(firstDifference(feed(cache, x, 0, 600), expected), text).toBe(-1);
      cache.truncate(0);
    }
    // Nothing is written to the memory that the cache had.
    const { bytes } = cache;
    const { memory } = kernels;
    let at = 0;
    const releasing = during(() => {
      cache.release();
      at = memory.allocate("test", bytes);
      memory.u8(at, bytes).fill(0x5a);
    });
    expect(releasing).toThrow("importPages: cache was released");
    expect([at, memory.u8(at, bytes).findIndex((byte) => byte !== 0x5a)]).toEqual([cache.pages.at, -1]);
    memory.free(at);
  }
  const short = await kernelsOf("simd");
  const ended = createCache(layerOf(short).attention, { maxSeqLen: 128 });
  const releasing = {
    [Symbol.iterator]() {
      short.release();
      return [][Symbol.iterator]();
    },
  };
  expect(() => importPages(ended, releasing, 0)).toThrow("importPages: cache.kernels was released");
  using aged = createCache(attention, { maxSeqLen: 700, format: AGING });
  feed(aged, x, 0, 600);
  const pages = exportPages(aged);
  using other = createCache(attention, { maxSeqLen: 700, format: AGING });
  expect(() => importPages(other, pages.slice(0, 3), 300)).toThrow(
    'importPages: pages[0].bytes expected keys "q8" and values "q8", got keys "q8" and values "q4"',
  );
  importPages(other, pages, 520); // the same page is the last one
  expect(other.length).toBe(520);
});

test("pages are not exported while an attendAsync appends, nor imported then", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = layerOf(kernels);
  const tokens = 2000;
  using cache = createCache(attention, { maxSeqLen: tokens });
  const appending = attendAsync(attention, floats(random, tokens * 12), { cache, sliceMs: 0.01 });
  const text = "cache expected one that no unfinished call is using";
  expect(() => exportPages(cache)).toThrow(`exportPages: ${text}`);
  expect(() => importPages(cache, [], 0)).toThrow(`importPages: ${text}`);
  await appending;
  expect(exportPages(cache).length).toBe(16);
});

test("an engine that has no memory for the bytes is reported by name", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = layerOf(kernels);
  using cache = createCache(attention, { maxSeqLen: 200 });
  feed(cache, floats(random, 200 * 12), 0, 200);
  const refusing = new Proxy(Uint8Array, {
    construct(target, args) {
      if (args[0] > 1000) throw new RangeError("Array buffer allocation failed");
      return Reflect.construct(target, args);
    },
  });
  vi.stubGlobal("Uint8Array", refusing);
  let error: unknown;
  try {
    exportPages(cache);
  } catch (thrown) {
    error = thrown;
  }
  vi.unstubAllGlobals();
  const bytes = 36 + 128 * 2 * (6 + 8) * 4;
  expect(error).toEqual(
    new HeadwiseError(
      "OUT_OF_MEMORY",
      `exportPages: pages[0].bytes of ${bytes} bytes does not fit, the engine refused`,
      { cause: new RangeError("Array buffer allocation failed") },
    ),
  );
  expect(exportPages(cache).length).toBe(2);
});
