// Caches whose formats change with age.

import { describe, expect, test, vi } from "vitest";
import {
  type Attention,
  attend,
  attendAsync,
  attendMany,
  type CacheOptions,
  createAttention,
  createCache,
  HeadwiseError,
  type Kernels,
} from "../../src/entries/core.ts";
import { chunkRows } from "../../src/layers/attention/heads.ts";
import { pageTable } from "../../src/layers/state/table.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { failKernels } from "../support/failing-kernels.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomLayer, randomWeights } from "../support/layers.ts";

type Format = NonNullable<CacheOptions["format"]>;

const AGING: Format = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q8", values: "q8", tokens: 256 },
  { keys: "q8", values: "q4" },
];

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

/** A causal layer: only there a prompt and its tokens one by one are the same question. */
function causalLayer(kernels: Kernels, seed: number) {
  for (let n = seed; ; n += 100) {
    const layer = randomLayer(kernels, n);
    if (layer.attention.config.causal) return layer;
    layer.attention.release();
  }
}

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
        expect(cache.pages.old).toEqual([]);
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
      const { attention_pages: attentionPages } = kernels.table;
      let calls = 0;
      const failing = vi.spyOn(kernels.table, "attention_pages").mockImplementation((...args) => {
        if (++calls === 5) throw new Error("failed");
        attentionPages(...args);
      });
      const more = x.subarray(500 * dModel, 1000 * dModel);
      expect(() => attend(attention, more, { cache })).toThrow("failed");
      failing.mockRestore();
      expect(cache.pages.old).not.toEqual([]);
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
      expect(cache.pages.old).toEqual([]);
      attention.release();
    },
  );

  test("loses no slot when a page cannot be re-encoded, however often", async () => {
    using kernels = await kernelsOf("simd");
    const { attention, x, dModel, cache, other } = await aged(kernels, 500);
    const more = x.subarray(500 * dModel, 1000 * dModel);
    for (let i = 0; i < 12; i++) {
      const restore = failKernels(kernels, ["gather_pages"], 1);
      expect(() => attend(attention, more, { cache }), `call ${i}`).toThrow("failed");
      restore();
    }
    const [got, want] = [cache, other].map((one) => attend(attention, more, { cache: one })) as [
      Float32Array,
      Float32Array,
    ];
    expect(firstDifference(got, want)).toBe(-1);
    attention.release();
  });

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

  test("is truncated where nothing has aged since, and the error names the lengths that are possible", async () => {
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

  test("ages with the queries wherever none attends a later key: causal, or window.right 0", async () => {
    using kernels = await kernelsOf("simd");
    const config = { dModel: 8, numHeads: 1, window: { right: 0 } } as const;
    const random = createRandom(8);
    const weights = randomWeights(random, config);
    const attention = createAttention(kernels, config, weights);
    const x = floats(random, 900 * 8);
    const once = inPieces(attention, x, AGING, [900]);
    expect(firstDifference(inPieces(attention, x, AGING, [300, 1, 200, 399]), once)).toBe(-1);
    const causal = createAttention(kernels, { dModel: 8, numHeads: 1, causal: true }, weights);
    expect(firstDifference(inPieces(causal, x, AGING, [900]), once)).toBe(-1);
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
      new HeadwiseError("IN_USE", `${where}: cache expected one that no unfinished call is using`);

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
