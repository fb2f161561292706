// Attention on rows that stay in linear memory, as the layers of a decoder need it.

import { CHUNK_ROWS, rowsIn } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { ATTENTION_SHAPE_AT, NULL } from "../../wasm/abi.ts";
import { type Layout, pointer } from "../../wasm/memory.ts";
import type { LayerParts } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import { type LayerPlaces, placeLayer, type RotationPlaces, stridesOf } from "../attention/scratch.ts";
import { scoreColumns, segmentFlops, storeShape, workFloats } from "../attention/segment.ts";
import type { LayerFormats } from "../attention/weights.ts";
import { prepareInput, project, type Rows } from "../linear/products.ts";
import { pageTable } from "../state/table.ts";
import { type LayerPass, layerShape, type Reading, type RunRows } from "./forward.ts";
import {
  appendKeys,
  attendQueries,
  type LayerWork,
  normAndRotate,
  projectRows,
  type Runs,
  runAttention,
  segmentsOf,
} from "./steps.ts";

/** The most rows of a chunk of `planRows`. */
export function mostRowsOf(attention: LayerParts): number {
  const kind = attention.pass as LayerPass | undefined;
  return kind ? kind.chunkRows(attention, CHUNK_ROWS) : CHUNK_ROWS;
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

/**
 * Plans causal self-attention of chunks without masks: places what the layer works in, and returns what runs it. What `reading` names
 * can be read. `rotations` are tables of the rows' positions, which the caller fills.
 */
export function planRows(
  attention: LayerParts,
  layout: Layout,
  rows: number,
  pageFormats: number,
  reading: Reading,
  rotations: RotationPlaces | undefined,
): RunRows {
  const kind = attention.pass as LayerPass | undefined;
  if (kind) return kind.planRows(attention, layout, rows, pageFormats, reading);
  const { config, layer } = attention;
  const columns = reading.maps ? scoreColumns(reading.kvLen, layer.extraKey !== NULL, config.addZeroAttn) : 0;
  const places = placeLayerRows(config, layer.formats, layout, rows, pageFormats, columns, rotations);
  const shape = layerShape(attention, places.stride);
  return (base, stepFlops, runs, io) =>
    runAttention(
      { attention, shape, places, base, stepFlops, maps: io.maps, tap: io.tap, measure: io.measure },
      runs,
      io,
    );
}

// Attention on rows that stay in linear memory, where queries attend later keys or those of other rows: keys are appended first,
// and queries follow.

/**
 * What heads add to the scores of keys by their distance from the query, [heads, stride]: entry `zero` of a row is that of the
 * query's own position, the next one that of the next key. Kernels may read 7 floats behind the last distance.
 */
export interface RelativeTable {
  /** The address. */
  readonly at: number;
  readonly zero: number;
  readonly stride: number;
}

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
 * Plans a layer for chunks of up to `rows` rows without masks: places what it works in, and returns what runs it, with the bias
 * of the pass where it has one.
 */
export function planBothWays(
  attention: LayerParts,
  layout: Layout,
  rows: number,
  pageFormats: number,
): (bias: RelativeTable | undefined) => BothWays {
  const { config, layer } = attention;
  const { q, k, v, kv, qkv } = layer.products;
  const places = placeLayerRows(config, layer.formats, layout, rows, pageFormats);
  const shape = layerShape(attention, places.stride);
  const workAt = (base: number, stepFlops: number): LayerWork => ({
    ...{ attention, shape, places, base, stepFlops, maps: undefined },
  });
  return (bias) => {
    const attend = (work: LayerWork, runs: Runs, out: Rows) =>
      bias ? attendByDistance(work, runs, out, bias) : attendQueries(work, runs, out);
    return {
      *whole(base, stepFlops, runs, { x, out }) {
        const work = workAt(base, stepFlops);
        yield* projectRows(work, qkv ?? [...q, ...k, ...v], x, rowsIn(runs));
        appendKeys(work, runs);
        yield* attend(work, runs, out);
      },
      *keys(base, stepFlops, runs, x) {
        const work = workAt(base, stepFlops);
        yield* projectRows(work, kv ?? [...k, ...v], x, rowsIn(runs));
        appendKeys(work, runs);
      },
      *queries(base, stepFlops, runs, { x, out }) {
        const work = workAt(base, stepFlops);
        yield* projectRows(work, q, x, rowsIn(runs));
        yield* attend(work, runs, out);
      },
    };
  };
}

/** `attendQueries` with a bias by distance. The table is one row for each head, and each query reads it from another place. */
function* attendByDistance(work: LayerWork, runs: Runs, out: Rows, { at: table, zero, stride }: RelativeTable): Steps {
  const { attention, places, base, stepFlops, shape } = work;
  const { kernels, config, layer } = attention;
  const rows = rowsIn(runs);
  normAndRotate(work, "q", rows);
  for (const run of runs) {
    const { tokens, pages } = run.of;
    for (const { at, ...placed } of segmentsOf(tokens, run, false, stepFlops)) {
      const segment = {
        ...placed,
        q: pointer.f32(base + places.q + 4 * at * places.stride.qkv),
        out: pointer.f32(base + places.heads + 4 * at * places.stride.heads),
        pages: pageTable(pages, placed.batchRow),
        layout: pages.layout,
      };
      const { masks, target } = tokens;
      const stored = storeShape(kernels, base, places.segment, shape, masks, target, segment, segment.kvLen, false);
      const view = kernels.memory.view();
      view.setUint32(stored + ATTENTION_SHAPE_AT.bias, table + 4 * (zero - segment.position), true);
      view.setInt32(stored + ATTENTION_SHAPE_AT.biasHeadStride, stride, true);
      view.setInt32(stored + ATTENTION_SHAPE_AT.biasRowStride, -1, true);
      const { q, out: heads, pages: keys } = segment;
      const scratch = pointer.f32(base + places.segment.work);
      const attend = kernels.table[segment.layout.kernels.attention];
      attend(heads, q, keys, scratch, stored, 0, config.numHeads * (segment.end - segment.begin));
      yield segmentFlops(shape, segment);
    }
  }
  const { o } = layer.linears;
  if (!o) return;
  const heads = { at: pointer.f32(base + places.heads), stride: places.stride.heads };
  const input = prepareInput(kernels, [o], heads, rows, layer.mode, places.linear, base);
  yield* project(kernels, o, out, input, rows, stepFlops);
}
