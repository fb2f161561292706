/**
 * The entry that knows where the kernels' bytes are. It is built three ways: with both builds inlined for Node, Deno, Bun
 * and browsers (no file or network is touched), and with `.wasm` imports for hosts that hand those out as compiled modules
 * and refuse bytes (Cloudflare Workers, edge runtimes).
 */

import relaxed from "../../build/relaxed.wasm";
import simd from "../../build/simd.wasm";
import { chooseKernels, type Kernels, type LoadOptions } from "../wasm/kernels.ts";
import { openModule } from "./module-source.ts";

export * from "./api.ts";

/**
 * Starts the kernels: the relaxed build where the engine fuses multiply and add, else simd.
 * @example
 * import { loadKernels } from "headwise";
 * const kernels = await loadKernels({ deterministic: true });
 * console.log(kernels.build); // simd
 */
export async function loadKernels(options: LoadOptions = {}): Promise<Kernels> {
  return chooseKernels({ simd, relaxed }, await openModule(options));
}
