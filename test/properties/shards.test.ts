// Shards give the bits of one engine.

import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type AttendOptions,
  type AttentionConfig,
  type AttentionWeights,
  attend,
  createAttention,
  createCache,
  type Kernels,
  loadKernels,
} from "../../src/entries/index.ts";
import { attendSharded, createShardedCache, type ShardOptions } from "../../src/entries/shards.ts";
import { createSharded } from "../../src/hosts/shards/attention.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, matrix, randomWeights } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";
import { shardBuilds, small, withShards } from "../support/shards.ts";

const random = createRandom(2026);
let kernels: Kernels;
beforeAll(async () => {
  kernels = await loadKernels();
});
afterAll(() => kernels.release());

const bytes = (length: number) => Uint8Array.from({ length }, () => (random.next() < 0.8 ? 1 : 0));
const row = small.dModel;

/** A layer and the calls that are made on it, those with a cache one after the other. */
interface Case {
  readonly config: AttentionConfig;
  readonly parts?: Parameters<typeof randomWeights>[2];
  readonly weights?: (weights: AttentionWeights) => AttentionWeights;
  readonly cache?: { readonly maxSeqLen: number; readonly batch?: number };
  /** Tokens in the cache after the calls. */
  readonly length?: number;
  readonly calls: readonly { readonly x: Float32Array; readonly options?: Omit<AttendOptions, "cache"> }[];
}

const x = (rows: number, width: number = row) => floats(random, rows * width);
const plain = (rows: number, options?: AttendOptions) => [{ x: x(rows), options }];
const steps = [7, 1, 130, 1, 1].map((rows) => ({ x: x(rows) }));

const cases: Record<string, Case> = {
  "MHA, bidirectional": { config: { dModel: row, numHeads: 4 }, parts: { biases: true }, calls: plain(9) },
  "GQA, prefill and decode": {
    config: { ...small, causal: true },
    cache: { maxSeqLen: 150 },
    length: 140,
    calls: steps,
  },
  "more than two chunks of rows": { config: { ...small, causal: true }, calls: plain(531) },
  MQA: { config: { ...small, numKvHeads: 1, causal: true }, cache: { maxSeqLen: 150 }, length: 140, calls: steps },
  "odd sizes": {
    config: { dModel: 37, numHeads: 10, numKvHeads: 5, headDim: 5, valueDim: 7, causal: true },
    parts: { biases: true },
    calls: [{ x: x(67, 37) }],
  },
  "rows narrower than the shards are many": {
    config: { dModel: 3, numHeads: 4, headDim: 4 },
    calls: [{ x: x(5, 3) }],
  },
  RoPE: {
    config: { ...small, causal: true, rope: { theta: 10_000, pairing: "half" } },
    cache: { maxSeqLen: 150 },
    length: 140,
    calls: steps,
  },
  "RoPE with a factor for each pair, as GGUF files of Llama 3 have it": {
    config: {
      ...{ ...small, causal: true },
      rope: {
        ...{ theta: 500_000, pairing: "interleaved" },
        scaling: { kind: "factors", factors: Float32Array.of(1, 1, 2.5, 8) },
      },
    },
    cache: { maxSeqLen: 150 },
    length: 140,
    calls: steps,
  },
  "RoPE at given positions": {
    config: { ...small, rope: { theta: 10_000, pairing: "interleaved", dim: 4 } },
    calls: [{ x: x(8), options: { batch: 2, positions: [3, 1, 4, 1, 5, 9, 2, 6] } }],
  },
  "ALiBi, one slope a head": { config: { ...small, causal: true, alibi: "geometric" }, calls: plain(40) },
  "ALiBi, slopes of its own": {
    config: { ...small, causal: true, alibi: Float32Array.of(1, 0.5, 0.25, 2, 0.125, 3) },
    calls: plain(40),
  },
  "a window with a cache": {
    config: { ...small, window: { left: 130, right: 0 } },
    cache: { maxSeqLen: 700 },
    length: 641,
    calls: [300, 1, 130, 1, 207, 1, 1].map((rows) => ({ x: x(rows) })),
  },
  "sinks, softcap, a window": {
    config: { ...small, softcap: 3, window: { left: 5, right: 2 } },
    parts: { sinks: true },
    calls: plain(150),
  },
  "extra keys and zero keys": { config: { ...small, addZeroAttn: true }, parts: { extraKey: true }, calls: plain(9) },
  "norms of each head": { config: { ...small, qkNorm: { kind: "per-head", onePlus: true } }, calls: plain(9) },
  "norms of all heads": { config: { ...small, qkNorm: { kind: "full" } }, calls: plain(9) },
  "weights as in x in": {
    config: small,
    parts: { biases: true },
    weights: ({ bq, bk, bv, bo }) => ({
      ...{ bq, bk, bv, bo, layout: "in-out", wo: matrix(random, 48, row) },
      ...{ wq: matrix(random, row, 48), wk: matrix(random, row, 24), wv: matrix(random, row, 24) },
    }),
    calls: plain(9),
  },
  "one matrix for q, k and v": {
    config: small,
    weights: ({ wo }) => ({ wo, wqkv: matrix(random, 96, row) }),
    calls: plain(9),
  },
  "masks for all heads": {
    config: small,
    calls: plain(9, {
      keep: { data: bytes(9), shape: [9] },
      drop: { data: Array.from(bytes(81), (bit) => bit === 0), shape: [9, 9] },
      bias: { data: floats(random, 9), shape: [1, 1, 9] },
    }),
  },
  "masks for each head": {
    config: small,
    calls: plain(8, {
      batch: 2,
      keep: { data: bytes(2 * 6 * 16), shape: [2, 6, 4, 4] },
      drop: { data: bytes(6 * 3).map((bit) => 1 - bit), shape: [6, 1, 3] },
      bias: { data: floats(random, 6 * 16), shape: [1, 6, 4, 4] },
    }),
  },
  "a ragged batch": {
    config: { ...small, causal: true },
    calls: plain(12, { batch: 3, kvLengths: [4, 1, 0] }),
  },
  "a batch with a cache": {
    config: { ...small, causal: true },
    cache: { maxSeqLen: 9, batch: 2 },
    length: 9,
    calls: [{ x: x(6) }, { x: x(2) }, { x: x(10) }],
  },
  "cross-attention, keys kept": {
    config: { ...small, kdim: 10, vdim: 6 },
    cache: { maxSeqLen: 20 },
    length: 20,
    calls: [
      { x: x(2), options: { keys: x(20, 10), values: x(20, 6) } },
      { x: x(3), options: { append: false } },
    ],
  },
  "cross-attention from one array": {
    config: { ...small, causal: true },
    calls: [{ x: x(2), options: { keys: x(5), align: "end" } }],
  },
  "views into larger arrays, output into x": {
    config: { ...small, causal: true },
    calls: (() => {
      const own = x(9).subarray(row, 8 * row);
      return [{ x: own, options: { out: own } }];
    })(),
  },
  "no rows": { config: small, calls: [{ x: x(0) }] },
};

/** What one engine gives for a case. */
function outputsOf(engine: Kernels, { config, cache, calls }: Case, weights: AttentionWeights): Float32Array[] {
  const attention = createAttention(engine, config, weights);
  const held = cache && createCache(attention, cache);
  return calls.map(({ x, options }) => attend(attention, x.slice(), { ...options, out: undefined, cache: held }));
}

/** Runs a case in shards, which may write to its x. */
async function expectSame(engine: Kernels, one: Case, options: ShardOptions): Promise<void> {
  const drawn = randomWeights(random, one.config, one.parts);
  const weights = one.weights?.(drawn) ?? drawn;
  const wanted = outputsOf(engine, one, weights);
  await withShards(one.config, weights, options, async (attention) => {
    expect(attention.build).toBe(engine.build);
    const cache = one.cache && (await createShardedCache(attention, one.cache));
    // All at once: a call waits for those before it.
    const got = await Promise.all(
      one.calls.map(({ x, options: said }) => attendSharded(attention, x, { ...said, cache })),
    );
    for (const [i, y] of got.entries()) {
      expect(y.some(Number.isFinite) || y.length === 0).toBe(true);
      if (one.calls[i]?.options?.out) expect(y.buffer.byteLength).toBeGreaterThan(y.byteLength);
      expect(firstDifference(y, wanted[i] as Float32Array), `call ${i}`).toBe(-1);
    }
    expect(cache?.length).toBe(one.length);
  });
}

/** Every case starts three workers, which is most of its time. */
const EDGES = ["rows narrower than the shards are many", "no rows", "a window with a cache"];
const groupOf = (name: string) => (EDGES.includes(name) ? name : "");

describe("the bits of one engine", () => {
  test.each(sampled(Object.keys(cases), 7, groupOf))("%s", async (name) => {
    await expectSame(kernels, cases[name] as Case, { shards: 3 });
  });

  test.each(sampled([1, 2, 3, 4, 5], 1, (each) => (each === 5 ? each : 0)))(
    "in %i shards, on both builds",
    async (shards) => {
      const one: Case = {
        config: { dModel: 44, numHeads: 10, numKvHeads: 5, headDim: 12, causal: true },
        cache: { maxSeqLen: 300 },
        length: 274,
        calls: [270, 1, 3].map((rows) => ({ x: x(rows, 44) })),
      };
      const simd = await kernelsOf("simd");
      await expectSame(simd, one, { shards, deterministic: true });
      await expectSame(kernels, one, { shards });
      simd.release();
    },
  );
});

/** A layer of three kv heads, and y for `tokens` by one engine. */
const config: AttentionConfig = { ...small, causal: true };
const weights = randomWeights(random, config, { biases: true });
const tokens = x(9);
const outputs = () => outputsOf(kernels, { config, calls: [{ x: tokens }] }, weights)[0] as Float32Array;

test("a cache that keeps what a window needs has the bits of one engine, also after calls that were given up", async () => {
  const windowed: AttentionConfig = { ...small, causal: true, window: { left: 40 } };
  const drawn = randomWeights(random, windowed);
  const options = { maxSeqLen: 100_000, truncatable: 20 };
  const attention = createAttention(kernels, windowed, drawn);
  await withShards(windowed, drawn, { shards: 3 }, async (sharded) => {
    const [want, got] = [createCache(attention, options), await createShardedCache(sharded, options)];
    const call = async (rows: number) => {
      const tokens = x(rows);
      const y = await attendSharded(sharded, tokens, { cache: got });
      expect(firstDifference(y, attend(attention, tokens, { cache: want }))).toBe(-1);
      expect(got.length).toBe(want.length);
    };
    for (const rows of [700, 1, 1, 300, 1, 130, 1]) {
      const stop = new AbortController();
      const given = attendSharded(sharded, x(500), { cache: got, signal: stop.signal });
      // The shards have their requests by then, and compute it in vain.
      await Promise.resolve();
      await Promise.resolve();
      stop.abort(new Error("enough"));
      await expect(given).rejects.toThrow("enough");
      await call(rows);
      if (rows === 1) for (const cache of [want, got]) cache.truncate(cache.length - 9);
    }
    const length = got.length - 30;
    const texts = [want, got].map((cache) => {
      try {
        cache.truncate(length);
        return "no error";
      } catch (error) {
        return String(error);
      }
    });
    expect(texts[0]).toContain("because truncatable is 20");
    expect(texts[1]).toBe(texts[0]);
    for (const cache of [want, got]) cache.truncate(0);
    await call(300);
    await call(1);
  });
  attention.release();
});

describe("without workers there is one shard on the calling thread, with the same bits", () => {
  const sharing = { possible: false, reason: "" };
  test.each([
    ["no workers", undefined, "this host has no workers: one shard, on the calling thread"],
    [
      "a worker that does not start",
      () => new Worker("throw new Error('refused')", { eval: true }),
      "no worker started (Error: refused): one shard, on the calling thread",
    ],
    [
      "a worker that does not answer",
      () => new Worker("setInterval(() => {}, 1000)", { eval: true }),
      "no worker started (Error: it was not ready within 300 ms): one shard, on the calling thread",
    ],
    [
      "a maker that throws",
      () => {
        throw new Error("policy");
      },
      "no worker started (Error: policy): one shard, on the calling thread",
    ],
  ])("%s", async (name, createWorker, reason) => {
    const hostFor = () => ({ processors: 2, sharing, createWorker });
    // On a busy machine, a worker may begin late to fail.
    const patienceMs = name === "a worker that does not answer" ? 300 : 20_000;
    const attention = await createSharded(shardBuilds, hostFor, config, weights, { shards: 2 }, patienceMs);
    expect(attention.shards).toEqual({ requested: 2, used: 1, reason });
    const cache = await createShardedCache(attention, { maxSeqLen: 9 });
    expect(firstDifference(await attendSharded(attention, tokens, { cache }), outputs())).toBe(-1);
    attention.release();
  });
});
