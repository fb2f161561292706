// A layer large enough for threads to share, for tests of workers that fail.

import { Worker } from "node:worker_threads";
import { findHost, type ThreadWorker } from "../../src/base/platform/workers.ts";
import { LIMITS, loadThreaded } from "../../src/hosts/threads/load.ts";
import { attend } from "../../src/layers/api/attend.ts";
import { createAttention, createCache } from "../../src/layers/attention/attention.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import type { Kernels } from "../../src/wasm/kernels.ts";
import { floats } from "./harness.ts";
import { kernelsOf, randomWeights, threadedBuilds, workerSource } from "./layers.ts";

const DMODEL = 192;

const held: Kernels[] = [];

/** Releases what `start` gave. */
export function releaseAll(): void {
  for (const kernels of held.splice(0)) kernels.release();
}

/** The layer, a cache of it, and its y for 100 tokens. */
export function createCase(kernels: Kernels): { run(): Float32Array; length(): number } {
  const random = createRandom(1);
  const config = { dModel: DMODEL, numHeads: 6, causal: true };
  const attention = createAttention(kernels, config, randomWeights(random, config));
  const x = floats(random, 100 * DMODEL);
  const cache = createCache(attention, { maxSeqLen: 100 });
  return {
    run: () => {
      cache.truncate(0);
      return attend(attention, x, { cache });
    },
    length: () => cache.length,
  };
}

/** y on one thread. */
export async function alone(): Promise<Float32Array> {
  const kernels = await kernelsOf("simd");
  const y = createCase(kernels).run();
  kernels.release();
  return y;
}

/** Kernels with the workers that `createWorker` makes. */
export async function start(
  threads: number,
  createWorker: () => ThreadWorker,
  limits: Partial<typeof LIMITS> = {},
): Promise<Kernels> {
  const host = findHost(globalThis, workerSource, createWorker);
  const kernels = await loadThreaded(threadedBuilds, { threads, deterministic: true }, host, { ...LIMITS, ...limits });
  held.push(kernels);
  return kernels;
}

/** A worker of Node's that runs `before` and then what ships. */
export const faulty = (before: string): Worker => new Worker(`${before}\n${workerSource}`, { eval: true });

/** A worker without a thread. */
export interface FakeWorker extends ThreadWorker {
  /** How often it was ended. */
  readonly ended: number;
  /** Calls the listeners of an event. */
  emit(event: string, value: unknown): void;
}

/** A worker without a thread: `answer` gives what it posts for each message that it gets. */
export function fakeWorker(answer: (message: unknown) => readonly unknown[] = () => []): FakeWorker {
  const listeners: { event: string; listener: (value: unknown) => void }[] = [];
  let ended = 0;
  const worker = {
    get ended() {
      return ended;
    },
    emit(event: string, value: unknown) {
      for (const each of listeners) if (each.event === event) each.listener(value);
    },
    on: (event: string, listener: (value: unknown) => void) => void listeners.push({ event, listener }),
    postMessage(message: unknown) {
      for (const reply of answer(message)) setTimeout(() => worker.emit("message", reply));
    },
    terminate: () => ended++,
  };
  return worker;
}

/** What `createWorker` may return by mistake, and how errors name it. */
export const NO_WORKERS: readonly (readonly [name: string, make: () => unknown])[] = [
  ["null", () => null],
  ["undefined", () => undefined],
  ["Object", () => ({})],
  ["Object", () => ({ postMessage() {}, terminate() {} })],
  ['"worker.js"', () => "worker.js"],
  ["function", () => Worker],
  ["a promise", async () => fakeWorker()],
  ["a promise", () => Promise.reject(new Error("no file"))],
];
