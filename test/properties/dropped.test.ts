// Attentions and caches that a program drops without releasing them: their memory comes back once they are collected. In
// processes of their own, which can collect garbage when they want to.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const urlOf = (path: string): string => new URL(`../../${path}`, import.meta.url).href;
const HOOKS = fileURLToPath(urlOf("scripts/source-hooks.mjs"));

/** Layers to drop, and `until`, which collects garbage until a condition holds, at most so often. */
const SCRIPT = `
import { setTimeout } from "node:timers/promises";
const { attend, attendAsync, createAttention, createCache } = await import("${urlOf("src/entries/core.ts")}");
const { kernelsOf } = await import("${urlOf("test/support/layers.ts")}");
const kernels = await kernelsOf("simd");
const matrix = { data: Float32Array.from({ length: 64 * 64 }, (_, i) => Math.sin(i) / 8), shape: [64, 64] };
const weights = { wq: matrix, wk: matrix, wv: matrix, wo: matrix };
const layer = () => createAttention(kernels, { dModel: 64, numHeads: 4, causal: true }, weights);
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
const more = () => attend(kept, x.subarray(0, 64), { cache, append: false, align: "end" });
const after = more();
const { usedBytes } = kernels;
// In a function, since a frame may keep what it no longer uses.
const drop = (i) => {
  const dropped = layer();
  const one = createCache(dropped, { maxSeqLen: 200 });
  attend(dropped, x.subarray(0, 640), { cache: one });
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
