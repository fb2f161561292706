import type { Kernels } from "../wasm/kernels.ts";

/** Options of all commands that start kernels. */
export const KERNEL_OPTIONS = {
  threads: { type: "string", default: "1" },
  deterministic: { type: "boolean", default: false },
} as const;

/** Kernels besides those of all formats. */
interface MoreKernels {
  readonly latent?: boolean;
  readonly models?: boolean;
}

/**
 * Starts the kernels of all formats, and those of latent attention and of whole decoders where they are asked for. The entries
 * with inlined modules are imported only when they are needed.
 */
export async function startKernels(
  threads: number | "auto",
  deterministic: boolean,
  more: MoreKernels = {},
): Promise<Kernels> {
  const [{ loadKernels }, { quantized }, { latent }, { models }] = await Promise.all([
    import("../entries/threads.ts"),
    import("../entries/quantized.ts"),
    more.latent ? import("../entries/latent.ts") : { latent: undefined },
    more.models ? import("../entries/models.ts") : { models: undefined },
  ]);
  return loadKernels({ threads, deterministic, quantized, ...(latent && { latent }), ...(models && { models }) });
}
