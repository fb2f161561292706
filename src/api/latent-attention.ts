import type { Attention } from "../attention/attention.ts";
import { createRotary } from "../attention/rope.ts";
import { latentPageShape } from "../cache/latent-pages.ts";
import { LATENT_PASS } from "../forward/latent/pass.ts";
import { type CheckedLatentConfig, checkLatentConfig, type LatentConfig } from "../latent/config.ts";
import { type LatentLayer, storeLatent } from "../latent/packed-latent.ts";
import {
  checkLatentWeights,
  LATENT_OPTIONS,
  type LatentFormats,
  type LatentOptions,
  type LatentWeights,
} from "../latent/weights.ts";
import { expectFormatLoaded } from "../linear/options.ts";
import { expectFlag, readFields } from "../util/arguments.ts";
import { HeadwiseError } from "../util/errors.ts";
import { makeHandle } from "../util/lifetime.ts";
import { expectKernels, freeing, type Kernels } from "../wasm/kernels.ts";

/**
 * One layer of latent attention: its configuration, and its weights packed in linear memory until `release()`. It is an
 * Attention: `attend`, `attendAsync`, `attendMany`, `createCache` and `exportPages` take it.
 */
export interface LatentAttention extends Attention {
  /** The configuration with every default filled in. */
  readonly config: CheckedLatentConfig;
  /** The format of each packed matrix. */
  readonly formats: LatentFormats;
  /** Whether the path "expanded" can be taken. */
  readonly expanded: boolean;
  /** @internal */
  readonly latents: LatentLayer;
}

/**
 * Packs the weights of a layer of latent attention into linear memory. The given arrays are not used later.
 * @throws TypeError or RangeError naming the argument, the rule and the value. HeadwiseError `NO_LATENT` with kernels that were
 * loaded without `latent`, `NO_QUANTIZED` for formats other than "f32" with kernels that were loaded without `quantized`,
 * `OUT_OF_MEMORY` or `RELEASED`. Nothing is allocated then.
 * @example
 * import { attend, createCache, loadKernels } from "headwise";
 * import { createLatentAttention, latent } from "headwise/latent";
 * const kernels = await loadKernels({ latent });
 * const matrix = (rows: number, columns: number) => ({ data: new Float32Array(rows * columns).fill(0.1), shape: [rows, columns] });
 * const attention = createLatentAttention(
 *   kernels,
 *   { dModel: 8, numHeads: 2, kvLoraRank: 3, nopeDim: 4, ropeDim: 2, causal: true, rope: { theta: 1e4, pairing: "half" } },
 *   { wq: matrix(12, 8), wkvDown: matrix(5, 8), kvNorm: new Float32Array(3).fill(1), wkvUp: matrix(16, 3), wo: matrix(8, 8) },
 * );
 * const cache = createCache(attention, { maxSeqLen: 100 });
 * console.log(attend(attention, new Float32Array(16).fill(1), { cache }).length, cache.length); // 16 2
 * kernels.release();
 */
export function createLatentAttention(
  kernels: Kernels,
  config: LatentConfig,
  weights: LatentWeights,
  options: LatentOptions = {},
): LatentAttention {
  const where = "createLatentAttention";
  expectKernels(where, kernels);
  const checked = checkLatentConfig(where, config);
  const read = readFields(where, "options", options, LATENT_OPTIONS);
  const expanded = expectFlag(where, "options.expanded", read.expanded);
  const given = checkLatentWeights(where, checked, weights, { ...read, expanded }, kernels.quantized);
  // Again, because reading arguments may have run code of the caller's that released them.
  expectKernels(where, kernels);
  if (!kernels.latent)
    throw new HeadwiseError(
      "NO_LATENT",
      `${where}: kernels expected ones that were loaded with { latent }, which headwise/latent exports, got kernels without it`,
    );
  for (const [name, format] of Object.entries(given.formats))
    expectFormatLoaded(where, kernels.quantized, name, format);
  const latents = storeLatent(where, kernels, checked, given);
  return latentHandle(kernels, checked, latents, expanded);
}

function latentHandle(
  kernels: Kernels,
  config: CheckedLatentConfig,
  latents: LatentLayer,
  expanded: boolean,
): LatentAttention {
  const { at, bytes, formats } = latents;
  const parts = {
    ...{ kernels, config, formats: Object.freeze(formats), bytes, expanded, latents },
    pageShape: latentPageShape(config),
    pass: LATENT_PASS,
    rotary: config.rope && createRotary(config.rope),
  };
  const internal = ["pageShape", "pass", "rotary", "latents"] as const;
  // Without `layer`, which only the pass of other layers reads.
  return makeHandle<LatentAttention>(
    "LatentAttention",
    "createLatentAttention",
    parts as typeof parts & Pick<LatentAttention, "layer">,
    internal,
    freeing(kernels, at),
  );
}
