// Threads change nothing but time: the same bits with any number of them, whatever is shared and however it is cut.

import { Worker } from "node:worker_threads";
import { afterEach, describe, expect, test } from "vitest";
import { findHost } from "../../src/base/platform/workers.ts";
import * as headwise from "../../src/entries/core.ts";
import { LIMITS, loadThreaded } from "../../src/hosts/threads/load.ts";
import type { AttentionConfig } from "../../src/layers/attention/config.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { selfTest } from "../../src/tools/diagnostics/self-test.ts";
import type { Kernels } from "../../src/wasm/kernels.ts";
import { floats } from "../support/harness.ts";
import {
  firstDifference,
  kernelsOf,
  randomLayer,
  randomWeights,
  shippedBuilds,
  threadedBuilds,
  threadedKernels,
  workerSource,
} from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";

const { attend, attendWithMaps, createAttention, createCache, scaledDotProductAttention } = headwise;

const held: Kernels[] = [];
afterEach(() => {
  for (const kernels of held.splice(0)) kernels.release();
});

/** Kernels that the test's end releases. */
async function hold(loading: Promise<Kernels>): Promise<Kernels> {
  const kernels = await loading;
  held.push(kernels);
  return kernels;
}

/** Everything that a random layer gives: a prefill with maps, a cached prefill, decode steps, a ragged masked batch. */
function outputsOf(kernels: Kernels, seed: number): Float32Array[] {
  const { attention, random } = randomLayer(kernels, seed);
  const { dModel, numHeads } = attention.config;
  const tokens = random.int(1, 40) + (seed % 3 === 0 ? 260 : 0);
  const x = floats(random, tokens * dModel);
  const { y, maps } = attendWithMaps(attention, x);
  const cache = createCache(attention, { maxSeqLen: tokens });
  const first = Math.ceil(tokens / 2);
  const parts = [attend(attention, x.subarray(0, first * dModel), { cache })];
  for (let t = first; t < Math.min(tokens, first + 3); t++)
    parts.push(attend(attention, x.subarray(t * dModel, (t + 1) * dModel), { cache }));
  const keep = { data: Uint8Array.from({ length: tokens }, () => Number(random.next() < 0.8)), shape: [tokens] };
  const bias = { data: floats(random, numHeads * tokens), shape: [1, numHeads, 1, tokens] };
  const batch = floats(random, 2 * tokens * dModel);
  const ragged = attend(attention, batch, { batch: 2, kvLengths: [tokens, Math.ceil(tokens / 3)], keep, bias });
  // Rows of padding mean nothing.
  const real = ragged.subarray(0, (tokens + Math.ceil(tokens / 3)) * dModel);
  attention.release();
  return [y, maps.data, ...parts, real];
}

function expectSame(got: readonly Float32Array[], want: readonly Float32Array[]): void {
  expect(got.map((data, i) => firstDifference(data, want[i] as Float32Array))).toEqual(want.map(() => -1));
}

describe.each(shippedBuilds)("%s", (build) => {
  test("1 to 8 threads give the bits of one", async () => {
    const seeds = Array.from({ length: 6 }, (_, seed) => seed);
    const alone = await hold(kernelsOf(build));
    const want = seeds.map((seed) => outputsOf(alone, seed));
    for (const threads of sampled([1, 2, 3, 4, 5, 6, 7, 8], 1, (each) => (each === 8 ? each : 0), build.length)) {
      const kernels = await hold(threadedKernels(build, threads));
      expect([kernels.build, kernels.threads.used]).toEqual([build, threads]);
      for (const seed of seeds) expectSame(outputsOf(kernels, seed), want[seed] as Float32Array[]);
    }
  });

  test("layers of model size, shared by the default limits, have the bits of one thread", async () => {
    const alone = await hold(kernelsOf(build));
    const configs: AttentionConfig[] = [
      { dModel: 256, numHeads: 4, causal: true },
      { dModel: 256, numHeads: 8, numKvHeads: 2, causal: true, rope: { theta: 10_000, pairing: "half" } },
      {
        dModel: 256,
        numHeads: 4,
        headDim: 80,
        valueDim: 44,
        window: { left: 100, right: 30 },
        qkNorm: { kind: "full" },
      },
    ];
    for (const threads of sampled([2, 5], 1, undefined, build.length)) {
      const kernels = await hold(threadedKernels(build, threads, LIMITS));
      for (const config of configs) {
        const outputs = [alone, kernels].map((engine) => {
          const random = createRandom(7);
          const attention = createAttention(engine, config, randomWeights(random, config, { biases: true }));
          const cache = createCache(attention, { maxSeqLen: 700 });
          const { dModel } = config;
          const ys = [600, 16, 1].map((tokens) => attend(attention, floats(random, tokens * dModel), { cache }));
          attention.release();
          return ys;
        });
        const [want, got] = outputs as [Float32Array[], Float32Array[]];
        expectSame(got, want);
      }
    }
  });

  test("scaledDotProductAttention has the bits of one thread, with its scores and lse", async () => {
    const engines = [await hold(kernelsOf(build)), await hold(threadedKernels(build, 3))];
    const [want, got] = engines.map((kernels) => {
      const random = createRandom(3);
      const tensor = (...shape: number[]) => ({
        data: floats(
          random,
          shape.reduce((a, b) => a * b),
        ),
        shape,
      });
      const { output, lse, scores } = scaledDotProductAttention(
        kernels,
        tensor(2, 6, 67, 20),
        tensor(2, 3, 131, 20),
        tensor(2, 3, 131, 12),
        { causal: true, align: "end", lse: true, scores: "weights" },
      );
      return [output, lse, scores].map((part) => part?.data as Float32Array);
    }) as [Float32Array[], Float32Array[]];
    expectSame(got, want);
  });

  test("threads reach the published digest", async () => {
    const kernels = await hold(threadedKernels(build, 3));
    expect(selfTest(headwise, kernels)).toMatchObject({ ok: true });
  });
});

test("memory that grows after the workers started is seen by all of them", async () => {
  const [alone, kernels] = [await hold(kernelsOf("simd")), await hold(threadedKernels("simd", 3))];
  const config: AttentionConfig = { dModel: 512, numHeads: 8, causal: true };
  const outputs = [alone, kernels].map((engine) => {
    const random = createRandom(5);
    const ys: Float32Array[] = [];
    const before = engine.memoryBytes;
    for (let layer = 0; layer < 2; layer++) {
      const attention = createAttention(engine, config, randomWeights(random, config));
      ys.push(attend(attention, floats(random, 40 * 512)));
    }
    expect(engine.memoryBytes).toBeGreaterThan(before + 8e6);
    return ys;
  });
  const [want, got] = outputs as [Float32Array[], Float32Array[]];
  expectSame(got, want);
});

test("two engines share nothing, and one goes on when the other is released", async () => {
  const [one, two, alone] = [
    await hold(threadedKernels("simd", 3)),
    await hold(threadedKernels("simd", 2)),
    await hold(kernelsOf("simd")),
  ];
  const want = [1, 2].map((seed) => outputsOf(alone, seed));
  for (let round = 0; round < 3; round++)
    for (const [i, kernels] of [one, two].entries()) expectSame(outputsOf(kernels, i + 1), want[i] as Float32Array[]);
  one.release();
  expect(() => outputsOf(one, 1)).toThrow("kernels was released");
  expectSame(outputsOf(two, 2), want[1] as Float32Array[]);
});

test("every worker takes tiles of large calls, and none of small ones", async () => {
  const counts = [1, 2, 3].map(() => new Int32Array(new SharedArrayBuffer(4)));
  const counting = `
    const { workerData } = require("node:worker_threads");
    const real = WebAssembly.instantiate;
    WebAssembly.instantiate = async (...given) => {
      const { exports } = await real(...given);
      const counted = ([name, kernel]) => {
        if (typeof kernel !== "function") return [name, kernel];
        return [name, (...args) => (Atomics.add(workerData, 0, 1), kernel(...args))];
      };
      return { exports: Object.fromEntries(Object.entries(exports).map(counted)) };
    };
    ${workerSource}`;
  let made = 0;
  const createWorker = () => new Worker(counting, { eval: true, workerData: counts[made++] });
  const host = findHost(globalThis, workerSource, createWorker);
  const kernels = await hold(loadThreaded(threadedBuilds, { threads: 4 }, host));
  const random = createRandom(1);
  const layer = (dModel: number) =>
    createAttention(kernels, { dModel, numHeads: 4 }, randomWeights(random, { dModel, numHeads: 4 }));
  const [small, large] = [layer(32), layer(256)];
  const call = (attention: typeof small, tokens: number) =>
    attend(attention, floats(random, tokens * attention.config.dModel));
  for (let i = 0; i < 200; i++) call(small, 20);
  expect(counts.map(([count]) => count)).toEqual([0, 0, 0]);
  for (let i = 0; i < 200 && counts.some(([count]) => count === 0); i++) call(large, 250);
  expect(counts.map(([count]) => (count as number) > 0)).toEqual([true, true, true]);
});

test("release ends the workers", async () => {
  const exits: Promise<number>[] = [];
  const createWorker = () => {
    const worker = new Worker(workerSource, { eval: true });
    exits.push(new Promise((resolve) => worker.once("exit", resolve)));
    return worker;
  };
  const options = { threads: 4 };
  const kernels = await loadThreaded(threadedBuilds, options, findHost(globalThis, workerSource, createWorker));
  expect(exits.length).toBe(3);
  kernels.release();
  kernels.release();
  expect((await Promise.all(exits)).length).toBe(3);
});
