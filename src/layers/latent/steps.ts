// The scratch of a pass of latent attention, and the steps that both paths have.

import { CHUNK_ROWS, rowsIn, tokenRunsOf } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { ROPE_SHAPE_BYTES } from "../../wasm/abi.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import type { Attention } from "../attention/attention.ts";
import {
  type Measure,
  placeSegment,
  type ScoreStage,
  type SegmentNeeds,
  type SegmentPlaces,
} from "../attention/segment.ts";
import { type PackedLinear, wholePanels } from "../linear/formats/format.ts";
import { type LinearScratch, placeLinearScratch, prepareInput, project, type Rows } from "../linear/products.ts";
import { fillTables, type LatentSite, type Runs, rotateHeads, type Tap } from "../pass/steps.ts";
import { createPageLayout, type PageShape } from "../state/pages.ts";
import { appendRows, gatherRows, type Pages, pagesBytes, placeRows, storeRows } from "../state/table.ts";
import type { CheckedLatentConfig } from "./config.ts";
import { type LatentLayer, latentSizes } from "./packed.ts";
import type { LatentFormats } from "./weights.ts";

// The scratch of a pass of latent attention.

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
interface LatentPassPlaces {
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

// The steps of a pass of latent attention that both paths have.

/** What a pass needs of a layer of latent attention. */
export interface LatentParts extends Pick<Attention, "kernels" | "pageShape" | "rotary"> {
  readonly config: CheckedLatentConfig;
  readonly latents: LatentLayer;
}

/** A layer, and the scratch that it works in. */
export interface LatentWork {
  readonly attention: LatentParts;
  readonly places: LatentPlaces;
  /** The address of the scratch. */
  readonly base: number;
  /** The address of the block: see `blockBytes`. */
  readonly block: number;
  readonly stepFlops: number;
  /** [batch, numHeads, qLen, kvLen] for the scores of a single call at `stage`, by default the softmax weights. */
  readonly maps: Float32Array | undefined;
  readonly stage?: ScoreStage | undefined;
  readonly tap?: Tap | undefined;
  readonly trace?: Tap<LatentSite> | undefined;
  readonly measure?: Measure | undefined;
}

/** Projects rows `from`, to `to`. */
export function* multiply(work: LatentWork, linear: PackedLinear, to: Rows, from: Rows, rows: number): Steps {
  const { attention, places, base, stepFlops } = work;
  const { kernels, latents } = attention;
  const input = prepareInput(kernels, [linear], from, rows, latents.mode, places.linear, base);
  yield* project(kernels, linear, to, input, rows, stepFlops);
}

/** Computes the latents and rotated keys of a chunk, and appends them. */
export function* appendLatents(work: LatentWork, runs: Runs, x: Rows): Steps {
  const { attention, places, base } = work;
  const { kernels, config, latents } = attention;
  const { kvLoraRank, ropeDim, normEps } = config;
  const { kv: stride } = stridesOf(config);
  const rows = rowsIn(runs);
  const kv = { at: pointer.f32(base + places.kv), stride };
  yield* multiply(work, latents.kvDown, kv, x, rows);
  work.tap?.("k", kv);
  if (latents.kvNorm) kernels.table.rms_norm_f32(kv.at, kv.at, latents.kvNorm, kvLoraRank, stride, normEps, 0, rows);
  fillTables(work, runs, ({ tokens }) => tokens.positions);
  rotateHeads(work, kv.at + 4 * kvLoraRank, 1, ropeDim, stride, rows);
  work.trace?.("latents", kv);
  const strides = { kStride: stride, kHeadStride: 0, vStride: stride, vHeadStride: 0 };
  const shape = storeRows(kernels, base + places.keyRows, attention.pageShape, strides);
  for (const run of runs) {
    const { tokens, pages } = run.of;
    for (const { batchRow, from, to, at } of tokenRunsOf(run, tokens.qLen)) {
      const k = pointer.f32(kv.at + 4 * at * stride);
      const v = pointer.f32(k + 4 * kvLoraRank);
      appendRows(kernels, pages, batchRow, shape, { k, v }, tokens.past + from, to - from);
    }
  }
}

/** Projects and rotates the queries of a chunk. */
export function* projectQueries(work: LatentWork, runs: Runs, x: Rows): Steps {
  const { attention, places, base } = work;
  const { kernels, config, latents } = attention;
  const { numHeads, headDim, nopeDim, qLoraRank, normEps } = config;
  const strides = stridesOf(config);
  const rows = rowsIn(runs);
  let from = x;
  if (latents.qDown) {
    from = { at: pointer.f32(base + places.qDown), stride: strides.qDown };
    yield* multiply(work, latents.qDown, from, x, rows);
    if (latents.qNorm)
      kernels.table.rms_norm_f32(from.at, from.at, latents.qNorm, qLoraRank, strides.qDown, normEps, 0, rows);
  }
  const q = { at: pointer.f32(base + places.q), stride: strides.q };
  yield* multiply(work, latents.q, q, from, rows);
  work.tap?.("q", q);
  fillTables(work, runs, ({ tokens }) => tokens.positions);
  rotateHeads(work, base + places.q + 4 * nopeDim, numHeads, headDim, strides.q, rows);
  work.trace?.("rotated", q);
}

/**
 * Reads `count` tokens of a sequence back: latents, and behind each its rotated key, [count, dim] with zeros where both have
 * padding. Returns the address.
 */
export function readLatents(work: LatentWork, pages: Pages, batchRow: number, position: number, count: number): Rows {
  const { attention, places, base } = work;
  const { kernels, config, pageShape } = attention;
  const { dim, rank } = stridesOf(config);
  const at = base + places.read;
  if (rank !== config.kvLoraRank || dim - rank !== config.ropeDim) kernels.memory.f32(at, count * dim).fill(0);
  const strides = { kStride: dim, kHeadStride: 0, vStride: dim, vHeadStride: 0 };
  const shape = storeRows(kernels, base + places.keyRows, pageShape, strides);
  const rows = { k: pointer.f32(at), v: pointer.f32(at + 4 * rank) };
  gatherRows(kernels, pages, batchRow, shape, rows, position, count);
  return { at: rows.k, stride: dim };
}

/** Projects the outputs of the heads of a chunk's rows to `out`, in whole panels. */
export function* projectOutputs(work: LatentWork, rows: number, out: Rows): Steps {
  const { attention, places, base } = work;
  const heads = { at: pointer.f32(base + places.heads), stride: stridesOf(attention.config).heads };
  work.tap?.("z", heads);
  yield* multiply(work, attention.latents.o, out, heads, rows);
}
