// Shards give what one engine gives, bit for bit; what they refuse, survive and end.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
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
import {
  type AttendShardedOptions,
  attendSharded,
  createShardedAttention,
  createShardedCache,
  type ShardedAttention,
  type ShardOptions,
} from "../../src/entries/shards.ts";
import { createSharded } from "../../src/shards/attention.ts";
import { createRandom, floats } from "../kernels/harness.ts";
import { firstDifference, kernelsOf, matrix, randomWeights } from "../support/layers.ts";

const random = createRandom(2026);
const bytesOf = (build: string) => readFileSync(new URL(`../../build/${build}.wasm`, import.meta.url));
const workerText = readFileSync(new URL("../../build/shard.txt", import.meta.url), "utf8");

let kernels: Kernels;
beforeAll(async () => {
  kernels = await loadKernels();
});
afterAll(() => kernels.release());

/** Runs `use` with a sharded attention, and ends it. */
async function withShards(
  config: AttentionConfig,
  weights: AttentionWeights,
  options: ShardOptions,
  use: (attention: ShardedAttention) => Promise<void>,
): Promise<void> {
  const attention = await createShardedAttention(config, weights, options);
  try {
    await use(attention);
  } finally {
    attention.release();
  }
}

const bytes = (length: number) => Uint8Array.from({ length }, () => (random.next() < 0.8 ? 1 : 0));
const small = { dModel: 24, numHeads: 6, numKvHeads: 3, headDim: 8 } as const;
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
  "RoPE at given positions": {
    config: { ...small, rope: { theta: 10_000, pairing: "interleaved", dim: 4 } },
    calls: [{ x: x(8), options: { batch: 2, positions: [3, 1, 4, 1, 5, 9, 2, 6] } }],
  },
  "ALiBi, one slope a head": { config: { ...small, causal: true, alibi: "geometric" }, calls: plain(40) },
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

describe("the bits of one engine", () => {
  test.each(Object.keys(cases))("%s", async (name) => {
    await expectSame(kernels, cases[name] as Case, { shards: 3 });
  });

  test.each([1, 2, 3, 4, 5])("in %i shards, on both builds", async (shards) => {
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
  });
});

/** A layer of three kv heads, and y for `tokens` by one engine. */
const config: AttentionConfig = { ...small, causal: true };
const weights = randomWeights(random, config, { biases: true });
const tokens = x(9);
const outputs = () => outputsOf(kernels, { config, calls: [{ x: tokens }] }, weights)[0] as Float32Array;
const told = async (work: Promise<unknown>) =>
  work.then(
    () => "no error",
    (error: Error & { code?: string }) => `${error.code ?? error.name} ${error.message}`,
  );

describe("how many", () => {
  test.each([
    [1, 1, "one shard was asked for"],
    [2, 2, "as many as were asked for"],
    [64, 3, "a shard has whole key-value heads, and there are 3"],
  ])("%i asked for, %i used", (requested, used, reason) =>
    withShards(config, weights, { shards: requested }, async ({ shards }) => {
      expect(shards).toEqual({ requested, used, reason });
    }),
  );

  test("a norm of all heads keeps them together", () => {
    const full: AttentionConfig = { ...config, qkNorm: { kind: "full" } };
    return withShards(full, randomWeights(random, full), { shards: 2 }, async ({ shards }) => {
      expect(shards).toEqual({ requested: 2, used: 1, reason: 'qkNorm of kind "full" takes all heads together' });
    });
  });

  test.each([
    [2, 2],
    [3, 3],
    [5, 4],
    [7, 4],
    [16, 8],
  ])('"auto" on %i processors makes no more of 8 kv heads than help: %i', async (processors, used) => {
    const eight: AttentionConfig = { dModel: 16, numHeads: 8 };
    const hostFor = () => ({
      ...{ processors, sharing: { possible: false, reason: "" } },
      createWorker: () => new Worker(workerText, { eval: true }),
    });
    const builds = { simd: bytesOf("simd"), relaxed: bytesOf("relaxed") };
    const attention = await createSharded(builds, hostFor, eight, randomWeights(random, eight), {});
    attention.release();
    expect(attention.shards.requested).toBe("auto");
    expect(attention.shards.used).toBe(used);
  });
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
  ])("%s", async (_name, createWorker, reason) => {
    const hostFor = () => ({ processors: 2, sharing, createWorker });
    const builds = { simd: bytesOf("simd"), relaxed: bytesOf("relaxed") };
    const attention = await createSharded(builds, hostFor, config, weights, { shards: 2 }, 300);
    expect(attention.shards).toEqual({ requested: 2, used: 1, reason });
    const cache = await createShardedCache(attention, { maxSeqLen: 9 });
    expect(firstDifference(await attendSharded(attention, tokens, { cache }), outputs())).toBe(-1);
    attention.release();
  });
});

describe("errors", () => {
  const refused = async (work: () => Promise<unknown>) => told(work());

  test("createShardedAttention checks everything before it starts workers", async () => {
    const create = (change: object, options: object = {}) =>
      refused(() => createShardedAttention({ ...config, ...change }, weights, options));
    expect(await create({ numHeads: 5 })).toContain(
      "RangeError createShardedAttention: numHeads expected a multiple of numKvHeads (3), got 5",
    );
    expect(await create({ dModel: 25 })).toBe(
      "RangeError createShardedAttention: wq expected shape [48, 25], got [48, 24]",
    );
    expect(await create({}, { shards: 0 })).toBe(
      "RangeError createShardedAttention: shards expected an integer from 1 to 64, got 0",
    );
    expect(await create({}, { shards: "all" })).toBe(
      'TypeError createShardedAttention: shards expected an integer from 1 to 64, got "all"',
    );
    expect(await create({}, { deterministic: 1 })).toBe(
      "TypeError createShardedAttention: deterministic expected true or false, got 1",
    );
    expect(await create({}, { createWorker: 1 })).toBe(
      "TypeError createShardedAttention: createWorker expected a function, got 1",
    );
    expect(await create({}, { threads: 2 })).toBe(
      'TypeError createShardedAttention: options expected only shards, deterministic, quantized, createWorker, weights, activations, got "threads"',
    );
  });

  test("calls and caches are checked as those of one engine are, and what comes after is served", () =>
    withShards(config, weights, { shards: 2 }, async (attention) => {
      const other = await createShardedAttention(config, weights, { shards: 1 });
      const cache = await createShardedCache(attention, { maxSeqLen: 9 });
      const attending = (options: object, x: unknown = tokens) =>
        refused(() => attendSharded(attention, x as Float32Array, options as AttendShardedOptions));
      expect(await attending({}, [1])).toBe("TypeError attendSharded: x expected Float32Array, got Array");
      expect(await attending({}, x(1).subarray(1))).toBe(
        "RangeError attendSharded: x expected a multiple of dModel (24) floats, got 23",
      );
      expect(await attending({ chache: cache })).toContain(
        "TypeError attendSharded: options expected only signal, batch",
      );
      expect(await attending({ cache: {} })).toBe(
        "TypeError attendSharded: cache expected what createShardedCache gives, got Object",
      );
      expect(await attending({ signal: 1 })).toBe("TypeError attendSharded: signal expected an AbortSignal, got 1");
      expect(await attending({ keep: { data: bytes(4), shape: [4, 1, 1] } })).toBe(
        "RangeError attendSharded: keep expected a shape that broadcasts to [1, 6, 9, 9], got [4, 1, 1]",
      );
      expect(await attending({ cache }, x(10))).toBe("CACHE_FULL attendSharded: past 0 + qLen 10 exceeds maxSeqLen 9");
      expect(await refused(() => attendSharded(other, tokens, { cache }))).toBe(
        "RangeError attendSharded: cache expected one made for this attention, got another's",
      );
      expect(await refused(() => attendSharded({} as ShardedAttention, tokens))).toBe(
        "TypeError attendSharded: attention expected what createShardedAttention gives, got Object",
      );
      expect(await refused(() => createShardedCache(attention, { maxSeqLen: 0 }))).toBe(
        "RangeError createShardedCache: maxSeqLen expected an integer >= 1, got 0",
      );
      // @ts-expect-error: caches in shards are float32.
      expect(await refused(() => createShardedCache(attention, { maxSeqLen: 1, format: "q8" }))).toBe(
        'TypeError createShardedCache: options expected only maxSeqLen, batch, got "format"',
      );
      expect(await refused(() => createShardedCache(attention, { maxSeqLen: 2 ** 31 - 1 }))).toContain(
        "OUT_OF_MEMORY createCache: ",
      );
      other.release();
      expect(cache.length).toBe(0);
      expect(firstDifference(await attendSharded(attention, tokens, { cache }), outputs())).toBe(-1);
    }));

  test("a call that fails in one shard leaves the cache as it was in all", () =>
    withShards(config, weights, { shards: 2 }, async (attention) => {
      const cache = await createShardedCache(attention, { maxSeqLen: 100 });
      await attendSharded(attention, tokens.subarray(0, row), { cache });
      // The first shard's part of a cache is replaced by one that holds two tokens, and none yet.
      const part = (maxSeqLen: number) => ({ kind: "cache", cache: cache.id, maxSeqLen, batch: 1 }) as const;
      await attention.pool.ask("test", [part(2), part(100)]);
      cache.truncate(0);
      expect(await told(attendSharded(attention, tokens, { cache }))).toContain("CACHE_FULL");
      expect(cache.length).toBe(0);
      const y = await attendSharded(attention, tokens.subarray(0, 2 * row), { cache });
      expect(firstDifference(y, outputs().subarray(0, 2 * row))).toBe(-1);
    }));
});

describe("calls that end early", () => {
  test("an aborted call rejects at once, changes nothing, and the next is served", () =>
    withShards(config, weights, { shards: 2 }, async (attention) => {
      const cache = await createShardedCache(attention, { maxSeqLen: 100 });
      const stop = new AbortController();
      const out = new Float32Array(tokens.length);
      const first = attendSharded(attention, tokens, { cache, out, signal: stop.signal });
      const waiting = attendSharded(attention, tokens, { cache, signal: stop.signal });
      const last = attendSharded(attention, tokens, { cache });
      // The first is with the shards by now, the second in the queue.
      await Promise.resolve();
      stop.abort(new Error("enough"));
      expect(await told(first)).toBe("Error enough");
      expect(await told(waiting)).toBe("Error enough");
      expect(await told(attendSharded(attention, tokens, { signal: stop.signal }))).toBe("Error enough");
      expect(firstDifference(await last, outputs())).toBe(-1);
      expect([cache.length, out.every((value) => value === 0)]).toEqual([9, true]);
    }));

  test("a cache is not shortened under a call, is truncated between calls, and serves none after release", () =>
    withShards(config, weights, { shards: 2 }, async (attention) => {
      const cache = await createShardedCache(attention, { maxSeqLen: 9 });
      const call = attendSharded(attention, tokens, { cache });
      expect(() => cache.truncate(0)).toThrow("truncate: cache expected one that no attendSharded is using");
      await call;
      cache.truncate(4);
      expect(() => cache.truncate(5)).toThrow("truncate: length expected an integer from 0 to 4, got 5");
      const again = await attendSharded(attention, tokens.subarray(4 * row), { cache });
      expect(firstDifference(again, outputs().subarray(4 * row))).toBe(-1);
      cache.truncate(0);
      const last = attendSharded(attention, tokens, { cache });
      cache.release();
      expect(await told(last)).toBe("RELEASED attendSharded: cache was released");
      expect(await told(attendSharded(attention, tokens, { cache }))).toBe(
        "RELEASED attendSharded: cache was released",
      );
      expect(() => cache.truncate(0)).toThrow("truncate: cache was released");
    }));

  /** Shards in workers that the test holds too. */
  async function heldWorkers(): Promise<{ attention: ShardedAttention; workers: Worker[]; ended: Promise<unknown> }> {
    const workers: Worker[] = [];
    const createWorker = () => {
      const worker = new Worker(workerText, { eval: true });
      workers.push(worker);
      return worker;
    };
    const attention = await createShardedAttention(config, weights, { shards: 2, createWorker });
    const ended = Promise.all(workers.map((worker) => new Promise((resolve) => worker.once("exit", resolve))));
    return { attention, workers, ended };
  }

  test("release ends the workers and what waits for them", async () => {
    const { attention, workers, ended } = await heldWorkers();
    expect(workers.length).toBe(2);
    const cache = await createShardedCache(attention, { maxSeqLen: 9 });
    const call = attendSharded(attention, tokens, { cache });
    const next = attendSharded(attention, tokens, { cache });
    await Promise.resolve();
    attention.release();
    attention.release();
    const released = "RELEASED attendSharded: attention was released";
    expect([await told(call), await told(next), cache.length, attention.released]).toEqual([
      released,
      released,
      0,
      true,
    ]);
    expect(await told(createShardedCache(attention, { maxSeqLen: 1 }))).toBe(
      "RELEASED createShardedCache: attention was released",
    );
    cache.release();
    await ended;
  });

  test("a message that cannot be sent ends the attention, since other shards have begun", async () => {
    let full = false;
    let made = 0;
    const createWorker = () => {
      const worker = new Worker(workerText, { eval: true });
      if (made++ === 0) return worker;
      const post = worker.postMessage.bind(worker);
      return Object.assign(worker, {
        postMessage(...message: Parameters<typeof post>) {
          if (full) throw new Error("no room");
          post(...message);
        },
      });
    };
    const attention = await createShardedAttention(config, weights, { shards: 2, createWorker });
    full = true;
    const lost = /^WORKER_LOST attendSharded: a worker was lost \(a message to it failed: Error: no room\)/;
    expect(await told(attendSharded(attention, tokens))).toMatch(lost);
    full = false;
    expect(await told(attendSharded(attention, tokens))).toMatch(lost);
    attention.release();
  });

  test("a mask in a Buffer is read like any other and stays as it is", async () => {
    const attention = await createShardedAttention(config, weights, { shards: 2 });
    const rows = tokens.length / config.dModel;
    const bits = Array.from({ length: config.numHeads * rows }, (_, i) => (i % 3 === 0 ? 0 : 1));
    const shape = [config.numHeads, 1, rows];
    const plain = await attendSharded(attention, tokens, { keep: { data: Uint8Array.from(bits), shape } });
    for (const data of [Buffer.from(bits), Buffer.alloc(bits.length).fill(Uint8Array.from(bits))]) {
      const y = await attendSharded(attention, tokens, { keep: { data, shape } });
      expect(firstDifference(y, plain)).toBe(-1);
      expect([...data]).toEqual(bits);
    }
    attention.release();
  });

  test("a worker that dies ends the pending call, all later ones and the other workers", async () => {
    const { attention, workers, ended } = await heldWorkers();
    const cache = await createShardedCache(attention, { maxSeqLen: 6000 });
    // A tenth of a second of work or more.
    const call = attendSharded(attention, x(6000), { cache });
    await new Promise((resolve) => setTimeout(resolve, 10));
    await workers[1]?.terminate();
    const lost =
      /^WORKER_LOST attendSharded: a worker was lost \(it ended with code 1\), and with it its heads and what/;
    expect(await told(call)).toMatch(lost);
    expect(await told(attendSharded(attention, tokens))).toMatch(lost);
    expect(cache.length).toBe(0);
    await ended;
    attention.release();
  });
});

test.each([
  ["the text it carries", ""],
  [
    "the file headwise/shards-worker",
    `import { Worker } from "node:worker_threads";
    const file = new URL(import.meta.resolve("headwise/shards-worker"));
    const createWorker = () => new Worker(file, { execArgv: [] });`,
  ],
])("the built package runs workers from %s, needs no shared memory, and lets the process end", (_name, maker) => {
  const code = `${maker}
    delete globalThis.SharedArrayBuffer;
    const { attendSharded, createShardedAttention } = await import("headwise/shards");
    const w = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
    const options = { shards: 2${maker && ", createWorker"} };
    const attention = await createShardedAttention({ dModel: 4, numHeads: 2 }, { wq: w, wk: w, wv: w, wo: w }, options);
    const y = await attendSharded(attention, Float32Array.of(1, 2, 3, 4));
    console.log(attention.shards.used, y.join());`;
  const options = { cwd: new URL("../..", import.meta.url), encoding: "utf8", timeout: 30_000 } as const;
  expect(execFileSync(process.execPath, ["--input-type=module", "-e", code], options).trim()).toBe("2 1,2,3,4");
});
