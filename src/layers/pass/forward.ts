// The forward pass of a layer over any number of calls, and its cost.

import { createFloats } from "../../base/tensor/tensor.ts";
import { CHUNK_ROWS, chunksOf, copyRows, listRows, type RowList, type RowRun, rowsIn } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { NULL } from "../../wasm/abi.ts";
import { aligned, Layout, pointer } from "../../wasm/memory.ts";
import { type LayerParts, widthOf } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import { seesLater } from "../attention/positions.ts";
import { chunkRows, type LayerPlaces, placeLayer, type Strides, stridesOf } from "../attention/scratch.ts";
import {
  type CallShape,
  callShape,
  type Measure,
  type ScoreStage,
  type SegmentNeeds,
  scoreColumns,
  segmentFlops,
  segmentNeeds,
  workFloats,
} from "../attention/segment.ts";
import { type LayerFormats, PROJECTIONS } from "../attention/weights.ts";
import { linearFlops, type Rows } from "../linear/products.ts";
import { createPageLayout, type PageLayout } from "../state/pages.ts";
import { pagesAt, pagesBytes } from "../state/table.ts";
import { type AttendCall, type CallRules, clearPadding, isInStep, isSelf } from "./call.ts";
import {
  appendKeys,
  attendQueries,
  fillTables,
  type LatentSite,
  type LayerCall,
  type LayerWork,
  projectRows,
  type Runs,
  runAttention,
  segmentsOf,
  type Tap,
} from "./steps.ts";

/** Options of a pass. */
interface PassOptions {
  /** The public function, for messages. */
  readonly where: string;
  /** Whether to return the softmax weights of all queries and keys; for a single call. */
  readonly maps?: boolean;
  /** Return the scores at this stage instead of the weights. Default 3, the weights. */
  readonly stage?: ScoreStage;
  /** Measures the rows of attention, of a single call. */
  readonly measure?: Measure;
  /** Sees the rows of each chunk; for layers of latent attention. */
  readonly trace?: Tap<LatentSite>;
  /** The approximate number of floating-point operations of a step; by default, no kernel call is cut. */
  readonly stepFlops?: number;
  /** Allocate a block instead of using the scratch that all calls share, because others may run between steps. */
  readonly ownScratch?: boolean;
}

/** What a pass needs to know before it allocates. */
interface PreparedPass {
  /** Floats of a row of y. */
  readonly width: number;
  /** Columns of the maps. */
  readonly columns: number;
  /** Bytes of scratch. */
  readonly bytes: number;
  /** Bytes of a block that the pass needs besides, which is freed at its end. Default none. */
  readonly block?: number;
  /** Runs all steps. `maps` is empty unless maps are wanted; `block` is the address of the block. */
  readonly run: (
    calls: readonly PassCall[],
    base: number,
    stepFlops: number,
    maps: Float32Array,
    block: number,
  ) => Steps;
}

/** How layers of a kind run. `attention.pass` is one, or undefined for layers of `createAttention`. */
export interface LayerPass extends CallRules {
  /** Throws unless layers of this kind can take the calls. */
  prepare(attention: LayerParts, calls: readonly AttendCall[], options: PassOptions): PreparedPass;
  /** The operations of all steps of about `stepFlops` for a call. */
  flops(attention: LayerParts, call: AttendCall, stepFlops: number): number;
  /** The most rows of a chunk of `planRows`. */
  chunkRows(attention: LayerParts, rows: number): number;
  /** Plans causal self-attention on rows that stay in linear memory: see `planRows` of row-pass.ts. */
  planRows(attention: LayerParts, layout: Layout, rows: number, formats: number, reading: Reading): RunRows;
  /** The pages that the rows of a layer of this kind are measured on. */
  measuredPages(attention: LayerParts): PageLayout;
}

/** What is read of a call's attention besides its outputs. */
export interface Reading {
  /** The keys of the call; 0 if nothing is read. */
  readonly kvLen: number;
  /** Whether their softmax weights are. */
  readonly maps: boolean;
}

/** Runs a layer on the rows `x` of a chunk, in scratch at `base`, and writes its outputs to `out`. `tap` sees its heads, and
 * `maps` [numHeads, qLen, kvLen] gets the softmax weights of a single call, where the plan has room for them. `measure` measures
 * the rows of attention of a single call, whose keys the plan then knows. */
export type RunRows = (
  base: number,
  stepFlops: number,
  runs: Runs,
  rows: {
    readonly x: Rows;
    readonly out: Rows;
    readonly tap?: Tap | undefined;
    readonly maps?: Float32Array | undefined;
    readonly measure?: Measure | undefined;
  },
) => Steps;

/**
 * Appends the keys of all calls, attends, and projects: returns `ys`, one for each call, and `maps`, empty unless
 * requested. The projections of all calls are one list of rows, whose bits do not depend on their neighbours. Caches
 * hold the appended keys once the calls are committed.
 */
export function* forward(
  attention: LayerParts,
  calls: readonly AttendCall[],
  options: PassOptions,
): Steps<{ ys: Float32Array[]; maps: Float32Array }> {
  const { where, maps: withMaps = false, stepFlops = Infinity, ownScratch = false } = options;
  const { kernels, config, pageShape } = attention;
  const { memory } = kernels;
  const [first] = calls as [AttendCall];
  const kind = attention.pass as LayerPass | undefined;
  const {
    width,
    columns,
    bytes,
    block = 0,
    run,
  } = kind ? kind.prepare(attention, calls, options) : preparePass(attention, calls, options);
  // Scratch is taken last: once grown it stays so, and nothing may fail after it.
  const ys = calls.map(({ where, out, batch, qLen }) => out ?? createFloats(where, "y", batch * qLen * width));
  const maps = createFloats(where, "maps", withMaps ? first.batch * config.numHeads * first.qLen * columns : 0);
  const layout = createPageLayout(pageShape);
  const bytesOf = ({ cache, batch, target }: AttendCall) => (cache ? 0 : pagesBytes(layout, batch, target.kvLen));
  const groups = groupsOf(calls);
  const pageBytes = Math.max(...groups.map((group) => group.reduce((sum, call) => sum + bytesOf(call), 0)));
  const ownBytes = pageBytes + aligned(block) + (ownScratch ? bytes : 0);
  const own = ownBytes && memory.allocate(where, ownBytes);
  try {
    const blockAt = own + pageBytes;
    const base = ownScratch ? blockAt + aligned(block) : memory.scratch(where, bytes);
    let i = 0;
    for (const group of groups) {
      let at = own;
      const passCalls = group.map((call): PassCall => {
        const pages = call.cache?.pages ?? pagesAt(kernels, at, layout, call.batch, call.target.kvLen);
        at += bytesOf(call);
        call.cache?.begin();
        return { call, tokens: call, pages, y: ys[i++] as Float32Array, inStep: agesInStep(attention, call) };
      });
      yield* run(passCalls, base, stepFlops, maps, blockAt);
      for (const { call, y } of passCalls) clearPadding(call, y, width);
    }
  } finally {
    if (own && !kernels.released) memory.free(own);
  }
  return { ys, maps };
}

/** Rows with which a group of calls is complete: some chunks, the last of which may be short. */
const GROUP_ROWS = 4 * CHUNK_ROWS;

/** Cuts calls into groups that run one after the other, so that the pages of calls without a cache take bounded memory. */
function groupsOf(calls: readonly AttendCall[]): readonly AttendCall[][] {
  const groups: AttendCall[][] = [];
  let rows = GROUP_ROWS;
  for (const call of calls) {
    if (rows >= GROUP_ROWS) {
      groups.push([]);
      rows = 0;
    }
    groups.at(-1)?.push(call);
    rows += mostRows(call);
  }
  return groups;
}

/** The most rows of a step of a call, with padding. */
const mostRows = ({ batch, qLen, newKeys }: AttendCall) => batch * Math.max(qLen, newKeys);

function preparePass(
  attention: LayerParts,
  calls: readonly AttendCall[],
  { maps: withMaps = false, stage = 3, measure }: PassOptions,
): PreparedPass {
  const { config, layer } = attention;
  const [first] = calls as [AttendCall];
  const columns = withMaps ? scoreColumns(first.target.kvLen, layer.extraKey !== NULL, config.addZeroAttn) : 0;
  const rows = chunkRows(
    config,
    calls.reduce((sum, call) => sum + mostRows(call), 0),
  );
  const needs = calls.map(({ masks, target, cache }) => {
    const work = workFloats(cache?.pages.layout ?? createPageLayout(config));
    return segmentNeeds(masks, target, Math.min(rows, target.qLen), columns, work);
  });
  const { places, bytes } = placePass(config, layer.formats, rows, needs);
  const shape = layerShape(attention, places.layer.stride);
  return {
    ...{ width: widthOf(attention), columns, bytes },
    run: (passCalls, base, stepFlops, maps) => {
      const read = { maps: withMaps ? maps : undefined, stage, measure };
      const work = { attention, shape, places: places.layer, base, stepFlops, ...read };
      return runPass({ ...passOf(passCalls), places, work }, rows);
    },
  };
}

/** Runs a pass in chunks of `rows` rows. */
function* runPass(pass: Pass, rows: number): Steps {
  const { calls, work } = pass;
  const { config, layer } = work.attention;
  const joined = ({ call, pages, inStep }: PassCall) => isSelf(call) && (!pages.ages || inStep);
  // If no query attends a key of a later chunk, a chunk goes through all steps before the next one.
  if (layer.products.qkv && !seesLater(config) && !work.maps && calls.every(joined)) {
    for (const [begin, end] of chunksOf(pass.queries.total, rows)) yield* attendCausalChunk(pass, begin, end);
    return;
  }
  // If pages age, each call is processed by itself, so that keys are not appended far ahead of the queries at their
  // positions.
  const groups = calls.some(({ pages }) => pages.ages) ? calls.map((one) => [one]) : [calls];
  for (const group of groups) {
    const part = { ...pass, ...passOf(group) };
    const together = group.every(({ inStep }) => inStep);
    for (const [begin, end] of chunksOf(part.keys.total, rows)) {
      yield* appendChunk(part, begin, end);
      if (together) yield* attendChunk(part, begin, end);
    }
    if (!together) for (const [begin, end] of chunksOf(part.queries.total, rows)) yield* attendChunk(part, begin, end);
  }
}

const passOf = (calls: readonly PassCall[]) => ({
  calls,
  queries: listRows(calls, ({ call }) => call.rows),
  keys: listRows(calls, ({ call }) => call.keyRows),
});

/** The operations of all steps of about `stepFlops` that `forward` takes for a call. */
export function passFlops(attention: LayerParts, call: AttendCall, stepFlops: number): number {
  const kind = attention.pass as LayerPass | undefined;
  if (kind) return kind.flops(attention, call, stepFlops);
  const { config, layer } = attention;
  const shape = layerShape(attention, stridesOf(config));
  const [queries, keys] = [listRows([call], () => call.rows), listRows([call], () => call.keyRows)];
  const rows = chunkRows(config, mostRows(call));
  const inStep = agesInStep(attention, call);
  let flops = 0;
  for (const name of PROJECTIONS) {
    const linear = layer.linears[name];
    if (linear) flops += linearFlops(linear, (name === "k" || name === "v" ? keys : queries).total);
  }
  for (const [begin, end] of chunksOf(queries.total, rows))
    for (const run of queries.runs(begin, end))
      for (const segment of segmentsOf(call, run, inStep, stepFlops)) flops += segmentFlops(shape, segment);
  return flops;
}

/** What all segments of a layer have in common. */
export function layerShape({ config, layer }: LayerParts, stride: Strides): CallShape {
  const { headDim, valueDim, addZeroAttn } = config;
  const { slopes, sinks, extraKey, extraValue } = layer;
  return callShape(
    config,
    config,
    { slopes, sinks, extraKey, extraValue, zeroKey: addZeroAttn ? 1 : 0 },
    { qStride: stride.qkv, qHeadStride: headDim, outStride: stride.heads, outHeadStride: valueDim },
  );
}

/** `inStep` of a call's LayerCall. */
function agesInStep({ config }: LayerParts, call: AttendCall): boolean {
  return call.cache?.pages.ages === true && isInStep(config, call);
}

// One chunk of a pass: rows of all its calls are copied into scratch, run through the layer, and copied out.

/** Offsets of the parts of a pass in its scratch. */
export interface PassPlaces {
  /** [rows, dModel, kdim or vdim]; later the heads' outputs. */
  readonly x: number;
  /** The projected rows; later the outputs, in whole panels. */
  readonly y: number;
  readonly layer: LayerPlaces;
}

/** The scratch of a pass with chunks of up to `rows` rows. */
export function placePass(
  config: CheckedConfig,
  formats: LayerFormats,
  rows: number,
  segments: readonly SegmentNeeds[],
): { places: PassPlaces; bytes: number } {
  const layout = new Layout();
  const stride = stridesOf(config);
  const x = layout.floats(rows * Math.max(config.dModel, config.kdim, config.vdim, stride.heads));
  const y = layout.floats(rows * Math.max(stride.qkv, stride.y));
  const layer = placeLayer(layout, config, formats, rows, segments, { stride, qkv: y, heads: x });
  return { places: { x, y, layer }, bytes: layout.bytes };
}

/** A call of a pass, and the array for its outputs. */
export interface PassCall extends LayerCall {
  readonly call: AttendCall;
  readonly y: Float32Array;
}

/** Calls that share one block of scratch, and their rows. */
interface Pass extends PassRows {
  readonly calls: readonly PassCall[];
  readonly places: PassPlaces;
  readonly work: LayerWork;
}

/** The rows of calls that are queries, and those that become keys. */
interface PassRows {
  readonly queries: RowList<PassCall>;
  readonly keys: RowList<PassCall>;
}

/** Appends rows begin..end and attends with them; keys and queries come from the same rows. */
function* attendCausalChunk(pass: Pass, begin: number, end: number): Steps {
  const runs = pass.queries.runs(begin, end);
  const x = copyIn(pass, runs, ({ x }) => x, pass.work.attention.config.dModel);
  const out = outputOf(pass);
  fillTables(pass.work, runs, ({ tokens }) => tokens.positions);
  yield* runAttention(pass.work, runs, { x, out });
  for (const run of runs) copyOut(pass, out, run);
}

/** Projects rows begin..end of all keys and values and appends them. */
function* appendChunk(pass: Pass, begin: number, end: number): Steps {
  const { work } = pass;
  const { config, layer } = work.attention;
  const { k, v, kv } = layer.products;
  const runs = pass.keys.runs(begin, end);
  const keys = copyIn(pass, runs, (call) => call.keys, config.kdim);
  if (kv && runs.every(({ of }) => of.call.keys === of.call.values)) yield* projectRows(work, kv, keys, end - begin);
  else {
    yield* projectRows(work, k, keys, end - begin);
    const values = copyIn(pass, runs, (call) => call.values, config.vdim);
    yield* projectRows(work, v, values, end - begin);
  }
  appendKeys(work, runs);
}

/** Projects rows begin..end of all queries, attends, and writes the projected outputs to the ys. */
function* attendChunk(pass: Pass, begin: number, end: number): Steps {
  const { work } = pass;
  const { config, layer } = work.attention;
  const runs = pass.queries.runs(begin, end);
  const x = copyIn(pass, runs, ({ x }) => x, config.dModel);
  yield* projectRows(work, layer.products.q, x, rowsIn(runs));
  const out = outputOf(pass);
  yield* attendQueries(work, runs, out);
  for (const run of runs) copyOut(pass, out, run);
}

/** Copies the runs' rows of `width` floats to the chunk's x. */
function copyIn(
  { places, work: { attention, base } }: Pass,
  runs: Runs<PassCall>,
  from: (call: AttendCall) => Float32Array,
  width: number,
): Rows {
  const x = base + places.x;
  for (const { of, begin, end, at } of runs)
    attention.kernels.memory
      .f32(x + 4 * at * width, (end - begin) * width)
      .set(from(of.call).subarray(begin * width, end * width));
  return { at: pointer.f32(x), stride: width };
}

const outputOf = ({ places, work: { attention, base } }: Pass): Rows => outputRows(attention, places, base);

/** The outputs of a chunk: those of the output projection, or those of the heads if the layer has none. */
export function outputRows(attention: LayerParts, { y, layer }: PassPlaces, base: number): Rows {
  return attention.layer.linears.o
    ? { at: pointer.f32(base + y), stride: layer.stride.y }
    : { at: pointer.f32(base + layer.heads), stride: layer.stride.heads };
}

/** Copies a run of the chunk's outputs to the y of its call. */
function copyOut({ work: { attention } }: Pass, out: Rows, { of, begin, end, at }: RowRun<PassCall>): void {
  const width = widthOf(attention);
  const from = attention.kernels.memory.f32(out.at + 4 * at * out.stride, (end - begin) * out.stride);
  copyRows(of.y, begin * width, width, from, out.stride, width);
}
