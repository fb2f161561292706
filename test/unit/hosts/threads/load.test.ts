// How threads start: where workers are missing, forbidden or late, an engine with fewer threads runs instead, and
// kernels.threads reports which.

import { Worker } from "node:worker_threads";
import { deflateRawSync } from "node:zlib";
import { afterEach, expect, test, vi } from "vitest";
import { findHost, type ThreadHost, type ThreadWorker } from "../../../../src/base/platform/workers.ts";
import { type LIMITS, loadThreaded, planThreads } from "../../../../src/hosts/threads/load.ts";
import { SCRIPT } from "../../../../src/hosts/threads/pool.ts";
import type { Kernels } from "../../../../src/wasm/kernels.ts";
import { firstDifference, quantized, threadedBuilds, workerSource } from "../../../support/layers.ts";
import { modulesOf, wasmOf } from "../../../support/modules.ts";
import {
  alone,
  createCase,
  fakeWorker,
  faulty,
  NO_WORKERS,
  releaseAll,
  start,
} from "../../../support/worker-faults.ts";

const held: Kernels[] = [];

afterEach(() => {
  releaseAll();
  for (const kernels of held.splice(0)) kernels.release();
});

const able: ThreadHost = {
  sharing: { possible: true, reason: "" },
  processors: 6,
  createWorker: () => ({ postMessage() {}, terminate() {} }),
};

test.each<[number | "auto", Partial<ThreadHost>, number, string]>([
  ["auto", {}, 6, "this host has 6 processors"],
  ["auto", { processors: 1 }, 1, "this host has 1 processor"],
  ["auto", { processors: 32 }, 8, 'this host has 32 processors; "auto" takes up to 8'],
  [3, {}, 3, "as many as were asked for"],
  [64, { processors: 1 }, 64, "as many as were asked for"],
  [1, { createWorker: undefined }, 1, "one thread was asked for"],
  [4, { createWorker: undefined }, 1, "this host has no workers"],
  [4, { sharing: { possible: false, reason: "because" } }, 1, "because"],
])("planned for %s threads", (requested, host, count, reason) => {
  expect(planThreads(requested, { ...able, ...host })).toEqual({ count, reason });
});

test("threads that cannot be had are warned of once a reason, one thread that is enough is not", async () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
  try {
    const refused = (reason: string): ThreadHost => ({ ...able, sharing: { possible: false, reason } });
    const start = async (threads: number | "auto", host: ThreadHost) =>
      held.push(await loadThreaded(threadedBuilds, { threads }, host));
    for (let i = 0; i < 2; i++) {
      await start("auto", refused("nobody shares"));
      await start(3, refused("nobody shares"));
      await start(1, refused("nobody cares"));
      await start("auto", { ...able, processors: 1 });
    }
    expect(warn.mock.calls).toEqual([
      ["headwise: one thread: nobody shares"],
      ["headwise: one thread instead of 3: nobody shares"],
    ]);
  } finally {
    warn.mockRestore();
  }
});

test.each<[string, () => ThreadWorker, Partial<typeof LIMITS>, RegExp]>([
  [
    "refused",
    () => {
      throw new Error("refused by policy");
    },
    {},
    /^no worker started \(Error: refused by policy\)$/,
  ],
  [
    "silent",
    () => new Worker("setInterval(() => {}, 1e6)", { eval: true }),
    { startMs: 200 },
    /^no worker started \(it was not ready within 200 ms\)$/,
  ],
  ["broken", () => new Worker("}", { eval: true }), {}, /^no worker started \(SyntaxError: .*\)$/],
  ["gone", () => new Worker("", { eval: true }), {}, /^no worker started \(it ended with code 0\)$/],
  [
    "unable",
    () => faulty("WebAssembly.instantiate = () => Promise.reject(new Error('no wasm here'));"),
    {},
    /^no worker started \(Error: no wasm here\)$/,
  ],
])("workers that are %s: one thread, and why", async (_, createWorker, limits, reason) => {
  const kernels = await start(3, createWorker, limits);
  expect(kernels.threads).toMatchObject({ requested: 3, used: 1 });
  expect(kernels.threads.reason).toMatch(reason);
  expect(firstDifference(createCase(kernels).run(), await alone())).toBe(-1);
});

test("some workers that do not start: those that do, and why", async () => {
  let made = 0;
  const kernels = await start(4, () => (made++ === 1 ? new Worker("}", { eval: true }) : faulty("")));
  expect(kernels.threads).toMatchObject({ requested: 4, used: 3 });
  expect(kernels.threads.reason).toMatch(
    /^as many as were asked for; 1 of 3 workers did not start \(SyntaxError: .*\)$/,
  );
  expect(firstDifference(createCase(kernels).run(), await alone())).toBe(-1);
});

test.each([
  ["module of floats", { module: new WebAssembly.Module(wasmOf("simd")) }],
  [
    "module of weights",
    {
      module: wasmOf("simd"),
      quantized: { simd: { weights: new WebAssembly.Module(wasmOf("weights-simd")), caches: wasmOf("caches-simd") } },
    },
  ],
  [
    "module of latents",
    { module: wasmOf("simd"), latent: { simd: { latents: new WebAssembly.Module(wasmOf("latents-simd")) } } },
  ],
])("a %s for one thread runs with one", async (_, own) => {
  const host = findHost(globalThis, workerSource);
  const kernels = await loadThreaded(threadedBuilds, { ...own, threads: 2 }, host);
  held.push(kernels);
  expect(kernels.threads).toEqual({
    requested: 2,
    used: 1,
    reason: "a module given does not run on shared memory: it is one for a single thread",
  });
  expect(firstDifference(createCase(kernels).run(), await alone())).toBe(-1);
});

test("bytes of your own, those for one thread, run with as many as were asked for", async () => {
  const kernels = await loadThreaded(
    threadedBuilds,
    { ...modulesOf("simd"), threads: 3 },
    findHost(globalThis, workerSource),
  );
  held.push(kernels);
  expect(kernels.threads).toEqual({ requested: 3, used: 3, reason: "as many as were asked for" });
  expect(kernels.quantized).toBe(true);
  expect(firstDifference(createCase(kernels).run(), await alone())).toBe(-1);
});

test("a worker to which nothing can be posted is terminated at once", async () => {
  let ended = 0;
  const [started, cleared] = [vi.spyOn(globalThis, "setTimeout"), vi.spyOn(globalThis, "clearTimeout")];
  const { threads } = await start(3, () => ({
    addEventListener() {},
    postMessage() {
      throw new Error("cannot be cloned");
    },
    terminate: () => ended++,
  }));
  const left = started.mock.results.filter(({ value }) => !cleared.mock.calls.some(([timer]) => timer === value));
  vi.restoreAllMocks();
  expect([threads.reason, ended, left]).toEqual(["no worker started (Error: cannot be cloned)", 2, []]);
});

/** What `work` gives where shared memory is refused, or only counted. Requested memories are listed. */
async function withMemory<T>(refuse: boolean, work: () => Promise<T>): Promise<readonly [result: T, shared: number]> {
  const { Memory: Real } = WebAssembly;
  let shared = 0;
  class Memory extends Real {
    constructor(descriptor: WebAssembly.MemoryDescriptor) {
      if (descriptor.shared) shared++;
      if (descriptor.shared && refuse) throw new RangeError("WebAssembly.Memory(): could not allocate memory");
      super(descriptor);
    }
  }
  try {
    Object.assign(WebAssembly, { Memory });
    return [await work(), shared];
  } finally {
    Object.assign(WebAssembly, { Memory: Real });
  }
}

test.each([
  ["its own kernels", {}],
  ["its own of every format", { quantized }],
  ["a compiled module", { module: new WebAssembly.Module(wasmOf("simd")) }],
])("where an engine refuses shared memory to %s: one thread, and why", async (_, own) => {
  const host = findHost(globalThis, workerSource);
  const [kernels] = await withMemory(true, () =>
    loadThreaded(threadedBuilds, { deterministic: true, ...own, threads: 2 }, host),
  );
  held.push(kernels);
  expect(kernels.threads).toEqual({
    requested: 2,
    used: 1,
    reason: "this engine refused shared memory",
  });
  expect(firstDifference(createCase(kernels).run(), await alone())).toBe(-1);
});

test("where relaxed SIMD does not fuse, shared memory is set aside once", async () => {
  const rounding = deflateRawSync(wasmOf("simd")).toString("base64");
  const host = findHost(globalThis, workerSource);
  const [kernels, shared] = await withMemory(false, () =>
    loadThreaded({ simd: rounding, relaxed: rounding }, { threads: 2 }, host),
  );
  held.push(kernels);
  expect([kernels.reason, kernels.threads.used, shared]).toEqual([
    "this engine accepts relaxed SIMD but does not fuse",
    2,
    1,
  ]);
});

const ready = { script: SCRIPT, ready: true, text: "" };

test.each(NO_WORKERS)(
  "createWorker that returns %s: TypeError, and the workers made before are ended",
  async (got, make) => {
    const first = fakeWorker(() => [ready]);
    let made = 0;
    await expect(start(3, () => (made++ === 0 ? first : make()) as ThreadWorker)).rejects.toThrow(
      new TypeError(
        `loadKernels: createWorker expected a function that returns a new Worker, got one that returns ${got}`,
      ),
    );
    expect([made, first.ended]).toEqual([2, 1]);
  },
);

test.each<[string, unknown, string]>([
  ["null", null, "another script"],
  ["undefined", undefined, "another script"],
  ["a string", "hello", "another script"],
  ["an object", {}, "another script"],
  ["an answer without a script", { ready: true, text: "" }, "another script"],
  ["an answer of another version", { ...ready, script: "headwise/worker 0.1.0" }, "headwise/worker 0.1.0"],
  [
    "an answer of a shard",
    { script: SCRIPT.replace("worker", "shards-worker"), id: 1, body: {} },
    "headwise/shards-worker",
  ],
])("a worker whose first message is %s is ended, and the reason is reported", async (_, message, other) => {
  const worker = fakeWorker(() => [message, ready]);
  const { threads } = await start(2, () => worker);
  expect(threads.used).toBe(1);
  expect(threads.reason.startsWith(`no worker started (it runs ${other}`)).toBe(true);
  expect(threads.reason.endsWith(` instead of ${SCRIPT})`)).toBe(true);
  expect(worker.ended).toBe(1);
});

test("a worker that answers again, after it joined or failed, is counted once", async () => {
  const joined = fakeWorker((message) => (message === "begin" ? [null, "hello", ready] : [ready, ready, {}]));
  const failed = fakeWorker(() => [{ ...ready, ready: false, text: "no memory" }, ready]);
  const workers = [joined, failed];
  const kernels = await start(3, () => workers.shift() as ThreadWorker);
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(kernels.threads).toEqual({
    requested: 3,
    used: 2,
    reason: "as many as were asked for; 1 of 2 workers did not start (no memory)",
  });
  expect([joined.ended, failed.ended]).toEqual([0, 1]);
  kernels.release();
  expect([joined.ended, failed.ended]).toEqual([1, 1]);
});

test("a worker that cannot receive 'begin' does not join, and is ended", async () => {
  const worker = fakeWorker((message) => {
    if (message === "begin") throw new Error("closed");
    return [ready];
  });
  const { threads } = await start(2, () => worker);
  expect([threads.reason, worker.ended]).toEqual(["no worker started (Error: closed)", 1]);
});

test("a worker that reports an error after it joined is counted out and ended", async () => {
  const worker = fakeWorker(() => [ready]);
  const kernels = await start(2, () => worker);
  expect([kernels.threads.used, worker.ended]).toEqual([2, 0]);
  worker.emit("error", new Error("out of stack"));
  expect([kernels.threads.used, worker.ended]).toEqual([1, 1]);
  expect(firstDifference(createCase(kernels).run(), await alone())).toBe(-1);
});

test.each<[string, object]>([
  ["headwise/worker 0.1.0", { script: "headwise/worker 0.1.0", modules: [] }],
  ["another script", { modules: [] }],
])("a worker that is started by %s refuses", async (other, message) => {
  const worker = new Worker(workerSource, { eval: true });
  const answer = new Promise((resolve) => worker.once("message", resolve));
  worker.postMessage(message);
  expect(await answer).toEqual({ script: SCRIPT, ready: false, text: `${SCRIPT} was started by ${other}` });
  await worker.terminate();
});
