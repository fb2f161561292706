import { type AttentionConfig, checkConfig } from "../attention/config.ts";
import { checkMasks, type MaskOptions } from "../attention/mask.ts";
import { layerLayout } from "../attention/packed-weights.ts";
import { MOST_SEQUENCES } from "../attention/positions.ts";
import { checkFormats, fillFormats, type WeightOptions } from "../attention/weight-options.ts";
import type { CacheOptions } from "../cache/cache.ts";
import { checkFormat } from "../cache/formats.ts";
import { createPageLayout } from "../cache/page-layout.ts";
import { pagesBytes } from "../cache/pages.ts";
import { columnsOf, segmentNeeds, workFloats } from "../forward/attend-segment.ts";
import { chunkRows } from "../forward/layer-scratch.ts";
import { placePass } from "../forward/pass.ts";
import { describe, expectFields, expectFlag, expectInt } from "../util/errors.ts";
import { aligned } from "../wasm/memory.ts";

/** The largest call that is planned for. */
export interface PlanSizes extends MaskOptions {
  /** Sequences; default 1. */
  readonly batch?: number;
  /** Tokens of the longest call; default 1, a decode step. */
  readonly qLen?: number;
  /** Tokens that a cache may hold; without it, every call takes pages for its own keys and gives them back. */
  readonly maxSeqLen?: number;
  /** What the cache keeps them in; default "f32". */
  readonly format?: CacheOptions["format"];
  /** Cross-attention: rows that keys are projected from; default qLen. */
  readonly keyLen?: number;
  /** attendWithMaps instead of attend. */
  readonly maps?: boolean;
  /** biasK and biasV are given, so that maps have a column more. */
  readonly extraKey?: boolean;
  /** Formats of the matrices, as `createAttention` takes them; default "f32". */
  readonly weights?: WeightOptions["weights"];
}

const SIZES = [
  ...["batch", "qLen", "maxSeqLen", "format", "keyLen", "maps", "extraKey", "weights"],
  ...["keep", "drop", "bias"],
];

/**
 * Bytes of linear memory, exact: what `kernels.usedBytes` grows by. Further threads take some 80 to 256 KB each; with an
 * f16 cache, attention takes 128·(headDim + valueDim)·4 bytes a thread more.
 */
export interface Plan {
  /** Held by an Attention. */
  readonly weights: number;
  /** Held by a Cache, or by a call without one while it runs. */
  readonly cache: number;
  /**
   * Shared by all calls on the same kernels; it keeps its largest size. It does not grow with the sequence but for maps and
   * masks. An attendAsync takes as much again while it runs.
   */
  readonly scratch: number;
  readonly total: number;
}

/**
 * What a layer, its cache and a call will take, before anything is allocated.
 * @example
 * import { plan } from "headwise";
 * const { weights, cache } = plan({ dModel: 512, numHeads: 8, numKvHeads: 1 }, { maxSeqLen: 2048 });
 * console.log(weights, cache); // 2364544 1048640: 2048 tokens x 2 x 64 floats, and 64 bytes of page table
 */
export function plan(config: AttentionConfig, sizes: PlanSizes = {}): Plan {
  const where = "plan";
  const checked = checkConfig(where, config);
  expectFields(where, "sizes", sizes, SIZES);
  const { batch = 1, qLen = 1 } = sizes;
  const { keyLen = qLen } = sizes;
  expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  expectInt(where, "qLen", qLen);
  expectInt(where, "keyLen", keyLen);
  const maps = expectFlag(where, "maps", sizes.maps);
  const extraKey = expectFlag(where, "extraKey", sizes.extraKey);
  const cached = sizes.maxSeqLen === undefined ? undefined : expectInt(where, "maxSeqLen", sizes.maxSeqLen, keyLen);
  const kvLen = cached ?? keyLen;
  if (sizes.format !== undefined && !cached)
    throw new RangeError(`${where}: format expected none without maxSeqLen, got ${describe(sizes.format)}`);
  const pages = createPageLayout(checked, checkFormat(where, "format", sizes.format, checked.headDim));
  const target = { batch, numHeads: checked.numHeads, qLen, kvLen };
  const masks = checkMasks(where, sizes, target);
  const columns = maps ? columnsOf(kvLen, extraKey, checked.addZeroAttn) : 0;
  const formats = fillFormats(checkFormats(where, "", sizes).formats, () => "f32");
  const rows = chunkRows(checked, batch * Math.max(qLen, keyLen));
  const needs = segmentNeeds(masks, target, Math.min(rows, qLen), columns, workFloats(pages));
  const { bytes } = placePass(checked, formats, rows, [needs]);
  const weights = aligned(layerLayout(checked, formats).bytes);
  const cache = pagesBytes(pages, batch, kvLen);
  return { weights, cache, scratch: bytes, total: weights + cache + bytes };
}
