// What goes wrong with workers: they are missing, forbidden, late, fail, end or vanish. There is always an engine that
// works, and kernels.threads says what it is.

import { Worker } from "node:worker_threads";
import { deflateRawSync } from "node:zlib";
import { afterEach, expect, test, vi } from "vitest";
import { attend } from "../../../src/api/attend.ts";
import { createAttention } from "../../../src/attention/attention.ts";
import { createCache } from "../../../src/cache/cache.ts";
import { findHost, type Scope } from "../../../src/platform/spawn.ts";
import { planThreads, type ThreadHost, type ThreadWorker } from "../../../src/platform/workers.ts";
import { LIMITS, type Limits, loadThreaded } from "../../../src/threads/load.ts";
import { EPOCH, NEXT } from "../../../src/threads/work-queue.ts";
import type { Kernels } from "../../../src/wasm/kernels.ts";
import { createRandom, floats } from "../../kernels/harness.ts";
import {
  firstDifference,
  kernelsOf,
  quantized,
  randomWeights,
  threadedBuilds,
  workerSource,
} from "../../support/layers.ts";
import { modulesOf, wasmOf } from "../../support/modules.ts";

const held: Kernels[] = [];
afterEach(() => {
  for (const kernels of held.splice(0)) kernels.release();
});

const DMODEL = 192;

/** A layer large enough to be shared, a cache of it, and what it gives for 100 tokens. */
function createCase(kernels: Kernels): { run(): Float32Array; length(): number } {
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

async function alone(): Promise<Float32Array> {
  const kernels = await kernelsOf("simd");
  const y = createCase(kernels).run();
  kernels.release();
  return y;
}

async function start(
  threads: number,
  createWorker: () => ThreadWorker,
  limits: Partial<Limits> = {},
): Promise<Kernels> {
  const host = findHost(globalThis, workerSource, createWorker);
  const kernels = await loadThreaded(threadedBuilds, { threads, deterministic: true }, host, { ...LIMITS, ...limits });
  held.push(kernels);
  return kernels;
}

/** A worker of Node's that runs `before` and then what ships. */
const faulty = (before: string) => new Worker(`${before}\n${workerSource}`, { eval: true });

test("a worker that vanishes with a tile: the call fails, the cache is as it was, one thread goes on", async () => {
  const source = `
    const { parentPort } = require("node:worker_threads");
    parentPort.once("message", ({ memory, control }) => {
      const words = new Int32Array(memory.buffer, control);
      parentPort.once("message", () => {
        while (Atomics.sub(words, ${NEXT}, 1) <= 0) Atomics.wait(words, ${EPOCH}, Atomics.load(words, ${EPOCH}), 1);
        process.exit();
      });
      parentPort.postMessage({ ready: true, text: "" });
    });`;
  const kernels = await start(2, () => new Worker(source, { eval: true }), { patienceMs: 300 });
  expect(kernels.threads).toEqual({ requested: 2, used: 2, reason: "as many as were asked for" });
  const layer = createCase(kernels);
  let lost: unknown;
  // The worker may come too late for a call.
  for (let i = 0; i < 1000 && !lost; i++)
    try {
      layer.run();
    } catch (error) {
      lost = error;
    }
  expect(lost).toMatchObject({
    code: "WORKER_LOST",
    message:
      "kernels: a worker thread stopped answering; this call gave no result and the cache is as it was; the engine goes on with one thread",
  });
  expect(layer.length()).toBe(0);
  expect(kernels.threads).toEqual({
    requested: 2,
    used: 1,
    reason: "as many as were asked for; 1 of 1 workers were lost",
  });
  expect(firstDifference(layer.run(), await alone())).toBe(-1);
});

test("a worker that ends between calls is missed by nobody", async () => {
  const workers: Worker[] = [];
  const kernels = await start(3, () => {
    const worker = new Worker(workerSource, { eval: true });
    workers.push(worker);
    return worker;
  });
  const layer = createCase(kernels);
  const want = await alone();
  expect(firstDifference(layer.run(), want)).toBe(-1);
  for (const [i, used] of [2, 1].entries()) {
    await workers[i]?.terminate();
    expect(kernels.threads).toMatchObject({ requested: 3, used });
    expect(kernels.threads.reason).toBe(`as many as were asked for; ${i + 1} of 2 workers were lost`);
    expect(firstDifference(layer.run(), want)).toBe(-1);
  }
});

test("a kernel that fails in a worker: the call fails and the workers go on", async () => {
  const fault = `
    const real = WebAssembly.instantiate;
    let failures = 1;
    WebAssembly.instantiate = async (...given) => {
      const { exports } = await real(...given);
      const linear_f32 = (...args) => {
        if (failures-- > 0) throw new Error("broken on purpose");
        exports.linear_f32(...args);
      };
      return { exports: { ...exports, linear_f32 } };
    };`;
  const kernels = await start(2, () => faulty(fault));
  const layer = createCase(kernels);
  let failure: unknown;
  for (let i = 0; i < 1000 && !failure; i++)
    try {
      layer.run();
    } catch (error) {
      failure = error;
    }
  expect(failure).toMatchObject({
    code: "KERNEL_FAILED",
    message: "linear_f32: failed in a worker thread (Error: broken on purpose); this call gave no result",
  });
  expect([layer.length(), kernels.threads.used]).toEqual([0, 2]);
  const want = await alone();
  for (let i = 0; i < 20; i++) expect(firstDifference(layer.run(), want)).toBe(-1);
});

test("a kernel that fails on the calling thread throws what it would throw alone", async () => {
  const kernels = await start(2, () => faulty(""));
  const beyond = (2 ** 31) as Parameters<Kernels["table"]["rms_norm_f32"]>[0];
  const run = () => kernels.table.rms_norm_f32(beyond, beyond, beyond, 1024, 1024, 1e-6, 0, 4000);
  expect(run).toThrow(/memory access out of bounds/);
  expect(firstDifference(createCase(kernels).run(), await alone())).toBe(-1);
});

test.each<[string, () => ThreadWorker, Partial<Limits>, RegExp]>([
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

test("a worker that cannot be told what to start is ended at once", async () => {
  let ended = 0;
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  const { threads } = await start(3, () => ({
    postMessage() {
      throw new Error("cannot be cloned");
    },
    terminate: () => ended++,
  }));
  expect([threads.reason, ended, timers() - before]).toEqual(["no worker started (Error: cannot be cloned)", 2, 0]);
});

/** What `work` gives where shared memory is refused, or only counted. Memories that were asked for are told. */
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
    reason: "this engine refused memory that threads could share",
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

const makeWorker = (): ThreadWorker => ({ postMessage() {}, terminate() {} });
const able: ThreadHost = { sharing: { possible: true, reason: "" }, processors: 6, createWorker: makeWorker };

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

test("what a host offers is found in its global scope", () => {
  const urls: string[] = [];
  class WebWorker implements ThreadWorker {
    constructor(url: string, options: { type: "module" }) {
      urls.push(url, options.type);
    }
    postMessage(): void {}
    terminate(): void {}
  }
  const page: Scope = {
    SharedArrayBuffer,
    crossOriginIsolated: true,
    navigator: { hardwareConcurrency: 6 },
    Worker: WebWorker,
    Blob,
    URL: { createObjectURL: () => "blob:source", revokeObjectURL: (url) => urls.push(`revoked ${url}`) },
  };
  const host = findHost(page, "source");
  expect([host.sharing.possible, host.processors]).toEqual([true, 6]);
  host.createWorker?.();
  host.createWorker?.();
  host.close?.();
  expect(urls).toEqual(["blob:source", "module", "blob:source", "module", "revoked blob:source"]);

  const bare = findHost({}, "source");
  expect(bare).toMatchObject({ sharing: { possible: false }, processors: 1, createWorker: undefined });
  expect(bare.sharing.reason).toBe("this engine has no shared memory");
  expect(findHost({ ...page, crossOriginIsolated: false }, "source").sharing).toEqual({
    possible: false,
    reason:
      "this page is not cross-origin isolated: serve it with the headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
  });
  expect(findHost({ ...page, Worker: undefined }, "source").createWorker).toBe(undefined);
  expect(findHost({ ...page, Worker: undefined }, "source", makeWorker).createWorker).toBe(makeWorker);
});
