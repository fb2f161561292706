import { readFileSync } from "node:fs";
import type { Kernels } from "../wasm/kernels.ts";
import type { Build, StatisticsKernels } from "../wasm/select-build.ts";

/** Kernels besides those of all formats. */
interface MoreKernels {
  readonly latent?: boolean;
  readonly models?: boolean;
  readonly statistics?: boolean;
}

/** The kernels of statistics, as files beside the command line: in it they would be in the package once more. */
function readStatistics(): StatisticsKernels {
  const read = (build: Build) => ({ statistics: readFileSync(new URL(`./statistics-${build}.wasm`, import.meta.url)) });
  return { simd: read("simd"), relaxed: read("relaxed") };
}

/**
 * Starts the kernels of all formats, and those of latent attention, of whole decoders and of statistics where they are asked
 * for. The entries with inlined modules are imported only when they are needed.
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
  return loadKernels({
    ...{ threads, deterministic, quantized },
    ...(latent && { latent }),
    ...(models && { models }),
    ...(more.statistics && { statistics: readStatistics() }),
  });
}
