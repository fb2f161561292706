// Attention on rows that stay in linear memory, as the layers of a decoder need it.

import type { LayerParts } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import type { LayerFormats } from "../attention/weight-options.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import { NULL } from "../wasm/abi.ts";
import type { Layout } from "../wasm/memory.ts";
import { scoreColumns, workFloats } from "./attend-segment.ts";
import { type LayerPass, layerShape, type Reading, type RunRows } from "./forward.ts";
import { type LayerPlaces, placeLayer, stridesOf } from "./layer-scratch.ts";
import { runAttention } from "./layer-steps.ts";

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
): LayerPlaces {
  const stride = stridesOf(config);
  const work = workFloats({ ...config, formats: pageFormats });
  const [qkv, heads] = [layout.floats(rows * stride.qkv), layout.floats(rows * stride.heads)];
  const needs = { tokens: rows, work, keep: 0, bias: 0, scores: rows * columns };
  return placeLayer(layout, config, formats, rows, [needs], { stride, qkv, heads });
}

/**
 * Plans causal self-attention of chunks without masks: places what the layer works in, and returns what runs it. What `reading` names
 * can be read.
 */
export function planRows(
  attention: LayerParts,
  layout: Layout,
  rows: number,
  pageFormats: number,
  reading: Reading,
): RunRows {
  const kind = attention.pass as LayerPass | undefined;
  if (kind) return kind.planRows(attention, layout, rows, pageFormats, reading);
  const { config, layer } = attention;
  const columns = reading.maps ? scoreColumns(reading.kvLen, layer.extraKey !== NULL, config.addZeroAttn) : 0;
  const places = placeLayerRows(config, layer.formats, layout, rows, pageFormats, columns);
  const shape = layerShape(attention, places.stride);
  return (base, stepFlops, runs, io) =>
    runAttention(
      { attention, shape, places, base, stepFlops, maps: io.maps, tap: io.tap, measure: io.measure },
      runs,
      io,
    );
}
