import { MOST_SEQUENCES } from "../attention/limits.ts";
import { checkMasks, type MaskOptions, readMasks } from "../attention/mask.ts";
import { checkCacheFormat } from "../cache/formats.ts";
import type { CacheOptions } from "../cache/kv-cache.ts";
import { latentPageShape } from "../cache/latent-pages.ts";
import { createPageLayout } from "../cache/page-layout.ts";
import { pagesBytes } from "../cache/pages.ts";
import { latentNeeds } from "../forward/latent/pass.ts";
import { blockBytes, expandedHeads, latentChunkRows, PATHS, placeLatentPass } from "../forward/latent/scratch.ts";
import { checkLatentConfig, type LatentConfig } from "../latent/config.ts";
import { latentLayout } from "../latent/packed-latent.ts";
import { checkLatentFormats, eachLatent, type LatentOptions } from "../latent/weights.ts";
import { expectFlag, expectInt, expectOneOf, readFields } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { aligned } from "../wasm/memory.ts";

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

const SIZES: readonly (keyof LatentSizes)[] = [
  ...(["batch", "qLen", "maxSeqLen", "format", "path", "maps", "weights", "expanded", "keep", "drop", "bias"] as const),
];

/** Exact bytes of linear memory, on one thread. */
export interface LatentPlan {
  /** Bytes that the LatentAttention holds. */
  readonly weights: number;
  /** Bytes that the cache holds, or a call without a cache while it runs. */
  readonly cache: number;
  /** Bytes that all calls on the same kernels share, and that are kept at their largest size. */
  readonly scratch: number;
  /** What a call takes besides, and frees at its end: the keys and values of some heads if it is expanded, or keys for maps. */
  readonly call: number;
  /** The sum of the four. */
  readonly total: number;
}

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
