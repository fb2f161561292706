// Attention on rows that stay in linear memory, as the layers of a decoder need it.

import type { LayerParts } from "../attention/attention.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import type { Layout } from "../wasm/memory.ts";
import { workFloats } from "./attend-segment.ts";
import { type LayerPass, layerShape, type RunRows } from "./forward.ts";
import { placeLayer, stridesOf } from "./layer-scratch.ts";
import { runAttention } from "./layer-steps.ts";

/** The most rows of a chunk of `planRows`. */
export function mostRowsOf(attention: LayerParts): number {
  const kind = attention.pass as LayerPass | undefined;
  return kind ? kind.chunkRows(attention, CHUNK_ROWS) : CHUNK_ROWS;
}

/**
 * Plans causal self-attention of chunks of up to `rows` rows without masks: places what the layer works in, for pages of these
 * formats, and returns what runs it.
 */
export function planRows(attention: LayerParts, layout: Layout, rows: number, formats: number): RunRows {
  const kind = attention.pass as LayerPass | undefined;
  if (kind) return kind.planRows(attention, layout, rows, formats);
  const { config, layer } = attention;
  const stride = stridesOf(config);
  const needs = { tokens: rows, work: workFloats({ ...config, formats }), keep: 0, bias: 0, scores: 0 };
  const [qkv, heads] = [layout.floats(rows * stride.qkv), layout.floats(rows * stride.heads)];
  const places = placeLayer(layout, config, layer.formats, rows, [needs], { stride, qkv, heads });
  const shape = layerShape(attention, stride);
  return (base, stepFlops, runs, io) =>
    runAttention({ attention, shape, places, base, stepFlops, maps: undefined }, runs, io);
}
