// The steps of an attention layer on rows in linear memory. Nothing here copies from or to JavaScript: the caller
// provides the rows of a chunk, the calls they belong to, and the place of the outputs.

import { PAGE } from "../../../assembly/layout.ts";
import { type RowRun, rowsIn, tokenRunsOf } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { type F32Ptr, storeRopeShape } from "../../wasm/abi.ts";
import { pointer } from "../../wasm/memory.ts";
import type { LayerParts, Projection } from "../attention/attention.ts";
import { maskElements } from "../attention/mask.ts";
import type { Placement } from "../attention/positions.ts";
import type { LayerPlaces, RotationPlaces, Strides } from "../attention/scratch.ts";
import {
  attendSegment,
  type CallShape,
  type Measure,
  readScores,
  type ScoreStage,
  type Segment,
} from "../attention/segment.ts";
import { prepareInput, project, type Rows } from "../linear/products.ts";
import { agePages, appendRows, type Pages, pageTable, storeRows } from "../state/table.ts";
import type { CallTokens } from "./call.ts";

/** The tokens of one call, and the pages that their keys go to. */
export interface LayerCall {
  readonly tokens: CallTokens;
  readonly pages: Pages;
  /**
   * Whether keys age as the queries of the call advance: queries and keys have the same positions, and no query attends
   * a later key.
   */
  readonly inStep: boolean;
}

/** The runs of rows of a chunk, which may belong to several calls. */
export type Runs<Call extends LayerCall = LayerCall> = readonly RowRun<Call>[];

/** A layer, and the scratch that it works in. */
export interface LayerWork {
  readonly attention: LayerParts;
  readonly shape: CallShape;
  readonly places: LayerPlaces;
  /** The address of the scratch. */
  readonly base: number;
  readonly stepFlops: number;
  /** [batch, numHeads, qLen, columns] for the scores of a single call at `stage`, by default the softmax weights. */
  readonly maps: Float32Array | undefined;
  readonly stage?: ScoreStage;
  readonly tap?: Tap | undefined;
  readonly measure?: Measure | undefined;
}

/** Queries at `q` and keys at `k`, in rows `stride.qkv` apart. */
interface HeadWork extends Pick<LayerWork, "attention" | "base"> {
  readonly places: Pick<LayerPlaces, "q" | "k" | "cos" | "sin" | "ropeShape"> & {
    readonly stride: Pick<Strides, "qkv">;
  };
}

const PARTS = ["q", "k", "v"] as const;

/**
 * Causal self-attention of a chunk, whose keys and queries come from the rows `x` [rows, dModel], with tables of rotations that the
 * caller has filled: appends the keys, attends, and writes the outputs to `out` [rows, dModel] in whole panels. x may share memory with the heads' outputs,
 * and `out` with the projected rows. Without an output projection the outputs are those of the heads.
 */
export function* runAttention(work: LayerWork, runs: Runs, { x, out }: { x: Rows; out: Rows }): Steps {
  yield* projectRows(work, work.attention.layer.products.qkv as readonly Projection[], x, rowsIn(runs));
  for (const part of PARTS)
    work.tap?.(part, { at: pointer.f32(work.base + work.places[part]), stride: work.places.stride.qkv });
  storeKeys(work, runs);
  yield* attendRows(work, runs, out);
}

/** Projects rows x into their parts of the chunk's projected rows. */
export function* projectRows(work: LayerWork, products: readonly Projection[], x: Rows, rows: number): Steps {
  const { attention, places, base, stepFlops } = work;
  const { kernels, layer } = attention;
  const linears = products.map(({ linear }) => linear);
  const input = prepareInput(kernels, linears, x, rows, layer.mode, places.linear, base);
  for (const { linear, part } of products) {
    const out = { at: pointer.f32(base + places[part]), stride: places.stride.qkv };
    yield* project(kernels, linear, out, input, rows, stepFlops);
  }
}

/** Appends the chunk's projected keys and values. */
export function appendKeys(work: LayerWork, runs: Runs): void {
  fillTables(work, runs, ({ tokens }) => tokens.keyPositions);
  storeKeys(work, runs);
}

/** Attends with the chunk's projected queries, and writes the outputs to `out` as `runAttention` does. */
export function* attendQueries(work: LayerWork, runs: Runs, out: Rows): Steps {
  fillTables(work, runs, ({ tokens }) => tokens.positions);
  yield* attendRows(work, runs, out);
}

/** Normalises and rotates the keys, and appends them and the values to the pages. */
function storeKeys(work: LayerWork, runs: Runs): void {
  const { attention, places, base } = work;
  const { kernels, config } = attention;
  const { headDim, valueDim } = config;
  const { qkv } = places.stride;
  normAndRotate(work, "k", rowsIn(runs));
  const strides = { kStride: qkv, kHeadStride: headDim, vStride: qkv, vHeadStride: valueDim };
  const shape = storeRows(kernels, base + places.keyRows, config, strides);
  for (const run of runs) {
    const { tokens, pages, inStep } = run.of;
    const { where, newKeys, past } = tokens;
    for (const { batchRow, from, to, at } of tokenRunsOf(run, newKeys)) {
      const rowAt = (place: number): F32Ptr => pointer.f32(base + place + 4 * at * qkv);
      const rows = { k: rowAt(places.k), v: rowAt(places.v) };
      appendRows(kernels, pages, batchRow, shape, rows, past + from, to - from);
      // If queries do not advance with these keys, all of them attend as a query at the last key would.
      if (!inStep) agePages(where, kernels, pages, batchRow, pageOf(past + to - 1));
    }
  }
}

/** Normalises and rotates the queries, attends, and projects the heads' outputs to `out`. */
function* attendRows(work: LayerWork, runs: Runs, out: Rows): Steps {
  const { attention, places, base, stepFlops, shape, maps, stage = 3, measure } = work;
  const { kernels, layer } = attention;
  const { stride } = places;
  const rows = rowsIn(runs);
  normAndRotate(work, "q", rows);
  for (const run of runs) {
    const { tokens, pages, inStep } = run.of;
    const { where, masks, target } = tokens;
    for (const { at, ...placed } of segmentsOf(tokens, run, inStep, stepFlops)) {
      if (inStep) agePages(where, kernels, pages, placed.batchRow, pageOf(placed.position));
      const segment = {
        ...placed,
        q: pointer.f32(base + places.q + 4 * at * stride.qkv),
        out: pointer.f32(base + places.heads + 4 * at * stride.heads),
        pages: pageTable(pages, placed.batchRow),
        layout: pages.layout,
      };
      yield* attendSegment(kernels, base, places.segment, shape, masks, target, segment, stepFlops, measure);
      if (maps) readScores(kernels, base, places.segment, shape, masks, target, segment, stage, maps);
    }
  }
  const heads = { at: pointer.f32(base + places.heads), stride: stride.heads };
  work.tap?.("z", heads);
  const { o } = layer.linears;
  if (!o) return;
  const input = prepareInput(kernels, [o], heads, rows, layer.mode, places.linear, base);
  yield* project(kernels, o, out, input, rows, stepFlops);
}

/** Normalises and rotates the queries or keys of projected rows, in place. */
export function normAndRotate(work: HeadWork, part: "q" | "k", rows: number): void {
  const { attention, places, base } = work;
  const { kernels, config, layer, rotary, headNorm } = attention;
  const { table } = kernels;
  const { qkNorm, headDim } = config;
  const [heads, gain] = part === "q" ? [config.numHeads, layer.qNorm] : [config.numKvHeads, layer.kNorm];
  const stride = places.stride.qkv;
  const x = pointer.f32(base + places[part]);
  headNorm?.(part, x, stride, rows);
  if (qkNorm?.kind === "full") table.rms_norm_f32(x, x, gain, heads * headDim, stride, qkNorm.eps, 0, rows);
  else if (qkNorm)
    for (let r = 0; r < rows; r++) {
      const row = pointer.f32(x + 4 * r * stride);
      table.rms_norm_f32(row, row, gain, headDim, headDim, qkNorm.eps, 0, heads);
    }
  rotateHeads(work, x + 4 * (rotary?.start ?? 0), heads, headDim, stride, rows);
}

const pageOf = (position: number) => Math.floor(position / PAGE);

/** The most mask elements that are written in one step, if steps are bounded. */
const STEP_MASK_ELEMENTS = 2 ** 21;

/** A segment whose first token is row `at` of the chunk. */
type PlacedSegment = Omit<Segment, "q" | "out" | "pages" | "layout"> & { readonly at: number };

/**
 * Cuts a run of queries into segments: at batch rows; with masks, so that a step writes a bounded number of elements;
 * and where keys age `inStep`, at page boundaries.
 */
export function* segmentsOf(
  { placements, qLen, masks, target }: CallTokens,
  run: RowRun<unknown>,
  inStep: boolean,
  stepFlops: number,
): Generator<PlacedSegment, void, void> {
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

// RoPE on rows in linear memory.

/** A layer, and the offsets of what its rotations need in the scratch at `base`. */
interface RotaryWork<Places extends RotationPlaces = Pick<LayerPlaces, "cos" | "sin" | "ropeShape">> {
  readonly attention: Pick<LayerParts, "kernels" | "rotary">;
  readonly places: Places;
  readonly base: number;
}

/** Writes cos and sin for the positions of the runs. */
export function fillTables<Of>(
  { attention: { kernels, rotary }, places, base }: RotaryWork<RotationPlaces>,
  runs: readonly RowRun<Of>[],
  positionsOf: (of: Of) => Int32Array,
): void {
  if (!rotary) return;
  const half = rotary.dim / 2;
  for (const { of, begin, end, at } of runs) {
    const table = (place: number) => kernels.memory.f32(base + place + 4 * at * half, (end - begin) * half);
    rotary.fill(positionsOf(of).subarray(begin, end), table(places.cos), table(places.sin));
  }
}

/** Rotates `heads` heads of each row by these tables, in place; the first rotated component of the first lies at `x`. */
export function rotateHeads(
  { attention: { kernels, rotary }, places, base }: RotaryWork,
  x: number,
  heads: number,
  headDim: number,
  stride: number,
  rows: number,
): void {
  if (!rotary) return;
  const shape = pointer.ropeShape(base + places.ropeShape);
  storeRopeShape(kernels.memory.view(), shape, {
    numHeads: heads,
    headDim,
    ropeDim: rotary.dim,
    interleaved: rotary.pairing === "interleaved" ? 1 : 0,
    stride,
  });
  const [cos, sin] = [pointer.f32(base + places.cos), pointer.f32(base + places.sin)];
  kernels.table.rope_f32(pointer.f32(x), cos, sin, shape, 0, rows);
}

// Where the rows of a chunk can be read and changed between kernel calls. Nothing is called where no tap is given.

/**
 * In a layer's attention, by the names of TransformerLens: what the projections gave, before norms and RoPE, head after head; and
 * what the heads gave, before the output projection.
 */
export type HeadSite = "q" | "k" | "v" | "z";

/**
 * What latent attention has besides: latents with rotated keys, both as they are appended; queries after rotation; queries that are
 * multiplied with W_uk; sums of latents.
 */
export type LatentSite = HeadSite | "latents" | "rotated" | "absorbed" | "sums";

/** Is given the rows of a chunk at a site. */
export type Tap<Site extends string = HeadSite> = (site: Site, rows: Rows) => void;
