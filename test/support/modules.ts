// The modules of a build as it ships, for tests, the conformance runner and benchmarks.

import { existsSync, readFileSync } from "node:fs";
import type {
  Build,
  LatentKernels,
  ModelKernels,
  QuantizedKernels,
  QuantizedModules,
  StatisticsKernels,
} from "../../src/wasm/modules.ts";

export const shippedBuilds = ["simd", "relaxed"] as const;

/** The bytes of build/<name>.wasm. */
export function wasmOf(name: string): Buffer<ArrayBuffer> {
  const file = new URL(`../../build/${name}.wasm`, import.meta.url);
  if (!existsSync(file)) throw new Error(`build/${name}.wasm expected, got none: run npm run build first`);
  return Buffer.from(readFileSync(file));
}

const compiled = new Map<string, WebAssembly.Module>();

/** build/<name>.wasm, compiled once in this process: engines optimize a module's code once, for all of its instances. */
export function moduleOf(name: string): WebAssembly.Module {
  const module = compiled.get(name) ?? new WebAssembly.Module(wasmOf(name));
  compiled.set(name, module);
  return module;
}

/** The modules of a build beside that of floats. */
export function quantizedOf(build: Build): QuantizedModules {
  return { weights: wasmOf(`weights-${build}`), caches: wasmOf(`caches-${build}`) };
}

/** What `loadKernels` of `headwise/core` takes for all kernels of a build, as bytes, or as `read` gives it. */
export function modulesOf<T extends Buffer<ArrayBuffer> | WebAssembly.Module = Buffer<ArrayBuffer>>(
  build: Build,
  read: (name: string) => T = wasmOf as (name: string) => T,
): {
  module: T;
  quantized: QuantizedKernels;
  latent: LatentKernels;
  models: ModelKernels;
  statistics: StatisticsKernels;
} {
  return {
    module: read(build),
    quantized: { [build]: { weights: read(`weights-${build}`), caches: read(`caches-${build}`) } },
    latent: { [build]: { latents: read(`latents-${build}`) } },
    models: { [build]: { decoders: read(`decoders-${build}`) } },
    statistics: { [build]: { statistics: read(`statistics-${build}`) } },
  };
}
