// Workers that fail, end or vanish during calls.

import { Worker } from "node:worker_threads";
import { afterEach, expect, test } from "vitest";
import { EPOCH, NEXT, SCRIPT } from "../../../../src/hosts/threads/pool.ts";
import type { Kernels } from "../../../../src/wasm/kernels.ts";
import { firstDifference, workerSource } from "../../../support/layers.ts";
import { alone, createCase, faulty, releaseAll, start } from "../../../support/worker-faults.ts";

afterEach(releaseAll);

test("a worker that vanishes with a tile: the call fails, the cache is as it was, one thread goes on", async () => {
  const source = `
    const { parentPort } = require("node:worker_threads");
    parentPort.once("message", ({ memory, control }) => {
      const words = new Int32Array(memory.buffer, control);
      parentPort.once("message", () => {
        while (Atomics.sub(words, ${NEXT}, 1) <= 0) Atomics.wait(words, ${EPOCH}, Atomics.load(words, ${EPOCH}), 1);
        process.exit();
      });
      parentPort.postMessage({ script: "${SCRIPT}", ready: true, text: "" });
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

test("a worker that ends between calls: the next call has the same bits on those that are left", async () => {
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
