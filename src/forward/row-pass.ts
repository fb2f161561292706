// Attention on rows that stay in linear memory, as the layers of a decoder need it.

import type { LayerParts } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import type { LayerFormats } from "../attention/weight-options.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import type { Layout } from "../wasm/memory.ts";
import { workFloats } from "./attend-segment.ts";
import { type LayerPass, layerShape, type RunRows } from "./forward.ts";
import { type LayerPlaces, placeLayer, stridesOf } from "./layer-scratch.ts";
import { runAttention } from "./layer-steps.ts";

/** The most rows of a chunk of `planRows`. */
export function mostRowsOf(attention: LayerParts): number {
  const kind = attention.pass as LayerPass | undefined;
  return kind ? kind.chunkRows(attention, CHUNK_ROWS) : CHUNK_ROWS;
}

/** Places what a layer works in for chunks of up to `rows` rows without masks, on pages of these formats. */
export function placeLayerRows(
  config: CheckedConfig,
  formats: LayerFormats,
  layout: Layout,
  rows: number,
  pageFormats: number,
): LayerPlaces {
  const stride = stridesOf(config);
  const work = workFloats({ ...config, formats: pageFormats });
  const [qkv, heads] = [layout.floats(rows * stride.qkv), layout.floats(rows * stride.heads)];
  const needs = { tokens: rows, work, keep: 0, bias: 0, scores: 0 };
  return placeLayer(layout, config, formats, rows, [needs], { stride, qkv, heads });
}

/** Plans causal self-attention of chunks without masks: places what the layer works in, and returns what runs it. */
export function planRows(attention: LayerParts, layout: Layout, rows: number, pageFormats: number): RunRows {
  const kind = attention.pass as LayerPass | undefined;
  if (kind) return kind.planRows(attention, layout, rows, pageFormats);
  const { config, layer } = attention;
  const places = placeLayerRows(config, layer.formats, layout, rows, pageFormats);
  const shape = layerShape(attention, places.stride);
  return (base, stepFlops, runs, io) =>
    runAttention({ attention, shape, places, base, stepFlops, maps: undefined, tap: io.tap }, runs, io);
}
