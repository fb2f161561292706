// Whole sequences through all layers of an encoder. Those of a batch are one list of rows: no padding is computed.

import { PAGE } from "../../../assembly/layout.ts";
import type { Tensor } from "../../base/tensor/tensor.ts";
import { ln } from "../../base/util/math.ts";
import { CHUNK_ROWS, chunksOf, copyRows, listRows, type RowRun, rowsIn } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { attendByContent, attendByDistance, distanceBytes } from "../../layers/attention/distances.ts";
import { type BothWays, planBothWays } from "../../layers/attention/heads.ts";
import { type PackedLinear, wholePanels } from "../../layers/linear/formats.ts";
import { placeLinearScratch } from "../../layers/linear/products.ts";
import type { LayerCall } from "../../layers/mixer/mixer.ts";
import { tokensBehind } from "../../layers/pass/call.ts";
import { openAll } from "../../layers/recurrent/parallel.ts";
import { createPageLayout, type PageLayout } from "../../layers/state/pages.ts";
import { type Pages, pagesAt, pagesBytes } from "../../layers/state/table.ts";
import { NULL } from "../../wasm/abi.ts";
import { aligned, Layout, pointer } from "../../wasm/memory.ts";
import { type BlockRows, blockRows, type PassPlan, planPass, runBlock } from "../blocks/block.ts";
import { type EmbeddedTokens, embedTokens } from "../blocks/ends.ts";
import type { LoadedModel, ModelHalf, ModelWeights, PackedBlock, PackedTable } from "../blocks/model.ts";
import { activateRows, embedRows, normRows, projectRows, ROW_SHAPE_BYTES, type RowWork } from "../blocks/rows.ts";
import { type ModelCall, type PassSettings, runModel } from "../decoder/forward.ts";
import { makeSession, type Session } from "../decoder/session.ts";
import { checkHeads } from "../mixers/heads.ts";
import { MIXERS } from "../mixers/mixers.ts";
import type { BlockSpec, HeadsSpec, ModelSpec } from "../spec/spec.ts";

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
  take(work: RowWork, plan: Omit<PassPlan, "attention">, chunk: OutputChunk): Steps;
}

/** Rows behind the last layer, and whose they are. */
interface OutputChunk {
  readonly runs: readonly RowRun<{ readonly sequence: number }>[];
  readonly rows: BlockRows;
  readonly count: number;
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
interface GroupCall extends Omit<LayerCall, "pages">, EmbeddedTokens {
  readonly sequence: number;
  /** Where its pages lie, and these, as the layer that runs has them. */
  readonly pagesAt: number;
  pages: Pages;
}

/** Runs all sequences through all layers, and gives the rows of each to `output` in order. */
export function* runEncoder(
  where: string,
  model: LoadedModel,
  sequences: readonly Sequence[],
  output: Output,
  stepFlops: number = Infinity,
  ownScratch = false,
): Steps {
  const { kernels } = model;
  const { memory } = kernels;
  const half = model.encoder ?? model;
  const { weights } = half;
  const groups = groupsOf(sequences).map(([first, end]) => ({ first, own: sequences.slice(first, end) }));
  if (readsInOrder(half.spec)) return yield* runInOrder(where, model, groups, output, ownScratch);
  const rowsOf = (own: readonly Sequence[]) => own.reduce((sum, { ids }) => sum + ids.length, 0);
  const most = mostOf(groups, ({ own }) => rowsOf(own));
  // In steps, so that texts of about one length have one plan.
  const rows = Math.min(CHUNK_ROWS, PLAN_ROWS * Math.ceil(most / PLAN_ROWS));
  const plan = planOf(model, rows, Math.min(rows, output.logits));
  const [{ attention }] = weights.blocks as readonly [PackedBlock];
  const shapes = weights.blocks.map(({ attention }) => JSON.stringify(attention.pageShape));
  const layouts = weights.blocks.map(({ attention }) => createPageLayout(attention.pageShape));
  const bytesOf = ({ ids }: Sequence) => mostOf(layouts, (layout) => pagesBytes(layout, 1, ids.length));
  const pageBytes = mostOf(groups, ({ own }) => own.reduce((sum, each) => sum + bytesOf(each), 0));
  // Behind the scratch lie pages, and the rows of a sequence that has several chunks.
  const rowsAt = aligned(plan.bytes) + pageBytes;
  const distancesAt = aligned(rowsAt + (most > plan.rows ? most * rowBytes(half.spec) : 0));
  const longest = Math.max(
    1,
    mostOf(sequences, ({ ids }) => ids.length),
  );
  const bytes = distancesAt + distancesBytes(where, half.spec, longest, plan.rows);
  const base = ownScratch ? memory.allocate(where, bytes) : memory.scratch(where, bytes);
  try {
    const work: RowWork = { kernels, base, shape: plan.shape, linear: plan.linear, mode: weights.mode, stepFlops };
    const distances = weights.distances && openDistances(work, half, longest, plan.rows, base + distancesAt);
    const attends = distances ?? (weights.relativeBias && attendByDistance(weights.relativeBias));
    const layers = plan.attention.map((attend) => attend(attends));
    for (const { first, own } of groups) {
      let at = base + aligned(plan.bytes);
      const calls: GroupCall[] = [];
      for (const [i, sequence] of own.entries()) {
        const { ids, types, features, attended = ids.length } = sequence;
        const rows = features && (yield* runStem(where, model, weights, features, stepFlops));
        const pages = pagesAt(kernels, at, layouts[0] as PageLayout, 1, ids.length);
        const whole = tokensBehind(where, attention.config, 0, ids.length);
        const tokens = { ...whole, placements: [{ position: 0, kvLen: attended }] };
        calls.push({
          ...{ ids, types, rows, past: 0, sequence: first + i, pagesAt: at },
          tokens,
          pages,
          inStep: false,
        });
        at += bytesOf(sequence);
      }
      const chunks = chunksIn(calls, plan, base, rowsAt, half.spec);
      // Encoders hold the whole table.
      const inputRow = half.weights.perLayer?.stored?.held([]);
      for (const { plan, runs, rows, count } of chunks)
        yield* embedTokens(work, half, plan, rows, runs, count, inputRow);
      let open = 0;
      yield* runLayers(work, half, layers, chunks, (layer) => {
        if (shapes[open] === shapes[layer]) return;
        open = layer;
        for (const call of calls)
          call.pages = pagesAt(kernels, call.pagesAt, layouts[layer] as PageLayout, 1, call.ids.length);
      });
      for (const chunk of chunks) yield* output.take(work, plan, chunk);
    }
  } finally {
    if (ownScratch && !kernels.released) memory.free(base);
  }
}

/** Whether a layer reads in order: a decoder's pass runs the model. */
export const readsInOrder = ({ blocks }: ModelSpec): boolean =>
  blocks.some(({ mixer }) => MIXERS[mixer.kind].readsInOrder?.(mixer));

/** Runs sequences in a decoder's pass, each in a session that lasts as long as its group runs. */
function* runInOrder(
  where: string,
  model: LoadedModel,
  groups: readonly { readonly first: number; readonly own: readonly Sequence[] }[],
  output: Output,
  sliced: boolean,
): Steps {
  for (const { first, own } of groups) {
    const sessions = openAll(own, ({ ids }) =>
      makeSession(where, model as Session["model"], { maxSeqLen: ids.length, format: "f32" }),
    );
    try {
      const calls = own.map(
        ({ ids }, i): ModelCall => ({ where, session: sessions[i] as Session, past: 0, ids, outputs: 0 }),
      );
      const take: PassSettings["take"] = (work, plan, rows, runs) => {
        const named = runs.map((run) => ({ ...run, of: { sequence: first + calls.indexOf(run.of.call) } }));
        return output.take(work, plan, { runs: named, rows, count: rowsIn(runs) });
      };
      // It waits for nothing: encoders hold their tables.
      yield* runModel(where, model, calls, () => {}, { sliced, take }) as Steps;
    } finally {
      if (!model.kernels.released) for (const session of sessions) session.release();
    }
  }
}

/** Places the rows of distances that texts of up to `longest` tokens have; what attends by them lies behind. */
function planDistances({ dModel }: ModelSpec, own: Distances, longest: number) {
  const layout = new Layout();
  const first = distanceRow(own, 1 - longest);
  const count = distanceRow(own, longest - 1) - first + 1;
  const places = { ids: layout.floats(count), rows: layout.floats(count * wholePanels(dModel)) };
  return { ...places, first, count, scratch: aligned(layout.bytes) };
}

/** Bytes of both, for chunks of `chunk` rows; 0 for a model without. */
function distancesBytes(where: string, spec: ModelSpec, longest: number, chunk: number): number {
  if (!spec.distances) return 0;
  const { count, scratch } = planDistances(spec, spec.distances, longest);
  const bytesOf = ({ mixer }: BlockSpec) =>
    distanceBytes(checkHeads(where, (mixer as HeadsSpec).config), { longest, count, chunk });
  return scratch + aligned(mostOf(spec.blocks, bytesOf));
}

/** Writes the rows of distances to scratch at `at`, and returns what attends by them. */
function openDistances(
  work: RowWork,
  { spec, weights: { distances, distancesNorm } }: ModelHalf,
  longest: number,
  chunk: number,
  at: number,
): ReturnType<typeof attendByContent> {
  const own = spec.distances as Distances;
  const { ids, rows: place, first, count, scratch } = planDistances(spec, own, longest);
  const rows = { at: pointer.f32(at + place), stride: wholePanels(spec.dModel) };
  const numbers = work.kernels.memory.u32(at + ids, count);
  for (let i = 0; i < count; i++) numbers[i] = first + i;
  embedRows(work, distances as PackedTable, at + ids, rows, 1, count);
  if (distancesNorm) normRows(work, distancesNorm, rows, rows, spec.dModel, count);
  const { ofQueries, ofKeys } = own;
  const rowOf = (distance: number) => distanceRow(own, distance);
  return attendByContent({ longest, chunk, first, count, rows, rowOf, ofQueries, ofKeys }, at + scratch);
}

type Distances = NonNullable<ModelSpec["distances"]>;

/**
 * The row of the table for a query `distance` positions behind its key: groups of distances that grow from half of the span on, in
 * float32, as in PyTorch, because their bounds are not far from integers.
 */
function distanceRow({ span, longest }: Distances, distance: number): number {
  const [away, half] = [Math.abs(distance), Math.floor(span / 2)];
  let group = away;
  if (longest !== undefined && away > half) {
    const [own, last] = [away, longest - 1].map((each) => Math.fround(ln(Math.fround(each / half)))) as [
      number,
      number,
    ];
    group = half + Math.ceil(Math.fround(Math.fround(own / last) * (half - 1)));
  }
  return Math.min(2 * span - 1, Math.max(0, span + Math.sign(distance) * group));
}

/** Bytes behind the scratch of a pass, for texts of up to `tokens` tokens, of which at most `texts` run together. */
export function bytesBehind(where: string, spec: ModelSpec, tokens: number, texts: number = MOST_TOGETHER): number {
  const layouts = spec.blocks.map(({ mixer }) => createPageLayout(checkHeads(where, (mixer as HeadsSpec).config)));
  const pagesOf = (length: number) => mostOf(layouts, (layout) => pagesBytes(layout, 1, length));
  // A group of texts takes a page each, and one of them may begin a second one; a longer text is alone.
  const together = texts * pagesOf(1) + (tokens > PAGE ? pagesOf(2 * PAGE) : 0);
  const rows = tokens > CHUNK_ROWS ? tokens * rowBytes(spec) : 0;
  const pages = Math.max(together, pagesOf(tokens));
  return aligned(pages + rows) + distancesBytes(where, spec, tokens, CHUNK_ROWS) + stemBytes(spec);
}

/** The largest of some sizes, of which there may be more than a call takes arguments. */
const mostOf = <T>(all: readonly T[], sizeOf: (one: T) => number): number =>
  all.reduce((most, one) => Math.max(most, sizeOf(one)), 0);

/** Bytes of a row that waits for others of its sequence: between layers, and its inputs of layers. */
const rowBytes = ({ dModel, blocks, embed: { perLayer } }: ModelSpec): number =>
  4 * (wholePanels(dModel) + wholePanels(blocks.length * (perLayer?.dim ?? 0)));

/** Rows that share products. */
interface Chunk extends OutputChunk {
  readonly plan: Plan;
  readonly runs: readonly RowRun<GroupCall>[];
}

/** The chunks of a group. If there are several, each has its own part of the rows that wait at `rowsAt`. */
function chunksIn(calls: readonly GroupCall[], plan: Plan, base: number, rowsAt: number, spec: ModelSpec): Chunk[] {
  const list = listRows(calls, ({ ids }) => [[0, ids.length]]);
  return Array.from(chunksOf(list.total, plan.rows), ([begin, end]) => {
    const runs = list.runs(begin, end);
    const [rows, count] = [blockRows(plan, base), rowsIn(runs)];
    if (list.total <= plan.rows) return { plan, runs, rows, count };
    const at = rowsAt + begin * rowBytes(spec);
    const residual = { ...rows.residual, at: pointer.f32(base + at) };
    return { plan: { ...plan, layerInputs: at + 4 * count * plan.stride }, runs, rows: { ...rows, residual }, count };
  });
}

function* runLayers(
  work: RowWork,
  model: ModelHalf,
  layers: readonly BothWays[],
  chunks: readonly Chunk[],
  openPages: (layer: number) => void,
): Steps {
  const { spec, weights } = model;
  for (const i of spec.order ?? weights.blocks.keys()) {
    openPages(i);
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
    for (const { plan, runs, rows, count } of chunks) yield* runBlock(work, block, plan, attend, runs, rows, count);
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
function stemBytes({ dModel, embed: { channels } }: ModelSpec): number {
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
