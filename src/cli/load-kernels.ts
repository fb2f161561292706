import type { Kernels } from "../wasm/kernels.ts";

/** Options of all commands that start kernels. */
export const KERNEL_OPTIONS = {
  threads: { type: "string", default: "1" },
  deterministic: { type: "boolean", default: false },
} as const;

/** Starts the kernels of all formats. The entries with inlined modules are imported only when they are needed. */
export async function startKernels(threads: number | "auto", deterministic: boolean): Promise<Kernels> {
  const [{ loadKernels }, { quantized }] = await Promise.all([
    import("../entries/threads.ts"),
    import("../entries/quantized.ts"),
  ]);
  return loadKernels({ threads, deterministic, quantized });
}
