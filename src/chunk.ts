// What happens to the rows of one chunk, between where they come from and where they go.

import { type F32Ptr, storeCacheShape } from "./abi.ts";
import { type Attention, widthOf } from "./attention.ts";
import type { AttendCall } from "./call.ts";
import { type Linear, project } from "./linear.ts";
import { maskElements } from "./mask.ts";
import { pointer } from "./memory.ts";
import { type Pages, pageTable } from "./pages.ts";
import type { Placement } from "./positions.ts";
import { chunksOf, type RowRun, tokenRunsOf } from "./rows.ts";
import type { PassPlaces, Strides } from "./scratch.ts";
import { attendSegment, type CallShape, readScores, type Segment } from "./segment.ts";
import type { Steps } from "./steps.ts";

/** One call of a pass: the pages its keys go to, and where its outputs go. */
export interface PassCall {
  readonly call: AttendCall;
  readonly pages: Pages;
  readonly y: Float32Array;
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

/** Projects the chunk's x. */
export function projectIn(
  { attention, places, base, stride, stepFlops }: Pass,
  linear: Linear,
  to: number,
  rows: number,
): Steps {
  const out = pointer.f32(base + to);
  return project(attention.kernels, linear, out, stride.qkv, pointer.f32(base + places.x), linear.k, rows, stepFlops);
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
    const { call, pages } = run.of;
    for (const { batchRow, from, to, at } of tokenRunsOf(run, call.newKeys)) {
      const [k, v] = [places.k, places.v].map((place) => pointer.f32(base + place + 4 * at * stride.qkv)) as [
        F32Ptr,
        F32Ptr,
      ];
      kernels.table.append_f32(pageTable(pages, batchRow), k, v, shape, call.past + from, 0, to - from);
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
    const { call, pages } = run.of;
    for (const { at, ...placed } of segmentsOf(call, run, stepFlops)) {
      const segment = {
        ...placed,
        q: pointer.f32(base + places.q + 4 * at * stride.qkv),
        out: pointer.f32(base + places.heads + 4 * at * stride.heads),
        pages: pageTable(pages, placed.batchRow),
      };
      yield* attendSegment(kernels, base, places.segment, shape, call.masks, call.target, segment, stepFlops);
      if (pass.maps) readScores(kernels, base, places.segment, shape, call.masks, call.target, segment, 3, pass.maps);
    }
  }
  const [heads, y] = [pointer.f32(base + places.heads), pointer.f32(base + places.y)];
  if (layer.wo) yield* project(kernels, layer.wo, y, stride.y, heads, stride.heads, rows, stepFlops);
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
  const interleaved = rotary.pairing === "interleaved" ? 1 : 0;
  table.rope_f32(x, cos, sin, heads, headDim, rotary.dim, interleaved, stride.qkv, 0, rows);
}

/** Elements of masks that are written in one step, where steps are bounded. */
const STEP_MASK_ELEMENTS = 2 ** 21;

/** A segment, whose first token lies at row `at` of the chunk. */
type PlacedSegment = Omit<Segment, "q" | "out" | "pages"> & { readonly at: number };

/** Cuts a run of queries into segments: at the batch rows, and so that the masks of a step are soon written. */
export function* segmentsOf(
  { placements, qLen, masks, target }: AttendCall,
  run: RowRun<unknown>,
  stepFlops: number,
): Generator<PlacedSegment, void, void> {
  const most = stepFlops === Infinity ? qLen : Math.ceil(STEP_MASK_ELEMENTS / maskElements(masks, target, 1));
  for (const { batchRow, from, to, at } of tokenRunsOf(run, qLen)) {
    const { position, kvLen } = placements[batchRow] as Placement;
    for (const [begin, end] of chunksOf(to - from, masks.perRow ? most : qLen))
      yield {
        ...{ batchRow, kvLen, begin: from + begin, end: from + end },
        position: position + from + begin,
        at: at + begin,
      };
  }
}
