// A pass: the rows of all calls, copied into scratch a chunk at a time, run through the layer, and copied out.

import { type Attention, widthOf } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import { PROJECTIONS } from "../attention/layer-sizes.ts";
import type { LayerFormats } from "../attention/weight-options.ts";
import { restorePages } from "../cache/aging.ts";
import { createPageLayout } from "../cache/page-layout.ts";
import { allocatePages } from "../cache/pages.ts";
import { linearFlops, type Rows } from "../linear/linear.ts";
import { createFloats } from "../tensor/tensor.ts";
import { chunksOf, type RowRun, runsOf } from "../util/rows.ts";
import type { Steps } from "../util/steps.ts";
import { NULL } from "../wasm/abi.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { callShape, columnsOf, type SegmentNeeds, segmentFlops, segmentNeeds, workFloats } from "./attend-segment.ts";
import type { AttendCall } from "./call.ts";
import { chunkRows, type LayerPlaces, placeLayer, stridesOf } from "./layer-scratch.ts";
import {
  appendKeys,
  attendQueries,
  type LayerCall,
  type LayerWork,
  projectRows,
  type Runs,
  rowsIn,
  runAttention,
  segmentsOf,
} from "./layer-steps.ts";

/** How a pass is made. */
export interface PassOptions {
  /** The public function, for messages. */
  readonly where: string;
  /** Also the weights of every pair, for a single call. */
  readonly maps?: boolean;
  /** Floating-point operations of a step, about; default all that belongs together. */
  readonly stepFlops?: number;
  /** Take a block instead of the scratch that all calls share, because others may run between the steps. */
  readonly ownScratch?: boolean;
}

/** Where the parts of a pass lie in its scratch. */
export interface PassPlaces {
  /** [rows, dModel, kdim or vdim]; later the heads' outputs. */
  readonly x: number;
  /** The projected rows; later the outputs, in whole panels. */
  readonly y: number;
  readonly layer: LayerPlaces;
}

/** Scratch of a pass of which every chunk has up to `rows` rows. */
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
  const layer = placeLayer(layout, config, formats, rows, segments, { qkv: y, heads: x });
  return { places: { x, y, layer }, bytes: layout.bytes };
}

/** A call of a pass, and where its outputs go. */
interface PassCall extends LayerCall {
  readonly call: AttendCall;
  readonly y: Float32Array;
}

interface Pass {
  readonly calls: readonly PassCall[];
  readonly places: PassPlaces;
  readonly work: LayerWork;
}

const queryRows = ({ batch, qLen }: AttendCall) => batch * qLen;
const keyRows = ({ batch, newKeys }: AttendCall) => batch * newKeys;

/**
 * Appends the keys of all calls, attends, projects: `ys`, one a call; `maps` is empty unless asked for. The projections of
 * all calls are those of one sequence of rows, whose bits do not depend on what lies beside them. Caches hold what was
 * appended once the calls are committed.
 */
export function* forward(
  attention: Attention,
  calls: readonly AttendCall[],
  { where, maps: withMaps = false, stepFlops = Infinity, ownScratch = false }: PassOptions,
): Steps<{ ys: Float32Array[]; maps: Float32Array }> {
  const { kernels, config, layer } = attention;
  const { memory } = kernels;
  const [first] = calls as [AttendCall];
  const total = (rows: (call: AttendCall) => number) => calls.reduce((sum, call) => sum + rows(call), 0);
  const columns = withMaps ? columnsOf(first.target.kvLen, layer.extraKey !== NULL, config.addZeroAttn) : 0;
  const rows = chunkRows(config, Math.max(total(queryRows), total(keyRows)));
  const ownPages = createPageLayout(config);
  const needs = calls.map(({ masks, target, cache }) => {
    const work = workFloats(cache?.pages.layout ?? ownPages);
    return segmentNeeds(masks, target, Math.min(rows, target.qLen), columns, work);
  });
  const { places, bytes } = placePass(config, layer.formats, rows, needs);
  // Scratch comes last: it stays when it has grown, so nothing may fail after it.
  const width = widthOf(attention);
  const ys = calls.map(({ where, out, batch, qLen }) => out ?? createFloats(where, "y", batch * qLen * width));
  const maps = createFloats(where, "maps", first.batch * config.numHeads * first.qLen * columns);
  const taken: number[] = [];
  try {
    const passCalls = calls.map((call, i): PassCall => {
      const pages = call.cache?.pages ?? allocatePages(call.where, kernels, ownPages, call.batch, call.target.kvLen);
      if (!call.cache) taken.push(pages.at);
      restorePages(kernels, pages, call.past);
      return { call, tokens: call, pages, y: ys[i] as Float32Array, inStep: agesInStep(attention, call) };
    });
    const base = ownScratch ? memory.allocate(where, bytes) : memory.scratch(where, bytes);
    if (ownScratch) taken.push(base);
    const shape = layerShape(attention);
    const work = { attention, shape, places: places.layer, base, stepFlops, maps: withMaps ? maps : undefined };
    const pass: Pass = { calls: passCalls, places, work };
    const joined = ({ call, pages, inStep }: PassCall) => isSelf(call) && (!pages.aging || inStep);
    // Where no query needs a key of a later chunk, a chunk is projected in one go.
    if (layer.products.qkv && config.causal && !withMaps && passCalls.every(joined))
      for (const [begin, end] of chunksOf(total(queryRows), rows)) yield* attendCausalChunk(pass, begin, end);
    // Keys that age must not run ahead of the queries that stand among them: each such call goes by itself.
    else
      for (const group of passCalls.some(({ pages }) => pages.aging) ? passCalls.map((one) => [one]) : [passCalls]) {
        const part = { ...pass, calls: group };
        const rowsOf = (count: (call: AttendCall) => number) => group.reduce((sum, { call }) => sum + count(call), 0);
        const together = group.every(({ inStep }) => inStep);
        for (const [begin, end] of chunksOf(rowsOf(keyRows), rows)) {
          yield* appendChunk(part, begin, end);
          if (together) yield* attendChunk(part, begin, end);
        }
        if (!together)
          for (const [begin, end] of chunksOf(rowsOf(queryRows), rows)) yield* attendChunk(part, begin, end);
      }
  } finally {
    if (!kernels.released) for (const at of taken) memory.free(at);
  }
  return { ys, maps };
}

/** The operations of all steps of about `stepFlops` that `forward` makes of a call. */
export function passFlops(attention: Attention, call: AttendCall, stepFlops: number): number {
  const { config, layer } = attention;
  const shape = layerShape(attention);
  const rows = chunkRows(config, Math.max(queryRows(call), keyRows(call)));
  const inStep = agesInStep(attention, call);
  let flops = 0;
  for (const name of PROJECTIONS) {
    const linear = layer.linears[name];
    if (linear) flops += linearFlops(linear, name === "k" || name === "v" ? keyRows(call) : queryRows(call));
  }
  for (const [begin, end] of chunksOf(queryRows(call), rows))
    for (const segment of segmentsOf(call, { of: call, begin, end, at: 0 }, inStep, stepFlops))
      flops += segmentFlops(shape, segment);
  return flops;
}

function layerShape({ config, layer }: Attention) {
  const { headDim, valueDim, addZeroAttn } = config;
  const { slopes, sinks, extraKey, extraValue } = layer;
  const stride = stridesOf(config);
  return callShape(
    config,
    config,
    { slopes, sinks, extraKey, extraValue, zeroKey: addZeroAttn ? 1 : 0 },
    { qStride: stride.qkv, qHeadStride: headDim, outStride: stride.heads, outHeadStride: valueDim },
  );
}

/** Whether a call's queries come from the rows that its keys come from, and turn by the same positions. */
function isSelf({ x, keys, values, newKeys, qLen, positions, keyPositions }: AttendCall): boolean {
  return keys === x && values === x && newKeys === qLen && positions === keyPositions;
}

/** `inStep` of a call's LayerCall. */
function agesInStep({ config }: Attention, call: AttendCall): boolean {
  if (!call.cache?.pages.aging || !config.causal || !isSelf(call)) return false;
  return call.placements.every(({ position }) => position === call.past);
}

/** Both of the below: x is read once and projected in one go. */
function* attendCausalChunk(pass: Pass, begin: number, end: number): Steps {
  const runs = runsOf(pass.calls, ({ call }) => queryRows(call), begin, end);
  const x = copyIn(pass, runs, ({ x }) => x, pass.work.attention.config.dModel);
  const out = outputOf(pass);
  yield* runAttention(pass.work, runs, { x, out });
  for (const run of runs) copyOut(pass, out, run);
}

/** Projects rows begin..end of all keys and values and appends them. */
function* appendChunk(pass: Pass, begin: number, end: number): Steps {
  const { work, calls } = pass;
  const { config, layer } = work.attention;
  const { k, v, kv } = layer.products;
  const runs = runsOf(calls, ({ call }) => keyRows(call), begin, end);
  const keys = copyIn(pass, runs, (call) => call.keys, config.kdim);
  if (kv && runs.every(({ of }) => of.call.keys === of.call.values)) yield* projectRows(work, kv, keys, end - begin);
  else {
    yield* projectRows(work, k, keys, end - begin);
    const values = copyIn(pass, runs, (call) => call.values, config.vdim);
    yield* projectRows(work, v, values, end - begin);
  }
  appendKeys(work, runs);
}

/** Projects rows begin..end of all queries, attends, and projects the heads' outputs into the ys. */
function* attendChunk(pass: Pass, begin: number, end: number): Steps {
  const { work, calls } = pass;
  const { config, layer } = work.attention;
  const runs = runsOf(calls, ({ call }) => queryRows(call), begin, end);
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

/** Where the chunk's outputs are: those of the output projection, or of the heads where the layer has none. */
function outputOf({ places, work: { attention, base } }: Pass): Rows {
  const stride = stridesOf(attention.config);
  return attention.layer.linears.o
    ? { at: pointer.f32(base + places.y), stride: stride.y }
    : { at: pointer.f32(base + places.layer.heads), stride: stride.heads };
}

/** Copies a run of the chunk's outputs to where the call wants them. */
function copyOut({ work: { attention } }: Pass, out: Rows, { of, begin, end, at }: RowRun<PassCall>): void {
  const width = widthOf(attention);
  const from = attention.kernels.memory.f32(out.at + 4 * at * out.stride, (end - begin) * out.stride);
  if (out.stride === width) of.y.set(from, begin * width);
  else
    for (let r = begin; r < end; r++) {
      const row = (r - begin) * out.stride;
      of.y.set(from.subarray(row, row + width), r * width);
    }
}
