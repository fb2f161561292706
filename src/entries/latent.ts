/**
 * Latent attention (MLA): keys and values of all heads are computed from one latent per token, which is all that the cache
 * holds.
 * @packageDocumentation
 */

import latentsRelaxed from "../../build/latents-relaxed.wasm";
import latentsSimd from "../../build/latents-simd.wasm";
import type { LatentKernels } from "../wasm/modules.ts";

export type {
  CheckedLatentConfig,
  LatentConfig,
  LatentFormats,
  LatentOptions,
  LatentWeights,
} from "../layers/latent/config.ts";
export {
  createLatentAttention,
  type LatentAttention,
  type LatentPlan,
  type LatentSizes,
  planLatent,
} from "../layers/latent/latents.ts";
export type { LatentKernels, LatentModules } from "../wasm/modules.ts";

/**
 * Kernels for latent attention, for both builds.
 * @example
 * import { loadKernels } from "headwise";
 * import { latent } from "headwise/latent";
 * const kernels = await loadKernels({ latent });
 * console.log(kernels.latent); // true
 * kernels.release();
 */
export const latent: LatentKernels = { simd: { latents: latentsSimd }, relaxed: { latents: latentsRelaxed } };
