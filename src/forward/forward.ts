import { type Attention, widthOf } from "../attention/attention.ts";
import type { Projection } from "../attention/packed-weights.ts";
import { restorePages } from "../cache/aging.ts";
import { allocatePages } from "../cache/pages.ts";
import { type Linear, linearFlops } from "../linear/linear.ts";
import { createFloats } from "../tensor/tensor.ts";
import { chunksOf, runsOf } from "../util/rows.ts";
import type { Steps } from "../util/steps.ts";
import { NULL } from "../wasm/abi.ts";
import { type CallShape, columnsOf, segmentFlops, segmentNeeds, windowSides, workFloats } from "./attend-segment.ts";
import type { AttendCall } from "./call.ts";
import {
  agesInStep,
  copyIn,
  fillTables,
  isSelf,
  type Pass,
  type PassCall,
  projectIn,
  segmentsOf,
  settleKeys,
  settleQueries,
} from "./layer-steps.ts";
import { chunkRows, placePass, stridesOf } from "./scratch.ts";

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
  const shape = callShape(attention);
  const columns = withMaps ? columnsOf(first.target.kvLen, layer.extraKey !== NULL, config.addZeroAttn) : 0;
  const rows = chunkRows(config, Math.max(total(queryRows), total(keyRows)));
  const needs = calls.map(({ masks, target, cache }) => {
    const work = workFloats(config.headDim, config.valueDim, cache?.pages.formats ?? 0);
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
      const pages = call.cache?.pages ?? allocatePages(call.where, kernels, config, call.batch, call.target.kvLen);
      if (!call.cache) taken.push(pages.at);
      restorePages(kernels, pages, call.past);
      return { call, pages, y: ys[i] as Float32Array, inStep: agesInStep(attention, call) };
    });
    const base = ownScratch ? memory.allocate(where, bytes) : memory.scratch(where, bytes);
    if (ownScratch) taken.push(base);
    const stride = stridesOf(config);
    const pass: Pass = {
      ...{ attention, calls: passCalls, shape, stride, places, base, stepFlops },
      maps: withMaps ? maps : undefined,
    };
    const joined = ({ call, pages, inStep }: PassCall) => isSelf(call) && (!pages.aging || inStep);
    const qkv = config.causal && !withMaps && passCalls.every(joined) ? layer.qkv : undefined;
    if (qkv)
      for (const [begin, end] of chunksOf(total(queryRows), rows)) yield* attendCausalChunk(pass, qkv, begin, end);
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
  const { q, k, v, wo } = layer;
  const shape = callShape(attention);
  const rows = chunkRows(config, Math.max(queryRows(call), keyRows(call)));
  const linear = ({ panels, k }: Linear, count: number) => linearFlops(panels, k, count);
  const inStep = agesInStep(attention, call);
  let flops = wo ? linear(wo, queryRows(call)) : 0;
  for (const projection of q) flops += linear(projection.linear, queryRows(call));
  for (const projection of [...k, ...v]) flops += linear(projection.linear, keyRows(call));
  for (const [begin, end] of chunksOf(queryRows(call), rows))
    for (const segment of segmentsOf(call, { of: call, begin, end, at: 0 }, inStep, stepFlops))
      flops += segmentFlops(shape, segment);
  return flops;
}

function callShape({ config, layer }: Attention): CallShape {
  const { numHeads, numKvHeads, headDim, valueDim, scale, softcap, addZeroAttn } = config;
  const { slopes, sinks, extraKey, extraValue } = layer;
  const stride = stridesOf(config);
  return {
    ...{ numHeads, numKvHeads, headDim, valueDim, scale, softcap, slopes, sinks, extraKey, extraValue },
    ...windowSides(config.causal, config.window),
    zeroKey: addZeroAttn ? 1 : 0,
    qStride: stride.qkv,
    qHeadStride: headDim,
    outStride: stride.heads,
    outHeadStride: valueDim,
  };
}

/** Both of the below, where no query needs a key of a later chunk: x is read once and projected in one go. */
function* attendCausalChunk(pass: Pass, qkv: readonly Projection[], begin: number, end: number): Steps {
  const runs = runsOf(pass.calls, ({ call }) => queryRows(call), begin, end);
  copyIn(pass, runs, ({ call }) => call.x, pass.attention.config.dModel);
  yield* projectIn(pass, qkv, end - begin);
  fillTables(pass, runs, ({ call }) => call.positions);
  settleKeys(pass, runs);
  yield* settleQueries(pass, runs);
}

/** Projects rows begin..end of all keys and values and appends them. */
function* appendChunk(pass: Pass, begin: number, end: number): Steps {
  const { config, layer } = pass.attention;
  const runs = runsOf(pass.calls, ({ call }) => keyRows(call), begin, end);
  copyIn(pass, runs, ({ call }) => call.keys, config.kdim);
  if (layer.kv && runs.every(({ of }) => of.call.keys === of.call.values))
    yield* projectIn(pass, layer.kv, end - begin);
  else {
    yield* projectIn(pass, layer.k, end - begin);
    copyIn(pass, runs, ({ call }) => call.values, config.vdim);
    yield* projectIn(pass, layer.v, end - begin);
  }
  fillTables(pass, runs, ({ call }) => call.keyPositions);
  settleKeys(pass, runs);
}

/** Projects rows begin..end of all queries, attends, and projects the heads' outputs into the ys. */
function* attendChunk(pass: Pass, begin: number, end: number): Steps {
  const { config, layer } = pass.attention;
  const runs = runsOf(pass.calls, ({ call }) => queryRows(call), begin, end);
  copyIn(pass, runs, ({ call }) => call.x, config.dModel);
  yield* projectIn(pass, layer.q, end - begin);
  fillTables(pass, runs, ({ call }) => call.positions);
  yield* settleQueries(pass, runs);
}
