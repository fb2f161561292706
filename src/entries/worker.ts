/**
 * The script of the workers of `headwise/threads`. That entry has it inlined; as a file it is for pages whose content security
 * policy forbids workers made from inlined source.
 */

import { findWorkerPort } from "../platform/worker-port.ts";
import type { WorkerAnswer } from "../platform/workers.ts";
import type { WorkerStart } from "../threads/work-queue.ts";
import { createLooking, EPOCH, leaveFailure, numbered, runTiles, STOPPED, viewControl } from "../threads/work-queue.ts";
import type { KernelTable } from "../wasm/abi.ts";

const port = findWorkerPort<WorkerStart, WorkerAnswer>();

port.onmessage = async ({ data }) => {
  try {
    const imports = { env: { memory: data.memory } };
    const started = await Promise.all(data.modules.map((module) => WebAssembly.instantiate(module, imports)));
    const table = Object.assign({}, ...started.map(({ exports }) => exports)) as KernelTable;
    // The next message confirms that the pool counts on this thread.
    port.onmessage = () => {
      work(table, data);
      port.onmessage = null;
    };
    port.postMessage({ ready: true, text: "" });
  } catch (error) {
    port.postMessage({ ready: false, text: String(error) });
  }
};

/** Runs tiles of one job after the other until the kernels are released. */
function work(table: KernelTable, { memory, control: at, thread, lookFor }: WorkerStart): void {
  const kernels = numbered(table);
  const control = viewControl(memory.buffer, at);
  const { words } = control;
  const look = createLooking(lookFor);
  while (Atomics.load(words, STOPPED) === 0) {
    const epoch = Atomics.load(words, EPOCH);
    runTiles(control, kernels, thread, (kernel, error) => leaveFailure(control, kernel, error));
    if (!look(() => Atomics.load(words, EPOCH) !== epoch)) Atomics.wait(words, EPOCH, epoch);
  }
}
