// What two threads of this machine give together, at best: one peak loop beside another that shares nothing with it.

import { Worker } from "node:worker_threads";
import { compilePeaks, startPeaks } from "./builds.ts";
import type { Load } from "./measure.ts";

const ROUNDS = 1_000_000;

/** Rounds that are asked for, and rounds that are done, of the loop on the other thread. */
const ASKED = 0;
const DONE = 1;

const source = `
const { workerData: { module, state } } = require("node:worker_threads");
const memory = new WebAssembly.Memory({ initial: 1 });
const { fma_peak } = new WebAssembly.Instance(module, { env: { memory } }).exports;
for (let done = 0; ; done++) {
  Atomics.wait(state, ${ASKED}, done);
  fma_peak(${ROUNDS}, 0.5, 1);
  Atomics.store(state, ${DONE}, done + 1);
}`;

/** The same work by one thread and by two. */
export async function twoPeaks(): Promise<{ alone: Load; together: Load; release(): void }> {
  const state = new Int32Array(new SharedArrayBuffer(8));
  const module = await compilePeaks("relaxed");
  const worker = new Worker(source, { eval: true, workerData: { module, state } });
  const { fma_peak } = await startPeaks("relaxed", new WebAssembly.Memory({ initial: 1 }));
  const half = () => void fma_peak(ROUNDS, 0.5, 1);
  return {
    alone: {
      work: 2,
      run() {
        half();
        half();
      },
    },
    together: {
      work: 2,
      run() {
        const asked = Atomics.add(state, ASKED, 1) + 1;
        Atomics.notify(state, ASKED);
        half();
        while (Atomics.load(state, DONE) < asked);
      },
    },
    release: () => void worker.terminate(),
  };
}
