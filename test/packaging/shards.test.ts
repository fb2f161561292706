import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";

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

test.each([
  ["post something else at once", 'parentPort.postMessage("hello"); setInterval(() => {}, 1000);'],
  ["answer everything with something else", 'parentPort.on("message", () => parentPort.postMessage({}));'],
])("workers that %s are ended, and the process ends by itself", (_name, source) => {
  const code = `
    import { Worker } from "node:worker_threads";
    import { createShardedAttention } from "headwise/shards";
    import { loadKernels } from "headwise/threads";
    const source = 'const { parentPort } = require("node:worker_threads");' + ${JSON.stringify(source)};
    const createWorker = () => new Worker(source, { eval: true, execArgv: [] });
    const w = { data: new Float32Array(16), shape: [4, 4] };
    const create = (createWorker) =>
      createShardedAttention({ dModel: 4, numHeads: 2 }, { wq: w, wk: w, wv: w, wo: w }, { shards: 2, createWorker });
    const kernels = await loadKernels({ threads: 2, createWorker });
    console.log(kernels.threads.used);
    for (const make of [createWorker, async () => createWorker(), async () => { throw new Error("no file"); }]) {
      console.log(await create(make).catch(({ code, name }) => code ?? name));
      console.log(await loadKernels({ threads: 3, createWorker: make }).then(({ threads }) => threads.used, ({ name }) => name));
    }`;
  const options = { cwd: new URL("../..", import.meta.url), encoding: "utf8", stdio: "pipe", timeout: 30_000 } as const;
  expect(execFileSync(process.execPath, ["--input-type=module", "-e", code], options).trim().split("\n")).toEqual([
    "1",
    "ABI_MISMATCH",
    "1",
    "TypeError",
    "TypeError",
    "TypeError",
    "TypeError",
  ]);
});
