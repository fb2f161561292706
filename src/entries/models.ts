/**
 * Whole decoders: for now their kernels, which `loadKernels` takes as the option `models`.
 * @packageDocumentation
 */

import decodersRelaxed from "../../build/decoders-relaxed.wasm";
import decodersSimd from "../../build/decoders-simd.wasm";
import type { ModelKernels } from "../wasm/select-build.ts";

export type { DecoderModules, ModelKernels } from "../wasm/select-build.ts";

/**
 * Kernels for whole decoders, for both builds.
 * @example
 * import { loadKernels } from "headwise";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * console.log(kernels.models); // true
 * kernels.release();
 */
export const models: ModelKernels = { simd: { decoders: decodersSimd }, relaxed: { decoders: decodersRelaxed } };
