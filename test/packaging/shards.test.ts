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
