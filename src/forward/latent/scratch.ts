// The scratch of a pass of latent attention.

import { placeRows } from "../../cache/append-gather.ts";
import type { PageShape } from "../../cache/page-layout.ts";
import { createPageLayout } from "../../cache/page-layout.ts";
import { pagesBytes } from "../../cache/pages.ts";
import type { CheckedLatentConfig } from "../../latent/config.ts";
import { latentSizes } from "../../latent/packed-latent.ts";
import type { LatentFormats } from "../../latent/weights.ts";
import { wholePanels } from "../../linear/formats.ts";
import { type LinearScratch, placeLinearScratch } from "../../linear/linear.ts";
import { CHUNK_ROWS } from "../../util/rows.ts";
import { ROPE_SHAPE_BYTES } from "../../wasm/abi.ts";
import { Layout } from "../../wasm/memory.ts";
import { placeSegment, type SegmentNeeds, type SegmentPlaces } from "../attend-segment.ts";

/** How a call attends: see AttendOptions.path. */
export const PATHS = ["absorbed", "expanded"] as const;
export type LatentPath = (typeof PATHS)[number];

/**
 * Floats behind a row of several heads. A product writes whole panels, one head after the other: the columns that are too many
 * are overwritten by the next head, and those of the last head lie here.
 */
const SPILL = 8;

/** Floats between the rows of a chunk, of each part. */
interface LatentStrides {
  /** Components of a latent, in whole panels. */
  readonly rank: number;
  /** Components of a latent and its rotated key, as attention_latents reads them. */
  readonly dim: number;
  readonly qDown: number;
  readonly q: number;
  readonly kv: number;
  readonly heads: number;
  readonly y: number;
}

export function stridesOf(config: CheckedLatentConfig): LatentStrides {
  const { numHeads, headDim, kvLoraRank, qLoraRank, ropeDim, valueDim, dModel } = config;
  const rank = wholePanels(kvLoraRank);
  return {
    rank,
    dim: rank + wholePanels(ropeDim),
    qDown: wholePanels(qLoraRank),
    q: wholePanels(numHeads * headDim),
    kv: wholePanels(kvLoraRank + ropeDim),
    heads: numHeads * valueDim + SPILL,
    y: wholePanels(dModel),
  };
}

/** Floats of a row of expanded keys of `heads` heads, and of one of values. */
export function expandedStrides(
  { headDim, valueDim }: CheckedLatentConfig,
  heads: number,
): { keys: number; values: number } {
  return { keys: heads * headDim + SPILL, values: heads * valueDim + SPILL };
}

/** About how many bytes the queries and outputs of a chunk take. Keys are expanded once for each chunk, so those are longer. */
const CHUNK_BYTES: Readonly<Record<LatentPath, number>> = { absorbed: 2 ** 24, expanded: 2 ** 26 };
const MOST_ROWS: Readonly<Record<LatentPath, number>> = { absorbed: CHUNK_ROWS, expanded: Number.POSITIVE_INFINITY };
const LEAST_ROWS: Readonly<Record<LatentPath, number>> = { absorbed: 16, expanded: CHUNK_ROWS };

/** Rows of a chunk in a pass of `rows` rows. */
export function latentChunkRows(config: CheckedLatentConfig, path: LatentPath, rows: number): number {
  const { rank, dim } = stridesOf(config);
  const perHead = path === "absorbed" ? dim + rank : config.headDim + config.valueDim;
  const most = Math.floor(CHUNK_BYTES[path] / (4 * config.numHeads * perHead));
  return Math.min(rows, Math.max(LEAST_ROWS[path], Math.min(MOST_ROWS[path], most)));
}

/** About how many bytes the expanded keys and values of a group of heads take. */
const EXPANDED_BYTES = 2 ** 26;

/** How many heads are expanded at a time, for `kvLen` keys. `together`: all at once, because masks or maps differ by head. */
export function expandedHeads(config: CheckedLatentConfig, kvLen: number, together: boolean): number {
  const { numHeads, headDim, valueDim } = config;
  const most = Math.floor(EXPANDED_BYTES / (4 * Math.max(1, kvLen) * (headDim + valueDim)));
  return together ? numHeads : Math.min(numHeads, Math.max(1, most));
}

/** Offsets of the parts of a layer in the scratch of a pass. */
export interface LatentPlaces {
  readonly qDown: number;
  /** [rows, numHeads·headDim]: queries as they are projected. */
  readonly q: number;
  /** [rows, kvLoraRank + ropeDim]. */
  readonly kv: number;
  /** [rows, numHeads, dim]: queries multiplied with latents; absorbed. */
  readonly queries: number;
  /** [rows, numHeads, rank]: sums of latents; absorbed. */
  readonly sums: number;
  /** [CHUNK_ROWS, dim]: latents, and behind each its rotated key, read back from the cache. */
  readonly read: number;
  /** [CHUNK_ROWS, heads·headDim] and [CHUNK_ROWS, heads·valueDim]; expanded. */
  readonly keys: number;
  readonly values: number;
  /** [rows, numHeads·valueDim]: outputs of heads. */
  readonly heads: number;
  readonly cos: number;
  readonly sin: number;
  readonly keyRows: number;
  readonly ropeShape: number;
  readonly linear: LinearScratch;
  readonly segment: SegmentPlaces;
}

/** What a layer expands: heads at a time, 0 if none; and whether latents are read back. */
interface Expansion {
  readonly group: number;
  readonly reads: boolean;
}

/** Places what a layer needs for chunks of up to `rows` rows, besides their inputs and outputs. */
export function placeLatentLayer(
  layout: Layout,
  config: CheckedLatentConfig,
  formats: LatentFormats,
  rows: number,
  segments: readonly SegmentNeeds[],
  { group, reads }: Expansion,
): LatentPlaces {
  const { numHeads, ropeDim } = config;
  const { rank, dim, qDown, q, kv, heads } = stridesOf(config);
  const expanded = expandedStrides(config, group);
  const absorbed = group === 0 ? rows * numHeads : 0;
  const matrices = Object.values(latentSizes(config, formats, group > 0)).flat();
  return {
    qDown: layout.floats(rows * qDown),
    q: layout.floats(rows * q),
    kv: layout.floats(rows * kv),
    queries: layout.floats(absorbed * dim),
    sums: layout.floats(absorbed * rank),
    read: layout.floats(reads ? CHUNK_ROWS * dim : 0),
    keys: layout.floats(group > 0 ? CHUNK_ROWS * expanded.keys : 0),
    values: layout.floats(group > 0 ? CHUNK_ROWS * expanded.values : 0),
    heads: layout.floats(rows * heads),
    cos: layout.floats((rows * ropeDim) / 2),
    sin: layout.floats((rows * ropeDim) / 2),
    keyRows: placeRows(layout),
    ropeShape: layout.take(ROPE_SHAPE_BYTES),
    linear: placeLinearScratch(
      layout,
      matrices.filter((size) => size !== undefined),
      Math.max(rows, group > 0 ? CHUNK_ROWS : 0),
    ),
    segment: placeSegment(layout, config, segments),
  };
}

/** Offsets of a pass in its scratch: of its inputs [rows, dModel], its outputs in whole panels, and its layer. */
export interface LatentPassPlaces {
  readonly x: number;
  readonly y: number;
  readonly layer: LatentPlaces;
}

/** The scratch of a pass with chunks of up to `rows` rows. */
export function placeLatentPass(
  config: CheckedLatentConfig,
  formats: LatentFormats,
  rows: number,
  segments: readonly SegmentNeeds[],
  expansion: Expansion,
): { places: LatentPassPlaces; bytes: number } {
  const layout = new Layout();
  const x = layout.floats(rows * config.dModel);
  const y = layout.floats(rows * stridesOf(config).y);
  const layer = placeLatentLayer(layout, config, formats, rows, segments, expansion);
  return { places: { x, y, layer }, bytes: layout.bytes };
}

/**
 * Bytes of a block that a call with `kvLen` keys needs besides its scratch: pages for keys and values of `group` heads, or for
 * what weights are read and measured from, if they are (`reads`).
 */
export function blockBytes(config: CheckedLatentConfig, group: number, reads: boolean, kvLen: number): number {
  if (group === 0 && !reads) return 0;
  const { headDim, valueDim } = config;
  const sizes = group > 0 ? { numKvHeads: group, headDim, valueDim } : floatKeySizes(config);
  return pagesBytes(createPageLayout(sizes), 1, kvLen);
}

/**
 * The sizes of pages of float32 that hold latents and rotated keys, from which weights of the path "absorbed" are read and
 * measured. Their values are not used.
 */
export function floatKeySizes(config: CheckedLatentConfig): PageShape {
  return { numKvHeads: 1, headDim: stridesOf(config).dim, valueDim: 1 };
}
