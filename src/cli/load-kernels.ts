import type { Kernels } from "../wasm/kernels.ts";

/** Options of commands that say which kernels to start. */
export const KERNEL_OPTIONS = {
  threads: { type: "string", default: "1" },
  deterministic: { type: "boolean", default: false },
} as const;

/** The kernels of all formats. The entries that carry them are read only where they are needed. */
export async function startKernels(threads: number | "auto", deterministic: boolean): Promise<Kernels> {
  const [{ loadKernels }, { quantized }] = await Promise.all([
    import("../entries/threads.ts"),
    import("../entries/quantized.ts"),
  ]);
  return loadKernels({ threads, deterministic, quantized });
}
