// The most that two threads of this machine can do together: two peak loops that share nothing.

import { Worker } from "node:worker_threads";
import type { Load } from "../lib/measure.ts";
import { compilePeakLoops, startPeakLoops } from "../lib/peak-loops.ts";

const ROUNDS = 1_000_000;

/** Runs of the loop on the other thread that are requested, and those that are done. */
const REQUESTED = 0;
const DONE = 1;

const source = `
const { workerData: { module, state } } = require("node:worker_threads");
const memory = new WebAssembly.Memory({ initial: 1 });
const { fma_peak } = new WebAssembly.Instance(module, { env: { memory } }).exports;
for (let done = 0; ; done++) {
  Atomics.wait(state, ${REQUESTED}, done);
  fma_peak(${ROUNDS}, 0.5, 1);
  Atomics.store(state, ${DONE}, done + 1);
}`;

/** The same work by one thread and by two. */
export async function twoThreadPeaks(): Promise<{ alone: Load; together: Load; release(): void }> {
  const state = new Int32Array(new SharedArrayBuffer(8));
  const module = await compilePeakLoops("relaxed");
  const worker = new Worker(source, { eval: true, workerData: { module, state } });
  const { fma_peak } = await startPeakLoops("relaxed", new WebAssembly.Memory({ initial: 1 }));
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
        const requested = Atomics.add(state, REQUESTED, 1) + 1;
        Atomics.notify(state, REQUESTED);
        half();
        while (Atomics.load(state, DONE) < requested);
      },
    },
    release: () => void worker.terminate(),
  };
}
