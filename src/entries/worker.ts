/**
 * The script of the workers of `headwise/threads`. That entry has it inlined; as a file it is for pages whose content security
 * policy forbids workers made from inlined source.
 */

import { findWorkerPort, otherScript, type WorkerAnswer } from "../base/platform/workers.ts";
import { SCRIPT, type WorkerStart, work } from "../hosts/threads/pool.ts";
import type { KernelTable } from "../wasm/abi.ts";

const port = findWorkerPort<unknown, WorkerAnswer>();

const answer = (ready: boolean, text: string) => port.postMessage({ script: SCRIPT, ready, text });

port.onmessage = async ({ data }) => {
  try {
    const other = otherScript(data, SCRIPT);
    if (other) return answer(false, `${SCRIPT} was started by ${other}`);
    const start = data as WorkerStart;
    const imports = { env: { memory: start.memory } };
    const started = await Promise.all(start.modules.map((module) => WebAssembly.instantiate(module, imports)));
    const table = Object.assign({}, ...started.map(({ exports }) => exports)) as KernelTable;
    // This message confirms that the pool counts on this thread.
    port.onmessage = ({ data: message }) => {
      if (message !== "begin") return;
      work(table, start);
      port.onmessage = null;
    };
    answer(true, "");
  } catch (error) {
    answer(false, String(error));
  }
};
