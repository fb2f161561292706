// The modules of a build as it ships, for tests, the conformance runner and benchmarks.

import { existsSync, readFileSync } from "node:fs";
import type {
  Build,
  LatentKernels,
  ModelKernels,
  QuantizedKernels,
  QuantizedModules,
  StatisticsKernels,
} from "../../src/wasm/select-build.ts";

export const shippedBuilds = ["simd", "relaxed"] as const;

/** The bytes of build/<name>.wasm. */
export function wasmOf(name: string): Buffer<ArrayBuffer> {
  const file = new URL(`../../build/${name}.wasm`, import.meta.url);
  if (!existsSync(file)) throw new Error(`build/${name}.wasm expected, got none: run npm run build first`);
  return Buffer.from(readFileSync(file));
}

/** The modules of a build beside that of floats. */
export function quantizedOf(build: Build): QuantizedModules {
  return { weights: wasmOf(`weights-${build}`), caches: wasmOf(`caches-${build}`) };
}

/** What `loadKernels` of `headwise/core` takes for all kernels of a build. */
export function modulesOf(build: Build): {
  module: Buffer<ArrayBuffer>;
  quantized: QuantizedKernels;
  latent: LatentKernels;
  models: ModelKernels;
  statistics: StatisticsKernels;
} {
  return {
    module: wasmOf(build),
    quantized: { [build]: quantizedOf(build) },
    latent: { [build]: { latents: wasmOf(`latents-${build}`) } },
    models: { [build]: { decoders: wasmOf(`decoders-${build}`) } },
    statistics: { [build]: { statistics: wasmOf(`statistics-${build}`) } },
  };
}
