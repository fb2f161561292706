// Pages of caches whose tokens age or lie behind a window.

import { expect, test } from "vitest";
import {
  type AttentionConfig,
  attend,
  type CacheFormat,
  type CacheOptions,
  type CacheStage,
  createAttention,
  createCache,
} from "../../../../src/entries/core.ts";
import { exportPages, importPages } from "../../../../src/entries/models.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { firstDifference, kernelsOf, randomWeights } from "../../../support/layers.ts";

const CONFIG = { dModel: 12, numHeads: 4, numKvHeads: 2, headDim: 6, valueDim: 5, causal: true } as const;

/** A layer of these sizes, and rows for it. */
async function layerOf(own: Partial<AttentionConfig>, tokens: number) {
  const kernels = await kernelsOf("simd");
  const random = createRandom(4);
  const config = { ...CONFIG, ...own };
  const attention = createAttention(kernels, config, randomWeights(random, config));
  return { kernels, attention, x: random.floats(tokens * config.dModel) };
}

const stage = (keys: CacheFormat, values: CacheFormat): CacheStage => ({ keys, values });

test.each([
  [stage("f32", "f32"), stage("f16", "f16")],
  [stage("f32", "f32"), stage("q8", "q8")],
  [stage("f32", "f32"), stage("q8", "q4")],
  [stage("f32", "q8"), stage("q4", "q8")],
  [stage("q8", "f32"), stage("q8", "f16")],
  [stage("q4", "f32"), stage("q4", "q8")],
])("a page of %j that ages to %j has the bytes of one that was written in this format", async (young, old) => {
  const { kernels, attention, x } = await layerOf({}, 500);
  using aging = createCache(attention, { maxSeqLen: 500, format: [{ ...young, tokens: 128 }, old] });
  using whole = createCache(attention, { maxSeqLen: 500, format: old });
  for (const cache of [aging, whole]) attend(attention, x, { cache });
  const [first, want] = [aging, whole].map((cache) => exportPages(cache)[0]);
  expect(first).toEqual(want);
  kernels.release();
});

test("of the pages behind a window, an import may leave out all that the window does not need", async () => {
  const { kernels, attention, x } = await layerOf({ window: { left: 10 } }, 400);
  const part = x.subarray(0, 300 * CONFIG.dModel);
  using cache = createCache(attention, { maxSeqLen: 1024, truncatable: 256 });
  using copy = createCache(attention, { maxSeqLen: 1024, truncatable: 256 });
  attend(attention, part, { cache });
  expect(exportPages(cache).length).toBe(3);
  importPages(copy, exportPages(cache).slice(-1), 300);
  const rest = x.subarray(part.length);
  const [got, want] = [copy, cache].map((each) => attend(attention, rest, { cache: each })) as [
    Float32Array,
    Float32Array,
  ];
  expect(firstDifference(got, want)).toBe(-1);
  kernels.release();
});

test("a window drops no page where that frees none", async () => {
  const { kernels, attention, x } = await layerOf({ window: { left: 300 } }, 640);
  using cache = createCache(attention, { maxSeqLen: 640 });
  attend(attention, x, { cache });
  // The window is of 4 pages with the newest, and a chunk has 2 more: all 5 are there.
  expect(exportPages(cache).map(({ index }) => index)).toEqual([0, 1, 2, 3, 4]);
  cache.truncate(1);
  expect(cache.length).toBe(1);
  kernels.release();
});

test("a cache whose tokens age has as many pages of each stage as a sequence has at once: of 8, 4 new ones and 1, 2 and 3 older", async () => {
  const { kernels, attention } = await layerOf({}, 1);
  const bytesOf = (options: CacheOptions) => {
    using cache = createCache(attention, options);
    return cache.bytes;
  };
  const page = (format: CacheStage) => bytesOf({ maxSeqLen: 256, format }) - bytesOf({ maxSeqLen: 128, format });
  const stages = [stage("f32", "f32"), stage("f16", "f16"), stage("q8", "f16"), stage("q8", "q8")];
  const tokens = [128, 128, 256];
  const format = stages.map((each, i) => (tokens[i] ? { ...each, tokens: tokens[i] } : each));
  // The query's page and one behind it, and two more that the keys of a chunk take, which are appended before its queries.
  const pages = [4, 1, 2, 3].reduce((sum, count, i) => sum + count * page(stages[i] as CacheStage), 0);
  const table = bytesOf({ maxSeqLen: 128 }) - page(stage("f32", "f32"));
  // What 8 tokens take while their format changes.
  const changing = 8 * 2 * (6 + 5) * 4;
  const got = bytesOf({ maxSeqLen: 1024, format }) - pages - table;
  expect(got).toBeGreaterThanOrEqual(changing);
  expect(got).toBeLessThan(changing + 256);
  kernels.release();
});

test("where tokens age and are dropped, a cut that needs the format before is refused, also where the window needs no more", async () => {
  const { kernels, attention, x } = await layerOf({ window: { left: 300 } }, 1500);
  const format = [{ ...stage("f32", "f32"), tokens: 128 }, stage("q8", "q8")];
  // 1497 tokens of which 89 can be forgotten leave 1408, with which the twelfth page begins.
  for (const truncatable of [88, 89, 90]) {
    using cache = createCache(attention, { maxSeqLen: 2048, truncatable, format });
    attend(attention, x.subarray(0, 1497 * CONFIG.dModel), { cache });
    const reason = truncatable < 89 ? "truncatable is 88" : "older tokens aged";
    expect(() => cache.truncate(1408)).toThrow(
      new RangeError(`truncate: length expected 0 or at least 1409, because ${reason}, got 1408`),
    );
    cache.truncate(1409);
    expect(cache.length).toBe(1409);
  }
  kernels.release();
});

test("a window never makes a cache larger than one that keeps every key", async () => {
  const { kernels, attention } = await layerOf({ window: { left: 300 } }, 1);
  const plain = (await layerOf({}, 1)).attention;
  for (let maxSeqLen = 128; maxSeqLen <= 1536; maxSeqLen += 128) {
    using cache = createCache(attention, { maxSeqLen });
    using all = createCache(plain, { maxSeqLen });
    expect(cache.bytes, `${maxSeqLen} tokens`).toBeLessThanOrEqual(all.bytes);
  }
  kernels.release();
  plain.kernels.release();
});
