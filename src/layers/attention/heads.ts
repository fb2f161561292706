// The steps of layers of softmax heads on rows in linear memory, and what they work in. Nothing here copies from or to JavaScript: the
// caller provides the rows of a chunk, the calls they belong to, and the place of the outputs.

import { PAGE } from "../../../assembly/layout.ts";
import { CHUNK_ROWS, rowsIn, tokenRunsOf } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { type F32Ptr, NormShape, NULL, type NullPtr, type Pointer, RopeShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { wholePanels } from "../linear/formats.ts";
import { type LinearScratch, placeLinearScratch, prepareInput, project, type Rows } from "../linear/products.ts";
import type { Mixer, MixerLayer, RotationPlaces, RunRows, Runs, Tap, WarmQueries } from "../mixer/mixer.ts";
import { agePages, appendRows, type Pages, pageTable, placeRows, storeRows } from "../state/table.ts";
import type { CheckedConfig } from "./config.ts";
import { type KvState, onPages } from "./kv-state.ts";
import { fillTables, type RopeWithDim, rotateHeads } from "./rope.ts";
import {
  attendSegment,
  type CallShape,
  type CutSegment,
  callShape,
  inChunks,
  type Measure,
  type PlacedSegment,
  placeSegment,
  readScores,
  type ScoreStage,
  type Segment,
  type SegmentNeeds,
  type SegmentPlaces,
  scoreColumns,
  segmentsOf,
  workFloats,
} from "./segment.ts";
import { type LayerFormats, type PackedHeads, PROJECTIONS, type Projection, projectionSizes } from "./weights.ts";

/** A layer of softmax heads, as a pass needs it. */
export interface HeadsLayer extends MixerLayer {
  /** Normalises the heads of queries or keys besides, or instead of, `config.qkNorm`. */
  readonly headNorm: HeadNorm | undefined;
  readonly rules: HeadRules | undefined;
  readonly layer: PackedHeads;
}

/** What whole models compute of their heads and single layers do not. */
export interface HeadRules {
  /** Limits rows of queries and keys, after their norms, and of values, n floats each. */
  readonly limit?: ((x: F32Ptr, n: number, stride: number, rows: number) => void) | undefined;
  /** The norms of queries and keys are after RoPE. */
  readonly normsLast?: true | undefined;
  /** RoPE rotates the other way. */
  readonly backwards?: true | undefined;
  /** Tokens of a chunk, of which queries attend their own alone, and what cuts segments for that. */
  readonly chunks?: { readonly size: number; readonly cut: typeof inChunks } | undefined;
  /** Normalises rows of values. */
  readonly normValues?: ((v: F32Ptr, stride: number, rows: number) => void) | undefined;
  /** Subtracts heads of the second half from those of the first: λ, and behind it the gains [valueDim] of the norm, are at `at`. */
  readonly pairs?: { readonly at: number; readonly eps: number } | undefined;
}

/** What normalises values, head by head, with gains of ones in `valueDim` floats at `at`. */
export function normValuesOf(
  kernels: Kernels,
  { valueDim, numKvHeads }: CheckedConfig,
  eps: number,
  at: number,
): HeadRules["normValues"] {
  kernels.memory.f32(at, valueDim).fill(1);
  return (v, stride, rows) => normGroups(kernels, { at: v, stride }, rows, numKvHeads, valueDim, pointer.f32(at), eps);
}

/** RMS norm of each of the first `groups` groups of n floats of `rows` rows, with the same gains, in place. */
export function normGroups(
  { table }: Kernels,
  { at, stride }: Rows,
  rows: number,
  groups: number,
  n: number,
  gain: F32Ptr,
  eps: number,
): void {
  for (let r = 0; r < rows; r++) {
    const row = pointer.f32(at + 4 * r * stride);
    table.rms_norm_f32(row, row, gain, n, n, eps, 0, groups);
  }
}

/** The rules of a layer's heads, whose projections are limited to `limit`, and whose tokens are in chunks of `chunk`, if they are. */
export function headRules(
  { table }: Kernels,
  given: Omit<HeadRules, "limit" | "chunks"> & {
    readonly limit?: number | undefined;
    readonly chunk: number | undefined;
  },
): HeadRules {
  const { limit, chunk, normsLast, backwards, normValues, pairs } = given;
  return {
    ...{ normsLast, backwards, normValues, pairs },
    chunks: chunk === undefined ? undefined : { size: chunk, cut: inChunks },
    limit: limit === undefined ? undefined : (x, n, stride, rows) => table.limit_f32(x, n, stride, limit, 0, rows),
  };
}

/** A layer that callers know to be one of softmax heads. */
export const asHeads = (layer: MixerLayer): HeadsLayer => layer as HeadsLayer;

/** Normalises rows of heads in linear memory, which lie `stride` floats apart, in place. */
export interface HeadNorm {
  (of: "q" | "k", at: F32Ptr, stride: number, rows: number): void;
  readonly eps: number;
  readonly q: HeadNormVectors;
  readonly k: HeadNormVectors;
}

/** Addresses of the gain and bias of the first head; those of the next lie `step` bytes behind, 0 if heads share them. */
interface HeadNormVectors {
  readonly step: number;
  readonly gain: F32Ptr;
  readonly bias: F32Ptr | NullPtr;
}

/** Gains [headDim], or [heads, headDim], and biases of the same shape. */
export interface HeadGains {
  readonly gain: Float32Array;
  readonly bias: Float32Array | undefined;
}

/** Offsets in the block of a head norm: its gains and biases, of one head or of each. */
function placeHeadNorm({ numHeads, numKvHeads, headDim }: CheckedConfig, each: boolean) {
  const layout = new Layout();
  const place = (heads: number) => {
    const length = each ? heads * headDim : headDim;
    return { gain: layout.floats(length), bias: layout.floats(length) };
  };
  const places = { q: place(numHeads), k: place(numKvHeads), shape: layout.take(NormShape.bytes) };
  return { places, bytes: layout.bytes };
}

/** Bytes of linear memory of a head norm. */
export const headNormBytes = (config: CheckedConfig, each: boolean): number => placeHeadNorm(config, each).bytes;

/** Copies gains and biases to the block at `at`, of headNormBytes, and returns what normalises by them. */
export function packHeadNorm(
  kernels: Kernels,
  config: CheckedConfig,
  { eps, each }: { readonly eps: number; readonly each: boolean },
  gains: { readonly q: HeadGains; readonly k: HeadGains },
  at: number,
): HeadNorm {
  const { numHeads, numKvHeads, headDim } = config;
  const { memory, table } = kernels;
  const { places } = placeHeadNorm(config, each);
  const write = (place: number, values: Float32Array): F32Ptr => {
    memory.f32(at + place, values.length).set(values);
    return pointer.f32(at + place);
  };
  const normOf = (of: "q" | "k", heads: number) => {
    const { gain, bias } = gains[of];
    return {
      heads,
      step: each ? 4 * headDim : 0,
      gain: write(places[of].gain, gain),
      bias: bias ? write(places[of].bias, bias) : NULL,
    };
  };
  const norms = { eps, q: normOf("q", numHeads), k: normOf("k", numKvHeads) };
  const normalise = (of: "q" | "k", x: F32Ptr, stride: number, rows: number) => {
    const { heads, step, gain, bias } = norms[of];
    const shapeAt = (at + places.shape) as Pointer<NormShape>;
    NormShape.store(memory.view(), shapeAt, { n: headDim, stride, eps });
    for (let head = 0; head < heads; head++) {
      const row = pointer.f32(x + 4 * head * headDim);
      const by = <P extends F32Ptr | NullPtr>(vector: P) =>
        (vector === NULL ? NULL : pointer.f32(vector + head * step)) as P;
      table.layer_norm_f32(row, row, by(gain), by(bias), shapeAt, 0, rows);
    }
  };
  return Object.assign(normalise, norms);
}

/** A layer without its output projection, which gives what its heads give. */
export function withoutOutputs(of: HeadsLayer): HeadsLayer {
  // Fields of a handle are not copied by `...`.
  const { kind, kernels, config, pageShape, rotary, headNorm, rules, layer } = of;
  const linears = { ...layer.linears, o: undefined };
  return { kind, kernels, config, pageShape, rotary, headNorm, rules, layer: { ...layer, linears } };
}

// The scratch of a layer.

/**
 * The most rows of a chunk if the weights stay in a CPU cache and are cheap to read again: whole strips, and a megabyte
 * of scratch.
 */
const CHUNK_ROWS_NARROW = 108;
/** Bytes of weights, without padding of panels, up to which a layer is narrow. */
const NARROW_BYTES = 6_000_000;

/** Rows of a chunk in a pass of `rows` rows. */
export function chunkRows(config: CheckedConfig, rows: number): number {
  const { dModel, numHeads, valueDim } = config;
  const bytes = 4 * dModel * (stridesOf(config).qkv + numHeads * valueDim);
  return Math.min(rows, bytes > NARROW_BYTES ? CHUNK_ROWS : CHUNK_ROWS_NARROW);
}

/** Floats between the rows of a chunk: projected queries, keys and values; outputs of heads; outputs of the layer. */
interface Strides {
  readonly qkv: number;
  readonly heads: number;
  readonly y: number;
}

/** The strides of a layer; projections come in whole panels. */
export function stridesOf(config: CheckedConfig): Strides {
  const { q, k, v, o } = projectionSizes(config);
  return { qkv: wholePanels(q.n) + wholePanels(k.n) + wholePanels(v.n), heads: o.k, y: wholePanels(o.n) };
}

export function placeRotations(layout: Layout, rope: RopeWithDim | undefined, rows: number): RotationPlaces {
  const floats = (rows * (rope?.dim ?? 0)) / 2;
  return { cos: layout.floats(floats), sin: layout.floats(floats) };
}

/** Offsets of the parts of a layer's scratch. Rows are those of a chunk: only masks and maps grow with the sequence. */
export interface LayerPlaces extends RotationPlaces {
  readonly stride: Strides;
  /** [rows, strides.qkv]: the projected queries, keys and values of a token side by side. */
  readonly q: number;
  readonly k: number;
  readonly v: number;
  /** [rows, strides.heads]. */
  readonly heads: number;
  /** The description of a chunk's keys and values for the kernel that appends them. */
  readonly keyRows: number;
  /** What describes heads to the kernel that rotates them. */
  readonly ropeShape: number;
  readonly linear: LinearScratch;
  readonly segment: SegmentPlaces;
}

/**
 * Places what a layer needs for chunks of up to `rows` rows. The caller places the projected rows and the heads'
 * outputs: the input may share the memory of the heads' outputs, and the output that of the projected rows, because
 * they are not needed at the same time. `rotations` are tables that other layers share.
 */
export function placeLayer(
  layout: Layout,
  config: CheckedConfig,
  formats: LayerFormats,
  rows: number,
  segments: readonly SegmentNeeds[],
  { stride, qkv, heads }: { readonly stride: Strides; readonly qkv: number; readonly heads: number },
  rotations?: RotationPlaces,
): LayerPlaces {
  const sizes = projectionSizes(config);
  const k = qkv + 4 * wholePanels(sizes.q.n);
  return {
    stride,
    q: qkv,
    k,
    v: k + 4 * wholePanels(sizes.k.n),
    heads,
    ...(rotations ?? placeRotations(layout, config.rope, rows)),
    keyRows: placeRows(layout),
    ropeShape: layout.take(RopeShape.bytes),
    linear: placeLinearScratch(
      layout,
      PROJECTIONS.map((name) => ({ k: sizes[name].k, format: formats[name] })),
      rows,
    ),
    segment: placeSegment(layout, config, segments),
  };
}

/**
 * Places what a layer works in for chunks of up to `rows` rows without masks, on pages of these formats, and the weights of a row on
 * `columns` keys if they are read.
 */
export function placeLayerRows(
  config: CheckedConfig,
  formats: LayerFormats,
  layout: Layout,
  rows: number,
  pageFormats: number,
  columns = 0,
  rotations?: RotationPlaces,
): LayerPlaces {
  const stride = stridesOf(config);
  const work = workFloats({ ...config, formats: pageFormats });
  const [qkv, heads] = [layout.floats(rows * stride.qkv), layout.floats(rows * stride.heads)];
  const needs = { tokens: rows, work, keep: 0, bias: 0, scores: rows * columns };
  return placeLayer(layout, config, formats, rows, [needs], { stride, qkv, heads }, rotations);
}

/** What all segments of a layer have in common. */
export function layerShape({ config, layer }: HeadsLayer, stride: Strides): CallShape {
  const { headDim, valueDim, addZeroAttn } = config;
  const { slopes, sinks, extraKey, extraValue } = layer;
  return callShape(
    config,
    config,
    { slopes, sinks, extraKey, extraValue, zeroKey: addZeroAttn ? 1 : 0 },
    { qStride: stride.qkv, qHeadStride: headDim, outStride: stride.heads, outHeadStride: valueDim },
  );
}

// The steps of a layer on the rows of a chunk.

/** A layer, and the scratch that it works in. */
export interface LayerWork {
  readonly attention: HeadsLayer;
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
  readonly warm?: WarmQueries | undefined;
  readonly finish?: ((heads: Rows) => Steps) | undefined;
}

/** Queries at `q` and keys at `k`, in rows `stride.qkv` apart. */
interface HeadWork extends Pick<LayerWork, "base"> {
  readonly attention: Omit<HeadsLayer, "kind" | "pageShape">;
  readonly places: Pick<LayerPlaces, "q" | "k" | "cos" | "sin" | "ropeShape"> & {
    readonly stride: Pick<Strides, "qkv">;
  };
}

const PARTS = ["q", "k", "v"] as const;

/**
 * Causal self-attention of a chunk, whose keys and queries come from the rows `x` [rows, dModel], with tables of rotations that the
 * caller has filled: appends the keys, attends, and writes the outputs to `out` [rows, dModel] in whole panels. `x` may share memory
 * with the outputs of heads, and `out` with the projected rows. Without an output projection, the outputs are those of the heads, and
 * `out` is not written. Without projections of keys and values, queries attend those that another layer has appended.
 */
export function* runAttention(work: LayerWork, runs: Runs, { x, out }: { x: Rows; out: Rows }): Steps {
  const { q, qkv } = work.attention.layer.products;
  yield* projectRows(work, qkv ?? q, x, rowsIn(runs));
  for (const part of qkv ? PARTS : (["q"] as const))
    work.tap?.(part, { at: pointer.f32(work.base + work.places[part]), stride: work.places.stride.qkv });
  if (qkv) storeKeys(work, runs);
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
  attention.rules?.limit?.(pointer.f32(base + places.v), config.numKvHeads * valueDim, qkv, rowsIn(runs));
  attention.rules?.normValues?.(pointer.f32(base + places.v), qkv, rowsIn(runs));
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
  const { kernels, layer, rules } = attention;
  const chunks = rules?.chunks;
  const { stride } = places;
  const rows = rowsIn(runs);
  normAndRotate(work, "q", rows);
  for (const run of runs)
    work.warm?.({ at: pointer.f32(base + places.q + 4 * run.at * stride.qkv), stride: stride.qkv }, run);
  for (const run of runs) {
    const { tokens, pages, inStep } = run.of;
    const { where, masks, target } = tokens;
    for (const whole of segmentsOf(tokens, run, inStep, stepFlops)) {
      if (inStep) agePages(where, kernels, pages, whole.batchRow, pageOf(whole.position));
      const parts: Iterable<CutSegment> = chunks?.cut(whole, chunks.size, !!(maps ?? measure)) ?? [whole];
      for (const part of parts) {
        const { left, before } = part;
        const call = left === undefined ? shape : { ...shape, left };
        const own = { kernels, base, places: places.segment, call, masks, target };
        const segment = segmentIn(work, pages, part, before);
        yield* attendSegment(own, segment, stepFlops, measure);
        if (maps) readScores(own, segment, stage, maps);
      }
    }
  }
  const heads = { at: pointer.f32(base + places.heads), stride: stride.heads };
  yield* work.finish?.(heads) ?? [];
  work.tap?.("z", heads);
  const { o } = layer.linears;
  if (!o) return;
  const input = prepareInput(kernels, [o], heads, rows, layer.mode, places.linear, base);
  yield* project(kernels, o, out, input, rows, stepFlops);
}

/** A segment in the rows of a chunk, whose keys are on the pages behind the first `before`. */
export function segmentIn(
  { places, base }: LayerWork,
  pages: Pages,
  { batchRow, begin, end, position, kvLen, at }: PlacedSegment,
  before = 0,
): Segment {
  return {
    ...{ batchRow, begin, end, position, kvLen },
    q: pointer.f32(base + places.q + 4 * at * places.stride.qkv),
    out: pointer.f32(base + places.heads + 4 * at * places.stride.heads),
    pages: pageTable(pages, batchRow, before),
    layout: pages.layout,
  };
}

/** Normalises and rotates the queries or keys of projected rows, in place. */
export function normAndRotate(work: HeadWork, part: "q" | "k", rows: number): void {
  const { attention, places, base } = work;
  const { kernels, config, layer, rotary, headNorm, rules } = attention;
  const { table } = kernels;
  const { qkNorm, headDim } = config;
  const [heads, gain] = part === "q" ? [config.numHeads, layer.qNorm] : [config.numKvHeads, layer.kNorm];
  const stride = places.stride.qkv;
  const x = pointer.f32(base + places[part]);
  const rotate = () => rotateHeads(work, x + 4 * (rotary?.start ?? 0), heads, headDim, stride, rows);
  if (rules?.normsLast) rotate();
  headNorm?.(part, x, stride, rows);
  if (qkNorm?.kind === "full") table.rms_norm_f32(x, x, gain, heads * headDim, stride, qkNorm.eps, 0, rows);
  else if (qkNorm)
    for (let r = 0; r < rows; r++) {
      const row = pointer.f32(x + 4 * r * stride);
      table.rms_norm_f32(row, row, gain, headDim, headDim, qkNorm.eps, 0, heads);
    }
  rules?.limit?.(x, heads * headDim, stride, rows);
  if (!rules?.normsLast) rotate();
}

const pageOf = (position: number) => Math.floor(position / PAGE);

/** The first key that the query at `position` of a layer may attend. */
export function firstKeyOf(layer: MixerLayer, position: number): number {
  const { size = Infinity } = asHeads(layer).rules?.chunks ?? {};
  return Math.max(0, position - layer.config.window.left, position - (position % size));
}

// Where queries attend later keys or those of other rows: keys are appended first, and queries follow.

/** A layer on the rows of a chunk, in scratch at `base`. */
export interface BothWays {
  /** Self-attention of sequences whose rows are all in the chunk. */
  readonly whole: RunRows;
  /** Appends the keys of the rows `x`. */
  keys(base: number, stepFlops: number, runs: Runs, x: Rows): Steps;
  /** Attends with the rows `x` to keys that were appended. */
  readonly queries: RunRows;
}

/**
 * Plans a layer for chunks of up to `rows` rows without masks: places what it works in, and returns what runs it, with what attends in
 * place of `attendQueries`, if anything does.
 */
export function planBothWays(
  given: MixerLayer,
  layout: Layout,
  rows: number,
  pageFormats: number,
): (attend?: typeof attendQueries) => BothWays {
  const attention = asHeads(given);
  const { config, layer } = attention;
  const { q, k, v, kv, qkv } = layer.products;
  const places = placeLayerRows(config, layer.formats, layout, rows, pageFormats);
  const shape = layerShape(attention, places.stride);
  const workAt = (base: number, stepFlops: number): LayerWork => ({
    ...{ attention, shape, places, base, stepFlops, maps: undefined },
  });
  return (attend = attendQueries) => {
    return {
      *whole(base, stepFlops, runs, { x, out, warm, finish }) {
        const work = { ...workAt(base, stepFlops), warm, finish };
        yield* projectRows(work, qkv ?? [...q, ...k, ...v], x, rowsIn(runs));
        appendKeys(work, runs);
        yield* attend(work, runs, out);
      },
      *keys(base, stepFlops, runs, x) {
        const work = workAt(base, stepFlops);
        yield* projectRows(work, kv ?? [...k, ...v], x, rowsIn(runs));
        appendKeys(work, runs);
      },
      *queries(base, stepFlops, runs, { x, out, warm, finish }) {
        const work = { ...workAt(base, stepFlops), warm, finish };
        yield* projectRows(work, q, x, rowsIn(runs));
        yield* attend(work, runs, out);
      },
    };
  };
}

/** Projects the heads' outputs to `out`, where the layer has an output projection. */
export function* projectOutputs(
  { attention: { kernels, layer }, places, base, stepFlops }: LayerWork,
  out: Rows,
  rows: number,
): Steps {
  const { o } = layer.linears;
  if (!o) return;
  const heads = { at: pointer.f32(base + places.heads), stride: places.stride.heads };
  const input = prepareInput(kernels, [o], heads, rows, layer.mode, places.linear, base);
  yield* project(kernels, o, out, input, rows, stepFlops);
}

/** Layers of softmax heads in models. */
export const HEADS: Mixer<HeadsLayer, KvState> = {
  // Later chunks have other pages.
  callsOnlyKernels: ({ rules }, position) => !rules?.chunks || position < rules.chunks.size,
  linears: ({ layer }) => Object.values(layer.linears).filter((each) => each !== undefined),
  rope: ({ config }) => config.rope,
  chunkRows: (_, rows) => rows,
  plan(attention, layout, rows, formats, reading, rotations) {
    const { config, layer } = attention;
    const columns = reading.maps ? scoreColumns(reading.kvLen, layer.extraKey !== NULL, config.addZeroAttn) : 0;
    const places = placeLayerRows(config, layer.formats, layout, rows, formats, columns, rotations);
    const shape = layerShape(attention, places.stride);
    return (base, stepFlops, runs, io) => {
      const { maps, tap, measure, warm, finish } = io;
      const work = { attention, shape, places, base, stepFlops, maps, tap, measure, warm, finish };
      return runAttention(work, onPages(runs), io);
    };
  },
};
