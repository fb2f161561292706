// Whole sequences through all layers of an encoder. Those of a batch are one list of rows: no padding is computed.

import type { Tensor } from "../../base/tensor/tensor.ts";
import { CHUNK_ROWS, chunksOf, copyRows, listRows, type RowRun, rowsIn } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { type BothWays, planBothWays } from "../../layers/attention/heads.ts";
import { type PackedLinear, wholePanels } from "../../layers/linear/formats/format.ts";
import { placeLinearScratch } from "../../layers/linear/products.ts";
import type { LayerCall } from "../../layers/mixer/mixer.ts";
import { tokensBehind } from "../../layers/pass/call.ts";
import { createPageLayout } from "../../layers/state/pages.ts";
import { pagesAt, pagesBytes } from "../../layers/state/table.ts";
import { NULL } from "../../wasm/abi.ts";
import { aligned, Layout, pointer } from "../../wasm/memory.ts";
import { type BlockRows, blockRows, type PassPlan, planPass, runBlock } from "../blocks/block.ts";
import { type EmbeddedTokens, embedTokens } from "../blocks/ends.ts";
import type { LoadedModel, ModelHalf, ModelWeights, PackedBlock } from "../blocks/model.ts";
import { activateRows, normRows, projectRows, ROW_SHAPE_BYTES, type RowWork } from "../blocks/rows.ts";
import type { ModelSpec } from "../spec/spec.ts";

/** The tokens of a sequence, and their types. */
export interface Sequence {
  readonly ids: Int32Array;
  readonly types: Int32Array | undefined;
  /** Features [channels, frames] instead of tokens, of which `ids` has the number of rows only. */
  readonly features?: Tensor;
  /** Tokens that are attended, from the first on: those behind them only attend. Default all. */
  readonly attended?: number | undefined;
}

/** What is computed from the outputs of the last layer. */
export interface Output {
  /** The most rows that become logits. */
  readonly logits: number;
  /** Takes the rows of a chunk: `residual`. */
  take(work: RowWork, plan: Plan, chunk: Chunk): Steps;
}

/** The most sequences whose rows share products: a page of 128 keys for each of them lies in memory. */
export const MOST_TOGETHER = 16;
const PLAN_ROWS = 16;

type Plan = PassPlan<ReturnType<typeof planBothWays>>;
/** Plans by model: that of the last pass, which the next one often needs again. */
const PLANS = new WeakMap<LoadedModel, { readonly key: string; readonly plan: Plan }>();

function planOf(model: LoadedModel, rows: number, outputs: number): Plan {
  const key = `${rows} ${outputs}`;
  const known = PLANS.get(model);
  if (known?.key === key) return known.plan;
  const { spec, places, weights } = model.encoder ?? model;
  const plan = planPass(spec, places, { rows, outputs }, (layer, layout) => {
    const { attention } = weights.blocks[layer] as PackedBlock;
    return planBothWays(attention, layout, rows, createPageLayout(attention.pageShape).formats);
  });
  PLANS.set(model, { key, plan });
  return plan;
}

/** Sequences that run together, the indices of the first and of the one after the last. */
type Group = readonly [first: number, end: number];

/** Cuts sequences into groups that fill a chunk; a longer sequence is alone, and has several chunks. */
function groupsOf(sequences: readonly Sequence[]): Group[] {
  const groups: Group[] = [];
  let [first, rows] = [0, 0];
  for (const [i, { ids }] of sequences.entries()) {
    if (i > first && (rows + ids.length > CHUNK_ROWS || i - first === MOST_TOGETHER)) {
      groups.push([first, i]);
      [first, rows] = [i, 0];
    }
    rows += ids.length;
  }
  return sequences.length > 0 ? [...groups, [first, sequences.length]] : groups;
}

/** A sequence in a group: its tokens, and the pages that its keys go to, in each layer again. */
interface GroupCall extends LayerCall, EmbeddedTokens {
  readonly sequence: number;
}

/** Runs all sequences through all layers, and gives the rows of each to `output` in order. */
export function* runEncoder(
  where: string,
  model: LoadedModel,
  sequences: readonly Sequence[],
  output: Output,
  stepFlops: number = Number.POSITIVE_INFINITY,
  ownScratch = false,
): Steps {
  const { kernels } = model;
  const { memory } = kernels;
  const half = model.encoder ?? model;
  const { weights } = half;
  const groups = groupsOf(sequences).map(([first, end]) => ({ first, own: sequences.slice(first, end) }));
  const rowsOf = (own: readonly Sequence[]) => own.reduce((sum, { ids }) => sum + ids.length, 0);
  const most = mostOf(groups, ({ own }) => rowsOf(own));
  // In steps, so that texts of about one length have one plan.
  const rows = Math.min(CHUNK_ROWS, PLAN_ROWS * Math.ceil(most / PLAN_ROWS));
  const plan = planOf(model, rows, Math.min(rows, output.logits));
  const [{ attention }] = weights.blocks as readonly [PackedBlock];
  const layout = createPageLayout(attention.pageShape);
  const bytesOf = ({ ids }: Sequence) => pagesBytes(layout, 1, ids.length);
  const pageBytes = mostOf(groups, ({ own }) => own.reduce((sum, each) => sum + bytesOf(each), 0));
  // Behind the scratch lie pages, and the rows of a sequence that has several chunks.
  const rowsAt = aligned(plan.bytes) + pageBytes;
  const bytes = rowsAt + (most > plan.rows ? 4 * most * plan.stride : 0);
  const base = ownScratch ? memory.allocate(where, bytes) : memory.scratch(where, bytes);
  try {
    const work: RowWork = { kernels, base, shape: plan.shape, linear: plan.linear, mode: weights.mode, stepFlops };
    const layers = plan.attention.map((attend) => attend(weights.relativeBias));
    for (const { first, own } of groups) {
      let at = base + aligned(plan.bytes);
      const calls: GroupCall[] = [];
      for (const [i, sequence] of own.entries()) {
        const { ids, types, features, attended = ids.length } = sequence;
        const rows = features && (yield* runStem(where, model, weights, features, stepFlops));
        const pages = pagesAt(kernels, at, layout, 1, ids.length);
        at += bytesOf(sequence);
        const whole = tokensBehind(where, attention.config, 0, ids.length);
        const tokens = { ...whole, placements: [{ position: 0, kvLen: attended }] };
        calls.push({ ...{ ids, types, rows, past: 0, sequence: first + i }, tokens, pages, inStep: false });
      }
      const chunks = chunksIn(calls, plan, base, base + rowsAt);
      for (const { runs, rows, count } of chunks) yield* embedTokens(work, half, plan, rows, runs, count);
      yield* runLayers(work, half, plan, layers, chunks);
      for (const chunk of chunks) yield* output.take(work, plan, chunk);
    }
  } finally {
    if (ownScratch && !kernels.released) memory.free(base);
  }
}

/** The largest of some sizes, of which there may be more than a call takes arguments. */
const mostOf = <T>(all: readonly T[], sizeOf: (one: T) => number): number =>
  all.reduce((most, one) => Math.max(most, sizeOf(one)), 0);

/** Rows that share products. */
interface Chunk {
  readonly runs: readonly RowRun<GroupCall>[];
  readonly rows: BlockRows;
  readonly count: number;
}

/** The chunks of a group. If there are several, each has its own part of the rows at `rowsAt` between layers. */
function chunksIn(calls: readonly GroupCall[], plan: Plan, base: number, rowsAt: number): Chunk[] {
  const list = listRows(calls, ({ ids }) => [[0, ids.length]]);
  return Array.from(chunksOf(list.total, plan.rows), ([begin, end]) => {
    const runs = list.runs(begin, end);
    const rows = blockRows(plan, base);
    const residual = { ...rows.residual, at: pointer.f32(rowsAt + 4 * begin * plan.stride) };
    return { runs, count: rowsIn(runs), rows: list.total > plan.rows ? { ...rows, residual } : rows };
  });
}

function* runLayers(
  work: RowWork,
  model: ModelHalf,
  plan: Plan,
  layers: readonly BothWays[],
  chunks: readonly Chunk[],
): Steps {
  const { spec, weights } = model;
  for (const i of spec.order ?? weights.blocks.keys()) {
    const block = weights.blocks[i] as PackedBlock;
    const { whole, keys, queries } = layers[i] as BothWays;
    const { attentionPre } = block.norms;
    if (chunks.length > 1)
      for (const { runs, rows, count } of chunks) {
        const { residual, normed } = rows;
        if (attentionPre) normRows(work, attentionPre, normed, residual, spec.dModel, count);
        yield* keys(work.base, work.stepFlops, runs, attentionPre ? normed : residual);
      }
    const attend = chunks.length > 1 ? queries : whole;
    for (const { runs, rows, count } of chunks) yield* runBlock(work, block, plan, attend, runs, rows, count);
  }
}

// What is before the encoder of a model that reads sounds: two convolutions over time, the second of which takes every other
// frame. Each is a product of three neighbouring frames with its weights.

/** Rows that `frames` frames become. */
export const stemRows = (frames: number): number => Math.ceil(frames / 2);

/** Places what both convolutions work in, for chunks of frames. */
function placeStem(dModel: number, linears: Parameters<typeof placeLinearScratch>[1]) {
  const layout = new Layout();
  const places = {
    x: layout.floats(CHUNK_ROWS * Math.max(...linears.map(({ k }) => k))),
    out: layout.floats(CHUNK_ROWS * wholePanels(dModel)),
    shape: layout.take(ROW_SHAPE_BYTES),
    linear: placeLinearScratch(layout, linears, CHUNK_ROWS),
  };
  return { ...places, bytes: layout.bytes };
}

/** Bytes that both convolutions work in; 0 for a model without. */
export function stemBytes({ dModel, embed: { channels } }: ModelSpec): number {
  const format = "f32" as const;
  return channels === undefined
    ? 0
    : aligned(
        placeStem(dModel, [
          { k: 3 * channels, format },
          { k: 3 * dModel, format },
        ]).bytes,
      );
}

/** The rows [stemRows(frames), dModel] of features [channels, frames], before positions are added. */
function* runStem(
  where: string,
  { kernels, dModel }: LoadedModel,
  { stem, mode }: ModelWeights,
  { data, shape }: Tensor,
  stepFlops: number,
): Steps<Float32Array> {
  const { first, second } = stem as NonNullable<ModelWeights["stem"]>;
  const { memory } = kernels;
  const [channels, frames] = shape as [number, number];
  const { x, out, shape: shapeAt, linear, bytes } = placeStem(dModel, [first, second]);
  const base = memory.allocate(where, bytes);
  const work: RowWork = { kernels, base, shape: shapeAt, linear, mode, stepFlops };
  /** Every `step`-th row of frames [rows, width] with its neighbours, zeros beyond the ends, through a projection and GELU. */
  function* convolve(from: Float32Array, width: number, step: 1 | 2, weights: PackedLinear): Steps<Float32Array> {
    const rows = from.length / width;
    const to = new Float32Array(Math.ceil(rows / step) * dModel);
    for (const [begin, end] of chunksOf(to.length / dModel, CHUNK_ROWS)) {
      const count = end - begin;
      const neighbours = memory.f32(base + x, count * 3 * width).fill(0);
      for (let row = begin; row < end; row++) {
        const [low, high] = [Math.max(0, row * step - 1), Math.min(rows, row * step + 2)];
        neighbours.set(from.subarray(low * width, high * width), ((row - begin) * 3 + low - (row * step - 1)) * width);
      }
      const outputs = { at: pointer.f32(base + out), stride: wholePanels(dModel) };
      yield* projectRows(work, [weights], outputs, { at: pointer.f32(base + x), stride: 3 * width }, count);
      activateRows(work, { kind: "gelu", alpha: 1 }, outputs, NULL, dModel, count);
      const found = memory.f32(outputs.at, count * outputs.stride);
      copyRows(to, begin * dModel, dModel, found, outputs.stride, dModel);
    }
    return to;
  }
  try {
    const turned = new Float32Array(data.length);
    for (let channel = 0; channel < channels; channel++)
      for (let frame = 0; frame < frames; frame++)
        turned[frame * channels + channel] = data[channel * frames + frame] as number;
    return yield* convolve(yield* convolve(turned, channels, 1, first), dModel, 2, second);
  } finally {
    if (!kernels.released) memory.free(base);
  }
}

// The outputs of an encoder as rows.

/** Takes rows of states, `stride` floats apart, from row `begin` of a sequence on: a view. */
type RowSink = (sequence: number, begin: number, count: number, rows: Float32Array, stride: number) => void;

/** Gives the states of all rows to `sink`, after the last norm where there is one. */
export const statesTo = (model: LoadedModel, sink: RowSink): Output => ({
  logits: 0,
  // biome-ignore lint/correctness/useYield: a step of an output may have yields.
  *take(work, _plan, { runs, rows: { residual }, count }) {
    const { spec, weights } = model.encoder ?? model;
    if (weights.finalNorm) normRows(work, weights.finalNorm, residual, residual, spec.dModel, count);
    const { at: from, stride } = residual;
    for (const { of, begin, end, at } of runs)
      sink(
        of.sequence,
        begin,
        end - begin,
        model.kernels.memory.f32(from + 4 * at * stride, (end - begin) * stride),
        stride,
      );
  },
});
