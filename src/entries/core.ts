/**
 * The default entry without inlined modules, for callers who load the WebAssembly modules themselves.
 * @packageDocumentation
 */

import { type Kernels, ownKernels } from "../wasm/kernels.ts";
import type { LoadOptions, ModuleSource } from "../wasm/modules.ts";
import { openModule } from "./module-source.ts";

export * from "./api.ts";

/**
 * Starts the kernels of the given module, for instance of `headwise/simd.wasm`.
 * @throws TypeError or RangeError naming the option. HeadwiseError `BAD_FILE` where the module cannot be read, `NOT_WASM`,
 * `ABI_MISMATCH`, `NO_SIMD`, `NO_CODEGEN`, `NO_QUANTIZED` or `OUT_OF_MEMORY`.
 * @example
 * import { loadKernels } from "headwise/core";
 * const kernels = await loadKernels({ module: new URL(import.meta.resolve("headwise/simd.wasm")) });
 * console.log(kernels.build); // simd
 * kernels.release();
 */
export async function loadKernels(options: LoadOptions & { readonly module: ModuleSource }): Promise<Kernels> {
  return ownKernels(await openModule(options));
}
