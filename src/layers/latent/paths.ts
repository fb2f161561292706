// The steps of layers of latent attention on rows in linear memory, what they work in, and their two paths: absorbed, which scores
// latents themselves, and expanded, which computes keys and values.

import { CHUNK_ROWS, chunksOf, type RowRun, rowsIn, type TokenRun, tokenRunsOf } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { NULL, RopeShape } from "../../wasm/abi.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import type { Placement } from "../attention/mask.ts";
import { fillTables, rotateHeads } from "../attention/rope.ts";
import {
  attendSegment,
  type CallShape,
  callShape,
  type Measure,
  placeSegment,
  readScores,
  type ScoreStage,
  type Segment,
  type SegmentNeeds,
  type SegmentPlaces,
  segmentsOf,
} from "../attention/segment.ts";
import { type PackedLinear, wholePanels } from "../linear/formats.ts";
import { type LinearScratch, placeLinearScratch, prepareInput, project, type Rows } from "../linear/products.ts";
import type { HeadSite, LayerCall, MixerCall, MixerLayer, PassCall, Runs, Tap, WarmQueries } from "../mixer/mixer.ts";
import { createPageLayout, type PageShape } from "../state/pages.ts";
import {
  appendRows,
  gatherRows,
  type Pages,
  pagesAt,
  pagesBytes,
  pageTable,
  placeRows,
  storeRows,
} from "../state/table.ts";
import { type CheckedLatentConfig, type LatentFormats, latentSizes, type PackedLatents } from "./config.ts";

// The scratch of a pass.

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
function expandedStrides({ headDim, valueDim }: CheckedLatentConfig, heads: number): { keys: number; values: number } {
  return { keys: heads * headDim + SPILL, values: heads * valueDim + SPILL };
}

/** About how many bytes the queries and outputs of a chunk take. Keys are expanded once for each chunk, so those are longer. */
const CHUNK_BYTES: Readonly<Record<LatentPath, number>> = { absorbed: 2 ** 24, expanded: 2 ** 26 };
const MOST_ROWS: Readonly<Record<LatentPath, number>> = { absorbed: CHUNK_ROWS, expanded: Infinity };
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
    ropeShape: layout.take(RopeShape.bytes),
    linear: placeLinearScratch(
      layout,
      matrices.filter((size) => size !== undefined),
      Math.max(rows, group > 0 ? CHUNK_ROWS : 0),
    ),
    segment: placeSegment(layout, config, segments),
  };
}

/** The scratch of a pass with chunks of up to `rows` rows: inputs `x` [rows, dModel], outputs `y` in whole panels, and its layer. */
export function placeLatentPass(
  config: CheckedLatentConfig,
  formats: LatentFormats,
  rows: number,
  segments: readonly SegmentNeeds[],
  expansion: Expansion,
): { places: { readonly x: number; readonly y: number; readonly layer: LatentPlaces }; bytes: number } {
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

/** A layer of latent attention, as a pass needs it. */
export interface LatentsLayer extends MixerLayer {
  readonly config: CheckedLatentConfig;
  readonly latents: PackedLatents;
}

/**
 * What a layer has besides the sites of heads: latents with rotated keys, both as they are appended; queries after rotation; queries
 * that are multiplied with W_uk; sums of latents.
 */
export type LatentSite = HeadSite | "latents" | "rotated" | "absorbed" | "sums";

/** A layer, and the scratch that it works in. */
export interface LatentWork {
  readonly attention: LatentsLayer;
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
  readonly warm?: WarmQueries | undefined;
}

/** Projects rows `from`, to `to`. */
function* multiply(work: LatentWork, linear: PackedLinear, to: Rows, from: Rows, rows: number): Steps {
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
function* projectQueries(work: LatentWork, runs: Runs, x: Rows): Steps {
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
  for (const run of runs) work.warm?.({ at: pointer.f32(q.at + 4 * run.at * strides.q), stride: strides.q }, run);
  work.trace?.("rotated", q);
}

/**
 * Reads `count` tokens of a sequence back: latents, and behind each its rotated key, [count, dim] with zeros where both have
 * padding. Returns the address.
 */
function readLatents(work: LatentWork, pages: Pages, batchRow: number, position: number, count: number): Rows {
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
function* projectOutputs(work: LatentWork, rows: number, out: Rows): Steps {
  const { attention, places, base } = work;
  const heads = { at: pointer.f32(base + places.heads), stride: stridesOf(attention.config).heads };
  work.tap?.("z", heads);
  yield* multiply(work, attention.latents.o, out, heads, rows);
}

// The path "absorbed": queries are multiplied with W_uk of their head, so they are scored against latents themselves, one
// key for all heads whose greater part is the value too. Outputs are sums of latents, which W_uv of their head turns into values.

/** The sizes that attention_latents sees. */
export function absorbedSizes(config: CheckedLatentConfig): { headDim: number; valueDim: number } {
  return { headDim: stridesOf(config).dim, valueDim: config.kvLoraRank };
}

export function absorbedShape(config: CheckedLatentConfig): CallShape {
  const { numHeads } = config;
  const { rank, dim } = stridesOf(config);
  return callShape(
    { numHeads, numKvHeads: 1, ...absorbedSizes(config) },
    config,
    { slopes: NULL, sinks: NULL },
    { qStride: numHeads * dim, qHeadStride: dim, outStride: numHeads * rank, outHeadStride: rank },
  );
}

/** Projects the queries of a chunk, attends to the latents, and writes the projected outputs to `out`. */
export function* attendAbsorbed(work: LatentWork, runs: Runs, { x, out }: { x: Rows; out: Rows }): Steps {
  const { attention, places, base, stepFlops, maps, stage = 3, measure, trace } = work;
  const { kernels, config, latents } = attention;
  const { headDim, valueDim } = config;
  const strides = stridesOf(config);
  const shape = absorbedShape(config);
  const rows = rowsIn(runs);
  yield* projectQueries(work, runs, x);
  for (const [head, linear] of latents.kAbsorbed.entries()) {
    const q = { at: pointer.f32(base + places.q + 4 * head * headDim), stride: strides.q };
    const to = base + places.queries + 4 * head * strides.dim;
    yield* multiply(work, linear, { at: pointer.f32(to), stride: shape.qStride }, q, rows);
  }
  copyRotated(work, rows);
  trace?.("absorbed", { at: pointer.f32(base + places.queries), stride: shape.qStride });
  for (const run of runs) {
    const { tokens, pages } = run.of;
    const { masks, target } = tokens;
    const own = { kernels, base, places: places.segment, call: shape, masks, target };
    for (const { at, ...placed } of segmentsOf(tokens, run, false, stepFlops)) {
      const segment = {
        ...placed,
        q: pointer.f32(base + places.queries + 4 * at * shape.qStride),
        out: pointer.f32(base + places.sums + 4 * at * shape.outStride),
        pages: pageTable(pages, placed.batchRow),
        layout: pages.layout,
      };
      if (maps || measure) {
        const seen = { ...segment, ...floatKeys(work, run.of, segment, maps ? target.kvLen : endOf(shape, segment)) };
        const read = { ...own, call: { ...shape, valueDim: floatKeySizes(config).valueDim } };
        if (maps) readScores(read, seen, stage, maps);
        // What this writes to `out` is overwritten by the sums.
        if (measure) yield* attendSegment(read, seen, stepFlops, measure);
      }
      yield* attendSegment(own, segment, stepFlops);
    }
  }
  trace?.("sums", { at: pointer.f32(base + places.sums), stride: shape.outStride });
  for (const [head, linear] of latents.v.entries()) {
    const sums = { at: pointer.f32(base + places.sums + 4 * head * strides.rank), stride: shape.outStride };
    const to = base + places.heads + 4 * head * valueDim;
    yield* multiply(work, linear, { at: pointer.f32(to), stride: strides.heads }, sums, rows);
  }
  yield* projectOutputs(work, rows, out);
}

/** Copies the rotated part of each query behind the part for latents, with zeros where latents have padding. */
function copyRotated({ attention, places, base }: LatentWork, rows: number): void {
  const { kernels, config } = attention;
  const { numHeads, headDim, nopeDim, ropeDim, kvLoraRank } = config;
  const { rank, dim, q: stride } = stridesOf(config);
  const q = kernels.memory.f32(base + places.q, rows * stride);
  const queries = kernels.memory.f32(base + places.queries, rows * numHeads * dim);
  for (let r = 0; r < rows; r++)
    for (let head = 0; head < numHeads; head++) {
      const from = r * stride + head * headDim + nopeDim;
      const to = (r * numHeads + head) * dim + rank;
      queries.set(q.subarray(from, from + ropeDim), to);
      // Products with what rounds the rank up are 0, but NaN where the query is not finite.
      queries.fill(0, to - rank + kvLoraRank, to);
      queries.fill(0, to + ropeDim, to - rank + dim);
    }
}

/** The end of the keys that a segment may attend. */
function endOf({ right }: CallShape, { position, begin, end, kvLen }: Omit<Segment, "pages" | "layout">): number {
  return Math.min(kvLen, position + end - begin + right);
}

/** The first `count` keys of a segment in pages of float32, from which its weights are read and measured. */
function floatKeys(
  work: LatentWork,
  { tokens, pages }: LayerCall,
  { batchRow }: Segment,
  count: number,
): Pick<Segment, "pages" | "layout"> {
  const { attention, places, base } = work;
  const { kernels, config } = attention;
  const sizes = floatKeySizes(config);
  const layout = createPageLayout(sizes);
  const keys = pagesAt(kernels, work.block, layout, 1, tokens.target.kvLen);
  for (const [begin, end] of chunksOf(count, CHUNK_ROWS)) {
    const { at, stride } = readLatents(work, pages, batchRow, begin, end - begin);
    const strides = { kStride: stride, kHeadStride: 0, vStride: stride, vHeadStride: 0 };
    const rows = storeRows(kernels, base + places.keyRows, sizes, strides);
    appendRows(kernels, keys, 0, rows, { k: at, v: at }, begin, end - begin);
  }
  return { pages: pageTable(keys, 0), layout };
}

// The path "expanded": the keys and values of some heads are computed from all latents into pages of their own, and
// attention_f32 runs on them.

/** The call shape of `heads` heads. */
export function expandedShape(config: CheckedLatentConfig, heads: number): CallShape {
  const { headDim, valueDim } = config;
  const { q, heads: out } = stridesOf(config);
  return callShape(
    { numHeads: heads, numKvHeads: heads, headDim, valueDim },
    config,
    { slopes: NULL, sinks: NULL },
    { qStride: q, qHeadStride: headDim, outStride: out, outHeadStride: valueDim },
  );
}

/**
 * How many heads a call expands at a time: all if masks or maps differ by head. With a cache, as many as fit when it is full,
 * so that the first call takes no more scratch than the last.
 */
export function groupOf(config: CheckedLatentConfig, { target, masks, cache }: MixerCall, maps: boolean): number {
  return expandedHeads(config, cache?.maxSeqLen ?? target.kvLen, maps || masks.perHead);
}

/** Projects the queries of a chunk, attends to expanded keys, and writes the projected outputs to `out`. */
export function* attendExpanded(work: LatentWork, runs: Runs<PassCall>, { x, out }: { x: Rows; out: Rows }): Steps {
  yield* projectQueries(work, runs, x);
  for (const run of runs) {
    const { call } = run.of;
    for (const tokens of tokenRunsOf(run, call.qLen)) yield* attendTokens(work, run.of, tokens);
  }
  yield* projectOutputs(work, rowsIn(runs), out);
}

/** The outputs of the heads for tokens of one sequence, some heads at a time. */
function* attendTokens(work: LatentWork, of: PassCall, tokens: TokenRun): Steps {
  const { attention, places, base, maps } = work;
  const { kernels, config } = attention;
  const { numHeads, headDim, valueDim } = config;
  const { heads: stride } = stridesOf(config);
  const { call, pages } = of;
  const { batchRow, from, to, at } = tokens;
  const keys = maps ? call.target.kvLen : keysOf(config, call, tokens);
  if (keys <= 0) {
    kernels.memory.f32(base + places.heads + 4 * at * stride, (to - from) * stride).fill(0);
    return;
  }
  for (const [head, behind] of chunksOf(numHeads, groupOf(config, call, maps !== undefined))) {
    const layout = createPageLayout({ numKvHeads: behind - head, headDim, valueDim });
    const expanded = pagesAt(kernels, work.block, layout, 1, call.target.kvLen);
    yield* expand(work, pages, batchRow, expanded, head, keys);
    for (const run of piecesOf(of, call, tokens)) yield* attendHeads(work, run, expanded, head);
  }
}

/** How many keys of their sequence tokens may attend. */
export function keysOf({ causal }: CheckedLatentConfig, { placements }: MixerCall, { batchRow, to }: TokenRun): number {
  const { position, kvLen } = placements[batchRow] as Placement;
  return Math.max(0, causal ? Math.min(kvLen, position + to) : kvLen);
}

/** Tokens in runs of bounded length if masks differ by query, because those of a run are written at once. */
export function* piecesOf<Of>(
  of: Of,
  { qLen, masks }: MixerCall,
  { batchRow, from, to, at }: TokenRun,
): Generator<RowRun<Of>, void, void> {
  const first = batchRow * qLen + from;
  for (const [begin, end] of chunksOf(to - from, masks.perRow ? CHUNK_ROWS : to - from))
    yield { of, begin: first + begin, end: first + end, at: at + begin };
}

/** The outputs of some heads, from the pages of their keys and values. */
function* attendHeads(work: LatentWork, run: RowRun<PassCall>, expanded: Pages, head: number): Steps {
  const { attention, places, base, stepFlops, maps } = work;
  const { kernels, config } = attention;
  const { headDim, valueDim } = config;
  const strides = stridesOf(config);
  const { layout } = expanded;
  const { masks, target } = run.of.call;
  const call = expandedShape(config, layout.numKvHeads);
  const own = { kernels, base, places: places.segment, call, masks, target };
  for (const { at, ...placed } of segmentsOf(run.of.call, run, false, stepFlops)) {
    const segment = {
      ...placed,
      q: pointer.f32(base + places.q + 4 * (at * strides.q + head * headDim)),
      out: pointer.f32(base + places.heads + 4 * (at * strides.heads + head * valueDim)),
      pages: pageTable(expanded, 0),
      layout,
    };
    yield* attendSegment(own, segment, stepFlops);
    if (maps) readScores(own, segment, 3, maps);
  }
}

/** Computes keys and values of heads `head`.. from the first `count` latents of a sequence, into `to`. */
function* expand(work: LatentWork, from: Pages, batchRow: number, to: Pages, head: number, count: number): Steps {
  const { attention, places, base, stepFlops } = work;
  const { kernels, config, latents } = attention;
  const { headDim, valueDim, nopeDim, ropeDim } = config;
  const { numKvHeads: heads } = to.layout;
  const { rank } = stridesOf(config);
  const strides = expandedStrides(config, heads);
  const [keysAt, valuesAt] = [base + places.keys, base + places.values];
  const ofKeys = latents.kExpanded.slice(head, head + heads);
  const ofValues = latents.v.slice(head, head + heads);
  for (const [begin, end] of chunksOf(count, CHUNK_ROWS)) {
    const rows = end - begin;
    const read = readLatents(work, from, batchRow, begin, rows);
    const all = [...ofKeys, ...ofValues];
    const input = prepareInput(kernels, all, read, rows, latents.mode, places.linear, base);
    for (const [h, linear] of ofKeys.entries()) {
      const k = { at: pointer.f32(keysAt + 4 * h * headDim), stride: strides.keys };
      yield* project(kernels, linear, k, input, rows, stepFlops);
    }
    for (const [h, linear] of ofValues.entries()) {
      const v = { at: pointer.f32(valuesAt + 4 * h * valueDim), stride: strides.values };
      yield* project(kernels, linear, v, input, rows, stepFlops);
    }
    const tokens = kernels.memory.f32(read.at, rows * read.stride);
    const keys = kernels.memory.f32(keysAt, rows * strides.keys);
    for (let t = 0; t < rows; t++) {
      const rotated = tokens.subarray(t * read.stride + rank, t * read.stride + rank + ropeDim);
      for (let h = 0; h < heads; h++) keys.set(rotated, t * strides.keys + h * headDim + nopeDim);
    }
    const shape = storeRows(kernels, base + places.keyRows, to.layout, {
      ...{ kStride: strides.keys, kHeadStride: headDim, vStride: strides.values, vHeadStride: valueDim },
    });
    appendRows(kernels, to, 0, shape, { k: pointer.f32(keysAt), v: pointer.f32(valuesAt) }, begin, rows);
  }
}
