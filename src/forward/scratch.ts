import { PANEL } from "../../assembly/layout.ts";
import type { CheckedConfig } from "../attention/config.ts";
import type { LayerFormats } from "../attention/weight-options.ts";
import { integerRowBytes, isInteger, panelsOf, scratchBytes } from "../linear/formats.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import { CACHE_SHAPE_BYTES, ROPE_SHAPE_BYTES } from "../wasm/abi.ts";
import { Layout } from "../wasm/memory.ts";
import { placeSegment, type SegmentNeeds, type SegmentPlaces } from "./attend-segment.ts";

/** The same where the weights stay in a cache close by and are cheap to read again: whole strips, and a megabyte of scratch. */
const CHUNK_ROWS_NARROW = 108;
/** Bytes of weights, panels of zeros aside, up to which a layer is narrow. */
const NARROW_BYTES = 6_000_000;

/** Rows that a pass of `rows` rows works on at a time. */
export function chunkRows(config: CheckedConfig, rows: number): number {
  const { dModel, numHeads, valueDim } = config;
  const bytes = 4 * dModel * (stridesOf(config).qkv + numHeads * valueDim);
  return Math.min(rows, bytes > NARROW_BYTES ? CHUNK_ROWS : CHUNK_ROWS_NARROW);
}

/**
 * Where the parts of a forward pass lie in its scratch. Rows are those of a chunk: only masks and maps grow with the
 * sequence.
 */
export interface PassPlaces {
  readonly x: number;
  /** [rows, strides.qkv]: the projected queries, keys and values of a token side by side. */
  readonly q: number;
  readonly k: number;
  readonly v: number;
  /** Where x was, which its projections have replaced. */
  readonly heads: number;
  /** Where the queries were, which have attended. */
  readonly y: number;
  readonly cos: number;
  readonly sin: number;
  readonly cacheShape: number;
  readonly ropeShape: number;
  /** [rows, integerRowBytes]: what is projected, where weights are integers. */
  readonly integers: number;
  /** Scratch of the projections. */
  readonly linear: number;
  readonly segment: SegmentPlaces;
}

/** Floats between the rows of a chunk: of projected queries, keys and values, of heads' outputs, and of outputs. */
export interface Strides {
  readonly qkv: number;
  readonly heads: number;
  readonly y: number;
}

/** The strides of a layer; projections come in whole panels. */
export function stridesOf(config: CheckedConfig): Strides {
  const { dModel, numHeads, valueDim } = config;
  const { q, k, v } = widths(config);
  return { qkv: q + k + v, heads: numHeads * valueDim, y: wholePanels(dModel) };
}

function widths({ numHeads, numKvHeads, headDim, valueDim }: CheckedConfig): { q: number; k: number; v: number } {
  return {
    q: wholePanels(numHeads * headDim),
    k: wholePanels(numKvHeads * headDim),
    v: wholePanels(numKvHeads * valueDim),
  };
}

function wholePanels(columns: number): number {
  return panelsOf(columns) * PANEL;
}

/** Scratch of a pass of which every chunk has up to `rows` rows. */
export function placePass(
  config: CheckedConfig,
  formats: LayerFormats,
  rows: number,
  segments: readonly SegmentNeeds[],
): { places: PassPlaces; bytes: number } {
  const layout = new Layout();
  const stride = stridesOf(config);
  const { q, k } = widths(config);
  const half = (config.rope?.dim ?? 0) / 2;
  const x = layout.floats(rows * Math.max(config.dModel, config.kdim, config.vdim, stride.heads));
  const qkv = layout.floats(rows * Math.max(stride.qkv, stride.y));
  const places = {
    x,
    q: qkv,
    k: qkv + 4 * q,
    v: qkv + 4 * (q + k),
    heads: x,
    y: qkv,
    cos: layout.floats(rows * half),
    sin: layout.floats(rows * half),
    cacheShape: layout.take(CACHE_SHAPE_BYTES),
    ropeShape: layout.take(ROPE_SHAPE_BYTES),
    integers: layout.take(rows * longestIntegerRow(config, formats)),
    linear: layout.take(Math.max(...Object.values(formats).map(scratchBytes))),
    segment: placeSegment(layout, config, segments),
  };
  return { places, bytes: layout.bytes };
}

/** Bytes of the longest row that meets integer weights, as integers. */
function longestIntegerRow({ dModel, kdim, vdim, numHeads, valueDim }: CheckedConfig, formats: LayerFormats): number {
  const inputs = { q: dModel, k: kdim, v: vdim, o: numHeads * valueDim };
  const parts = (["q", "k", "v", "o"] as const).filter((part) => isInteger(formats[part]));
  return Math.max(0, ...parts.map((part) => integerRowBytes(inputs[part])));
}
