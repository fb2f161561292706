/**
 * Everything but the wasm bytes: for hosts that hand out compiled modules, and for whoever wants to say where the bytes
 * come from. The default entry is this with both builds inlined.
 */

import { type Kernels, type LoadOptions, ownKernels, type WasmSource } from "./kernels.ts";

export * from "./api.ts";

/**
 * Starts the kernels of the given module, e.g. that of `headwise/simd.wasm`.
 * @example
 * import { readFileSync } from "node:fs";
 * import { createRequire } from "node:module";
 * import { loadKernels } from "headwise/core";
 * const path = createRequire(import.meta.url).resolve("headwise/simd.wasm");
 * const kernels = await loadKernels({ module: readFileSync(path) });
 * console.log(kernels.build); // simd
 * kernels.release();
 */
export async function loadKernels(options: LoadOptions & { readonly module: WasmSource }): Promise<Kernels> {
  return ownKernels(options);
}
