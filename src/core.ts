/**
 * Everything but the wasm bytes: for hosts that hand out compiled modules, and for whoever wants to say where the bytes
 * come from. The default entry is this with both builds inlined.
 */

import { type Kernels, type LoadOptions, ownKernels, type WasmSource } from "./kernels.ts";

export * from "./api.ts";

/** Starts the kernels of the given module, e.g. that of `headwise/simd.wasm`. */
export async function loadKernels(options: LoadOptions & { readonly module: WasmSource }): Promise<Kernels> {
  return ownKernels(options);
}
