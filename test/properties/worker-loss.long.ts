// Workers that end at any time: every call gives the bits of one engine or an error with a code, and nothing is left behind.

import { Worker } from "node:worker_threads";
import { afterEach, describe, expect, test } from "vitest";
import {
  type AttentionConfig,
  attend,
  createAttention,
  createCache,
  type HeadwiseError,
} from "../../src/entries/index.ts";
import {
  attendSharded,
  createShardedAttention,
  createShardedCache,
  type ShardedAttention,
} from "../../src/entries/shards.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomWeights, workerSource } from "../support/layers.ts";
import { shardSource } from "../support/shards.ts";
import { alone, createCase, releaseAll, start } from "../support/worker-faults.ts";

afterEach(releaseAll);

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Workers that the test ends, and whether all have ended. */
function heldWorkers(source: string) {
  const workers: Worker[] = [];
  const exits: Promise<unknown>[] = [];
  return {
    workers,
    createWorker: () => {
      const worker = new Worker(source, { eval: true });
      exits.push(new Promise((resolve) => worker.once("exit", resolve)));
      workers.push(worker);
      return worker;
    },
    ended: () => Promise.all(exits),
  };
}

describe("shards", () => {
  const config: AttentionConfig = { dModel: 48, numHeads: 6, causal: true };
  const weights = randomWeights(createRandom(1), config, { biases: true });
  const x = floats(createRandom(2), 400 * config.dModel);
  const rows = (from: number, to: number) => x.subarray(from * config.dModel, to * config.dModel);
  const CALLS = [
    [0, 300],
    [300, 301],
    [301, 399],
    [399, 400],
  ] as const;

  /** The outputs of the calls, one after the other on a cache. */
  const wanted = (async () => {
    const kernels = await kernelsOf("simd");
    const attention = createAttention(kernels, config, weights);
    const cache = createCache(attention, { maxSeqLen: 400 });
    const ys = CALLS.map(([from, to]) => attend(attention, rows(from, to), { cache }));
    kernels.release();
    return ys;
  })();

  const CODES = ["WORKER_LOST", "RELEASED"];
  const codeOf = (error: unknown) => (error as HeadwiseError).code;

  /** Makes all calls at once; those that succeed are the first ones. Calls `settled` after each. Returns their number. */
  async function callAll(attention: ShardedAttention, settled: (i: number) => unknown): Promise<number> {
    const want = await wanted;
    const cache = await createShardedCache(attention, { maxSeqLen: 400 }).catch((error) => {
      expect(CODES).toContain(codeOf(error));
      return undefined;
    });
    if (!cache) return 0;
    const calls = CALLS.map(([from, to]) => attendSharded(attention, rows(from, to), { cache }));
    for (const [i, call] of calls.entries())
      call.then(
        () => settled(i),
        () => {},
      );
    const results = await Promise.allSettled(calls);
    const done = results.filter(({ status }) => status === "fulfilled").length;
    for (const [i, result] of results.entries())
      if (result.status === "fulfilled") {
        expect(i).toBeLessThan(done);
        expect(firstDifference(result.value, want[i] as Float32Array)).toBe(-1);
      } else expect(CODES).toContain(codeOf(result.reason));
    expect(cache.length).toBe(done === 0 ? 0 : CALLS[done - 1]?.[1]);
    return done;
  }

  /** When something ends: so long after the start began, or so long after a call has settled, -1 for the first to begin. */
  interface Moment {
    readonly call?: number;
    readonly ms: number;
  }
  const MOMENTS: readonly Moment[] = [
    ...[0, 5, 20, 60].map((ms) => ({ ms })),
    ...[-1, 0, 1, 2].flatMap((call) => [0, 3].map((ms) => ({ call, ms }))),
  ];

  /** Starts, and ends a worker or the attention at a moment. Returns how many calls have succeeded. */
  async function trial({ call, ms }: Moment, release: boolean, victim: number): Promise<number> {
    const { workers, createWorker, ended } = heldWorkers(shardSource);
    const creating = createShardedAttention(config, weights, { shards: 3, deterministic: true, createWorker });
    let attention: ShardedAttention | undefined;
    const end = async () => {
      if (ms > 0) await sleep(ms);
      if (release) attention?.release();
      else await workers[victim]?.terminate();
    };
    const early = call === undefined ? end() : undefined;
    attention = await creating;
    if (call === -1) end();
    const done = await callAll(attention, (i) => i === call && end());
    await early;
    attention.release();
    attention.release();
    await ended();
    return done;
  }

  test.each([
    ["a worker ends", false],
    ["the attention is released", true],
  ])("%s at any time: calls give their bits or an error, all workers end", async (_, release) => {
    for (const [i, moment] of MOMENTS.entries()) {
      const done = await trial(moment, release, i % 3);
      expect(done).toBeGreaterThanOrEqual((moment.call ?? -1) + 1);
    }
  });
});

describe("threads", () => {
  /** Ends its thread at one of the next kernel calls, with a tile in its hands. */
  const dying = (calls: number) => `
    const real = WebAssembly.instantiate;
    let left = ${calls};
    WebAssembly.instantiate = async (...given) => {
      const { exports } = await real(...given);
      const ending = ([name, kernel]) => {
        if (typeof kernel !== "function") return [name, kernel];
        return [name, (...args) => (left-- > 0 ? kernel(...args) : process.exit())];
      };
      return { exports: Object.fromEntries(Object.entries(exports).map(ending)) };
    };
    ${workerSource}`;

  test("a worker ends at any kernel call: the call has its bits or WORKER_LOST, and later ones have their bits", async () => {
    const random = createRandom(5);
    const want = await alone();
    let lost = 0;
    for (let i = 0; i < 6; i++) {
      const held = heldWorkers(dying(random.int(0, 30)));
      const kernels = await start(3, held.createWorker, { patienceMs: 100 });
      const layer = createCase(kernels);
      for (let call = 0; call < 8; call++)
        try {
          expect(firstDifference(layer.run(), want)).toBe(-1);
        } catch (error) {
          expect((error as HeadwiseError).code).toBe("WORKER_LOST");
          expect([layer.length(), kernels.threads.used]).toEqual([0, 1]);
          lost++;
        }
      kernels.release();
      kernels.release();
      await held.ended();
    }
    expect(lost).toBeGreaterThan(0);
  });

  test("workers end while the kernels are loaded, or between calls: the others go on", async () => {
    const random = createRandom(6);
    const want = await alone();
    for (let i = 0; i < 5; i++) {
      const held = heldWorkers(workerSource);
      const loading = start(4, held.createWorker, { patienceMs: 1000 });
      await sleep(random.next() * 60);
      const ends = held.workers.slice(0, random.int(0, 3)).map((worker) => worker.terminate());
      const kernels = await loading;
      await Promise.all(ends);
      const layer = createCase(kernels);
      expect(kernels.threads.used).toBe(4 - ends.length);
      for (let call = 0; call < 3; call++) expect(firstDifference(layer.run(), want)).toBe(-1);
      kernels.release();
      await held.ended();
    }
  });
});
