// One chunk of a pass: rows of all its calls are copied into scratch, run through the layer, and copied out.

import { widthOf } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import type { LayerFormats } from "../attention/weight-options.ts";
import type { Rows } from "../linear/linear.ts";
import { copyRows, type RowList, type RowRun, rowsIn } from "../util/rows.ts";
import type { Steps } from "../util/steps.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import type { SegmentNeeds } from "./attend-segment.ts";
import type { AttendCall } from "./call.ts";
import { type LayerPlaces, placeLayer, stridesOf } from "./layer-scratch.ts";
import {
  appendKeys,
  attendQueries,
  type LayerCall,
  type LayerWork,
  projectRows,
  type Runs,
  runAttention,
} from "./layer-steps.ts";

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

/** A call of a pass, and the array for its outputs. */
export interface PassCall extends LayerCall {
  readonly call: AttendCall;
  readonly y: Float32Array;
}

/** Calls that share one block of scratch, and their rows. */
export interface Pass extends PassRows {
  readonly calls: readonly PassCall[];
  readonly places: PassPlaces;
  readonly work: LayerWork;
}

/** The rows of calls that are queries, and those that become keys. */
export interface PassRows {
  readonly queries: RowList<PassCall>;
  readonly keys: RowList<PassCall>;
}

/** Appends rows begin..end and attends with them; keys and queries come from the same rows. */
export function* attendCausalChunk(pass: Pass, begin: number, end: number): Steps {
  const runs = pass.queries.runs(begin, end);
  const x = copyIn(pass, runs, ({ x }) => x, pass.work.attention.config.dModel);
  const out = outputOf(pass);
  yield* runAttention(pass.work, runs, { x, out });
  for (const run of runs) copyOut(pass, out, run);
}

/** Projects rows begin..end of all keys and values and appends them. */
export function* appendChunk(pass: Pass, begin: number, end: number): Steps {
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
export function* attendChunk(pass: Pass, begin: number, end: number): Steps {
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

/** The chunk's outputs: those of the output projection, or those of the heads if the layer has none. */
function outputOf({ places: { y, layer }, work: { attention, base } }: Pass): Rows {
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
