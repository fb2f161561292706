// What happens to the rows of one chunk, between where they come from and where they go.

import { PAGE } from "../../assembly/layout.ts";
import { type Attention, widthOf } from "../attention/attention.ts";
import { maskElements } from "../attention/mask.ts";
import type { Projection } from "../attention/packed-weights.ts";
import type { Placement } from "../attention/positions.ts";
import { agePages, reachPages } from "../cache/aging.ts";
import { onlyFloats } from "../cache/formats.ts";
import { type Pages, pageTable } from "../cache/pages.ts";
import { isInteger } from "../linear/formats.ts";
import { type Linear, type LinearInput, project, quantizeInput } from "../linear/linear.ts";
import { type RowRun, tokenRunsOf } from "../util/rows.ts";
import type { Steps } from "../util/steps.ts";
import { type F32Ptr, storeCacheShape, storeRopeShape } from "../wasm/abi.ts";
import { pointer } from "../wasm/memory.ts";
import { attendSegment, type CallShape, readScores, type Segment } from "./attend-segment.ts";
import type { AttendCall } from "./call.ts";
import type { PassPlaces, Strides } from "./scratch.ts";

/** One call of a pass: the pages its keys go to, and where its outputs go. */
export interface PassCall {
  readonly call: AttendCall;
  readonly pages: Pages;
  readonly y: Float32Array;
  /** What `agesInStep` says of it. */
  readonly inStep: boolean;
}

export interface Pass {
  readonly attention: Attention;
  readonly calls: readonly PassCall[];
  readonly shape: CallShape;
  readonly stride: Strides;
  readonly places: PassPlaces;
  /** Where the scratch begins. */
  readonly base: number;
  readonly stepFlops: number;
  readonly maps: Float32Array | undefined;
}

export type Runs = readonly RowRun<PassCall>[];

const rowsIn = (runs: Runs) => runs.reduce((rows, { begin, end }) => rows + end - begin, 0);

/** Copies the runs' rows of `width` floats to the chunk's x. */
export function copyIn(
  { attention, places, base }: Pass,
  runs: Runs,
  from: (of: PassCall) => Float32Array,
  width: number,
): void {
  for (const { of, begin, end, at } of runs)
    attention.kernels.memory
      .f32(base + places.x + 4 * at * width, (end - begin) * width)
      .set(from(of).subarray(begin * width, end * width));
}

/** Rows of k floats of the chunk as what projections read; as integers too, where one of `linears` wants them. */
function inputOf({ attention, places, base }: Pass, linears: readonly Linear[], at: number, rows: number): LinearInput {
  const [{ k }] = linears as [Linear];
  const input = {
    x: pointer.f32(base + at),
    xStride: k,
    integers: pointer.u8(base + places.integers),
    mode: attention.layer.modeOf(rows),
    scratch: base + places.linear,
  };
  if (linears.some(({ format }) => isInteger(format))) quantizeInput(attention.kernels, input, k, rows);
  return input;
}

/** Projects the chunk's x. */
export function* projectIn(pass: Pass, projections: readonly Projection[], rows: number): Steps {
  const { attention, places, base, stride, stepFlops } = pass;
  const linears = projections.map(({ linear }) => linear);
  const input = inputOf(pass, linears, places.x, rows);
  for (const { linear, part } of projections)
    yield* project(attention.kernels, linear, pointer.f32(base + places[part]), stride.qkv, input, rows, stepFlops);
}

/** cos and sin of the runs' positions. */
export function fillTables(
  { attention: { kernels, rotary }, places, base }: Pass,
  runs: Runs,
  positionsOf: (of: PassCall) => Int32Array,
): void {
  if (!rotary) return;
  const half = rotary.dim / 2;
  for (const { of, begin, end, at } of runs) {
    const floats = (end - begin) * half;
    const [cos, sin] = [places.cos, places.sin].map((table) =>
      kernels.memory.f32(base + table + 4 * at * half, floats),
    ) as [Float32Array, Float32Array];
    rotary.fill(positionsOf(of).subarray(begin, end), cos, sin);
  }
}

/** Norms and rotates the chunk's keys, and appends them and the values to the pages. */
export function settleKeys(pass: Pass, runs: Runs): void {
  const { attention, places, base, stride } = pass;
  const { kernels, config, layer } = attention;
  const { numKvHeads, headDim, valueDim } = config;
  normAndRotate(pass, places.k, layer.kNorm, numKvHeads, rowsIn(runs));
  storeCacheShape(kernels.memory.view(), base + places.cacheShape, {
    numKvHeads,
    headDim,
    valueDim,
    kStride: stride.qkv,
    kHeadStride: headDim,
    vStride: stride.qkv,
    vHeadStride: valueDim,
  });
  const shape = pointer.cacheShape(base + places.cacheShape);
  for (const run of runs) {
    const { call, pages, inStep } = run.of;
    for (const { batchRow, from, to, at } of tokenRunsOf(run, call.newKeys)) {
      const [k, v] = [places.k, places.v].map((place) => pointer.f32(base + place + 4 * at * stride.qkv)) as [
        F32Ptr,
        F32Ptr,
      ];
      reachPages(kernels, pages, batchRow, call.past + to);
      const append = onlyFloats(pages.formats) ? kernels.table.append_f32 : kernels.table.append_pages;
      append(pageTable(pages, batchRow), k, v, shape, call.past + from, 0, to - from);
      // Queries that do not stand among these keys attend them as the last one does.
      if (!inStep) agePages(kernels, pages, batchRow, pageOf(call.past + to - 1), call.past);
    }
  }
}

/** Norms and rotates the chunk's queries, attends, and projects the heads' outputs into the ys. */
export function* settleQueries(pass: Pass, runs: Runs): Steps {
  const { attention, places, base, stride, stepFlops, shape } = pass;
  const { kernels, config, layer } = attention;
  const rows = rowsIn(runs);
  normAndRotate(pass, places.q, layer.qNorm, config.numHeads, rows);
  for (const run of runs) {
    const { call, pages, inStep } = run.of;
    for (const { at, ...placed } of segmentsOf(call, run, inStep, stepFlops)) {
      if (inStep) agePages(kernels, pages, placed.batchRow, pageOf(placed.position), call.past);
      const segment = {
        ...placed,
        q: pointer.f32(base + places.q + 4 * at * stride.qkv),
        out: pointer.f32(base + places.heads + 4 * at * stride.heads),
        pages: pageTable(pages, placed.batchRow),
        formats: pages.formats,
      };
      yield* attendSegment(kernels, base, places.segment, shape, call.masks, call.target, segment, stepFlops);
      if (pass.maps) readScores(kernels, base, places.segment, shape, call.masks, call.target, segment, 3, pass.maps);
    }
  }
  if (layer.wo) {
    const input = inputOf(pass, [layer.wo], places.heads, rows);
    yield* project(kernels, layer.wo, pointer.f32(base + places.y), stride.y, input, rows, stepFlops);
  }
  for (const run of runs) copyOut(pass, run);
}

/** Copies a run of the chunk's outputs to where the call wants them. */
function copyOut({ attention, places, base, stride }: Pass, { of, begin, end, at }: RowRun<PassCall>): void {
  const width = widthOf(attention);
  const [place, rowStride] = attention.layer.wo ? [places.y, stride.y] : [places.heads, stride.heads];
  const from = attention.kernels.memory.f32(base + place + 4 * at * rowStride, (end - begin) * rowStride);
  if (rowStride === width) of.y.set(from, begin * width);
  else
    for (let r = begin; r < end; r++) {
      const row = (r - begin) * rowStride;
      of.y.set(from.subarray(row, row + width), r * width);
    }
}

/** Norms and rotates `heads` heads of each row of the chunk, in place. */
function normAndRotate(
  { attention, places, base, stride }: Pass,
  at: number,
  gain: F32Ptr,
  heads: number,
  rows: number,
): void {
  const { kernels, config, rotary } = attention;
  const { table } = kernels;
  const { qkNorm, headDim } = config;
  const x = pointer.f32(base + at);
  if (qkNorm?.kind === "full") table.rms_norm_f32(x, x, gain, heads * headDim, stride.qkv, qkNorm.eps, 0, rows);
  else if (qkNorm)
    for (let r = 0; r < rows; r++) {
      const row = pointer.f32(x + 4 * r * stride.qkv);
      table.rms_norm_f32(row, row, gain, headDim, headDim, qkNorm.eps, 0, heads);
    }
  if (!rotary) return;
  const [cos, sin] = [pointer.f32(base + places.cos), pointer.f32(base + places.sin)];
  storeRopeShape(kernels.memory.view(), base + places.ropeShape, {
    numHeads: heads,
    headDim,
    ropeDim: rotary.dim,
    interleaved: rotary.pairing === "interleaved" ? 1 : 0,
    stride: stride.qkv,
  });
  table.rope_f32(x, cos, sin, pointer.ropeShape(base + places.ropeShape), 0, rows);
}

const pageOf = (position: number) => Math.floor(position / PAGE);

/** Whether a call's queries come from the rows that its keys come from, and turn by the same positions. */
export function isSelf({ x, keys, values, newKeys, qLen, positions, keyPositions }: AttendCall): boolean {
  return keys === x && values === x && newKeys === qLen && positions === keyPositions;
}

/** Whether keys age with the queries of their call, which stand where the keys do and attend no later ones. */
export function agesInStep({ config }: Attention, call: AttendCall): boolean {
  if (!call.cache?.pages.aging || !config.causal || !isSelf(call)) return false;
  return call.placements.every(({ position }) => position === call.past);
}

/** Elements of masks that are written in one step, where steps are bounded. */
const STEP_MASK_ELEMENTS = 2 ** 21;

/** A segment, whose first token lies at row `at` of the chunk. */
type PlacedSegment = Omit<Segment, "q" | "out" | "pages" | "formats"> & { readonly at: number };

/**
 * Cuts a run of queries into segments: at the batch rows, so that the masks of a step are soon written, and where keys
 * age `inStep`, at the pages that their queries are in.
 */
export function* segmentsOf(
  call: AttendCall,
  run: RowRun<unknown>,
  inStep: boolean,
  stepFlops: number,
): Generator<PlacedSegment, void, void> {
  const { placements, qLen, masks, target } = call;
  const most = stepFlops === Infinity ? qLen : Math.ceil(STEP_MASK_ELEMENTS / maskElements(masks, target, 1));
  for (const { batchRow, from, to, at } of tokenRunsOf(run, qLen)) {
    const { position, kvLen } = placements[batchRow] as Placement;
    for (let begin = 0, end = 0; begin < to - from; begin = end) {
      const first = position + from + begin;
      end = Math.min(to - from, begin + (masks.perRow ? most : qLen));
      if (inStep) end = Math.min(end, begin + PAGE - (first % PAGE));
      yield { ...{ batchRow, kvLen, begin: from + begin, end: from + end }, position: first, at: at + begin };
    }
  }
}
