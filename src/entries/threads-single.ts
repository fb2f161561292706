/** `headwise/threads` for hosts without workers, such as Cloudflare Workers: the same functions, one thread. */

import relaxed from "../../build/relaxed.wasm";
import simd from "../../build/simd.wasm";
import { expectFunction, readFields } from "../base/util/arguments.ts";
import { chooseKernels, type Kernels, LOAD_OPTIONS } from "../wasm/kernels.ts";
import { openModule } from "./module-source.ts";
import type { ThreadsOptions } from "./threads.ts";

export * from "./api.ts";

/**
 * Starts the kernels, with one thread.
 * @example
 * import { loadKernels } from "headwise/threads";
 * const kernels = await loadKernels({ threads: 1 });
 * console.log(kernels.threads.used); // 1
 * kernels.release();
 */
export async function loadKernels(options: ThreadsOptions = {}): Promise<Kernels> {
  const given = readFields("loadKernels", "options", options, [...LOAD_OPTIONS, "createWorker"]);
  const { createWorker, threads = "auto", ...rest } = given;
  if (createWorker !== undefined) expectFunction("loadKernels", "createWorker", createWorker);
  return chooseKernels({ simd, relaxed }, await openModule({ ...rest, threads }), "this host has no workers");
}
