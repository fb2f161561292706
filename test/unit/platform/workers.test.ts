import { afterEach, expect, test, vi } from "vitest";
import { planThreads, type ThreadHost, type ThreadWorker } from "../../../src/platform/workers.ts";
import { loadThreaded } from "../../../src/threads/load.ts";
import type { Kernels } from "../../../src/wasm/kernels.ts";
import { threadedBuilds } from "../../support/layers.ts";

const held: Kernels[] = [];
afterEach(() => {
  for (const kernels of held.splice(0)) kernels.release();
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
