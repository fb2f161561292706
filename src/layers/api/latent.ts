// Layers of latent attention (MLA), and their plan.

import { expectFlag, expectInt, expectOneOf, MOST_SEQUENCES, readFields } from "../../base/util/arguments.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { makeHandle } from "../../base/util/lifetime.ts";
import { expectKernels, freeing, type Kernels } from "../../wasm/kernels.ts";
import { aligned, type MemoryPlan } from "../../wasm/memory.ts";
import type { Attention } from "../attention/attention.ts";
import { checkMasks, type MaskOptions, readMasks } from "../attention/mask.ts";
import { createRotary } from "../attention/rope.ts";
import { type CheckedLatentConfig, checkLatentConfig, type LatentConfig } from "../latent/config.ts";
import { LATENT_PASSES, LATENTS, latentNeeds, latentPageShape } from "../latent/latents.ts";
import { blockBytes, expandedHeads, latentChunkRows, PATHS, placeLatentPass } from "../latent/paths.ts";
import {
  checkLatentFormats,
  checkLatentWeights,
  eachLatent,
  LATENT_OPTIONS,
  type LatentFormats,
  type LatentOptions,
  type LatentWeights,
  latentLayout,
  type PackedLatents,
  storeLatent,
} from "../latent/weights.ts";
import { expectFormatLoaded } from "../linear/formats/formats.ts";
import type { Mixer } from "../mixer/mixer.ts";
import { checkCacheFormat } from "../state/formats.ts";
import type { CacheOptions } from "../state/kv-cache.ts";
import { createPageLayout } from "../state/pages.ts";
import { pagesBytes } from "../state/table.ts";

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
  readonly latents: PackedLatents;
  /** @internal */
  readonly mixer: Mixer;
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
  latents: PackedLatents,
  expanded: boolean,
): LatentAttention {
  const { at, bytes, formats } = latents;
  const parts = {
    ...{ kernels, config, formats: Object.freeze(formats), bytes, expanded, latents },
    pageShape: latentPageShape(config),
    ...{ kind: "latents", mixer: LATENTS, passes: LATENT_PASSES },
    rotary: config.rope && createRotary(config.rope),
  };
  const internal = ["kind", "pageShape", "mixer", "passes", "rotary", "latents"] as const;
  return makeHandle<LatentAttention>("LatentAttention", "createLatentAttention", parts, internal, freeing(kernels, at));
}

/** The largest call to plan memory for. */
export interface LatentSizes extends MaskOptions {
  /** Sequences. Default 1. */
  readonly batch?: number;
  /** Tokens of the longest call. Default 1, a decode step. */
  readonly qLen?: number;
  /** Tokens per sequence in the cache. Without it, there is no cache: every call allocates pages and frees them. */
  readonly maxSeqLen?: number;
  /** Format of the cache: "f32", "f16" or "q8". Default "f32". */
  readonly format?: CacheOptions["format"];
  /** The path of the call. Default "absorbed". */
  readonly path?: "absorbed" | "expanded";
  /** Plan for `attendWithMaps` instead of `attend`. Default false. */
  readonly maps?: boolean;
  /** Formats of the weights, as `createLatentAttention` takes them. Default "f32". */
  readonly weights?: LatentOptions["weights"];
  /** Whether the layer can be expanded, as `createLatentAttention` takes it. Default only for the path "expanded". */
  readonly expanded?: boolean;
}

const SIZES = [
  ...(["batch", "qLen", "maxSeqLen", "format", "path", "maps", "weights", "expanded", "keep", "drop", "bias"] as const),
] as const;

/** What `planLatent` gives. */
export type LatentPlan = MemoryPlan<"cache" | "call">;

/**
 * The memory that a layer of latent attention, its cache and a call will take, computed before anything is allocated.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { planLatent } from "headwise/latent";
 * const rope = { theta: 10_000, pairing: "interleaved" } as const;
 * const lite = { dModel: 2048, numHeads: 16, kvLoraRank: 512, nopeDim: 128, ropeDim: 64, causal: true, rope };
 * console.log(planLatent(lite, { maxSeqLen: 8192 }).cache); // 18874624: 8192 x 576 floats, and 256 bytes of page table
 */
export function planLatent(config: LatentConfig, sizes: LatentSizes = {}): LatentPlan {
  const where = "planLatent";
  const checked = checkLatentConfig(where, config);
  const given = readFields(where, "sizes", sizes, SIZES);
  const { batch = 1, qLen = 1, path = "absorbed" } = given;
  expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  expectInt(where, "qLen", qLen);
  expectOneOf(where, "path", path, PATHS);
  const maps = expectFlag(where, "maps", given.maps);
  const expanded = given.expanded === undefined ? path === "expanded" : expectFlag(where, "expanded", given.expanded);
  if (path === "expanded" && !expanded)
    throw new RangeError(`${where}: path expected "absorbed" with expanded: false, got "expanded"`);
  const cached = given.maxSeqLen === undefined ? undefined : expectInt(where, "maxSeqLen", given.maxSeqLen, qLen);
  if (given.format !== undefined && !cached)
    throw new RangeError(`${where}: format expected none without maxSeqLen, got ${describe(given.format)}`);
  const kvLen = cached ?? qLen;
  const shape = latentPageShape(checked);
  const pages = createPageLayout(shape, checkCacheFormat(where, "format", given.format, shape));
  const target = { batch, numHeads: checked.numHeads, qLen, kvLen };
  const masks = checkMasks(where, readMasks(where, given), target);
  const chosen = checkLatentFormats(where, "weights", given.weights);
  const formats = eachLatent((name) => chosen[name] ?? "f32");

  const rows = latentChunkRows(checked, path, batch * qLen);
  const needs = latentNeeds(checked, path, masks, target, rows, maps ? kvLen : 0, pages.formats);
  const group = path === "expanded" ? expandedHeads(checked, kvLen, maps || masks.perHead) : 0;
  const { bytes: scratch } = placeLatentPass(checked, formats, rows, [needs], { group, reads: group > 0 || maps });
  const call = blockBytes(checked, group, maps, kvLen);
  const weights = aligned(latentLayout(checked, formats, expanded).bytes);
  const cache = pagesBytes(pages, batch, kvLen);
  return { weights, cache, scratch, call, total: weights + cache + scratch + call };
}
