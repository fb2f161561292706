import { expectFlag, expectInt, MOST_SEQUENCES, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { aligned, type MemoryPlan } from "../../wasm/memory.ts";
import { type AttentionConfig, checkConfig } from "../attention/config.ts";
import { placePass } from "../attention/head-passes.ts";
import { chunkRows } from "../attention/heads.ts";
import { retentionOf } from "../attention/kv-state.ts";
import { checkMasks, type MaskOptions, readMasks } from "../attention/mask.ts";
import { scoreColumns, segmentNeeds, workFloats } from "../attention/segment.ts";
import { checkWeightOptions, fillFormats, layerLayout, type WeightOptions } from "../attention/weights.ts";
import { checkCacheFormat } from "../state/formats.ts";
import type { CacheOptions } from "../state/kv-cache.ts";
import { createPageLayout } from "../state/pages.ts";
import { pagesBytes } from "../state/table.ts";

/** The largest call to plan memory for. */
export interface PlanSizes extends MaskOptions {
  /** Sequences. Default 1. */
  readonly batch?: number;
  /** Tokens of the longest call. Default 1, a decode step. */
  readonly qLen?: number;
  /** Tokens per sequence in the cache. Without it, there is no cache: every call allocates pages and frees them. */
  readonly maxSeqLen?: number;
  /** Format of the cache, as `createCache` takes it. Default "f32". */
  readonly format?: CacheOptions["format"];
  /** How far back `truncate` goes in a cache with a window, as `createCache` takes it. Default 128. */
  readonly truncatable?: number;
  /** Cross-attention: rows that keys are projected from. Default qLen. */
  readonly keyLen?: number;
  /** Plan for `attendWithMaps` instead of `attend`. Default false. */
  readonly maps?: boolean;
  /** The weights include `biasK` and `biasV`, which add a column to the maps. Default false. */
  readonly extraKey?: boolean;
  /** Formats of the weights, as `createAttention` takes them. Default "f32". */
  readonly weights?: WeightOptions["weights"];
}

const SIZES = [
  ...["batch", "qLen", "maxSeqLen", "format", "truncatable", "keyLen", "maps", "extraKey", "weights"],
  ...["keep", "drop", "bias"],
] as const;

/** What `plan` gives. */
export type Plan = MemoryPlan<"cache">;

/**
 * The memory that a layer, its cache and a call will take, computed before anything is allocated.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { plan } from "headwise";
 * const { weights, cache } = plan({ dModel: 512, numHeads: 8, numKvHeads: 1 }, { maxSeqLen: 2048 });
 * console.log(weights, cache); // 2364544 1048640: 2048 tokens x 2 x 64 floats, and 64 bytes of page table
 */
export function plan(config: AttentionConfig, sizes: PlanSizes = {}): Plan {
  const where = "plan";
  const checked = checkConfig(where, config);
  const given = readFields(where, "sizes", sizes, SIZES);
  const { batch = 1, qLen = 1 } = given;
  const { keyLen = qLen } = given;
  expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  expectInt(where, "qLen", qLen);
  expectInt(where, "keyLen", keyLen);
  const maps = expectFlag(where, "maps", given.maps);
  const extraKey = expectFlag(where, "extraKey", given.extraKey);
  const cached = given.maxSeqLen === undefined ? undefined : expectInt(where, "maxSeqLen", given.maxSeqLen, keyLen);
  const kvLen = cached ?? keyLen;
  for (const name of ["format", "truncatable"] as const)
    if (given[name] !== undefined && !cached)
      throw new RangeError(`${where}: ${name} expected none without maxSeqLen, got ${describe(given[name])}`);
  const pages = createPageLayout(checked, checkCacheFormat(where, "format", given.format, checked));
  const retention = retentionOf(where, checked, given.truncatable);
  const target = { batch, numHeads: checked.numHeads, qLen, kvLen };
  const masks = checkMasks(where, readMasks(where, given), target);
  const columns = maps ? scoreColumns(kvLen, extraKey, checked.addZeroAttn) : 0;
  const formats = fillFormats(checkWeightOptions(where, "", given).formats, () => "f32");
  const rows = chunkRows(checked, batch * Math.max(qLen, keyLen));
  const needs = segmentNeeds(masks, target, Math.min(rows, qLen), columns, workFloats(pages));
  const { bytes } = placePass(checked, formats, rows, [needs]);
  const weights = aligned(layerLayout(checked, formats).bytes);
  const cache = pagesBytes(pages, batch, kvLen, cached === undefined ? undefined : retention);
  return { weights, cache, scratch: bytes, total: weights + cache + bytes };
}
