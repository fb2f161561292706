// Passes of layers of softmax heads over rows of arrays, one chunk at a time: rows of all calls are copied into
// scratch, run through the layer, and copied out.

import { expectNone } from "../../base/util/arguments.ts";
import { chunksOf, copyRows, listRows, type RowList, type RowRun, rowsIn } from "../../base/util/rows.ts";
import { finish, type Steps } from "../../base/util/steps.ts";
import { NULL } from "../../wasm/abi.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { planToken, repeatCalls, type TokenCalls } from "../../wasm/token-calls.ts";
import { linearFlops, type Rows } from "../linear/products.ts";
import type {
  CheckedCall,
  LayerCall,
  MixerCall,
  NextToken,
  PassCall,
  Passes,
  PassOptions,
  PreparedPass,
  Runs,
} from "../mixer/mixer.ts";
import { createPageLayout } from "../state/pages.ts";
import { type Pages, settlePage } from "../state/table.ts";
import type { CheckedConfig } from "./config.ts";
import {
  appendKeys,
  attendQueries,
  chunkRows,
  type HeadsLayer,
  type LayerPlaces,
  type LayerWork,
  layerShape,
  placeLayer,
  projectRows,
  runAttention,
  stridesOf,
} from "./heads.ts";
import { seesLater } from "./mask.ts";
import { fillTables } from "./rope.ts";
import { type SegmentNeeds, scoreColumns, segmentFlops, segmentNeeds, segmentsOf, workFloats } from "./segment.ts";
import { type LayerFormats, PROJECTIONS } from "./weights.ts";

/** Whether a call's queries and keys come from the same rows, with the same RoPE positions. */
export function isSelf({ x, keys, values, newKeys, qLen, positions, keyPositions }: CheckedCall): boolean {
  return keys === x && values === x && newKeys === qLen && positions === keyPositions;
}

/** Whether the queries of a call are at the positions of its keys, and none attends a later key. */
export function isInStep(config: CheckedConfig, call: CheckedCall): boolean {
  return !seesLater(config) && isSelf(call) && call.placements.every(({ position }) => position === call.past);
}

/** Offsets of the parts of a pass in its scratch. */
interface PassPlaces {
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

function prepareHeads(
  attention: HeadsLayer,
  calls: readonly MixerCall[],
  { maps: withMaps = false, stage = 3, measure }: PassOptions,
): PreparedPass {
  const { config, layer } = attention;
  const [first] = calls as [MixerCall];
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
  from: (call: MixerCall) => Float32Array,
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
function outputRows(attention: HeadsLayer, { y, layer }: PassPlaces, base: number): Rows {
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

/** The most rows of a step of a call, with padding. */
export const mostRows = ({ batch, qLen, newKeys }: MixerCall): number => batch * Math.max(qLen, newKeys);

/** The operations of all steps of about `stepFlops` that `forward` takes for a call. */
function headFlops(attention: HeadsLayer, call: MixerCall, stepFlops: number): number {
  const { config, layer } = attention;
  const shape = layerShape(attention, stridesOf(config));
  const [queries, keys] = [listRows([call], () => call.rows), listRows([call], () => call.keyRows)];
  const rows = chunkRows(config, mostRows(call));
  const inStep = call.cache?.pages.ages === true && isInStep(config, call);
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

const runOf = (of: LayerCall): Runs => [{ of, begin: 0, end: 1, at: 0 }];

/** The next token of a sequence, if queries, keys and values are one product. */
function planNext(attention: HeadsLayer, pages: Pages): NextToken | undefined {
  const { kernels, config, layer } = attention;
  if (!layer.products.qkv || pages.ages) return undefined;
  const needs = { tokens: 1, work: workFloats(pages.layout), keep: 0, bias: 0, scores: 0 };
  const { places, bytes } = placePass(config, layer.formats, 1, [needs]);
  const shape = layerShape(attention, places.layer.stride);
  const width = widthOf(attention);
  let last: { readonly base: number; readonly calls: TokenCalls | undefined } | undefined;
  return {
    ...{ bytes, width },
    run(base, of, x, y) {
      const work = { attention, shape, places: places.layer, base, stepFlops: Infinity, maps: undefined };
      const from = { at: pointer.f32(base + places.x), stride: config.dModel };
      const out = outputRows(attention, places, base);
      const { past } = of.tokens;
      const stepsAt = (position: number) => {
        const placements = [{ position, kvLen: position + 1 }];
        return runAttention(work, runOf({ ...of, tokens: { ...of.tokens, past: position, placements } }), {
          x: from,
          out,
        });
      };
      settlePage(kernels, pages, past);
      if (last?.base !== base) last = { base, calls: planToken(kernels, past, stepsAt) };
      const floats = kernels.memory.floats();
      floats.set(x, from.at / 4);
      fillTables(work, runOf(of), ({ tokens }) => tokens.positions);
      finish(last.calls ? repeatCalls(kernels, last.calls, past) : stepsAt(past));
      y.set(floats.subarray(out.at / 4, out.at / 4 + width));
    },
  };
}

/** How `attend` runs layers of softmax heads. */
export const HEAD_PASSES: Passes<HeadsLayer> = {
  check(where, { path }) {
    expectNone(where, "path", path, "but for latent attention");
  },
  prepare: prepareHeads,
  flops: headFlops,
  next: planNext,
};

/** Floats of a row of y: dModel, or numHeads·valueDim if the layer has no wo. */
function widthOf({ config, layer }: HeadsLayer): number {
  return layer.linears.o ? config.dModel : config.numHeads * config.valueDim;
}
