// The two paths of latent attention: absorbed, which scores latents themselves, and expanded, which computes keys and values.

import { CHUNK_ROWS, chunksOf, type RowRun, rowsIn, type TokenRun, tokenRunsOf } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { NULL } from "../../wasm/abi.ts";
import { pointer } from "../../wasm/memory.ts";
import type { Placement } from "../attention/positions.ts";
import { attendSegment, type CallShape, callShape, readScores, type Segment } from "../attention/segment.ts";
import { prepareInput, project, type Rows } from "../linear/products.ts";
import type { AttendCall } from "../pass/call.ts";
import type { PassCall } from "../pass/forward.ts";
import { type LayerCall, type Runs, segmentsOf } from "../pass/steps.ts";
import { createPageLayout } from "../state/pages.ts";
import { appendRows, type Pages, pagesAt, pageTable, storeRows } from "../state/table.ts";
import type { CheckedLatentConfig } from "./config.ts";
import {
  expandedHeads,
  expandedStrides,
  floatKeySizes,
  type LatentWork,
  multiply,
  projectOutputs,
  projectQueries,
  readLatents,
  stridesOf,
} from "./steps.ts";

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
    for (const { at, ...placed } of segmentsOf(tokens, run, false, stepFlops)) {
      const segment = {
        ...placed,
        q: pointer.f32(base + places.queries + 4 * at * shape.qStride),
        out: pointer.f32(base + places.sums + 4 * at * shape.outStride),
        pages: pageTable(pages, placed.batchRow),
        layout: pages.layout,
      };
      const settings = [kernels, base, places.segment] as const;
      if (maps || measure) {
        const seen = { ...segment, ...floatKeys(work, run.of, segment, maps ? target.kvLen : endOf(shape, segment)) };
        const own = { ...shape, valueDim: floatKeySizes(config).valueDim };
        if (maps) readScores(...settings, own, masks, target, seen, stage, maps);
        // What this writes to `out` is overwritten by the sums.
        if (measure) yield* attendSegment(...settings, own, masks, target, seen, stepFlops, measure);
      }
      yield* attendSegment(...settings, shape, masks, target, segment, stepFlops);
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
export function groupOf(config: CheckedLatentConfig, { target, masks, cache }: AttendCall, maps: boolean): number {
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
export function keysOf(
  { causal }: CheckedLatentConfig,
  { placements }: AttendCall,
  { batchRow, to }: TokenRun,
): number {
  const { position, kvLen } = placements[batchRow] as Placement;
  return Math.max(0, causal ? Math.min(kvLen, position + to) : kvLen);
}

/** Tokens in runs of bounded length if masks differ by query, because those of a run are written at once. */
export function* piecesOf<Of>(
  of: Of,
  { qLen, masks }: AttendCall,
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
  const shape = expandedShape(config, layout.numKvHeads);
  for (const { at, ...placed } of segmentsOf(run.of.call, run, false, stepFlops)) {
    const segment = {
      ...placed,
      q: pointer.f32(base + places.q + 4 * (at * strides.q + head * headDim)),
      out: pointer.f32(base + places.heads + 4 * (at * strides.heads + head * valueDim)),
      pages: pageTable(expanded, 0),
      layout,
    };
    yield* attendSegment(kernels, base, places.segment, shape, masks, target, segment, stepFlops);
    if (maps) readScores(kernels, base, places.segment, shape, masks, target, segment, 3, maps);
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
