/**
 * The default entry: attention on one thread, with float32 weights and caches. Both builds of the kernels are inlined, so
 * that no file or network is used. On hosts that refuse to compile bytes (Cloudflare Workers, edge runtimes), they are
 * `.wasm` imports instead.
 * @packageDocumentation
 */

import relaxed from "../../build/relaxed.wasm";
import simd from "../../build/simd.wasm";
import { chooseKernels, type Kernels, type LoadOptions } from "../wasm/kernels.ts";
import { openModule } from "./module-source.ts";

export * from "./api.ts";

/**
 * Starts the kernels: the build "relaxed" on engines with a fused multiply-add, else "simd".
 * @throws TypeError or RangeError naming the option. HeadwiseError `NO_SIMD`, `NO_CODEGEN`, `NO_DECOMPRESSION`,
 * `NO_QUANTIZED` or `OUT_OF_MEMORY`; for a module of your own also `BAD_FILE`, `NOT_WASM` or `ABI_MISMATCH`.
 * @example
 * import { loadKernels } from "headwise";
 * const kernels = await loadKernels({ deterministic: true });
 * console.log(kernels.build); // simd
 */
export async function loadKernels(options: LoadOptions = {}): Promise<Kernels> {
  return chooseKernels({ simd, relaxed }, await openModule(options));
}
