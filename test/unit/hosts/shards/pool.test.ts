// What sharded attention refuses, and how it ends.

import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import {
  type AttentionConfig,
  attend,
  createAttention,
  type Kernels,
  loadKernels,
} from "../../../../src/entries/index.ts";
import {
  type AttendShardedOptions,
  attendSharded,
  createShardedAttention,
  createShardedCache,
  type ShardedAttention,
} from "../../../../src/entries/shards.ts";
import { cutterOf } from "../../../../src/hosts/shards/attention.ts";
import { sharesOf } from "../../../../src/hosts/shards/partition.ts";
import { createShard, type StartRequest } from "../../../../src/hosts/shards/shard.ts";
import { checkConfig } from "../../../../src/layers/attention/config.ts";
import { checkWeights } from "../../../../src/layers/attention/weights.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { firstDifference, randomWeights } from "../../../support/layers.ts";
import { wasmOf } from "../../../support/modules.ts";
import { errorOf, shardSource, small, withShards } from "../../../support/shards.ts";

const random = createRandom(2026);
let kernels: Kernels;
beforeAll(async () => {
  kernels = await loadKernels();
});
afterAll(() => kernels.release());

const bytes = (length: number) => Uint8Array.from({ length }, () => (random.next() < 0.8 ? 1 : 0));
const row = small.dModel;

const x = (rows: number) => floats(random, rows * row);

/** A layer of three kv heads, and y for `tokens` by one engine. */
const config: AttentionConfig = { ...small, causal: true };
const weights = randomWeights(random, config, { biases: true });
const tokens = x(9);
const outputs = () => {
  using attention = createAttention(kernels, config, weights);
  return attend(attention, tokens);
};

describe("errors", () => {
  const refused = async (work: () => Promise<unknown>) => errorOf(work());

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
        "RangeError attendSharded: cache expected one made for this attention, got one of another",
      );
      expect(await refused(() => attendSharded({} as ShardedAttention, tokens))).toBe(
        "TypeError attendSharded: attention expected what createShardedAttention gives, got Object",
      );
      expect(await refused(() => createShardedCache(attention, { maxSeqLen: 0 }))).toBe(
        "RangeError createShardedCache: maxSeqLen expected an integer >= 1, got 0",
      );
      // @ts-expect-error: options are required.
      expect(await refused(() => createShardedCache(attention))).toBe(
        "TypeError createShardedCache: options expected { maxSeqLen }, got undefined",
      );
      // @ts-expect-error: caches in shards are float32.
      expect(await refused(() => createShardedCache(attention, { maxSeqLen: 1, format: "q8" }))).toBe(
        'TypeError createShardedCache: options expected only maxSeqLen, batch, truncatable, got "format"',
      );
      expect(await refused(() => createShardedCache(attention, { maxSeqLen: 2 ** 31 - 1 }))).toContain(
        "OUT_OF_MEMORY createShardedCache: ",
      );
      expect(
        await refused(() => createShardedAttention(config, weights, { quantized: JSON.parse('{"other":{}}') })),
      ).toBe('TypeError createShardedAttention: quantized expected only simd, relaxed, got "other"');
      other.release();
      expect(cache.length).toBe(0);
      expect(firstDifference(await attendSharded(attention, tokens, { cache }), outputs())).toBe(-1);
    }));

  test("a call that fails in one shard leaves the cache as it was in all", () =>
    withShards(config, weights, { shards: 2 }, async (attention) => {
      const cache = await createShardedCache(attention, { maxSeqLen: 100 });
      await attendSharded(attention, tokens.subarray(0, row), { cache });
      // One shard's part of a cache is replaced by one that holds two tokens, and none yet.
      const part = (maxSeqLen: number) => ({ kind: "cache", cache: cache.id, options: { maxSeqLen } }) as const;
      for (const sizes of [
        [2, 100],
        [100, 2],
      ]) {
        await attention.pool.request("test", sizes.map(part));
        cache.truncate(0);
        expect(await errorOf(attendSharded(attention, tokens, { cache }))).toBe(
          "CACHE_FULL attendSharded: past 0 + qLen 9 exceeds maxSeqLen 2",
        );
        expect(cache.length).toBe(0);
        const y = await attendSharded(attention, tokens.subarray(0, 2 * row), { cache });
        expect(firstDifference(y, outputs().subarray(0, 2 * row))).toBe(-1);
      }
    }));
});

test("a shard without memory for a copy of its heads' outputs fails the call, and no other waits for them", async () => {
  const module = await WebAssembly.compile(wasmOf("simd"));
  const checked = checkConfig("test", config);
  const given = checkWeights("test", checked, weights, { formats: {}, fast: false }, false);
  const starts = cutterOf("test", checked, given)({ floats: module }, sharesOf(checked, 2));
  const shards = starts.map(() => createShard());
  await Promise.all(shards.map((shard, i) => shard(starts[i] as StartRequest)));
  const attendAll = () => {
    const request = { kind: "attend", where: "test", x: tokens, past: 0, cache: undefined, options: {} } as const;
    return Promise.all(shards.map((shard) => shard(request)));
  };
  const refuse = vi.spyOn(Float32Array.prototype, "slice").mockImplementationOnce(() => {
    throw new RangeError("Array buffer allocation failed");
  });
  const [failed, other] = await attendAll();
  refuse.mockRestore();
  const message = "test: a copy of the heads' outputs does not fit, the engine refused";
  expect(failed).toEqual({ error: { name: "HeadwiseError", message, code: "OUT_OF_MEMORY" } });
  expect(other).toEqual({ y: undefined, x: tokens, least: 0 });
  // No message was left for the next call.
  const [first, second] = await attendAll();
  expect([first?.y?.length, second?.y?.length]).toEqual([9 * 8, 9 * 16]);
  for (const port of starts.flatMap(({ peers }) => peers)) port?.close();
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
      expect(await errorOf(first)).toBe("Error enough");
      expect(await errorOf(waiting)).toBe("Error enough");
      expect(await errorOf(attendSharded(attention, tokens, { signal: stop.signal }))).toBe("Error enough");
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
      expect(await errorOf(last)).toBe("RELEASED attendSharded: cache was released");
      expect(await errorOf(attendSharded(attention, tokens, { cache }))).toBe(
        "RELEASED attendSharded: cache was released",
      );
      expect(() => cache.truncate(0)).toThrow("truncate: cache was released");
    }));

  /** Shards in workers that the test holds too. */
  async function heldWorkers(): Promise<{ attention: ShardedAttention; workers: Worker[]; ended: Promise<unknown> }> {
    const workers: Worker[] = [];
    const createWorker = () => {
      const worker = new Worker(shardSource, { eval: true });
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
    expect([await errorOf(call), await errorOf(next), cache.length, attention.released]).toEqual([
      released,
      released,
      0,
      true,
    ]);
    expect(await errorOf(createShardedCache(attention, { maxSeqLen: 1 }))).toBe(
      "RELEASED createShardedCache: attention was released",
    );
    expect(attention.spares).toEqual([]);
    cache.release();
    await ended;
  });

  test("a message that cannot be sent ends the attention, since other shards have begun", async () => {
    let full = false;
    let made = 0;
    const createWorker = () => {
      const worker = new Worker(shardSource, { eval: true });
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
    expect(await errorOf(attendSharded(attention, tokens))).toMatch(lost);
    full = false;
    expect(await errorOf(attendSharded(attention, tokens))).toMatch(lost);
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
    expect(await errorOf(call)).toMatch(lost);
    expect(await errorOf(attendSharded(attention, tokens))).toMatch(lost);
    expect(cache.length).toBe(0);
    await ended;
    attention.release();
  });
});
