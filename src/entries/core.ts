/**
 * Everything but the wasm bytes: for hosts that hand out compiled modules, and for whoever wants to say where the bytes
 * come from. The default entry is this with both builds inlined.
 */

import { type Kernels, type LoadOptions, type ModuleSource, ownKernels } from "../wasm/kernels.ts";
import { openModule } from "./module-source.ts";

export * from "./api.ts";

/**
 * Starts the kernels of the given module, e.g. that of `headwise/simd.wasm`.
 * @example
 * import { loadKernels } from "headwise/core";
 * const kernels = await loadKernels({ module: new URL(import.meta.resolve("headwise/simd.wasm")) });
 * console.log(kernels.build); // simd
 * kernels.release();
 */
export async function loadKernels(options: LoadOptions & { readonly module: ModuleSource }): Promise<Kernels> {
  return ownKernels(await openModule(options));
}
