// The pass of a layer of latent attention. Queries are multiplied with W_uk of their head, so that they meet the latents
// themselves ("absorbed": one key for all heads, whose greater part is the value too), and outputs, which are sums of latents,
// with W_uv. "expanded" computes the keys and values of all heads from the latents instead.

import type { Attention } from "../attention/attention.ts";
import { seesLater } from "../attention/positions.ts";
import type { Rotary } from "../attention/rope.ts";
import { appendRows, placeRows, storeRows } from "../cache/append-gather.ts";
import { createPageLayout } from "../cache/page-layout.ts";
import { pageTable } from "../cache/pages.ts";
import type { CheckedLatentConfig } from "../latent/config.ts";
import { type LatentLayer, latentSizes } from "../latent/packed-latent.ts";
import type { LatentFormats } from "../latent/weights.ts";
import { wholePanels } from "../linear/formats.ts";
import {
  type LinearScratch,
  linearFlops,
  type PackedLinear,
  placeLinearScratch,
  prepareInput,
  project,
  type Rows,
} from "../linear/linear.ts";
import { describe } from "../util/errors.ts";
import { CHUNK_ROWS, chunksOf, copyRows, type RowRun, runsOf, tokenRunsOf } from "../util/rows.ts";
import type { Steps } from "../util/steps.ts";
import { NULL, ROPE_SHAPE_BYTES, storeRopeShape } from "../wasm/abi.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import {
  attendSegment,
  type CallShape,
  callShape,
  placeSegment,
  type SegmentNeeds,
  type SegmentPlaces,
  segmentFlops,
  segmentNeeds,
  workFloats,
} from "./attend-segment.ts";
import { type AttendCall, isSelf } from "./call.ts";
import type { LayerPass } from "./forward.ts";
import { segmentsOf } from "./layer-steps.ts";
import { type PassCall, queryRows } from "./pass.ts";

/** What the pass needs of a layer of latent attention besides what all layers have. */
export interface LatentParts {
  readonly config: CheckedLatentConfig;
  readonly latents: LatentLayer;
}

type LatentLike = Attention & LatentParts;

/** Floats between the parts of the rows of a chunk. */
function stridesOf({ numHeads, headDim, kvLoraRank, qLoraRank, ropeDim, valueDim, dModel }: CheckedLatentConfig) {
  const rank = wholePanels(kvLoraRank);
  return {
    rank,
    /** Components of a latent and its rotated key, as attention_latents reads them. */
    dim: rank + wholePanels(ropeDim),
    qDown: wholePanels(qLoraRank),
    q: wholePanels(numHeads * headDim),
    kv: wholePanels(kvLoraRank + ropeDim),
    value: wholePanels(valueDim),
    heads: numHeads * wholePanels(valueDim),
    y: wholePanels(dModel),
  };
}

/** About how many bytes the queries and outputs of a chunk take. */
const CHUNK_BYTES = 2 ** 24;
const LEAST_ROWS = 16;

/** Rows of a chunk in a pass of `rows` rows. */
export function latentChunkRows(config: CheckedLatentConfig, rows: number): number {
  const { rank, dim } = stridesOf(config);
  const most = Math.floor(CHUNK_BYTES / (4 * config.numHeads * (dim + rank)));
  return Math.min(rows, Math.max(LEAST_ROWS, Math.min(CHUNK_ROWS, most)));
}

/** Offsets of the parts of a pass in its scratch. */
interface Places {
  /** [rows, dModel]. */
  readonly x: number;
  readonly qDown: number;
  /** [rows, numHeads·headDim]: queries as they are projected. */
  readonly q: number;
  /** [rows, kvLoraRank + ropeDim]. */
  readonly kv: number;
  /** [rows, numHeads, dim]: queries that meet latents. */
  readonly queries: number;
  /** [rows, numHeads, rank]: sums of latents. */
  readonly sums: number;
  /** [rows, numHeads, value]: outputs of heads. */
  readonly heads: number;
  readonly y: number;
  readonly cos: number;
  readonly sin: number;
  readonly keyRows: number;
  readonly ropeShape: number;
  readonly linear: LinearScratch;
  readonly segment: SegmentPlaces;
}

/** The scratch of a pass with chunks of up to `rows` rows. */
export function placeLatentPass(
  config: CheckedLatentConfig,
  formats: LatentFormats,
  rows: number,
  segments: readonly SegmentNeeds[],
): { places: Places; bytes: number } {
  const layout = new Layout();
  const { numHeads, dModel, ropeDim } = config;
  const { rank, dim, qDown, q, kv, heads, y } = stridesOf(config);
  const matrices = Object.values(latentSizes(config, formats, false)).flat();
  const places = {
    x: layout.floats(rows * dModel),
    qDown: layout.floats(rows * qDown),
    q: layout.floats(rows * q),
    kv: layout.floats(rows * kv),
    queries: layout.floats(rows * numHeads * dim),
    sums: layout.floats(rows * numHeads * rank),
    heads: layout.floats(rows * heads),
    y: layout.floats(rows * y),
    cos: layout.floats((rows * ropeDim) / 2),
    sin: layout.floats((rows * ropeDim) / 2),
    keyRows: placeRows(layout),
    ropeShape: layout.take(ROPE_SHAPE_BYTES),
    linear: placeLinearScratch(
      layout,
      matrices.filter((size) => size !== undefined),
      rows,
    ),
    segment: placeSegment(layout, config, segments),
  };
  return { places, bytes: layout.bytes };
}

/** A pass in progress. */
interface Work {
  readonly attention: LatentLike;
  readonly places: Places;
  readonly base: number;
  readonly stepFlops: number;
  readonly shape: CallShape;
}

type Runs = readonly RowRun<PassCall>[];

const rowsIn = (runs: Runs): number => runs.reduce((rows, { begin, end }) => rows + end - begin, 0);

/** How layers of `createLatentAttention` run. */
export const LATENT_PASS: LayerPass = {
  prepare(given, calls, maps) {
    const attention = given as LatentLike;
    const { config, latents } = attention;
    for (const call of calls) expectSelf(call);
    if (maps) throw new Error("not yet");
    const total = calls.reduce((sum, call) => sum + queryRows(call), 0);
    const rows = latentChunkRows(config, total);
    const needs = calls.map(({ masks, target }) =>
      segmentNeeds(masks, target, Math.min(rows, target.qLen), 0, workFloats(kernelSizes(config))),
    );
    const { places, bytes } = placeLatentPass(config, latents.formats, rows, needs);
    return {
      ...{ width: config.dModel, columns: 0, bytes },
      run: (passCalls, base, stepFlops) =>
        runPass(passCalls, { attention, places, base, stepFlops, shape: shapeOf(config) }, total, rows),
    };
  },
  flops(given, call, stepFlops) {
    const attention = given as LatentLike;
    const { config, latents } = attention;
    expectSelf(call);
    const { qDown, q, kvDown, kAbsorbed, v, o } = latents;
    const total = queryRows(call);
    let flops = 0;
    for (const linear of [qDown, q, kvDown, ...kAbsorbed, ...v, o]) if (linear) flops += linearFlops(linear, total);
    const shape = shapeOf(config);
    for (const [begin, end] of chunksOf(total, latentChunkRows(config, total)))
      for (const segment of segmentsOf(call, { of: call, begin, end, at: 0 }, false, stepFlops))
        flops += segmentFlops(shape, segment);
    return flops;
  },
};

/** Keys come from the rows of x. */
function expectSelf(call: AttendCall): void {
  if (isSelf(call)) return;
  const [name, got] = call.newKeys > 0 ? ["keys", describe(call.keys)] : ["append", "false"];
  throw new RangeError(`${call.where}: ${name} expected none with latent attention, got ${got}`);
}

/** The sizes that attention_latents sees. */
function kernelSizes(config: CheckedLatentConfig) {
  const { formats } = createPageLayout({ numKvHeads: 1, headDim: 1, valueDim: 1, latent: true });
  return { headDim: stridesOf(config).dim, valueDim: config.kvLoraRank, formats };
}

function shapeOf(config: CheckedLatentConfig): CallShape {
  const { numHeads, kvLoraRank } = config;
  const { rank, dim } = stridesOf(config);
  return callShape(
    { numHeads, numKvHeads: 1, headDim: dim, valueDim: kvLoraRank },
    config,
    { slopes: NULL, sinks: NULL },
    { qStride: numHeads * dim, qHeadStride: dim, outStride: numHeads * rank, outHeadStride: rank },
  );
}

/** Runs all rows in chunks: appends, then attends; if queries attend later keys, all is appended first. */
function* runPass(calls: readonly PassCall[], work: Work, total: number, rows: number): Steps {
  const later = seesLater(work.attention.config);
  const chunk = (begin: number, end: number) => runsOf(calls, ({ call }) => queryRows(call), begin, end);
  for (const [begin, end] of chunksOf(total, rows)) {
    const runs = chunk(begin, end);
    const x = copyIn(work, runs);
    yield* appendLatents(work, runs, x);
    if (!later) yield* attendLatents(work, runs, x);
  }
  if (!later) return;
  for (const [begin, end] of chunksOf(total, rows)) {
    const runs = chunk(begin, end);
    yield* attendLatents(work, runs, copyIn(work, runs));
  }
}

/** Copies the rows of x to the chunk. */
function copyIn({ attention, places, base }: Work, runs: Runs): Rows {
  const { dModel } = attention.config;
  const x = base + places.x;
  for (const { of, begin, end, at } of runs)
    attention.kernels.memory
      .f32(x + 4 * at * dModel, (end - begin) * dModel)
      .set(of.call.x.subarray(begin * dModel, end * dModel));
  return { at: pointer.f32(x), stride: dModel };
}

/** Projects rows `from`, to `to`. */
function* multiply(work: Work, linear: PackedLinear, to: Rows, from: Rows, rows: number): Steps {
  const { attention, places, base, stepFlops } = work;
  const { kernels, latents } = attention;
  const input = prepareInput(kernels, [linear], from, rows, latents.modeOf(rows), places.linear, base);
  yield* project(kernels, linear, to, input, rows, stepFlops);
}

/** Computes latents and rotated keys of a chunk, and appends them. */
function* appendLatents(work: Work, runs: Runs, x: Rows): Steps {
  const { attention, places, base } = work;
  const { kernels, config, latents } = attention;
  const { kvLoraRank, ropeDim, normEps } = config;
  const { kv: stride } = stridesOf(config);
  const rows = rowsIn(runs);
  const kv = { at: pointer.f32(base + places.kv), stride };
  yield* multiply(work, latents.kvDown, kv, x, rows);
  if (latents.kvNorm) kernels.table.rms_norm_f32(kv.at, kv.at, latents.kvNorm, kvLoraRank, stride, normEps, 0, rows);
  fillTables(work, runs);
  rotate(work, places.kv + 4 * kvLoraRank, 1, ropeDim, stride, rows);
  const strides = { kStride: stride, kHeadStride: 0, vStride: stride, vHeadStride: 0 };
  const shape = storeRows(kernels, base + places.keyRows, attention.pageShape, strides);
  for (const run of runs) {
    const { call, pages } = run.of;
    for (const { batchRow, from, to, at } of tokenRunsOf(run, call.qLen)) {
      const k = pointer.f32(kv.at + 4 * at * stride);
      const v = pointer.f32(k + 4 * kvLoraRank);
      appendRows(kernels, pages, batchRow, shape, { k, v }, call.past + from, to - from);
    }
  }
}

/** Writes cos and sin for the positions of the runs. */
function fillTables({ attention: { kernels, rotary }, places, base }: Work, runs: Runs): void {
  if (!rotary) return;
  const half = rotary.dim / 2;
  for (const { of, begin, end, at } of runs) {
    const table = (place: number) => kernels.memory.f32(base + place + 4 * at * half, (end - begin) * half);
    rotary.fill(of.call.positions.subarray(begin, end), table(places.cos), table(places.sin));
  }
}

/** Rotates a part of each of `heads` heads of the chunk's rows, in place; the first lies at `offset`. */
function rotate(work: Work, offset: number, heads: number, headDim: number, stride: number, rows: number): void {
  const { attention, places, base } = work;
  const { kernels } = attention;
  const rotary = attention.rotary as Rotary | undefined;
  if (!rotary) return;
  const shape = pointer.ropeShape(base + places.ropeShape);
  const interleaved = rotary.pairing === "interleaved" ? 1 : 0;
  storeRopeShape(kernels.memory.view(), shape, {
    ...{ numHeads: heads, headDim, ropeDim: rotary.dim, interleaved, stride },
  });
  const [cos, sin] = [pointer.f32(base + places.cos), pointer.f32(base + places.sin)];
  kernels.table.rope_f32(pointer.f32(base + offset), cos, sin, shape, 0, rows);
}

/** Projects and rotates the queries of a chunk. */
function* projectQueries(work: Work, runs: Runs, x: Rows): Steps {
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
  yield* multiply(work, latents.q, { at: pointer.f32(base + places.q), stride: strides.q }, from, rows);
  fillTables(work, runs);
  rotate(work, places.q + 4 * nopeDim, numHeads, headDim, strides.q, rows);
}

/** Projects the queries of a chunk, attends to the latents, and writes the projected outputs to the ys. */
function* attendLatents(work: Work, runs: Runs, x: Rows): Steps {
  const { attention, places, base, stepFlops, shape } = work;
  const { kernels, config, latents } = attention;
  const { numHeads, headDim } = config;
  const strides = stridesOf(config);
  const rows = rowsIn(runs);
  yield* projectQueries(work, runs, x);
  for (const [head, linear] of latents.kAbsorbed.entries()) {
    const q = { at: pointer.f32(base + places.q + 4 * head * headDim), stride: strides.q };
    const to = base + places.queries + 4 * head * strides.dim;
    yield* multiply(work, linear, { at: pointer.f32(to), stride: numHeads * strides.dim }, q, rows);
  }
  copyRotated(work, rows);
  for (const run of runs) {
    const { call, pages } = run.of;
    for (const { at, ...placed } of segmentsOf(call, run, false, stepFlops)) {
      const segment = {
        ...placed,
        q: pointer.f32(base + places.queries + 4 * at * shape.qStride),
        out: pointer.f32(base + places.sums + 4 * at * shape.outStride),
        pages: pageTable(pages, placed.batchRow),
        layout: pages.layout,
      };
      yield* attendSegment(kernels, base, places.segment, shape, call.masks, call.target, segment, stepFlops);
    }
  }
  for (const [head, linear] of latents.v.entries()) {
    const sums = { at: pointer.f32(base + places.sums + 4 * head * strides.rank), stride: numHeads * strides.rank };
    const to = base + places.heads + 4 * head * strides.value;
    yield* multiply(work, linear, { at: pointer.f32(to), stride: strides.heads }, sums, rows);
  }
  yield* projectOutputs(work, runs);
}

/** Copies the rotated part of each query behind what meets latents, with zeros where latents have padding. */
function copyRotated({ attention, places, base }: Work, rows: number): void {
  const { kernels, config } = attention;
  const { numHeads, headDim, nopeDim, ropeDim } = config;
  const { rank, dim, q: stride } = stridesOf(config);
  const q = kernels.memory.f32(base + places.q, rows * stride);
  const queries = kernels.memory.f32(base + places.queries, rows * numHeads * dim);
  for (let r = 0; r < rows; r++)
    for (let head = 0; head < numHeads; head++) {
      const from = r * stride + head * headDim + nopeDim;
      const to = (r * numHeads + head) * dim + rank;
      queries.set(q.subarray(from, from + ropeDim), to);
      queries.fill(0, to + ropeDim, to - rank + dim);
    }
}

/** Projects the outputs of the heads, and copies them to the ys. */
function* projectOutputs(work: Work, runs: Runs): Steps {
  const { attention, places, base } = work;
  const { kernels, config, latents } = attention;
  const { numHeads, valueDim, dModel } = config;
  const strides = stridesOf(config);
  const rows = rowsIn(runs);
  const heads = kernels.memory.f32(base + places.heads, rows * strides.heads);
  // Whole panels for each head, now without what rounds them up.
  if (strides.value !== valueDim)
    for (let i = 1; i < rows * numHeads; i++)
      heads.copyWithin(i * valueDim, i * strides.value, i * strides.value + valueDim);
  const from = { at: pointer.f32(base + places.heads), stride: numHeads * valueDim };
  const y = { at: pointer.f32(base + places.y), stride: strides.y };
  yield* multiply(work, latents.o, y, from, rows);
  for (const { of, begin, end, at } of runs) {
    const out = kernels.memory.f32(y.at + 4 * at * y.stride, (end - begin) * y.stride);
    copyRows(of.y, begin * dModel, dModel, out, y.stride, dModel);
  }
}
