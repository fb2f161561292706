/**
 * The default entry with kernels that run on several threads over shared memory. The source of the workers is inlined.
 * @packageDocumentation
 */

import relaxed from "../../build/relaxed.wasm";
import simd from "../../build/simd.wasm";
import workerSource from "../../build/worker.txt";
import { findHost, type Scope, type ThreadWorker } from "../base/platform/workers.ts";
import { expectFunction, readFields } from "../base/util/arguments.ts";
import { loadThreaded } from "../hosts/threads/load.ts";
import { expectThreads, type Kernels, LOAD_OPTIONS } from "../wasm/kernels.ts";
import type { LoadOptions } from "../wasm/modules.ts";
import { openModule } from "./module-source.ts";

export type { ThreadWorker } from "../base/platform/workers.ts";
export * from "./api.ts";

/** Options of `loadKernels` in `headwise/threads`. */
export interface ThreadsOptions extends LoadOptions {
  /** Threads, 1 to 64, the calling one included. Default "auto": one per processor, up to 8. */
  readonly threads?: number | "auto";
  /**
   * Makes a worker that runs `headwise/worker` of this version, a new one at each call, for pages whose content security
   * policy forbids workers made from inlined source. Default a worker made from inlined source.
   * @example
   * import { loadKernels } from "headwise/threads";
   * import { Worker } from "node:worker_threads";
   * const createWorker = () => new Worker(new URL(import.meta.resolve("headwise/worker")));
   */
  readonly createWorker?: () => ThreadWorker;
}

/**
 * Starts the kernels on the calling thread and on workers, which `release()` ends. Results have the same bits with any number
 * of threads. On hosts without threads, the kernels run on the calling thread alone, for the reason in
 * `kernels.threads.reason`.
 * @throws TypeError or RangeError naming the option. HeadwiseError `NO_SIMD`, `NO_CODEGEN`, `NO_DECOMPRESSION`,
 * `NO_QUANTIZED` or `OUT_OF_MEMORY`; for a module of your own also `BAD_FILE`, `NOT_WASM` or `ABI_MISMATCH`.
 * @example
 * import { loadKernels } from "headwise/threads";
 * const kernels = await loadKernels({ threads: 2 });
 * console.log(kernels.threads); // { requested: 2, used: 2, reason: 'as many as were asked for' }
 * kernels.release();
 */
export async function loadKernels(options: ThreadsOptions = {}): Promise<Kernels> {
  const given = readFields("loadKernels", "options", options, [...LOAD_OPTIONS, "createWorker"]);
  const { createWorker, ...rest } = given;
  if (createWorker !== undefined) expectFunction("loadKernels", "createWorker", createWorker);
  if (rest.threads !== undefined) expectThreads(rest.threads);
  const host = findHost(globalThis as Scope, workerSource, createWorker);
  return loadThreaded({ simd, relaxed }, await openModule(rest), host);
}
