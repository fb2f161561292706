// What is kept in memory: layers, caches and threaded kernels that a program drops without releasing them free what they hold
// once they are collected, and no handle keeps what it does not need. In processes of their own, which can collect garbage
// when they want to.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const urlOf = (path: string): string => new URL(`../../${path}`, import.meta.url).href;
const HOOKS = fileURLToPath(urlOf("scripts/source-hooks.mjs"));

/** Layers to drop, and `until`, which collects garbage until a condition holds, at most so often. */
const SCRIPT = `
import { setTimeout } from "node:timers/promises";
const { attend, attendAsync, createAttention, createCache, createLinear } = await import("${urlOf("src/entries/core.ts")}");
const { createLatentAttention } = await import("${urlOf("src/entries/latent.ts")}");
const { kernelsOf, threadedBuilds, threadedKernels, workerSource } = await import("${urlOf("test/support/layers.ts")}");
const kernels = await kernelsOf("simd");
const matrix = { data: Float32Array.from({ length: 64 * 64 }, (_, i) => Math.sin(i) / 8), shape: [64, 64] };
const weights = { wq: matrix, wk: matrix, wv: matrix, wo: matrix };
const layer = () => createAttention(kernels, { dModel: 64, numHeads: 4, causal: true }, weights);
const latentConfig = { dModel: 64, numHeads: 2, kvLoraRank: 64, nopeDim: 32, ropeDim: 0, causal: true };
const latentWeights = () => {
  const own = () => ({ data: matrix.data.slice(), shape: [64, 64] });
  const wkvUp = { data: new Float32Array(128 * 64).fill(0.01), shape: [128, 64] };
  return { wq: own(), wkvDown: own(), kvNorm: new Float32Array(64).fill(1), wkvUp, wo: own() };
};
const latentLayer = (given = latentWeights()) => createLatentAttention(kernels, latentConfig, given, { expanded: true });
const x = Float32Array.from({ length: 64 * 300 }, (_, i) => Math.cos(i));
const until = async (holds, most = 200) => {
  for (let i = 0; i < most && !holds(); i++) {
    globalThis.gc();
    await setTimeout(5);
  }
  return holds();
};
`;

/** What the script prints as JSON. */
async function run(script: string): Promise<unknown> {
  const args = ["--expose-gc", "--import", HOOKS, "--input-type=module", "-e", script];
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 50_000 });
  return JSON.parse(stdout);
}

test("dropped layers and caches give their memory back, those in use keep it, and releasing before counts once", async () => {
  const script = `${SCRIPT}
const kept = layer();
const cache = createCache(kept, { maxSeqLen: 300 });
const want = attend(kept, x, { cache });
// Scratch keeps its largest size.
const largest = latentLayer();
for (const path of ["absorbed", "expanded"]) attend(largest, x, { path });
largest.release();
const more = () => attend(kept, x.subarray(0, 64), { cache, append: false, align: "end" });
const after = more();
const { usedBytes } = kernels;
// In a function, since a frame may keep what it no longer uses.
const drop = (i) => {
  const dropped = i % 2 === 0 ? layer() : latentLayer();
  const one = createCache(dropped, { maxSeqLen: 200 });
  attend(dropped, x.subarray(0, 640), { cache: one, path: i % 2 === 0 ? undefined : "expanded" });
  if (i % 3 === 0) one.release();
  if (i % 3 === 1) dropped.release();
};
for (let i = 0; i < 10; i++) drop(i);
const most = kernels.usedBytes;
const back = await until(() => kernels.usedBytes === usedBytes);
// A layer and a cache that only a running call refers to.
let slices = 0;
const onProgress = () => {
  slices++;
  globalThis.gc();
};
const start = () => {
  const alone = layer();
  return attendAsync(alone, x, { cache: createCache(alone, { maxSeqLen: 300 }), sliceMs: 1e-9, onProgress });
};
const got = await start();
const again = await until(() => kernels.usedBytes === usedBytes);
const same = got.every((value, i) => Object.is(value, want[i])) && more().every((value, i) => Object.is(value, after[i]));
console.log(JSON.stringify({ grew: most > usedBytes, back, slices: slices > 2, again, same, length: cache.length }));
`;
  expect(await run(script)).toEqual({ grew: true, back: true, slices: true, again: true, same: true, length: 300 });
});

/** Sharded layers, how many of their workers have ended, and how often one was asked to free a cache. */
const SHARDED = `${SCRIPT}
const { Worker } = await import("node:worker_threads");
const { attendSharded, createShardedAttention, createShardedCache } = await import("${urlOf("src/entries/shards.ts")}");
const { shardSource } = await import("${urlOf("test/support/shards.ts")}");
let [ended, freed] = [0, 0];
const createWorker = () => {
  const worker = new Worker(shardSource, { eval: true });
  worker.once("exit", () => ended++);
  const { postMessage } = worker;
  worker.postMessage = (message, transfer) => {
    if (message.body.kind === "forget") freed++;
    postMessage.call(worker, message, transfer);
  };
  return worker;
};
const config = { dModel: 64, numHeads: 4, causal: true };
const sharded = (w = weights, more = {}) =>
  createShardedAttention(config, w, { shards: 2, deterministic: true, createWorker, ...more });
`;

test("dropped sharded layers end their workers, dropped caches are freed in them, and those in use are kept", async () => {
  const script = `${SHARDED}
const [one, token] = [x.subarray(0, 640), x.subarray(640, 704)];
const plain = layer();
const plainCache = createCache(plain, { maxSeqLen: 300 });
attend(plain, one, { cache: plainCache });
const kept = await sharded();
const cache = await createShardedCache(kept, { maxSeqLen: 300 });
await attendSharded(kept, one, { cache });
const dropCache = async () => {
  await attendSharded(kept, one, { cache: await createShardedCache(kept, { maxSeqLen: 300 }) });
};
await dropCache();
// One message for each worker.
const freeing = await until(() => freed === 2);
const dropLayer = async () => {
  const layer = await sharded();
  await attendSharded(layer, one, { cache: await createShardedCache(layer, { maxSeqLen: 300 }) });
};
await dropLayer();
const ending = await until(() => ended === 2);
// A layer and a cache that only a running call refers to.
let done = false;
const start = async () => {
  const alone = await sharded();
  const call = attendSharded(alone, x, { cache: await createShardedCache(alone, { maxSeqLen: 300 }) });
  call.finally(() => (done = true));
  return call;
};
const call = start();
await until(() => done, 2000);
const [got, want] = [await call, attend(plain, x)];
const again = await until(() => ended === 4);
const [more, next] = [await attendSharded(kept, token, { cache }), attend(plain, token, { cache: plainCache })];
const same = got.every((y, i) => Object.is(y, want[i])) && more.every((y, i) => Object.is(y, next[i]));
console.log(JSON.stringify({ freeing, ending, again, same, length: cache.length, ended }));
kept.release();
`;
  expect(await run(script)).toEqual({ freeing: true, ending: true, again: true, same: true, length: 11, ended: 4 });
});

test("a sharded layer keeps neither its weights nor what its calls were given and gave", async () => {
  const script = `${SHARDED}
const gone = new Set();
const registry = new FinalizationRegistry((name) => gone.add(name));
// The buffer, since handles could hold a view of it.
const given = (name, data) => {
  registry.register(data.buffer, name);
  return data;
};
const make = (name, more) => {
  const matrix = { data: given(name, new Float32Array(64 * 64)), shape: [64, 64] };
  return sharded({ wq: matrix, wk: matrix, wv: matrix, wo: matrix }, more);
};
const inWorkers = await make("weights of workers");
// Without workers, the shard is on this thread.
const here = await make("weights of a shard here", {
  createWorker() {
    throw new Error("none");
  },
});
const call = async (name, layer) => {
  given("y " + name, await attendSharded(layer, given("x " + name, new Float32Array(640))));
};
await call("of workers", inWorkers);
await call("of a shard here", here);
const all = await until(() => gone.size === 6);
console.log(JSON.stringify({ all, gone: [...gone].sort(), used: [inWorkers.shards.used, here.shards.used] }));
inWorkers.release();
`;
  const of = ["of a shard here", "of workers"];
  const gone = ["weights", "x", "y"].flatMap((what) => of.map((whose) => `${what} ${whose}`));
  expect(await run(script)).toEqual({ all: true, gone, used: [2, 1] });
});

test("a sharded layer keeps the memory of its shard only, and until it is released", async () => {
  const script = `${SHARDED}
let [made, gone] = [0, 0];
const registry = new FinalizationRegistry(() => gone++);
const { Memory } = WebAssembly;
WebAssembly.Memory = function (...of) {
  const memory = new Memory(...of);
  registry.register(memory);
  made++;
  return memory;
};
const createNone = () => {
  throw new Error("none");
};
// On this thread are the kernels that were started first, and the shard.
const attention = await sharded(weights, { createWorker: createNone });
await attendSharded(attention, x.subarray(0, 640));
const first = await until(() => gone === 1);
const kept = made - gone;
attention.release();
const all = await until(() => gone === made);
console.log(JSON.stringify({ made, first, kept, all, released: attention.released }));
`;
  expect(await run(script)).toEqual({ made: 2, first: true, kept: 1, all: true, released: true });
});

test("an engine without FinalizationRegistry keeps their memory until the kernels are released", async () => {
  const script = `delete globalThis.FinalizationRegistry;${SCRIPT}
layer();
const { usedBytes } = kernels;
await until(() => false, 10);
const kept = kernels.usedBytes === usedBytes;
kernels.release();
console.log(JSON.stringify({ kept, released: kernels.released }));
`;
  expect(await run(script)).toEqual({ kept: true, released: true });
});

test("layers keep none of the arrays that they were made from", async () => {
  const script = `${SCRIPT}
const own = () => ({ data: new Float32Array(64 * 64), shape: [64, 64] });
const bias = () => new Float32Array(64);
const watch = (handle, ...arrays) => ({ handle, buffers: arrays.map(({ buffer }) => new WeakRef(buffer)) });
const makeLinear = () => {
  const weights = { weight: own(), bias: bias() };
  return watch(createLinear(kernels, weights), weights.weight.data, weights.bias);
};
const makeAttention = () => {
  const weights = { wq: own(), wk: own(), wv: own(), wo: own(), bq: bias() };
  const arrays = Object.values(weights).map((each) => each.data ?? each);
  return watch(createAttention(kernels, { dModel: 64, numHeads: 4 }, weights), ...arrays);
};
const makeLatent = () => {
  const weights = latentWeights();
  return watch(latentLayer(weights), ...Object.values(weights).map((each) => each.data ?? each));
};
const made = { linear: makeLinear(), attention: makeAttention(), latent: makeLatent() };
const kept = () => Object.values(made).flatMap(({ buffers }) => buffers.filter((buffer) => buffer.deref())).length;
// Not a condition that looks at them, which would keep them until the task ends.
await until(() => false, 20);
console.log(JSON.stringify({ kept: kept(), released: Object.values(made).map(({ handle }) => handle.released) }));
`;
  expect(await run(script)).toEqual({ kept: 0, released: [false, false, false] });
});

test.each(["one thread", "threads"])(
  "released kernels of %s keep neither their memory nor their kernels",
  async (on) => {
    const script = `${SCRIPT}
const own = ${on === "threads" ? 'await threadedKernels("simd", 2)' : 'await kernelsOf("simd")'};
const { threads } = own;
const parts = [own.memory, own.table, own.table.linear_f32, own.memory.view().buffer].map((part) => new WeakRef(part));
const kept = () => parts.filter((part) => part.deref()).length;
own.release();
// Not a condition that looks at them, which would keep them until the task ends.
await until(() => false, 20);
console.log(JSON.stringify({ kept: kept(), released: own.released, used: [threads.used, own.threads.used] }));
`;
    expect(await run(script)).toEqual({ kept: 0, released: true, used: on === "threads" ? [2, 1] : [1, 1] });
  },
);

test("dropped kernels end their workers, and those that a layer refers to keep them", async () => {
  const script = `${SCRIPT}
const { findHost } = await import("${urlOf("src/base/platform/workers.ts")}");
const { loadThreaded } = await import("${urlOf("src/hosts/threads/load.ts")}");
const host = findHost(globalThis, workerSource);
let ended = 0;
const createWorker = () => host.createWorker().on("exit", () => ended++);
const load = () => loadThreaded(threadedBuilds, { threads: 3, deterministic: true }, { ...host, createWorker });
const makeLayer = async () => createAttention(await load(), { dModel: 64, numHeads: 4, causal: true }, weights);
const kept = await makeLayer();
const want = attend(kept, x);
const drop = async () => {
  const dropped = await makeLayer();
  return attend(dropped, x).length;
};
await drop();
const both = await until(() => ended === 2);
await until(() => ended > 2, 20);
const same = attend(kept, x).every((value, i) => Object.is(value, want[i]));
console.log(JSON.stringify({ both, ended, same, used: kept.kernels.threads.used }));
kept.kernels.release();
`;
  expect(await run(script)).toEqual({ both: true, ended: 2, same: true, used: 3 });
});
