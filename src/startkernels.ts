import type { Kernels } from "./kernels.ts";

/** Options of commands that say which kernels to start. */
export const KERNEL_OPTIONS = {
  threads: { type: "string", default: "1" },
  deterministic: { type: "boolean", default: false },
} as const;

/** The kernels of all formats. The entry that carries them is read only where it is needed. */
export async function startKernels(threads: number | "auto", deterministic: boolean): Promise<Kernels> {
  const { loadKernels } = await import("./threads.ts");
  return loadKernels({ threads, deterministic });
}
