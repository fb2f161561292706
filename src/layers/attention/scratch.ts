import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { ROPE_SHAPE_BYTES } from "../../wasm/abi.ts";
import type { Layout } from "../../wasm/memory.ts";
import { wholePanels } from "../linear/formats/format.ts";
import { type LinearScratch, placeLinearScratch } from "../linear/products.ts";
import { placeRows } from "../state/table.ts";
import type { CheckedConfig } from "./config.ts";
import type { RopeWithDim } from "./rope.ts";
import { placeSegment, type SegmentNeeds, type SegmentPlaces } from "./segment.ts";
import { type LayerFormats, PROJECTIONS, projectionSizes } from "./weights.ts";

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
export interface Strides {
  readonly qkv: number;
  readonly heads: number;
  readonly y: number;
}

/** The strides of a layer; projections come in whole panels. */
export function stridesOf(config: CheckedConfig): Strides {
  const { q, k, v, o } = projectionSizes(config);
  return { qkv: wholePanels(q.n) + wholePanels(k.n) + wholePanels(v.n), heads: o.k, y: wholePanels(o.n) };
}

/** Offsets of the tables of rotations of a chunk, [rows, rope.dim / 2] each. */
export interface RotationPlaces {
  readonly cos: number;
  readonly sin: number;
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
    ropeShape: layout.take(ROPE_SHAPE_BYTES),
    linear: placeLinearScratch(
      layout,
      PROJECTIONS.map((name) => ({ k: sizes[name].k, format: formats[name] })),
      rows,
    ),
    segment: placeSegment(layout, config, segments),
  };
}
