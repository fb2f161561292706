/**
 * The entry with threads: `headwise` on shared memory, whose kernels run on several threads at once. It has both
 * builds and the workers' source inlined.
 */

import relaxed from "../../build/relaxed.wasm";
import simd from "../../build/simd.wasm";
import workerSource from "../../build/worker.txt";
import { findHost, type Scope } from "../platform/spawn.ts";
import type { ThreadWorker } from "../platform/workers.ts";
import { loadThreaded } from "../threads/load.ts";
import { describe, expectFields } from "../util/errors.ts";
import { expectThreads, type Kernels, LOAD_OPTIONS, type LoadOptions } from "../wasm/kernels.ts";
import { openModule } from "./module-source.ts";

export type { ThreadWorker } from "../platform/workers.ts";
export * from "./api.ts";

/** What `loadKernels` of `headwise/threads` takes. */
export interface ThreadsOptions extends LoadOptions {
  /** How many threads to use, 1 to 64; default "auto": one a processor, up to 8. */
  readonly threads?: number | "auto";
  /**
   * Makes a worker that runs `headwise/worker`, for pages whose content security policy forbids workers made from text.
   * @example
   * import { loadKernels } from "headwise/threads";
   * import { Worker } from "node:worker_threads";
   * const createWorker = () => new Worker(new URL(import.meta.resolve("headwise/worker")));
   */
  readonly createWorker?: () => ThreadWorker;
}

/**
 * Starts the kernels with threads: the calling one and workers, which `release()` ends. Results have the same bits with
 * any number of them. Where a host allows no threads, there is one, and `kernels.threads.reason` says why.
 * @example
 * import { loadKernels } from "headwise/threads";
 * const kernels = await loadKernels({ threads: 2 });
 * console.log(kernels.threads); // { requested: 2, used: 2, reason: 'as many as were asked for' }
 * kernels.release();
 */
export async function loadKernels(options: ThreadsOptions = {}): Promise<Kernels> {
  expectFields("loadKernels", "options", options, [...LOAD_OPTIONS, "createWorker"]);
  const { createWorker, ...rest } = options;
  if (createWorker !== undefined && typeof createWorker !== "function")
    throw new TypeError(`loadKernels: createWorker expected a function, got ${describe(createWorker)}`);
  if (rest.threads !== undefined) expectThreads(rest.threads);
  const host = findHost(globalThis as Scope, workerSource, createWorker);
  return loadThreaded({ simd, relaxed }, await openModule(rest), host);
}
