import type { Kernels } from "../wasm/kernels.ts";

/** Options of all commands that start kernels. */
export const KERNEL_OPTIONS = {
  threads: { type: "string", default: "1" },
  deterministic: { type: "boolean", default: false },
} as const;

/**
 * Starts the kernels of all formats, and with `latents` those of latent attention. The entries with inlined modules are
 * imported only when they are needed.
 */
export async function startKernels(
  threads: number | "auto",
  deterministic: boolean,
  latents = false,
): Promise<Kernels> {
  const [{ loadKernels }, { quantized }, { latent }] = await Promise.all([
    import("../entries/threads.ts"),
    import("../entries/quantized.ts"),
    latents ? import("../entries/latent.ts") : { latent: undefined },
  ]);
  return loadKernels({ threads, deterministic, quantized, ...(latent && { latent }) });
}
