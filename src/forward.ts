import { PANEL } from "../assembly/layout.ts";
import { CACHE_SHAPE_BYTES, type F32Ptr, NULL, storeCacheShape } from "./abi.ts";
import type { Cache } from "./cache.ts";
import type { CheckedConfig } from "./config.ts";
import type { Kernels } from "./kernels.ts";
import type { Layer } from "./layer.ts";
import { type Linear, project } from "./linear.ts";
import type { CheckedMasks, MaskTarget } from "./mask.ts";
import { Layout, pointer } from "./memory.ts";
import { panelsOf } from "./pack.ts";
import { allocatePages, type Pages, pageTable } from "./pages.ts";
import type { Placement } from "./positions.ts";
import type { Rotary } from "./rotary.ts";
import {
  attendSegment,
  type CallShape,
  columnsOf,
  eachBatchRow,
  eachChunk,
  placeSegment,
  readScores,
  type SegmentPlaces,
  segmentRows,
  windowSides,
} from "./segment.ts";
import { createFloats } from "./tensor.ts";

/** What a forward pass needs of an attention layer. */
export interface LoadedLayer {
  readonly kernels: Kernels;
  readonly config: CheckedConfig;
  readonly layer: Layer;
  readonly rotary: Rotary | undefined;
}

/** One checked call: x [batch, qLen, dModel], keys [batch, newKeys, kdim], values [batch, newKeys, vdim]. */
export interface AttendCall {
  /** The public function, for messages. */
  readonly where: string;
  readonly batch: number;
  readonly qLen: number;
  /** Keys that this call projects and appends, after `past` earlier ones. */
  readonly newKeys: number;
  readonly past: number;
  readonly x: Float32Array;
  readonly keys: Float32Array;
  readonly values: Float32Array;
  readonly cache: Cache | undefined;
  readonly placements: readonly Placement[];
  /** RoPE positions of x; those of the keys where they are not the same rows. */
  readonly positions: Int32Array;
  readonly keyPositions: Int32Array | undefined;
  readonly target: MaskTarget;
  readonly masks: CheckedMasks;
  readonly out: Float32Array | undefined;
}

/** Where one call's parts lie in scratch. Rows are those of a segment, so nothing here grows with the sequence but masks. */
interface CallPlaces {
  readonly x: number;
  readonly q: number;
  readonly kv: number;
  readonly heads: number;
  readonly y: number;
  readonly cos: number;
  readonly sin: number;
  readonly cacheShape: number;
  readonly segment: SegmentPlaces;
}

/** Floats between rows of the projected queries, keys with values, and outputs. */
function strides(config: CheckedConfig): { q: number; k: number; kv: number; heads: number; y: number } {
  const { dModel, numHeads, numKvHeads, headDim, valueDim } = config;
  const k = wholePanels(numKvHeads * headDim);
  return {
    q: wholePanels(numHeads * headDim),
    k,
    kv: k + wholePanels(numKvHeads * valueDim),
    heads: numHeads * valueDim,
    y: wholePanels(dModel),
  };
}

function wholePanels(columns: number): number {
  return panelsOf(columns) * PANEL;
}

/** Scratch of a call of which every segment has up to `rows` rows. */
export function placeCall(
  config: CheckedConfig,
  rows: number,
  masks: CheckedMasks,
  target: MaskTarget,
  scoreColumns: number,
): { places: CallPlaces; bytes: number } {
  const layout = new Layout();
  const stride = strides(config);
  const half = (config.rope?.dim ?? 0) / 2;
  const places = {
    x: layout.floats(rows * Math.max(config.dModel, config.kdim, config.vdim)),
    q: layout.floats(rows * stride.q),
    kv: layout.floats(rows * stride.kv),
    heads: layout.floats(rows * stride.heads),
    y: layout.floats(rows * stride.y),
    cos: layout.floats(rows * half),
    sin: layout.floats(rows * half),
    cacheShape: layout.take(CACHE_SHAPE_BYTES),
    segment: placeSegment(layout, config, masks, target, Math.min(rows, target.qLen), scoreColumns),
  };
  return { places, bytes: layout.bytes };
}

/** Appends the call's keys, attends, projects. `maps` is empty unless asked for. */
export function forward(
  attention: LoadedLayer,
  call: AttendCall,
  withMaps = false,
): { y: Float32Array; maps: Float32Array } {
  const { kernels, config } = attention;
  const { where, batch, qLen, newKeys, cache, target, masks } = call;
  const shape = callShape(attention);
  const columns = withMaps ? columnsOf(target.kvLen, shape.extraKey !== NULL, config.addZeroAttn) : 0;
  const rows = segmentRows(batch * Math.max(qLen, newKeys));
  const { places, bytes } = placeCall(config, rows, masks, target, columns);
  // Scratch comes last: it stays when it has grown, so nothing may fail after it.
  const y = call.out ?? createFloats(where, "y", batch * qLen * config.dModel);
  const maps = createFloats(where, "maps", batch * config.numHeads * qLen * columns);
  const pages = cache?.pages ?? allocatePages(where, kernels, config, batch, target.kvLen);
  try {
    const run: Run = { ...attention, call, shape, places, base: kernels.memory.scratch(where, bytes) };
    appendKeys(run, pages);
    attendQueries(run, pages, y, withMaps ? maps : undefined);
  } finally {
    if (!cache) kernels.memory.free(pages.at);
  }
  cache?.advance(newKeys);
  return { y, maps };
}

interface Run extends LoadedLayer {
  readonly call: AttendCall;
  readonly shape: CallShape;
  readonly places: CallPlaces;
  readonly base: number;
}

function callShape({ config, layer }: LoadedLayer): CallShape {
  const { numHeads, numKvHeads, headDim, valueDim, scale, softcap, addZeroAttn } = config;
  const { slopes, sinks, extraKey, extraValue } = layer;
  const stride = strides(config);
  return {
    ...{ numHeads, numKvHeads, headDim, valueDim, scale, softcap, slopes, sinks, extraKey, extraValue },
    ...windowSides(config.causal, config.window),
    zeroKey: addZeroAttn ? 1 : 0,
    qStride: stride.q,
    qHeadStride: headDim,
    outStride: stride.heads,
    outHeadStride: valueDim,
  };
}

/** Projects the call's keys and values, norms and rotates the keys, and appends both to the pages. */
function appendKeys({ kernels, config, layer, rotary, call, places, base }: Run, pages: Pages): void {
  const { batch, newKeys, past, keys, values } = call;
  const { numKvHeads, headDim, valueDim, kdim, vdim, qkNorm } = config;
  const stride = strides(config);
  const [x, k] = [pointer.f32(base + places.x), pointer.f32(base + places.kv)];
  const v = pointer.f32(k + stride.k * 4);
  const rowsOf = (linear: Linear, from: Float32Array, width: number, to: F32Ptr, begin: number, end: number) => {
    kernels.memory.f32(x, (end - begin) * width).set(from.subarray(begin * width, end * width));
    project(kernels, linear, to, stride.kv, x, width, end - begin);
  };
  storeCacheShape(kernels.memory.view(), base + places.cacheShape, {
    numKvHeads,
    headDim,
    valueDim,
    kStride: stride.kv,
    kHeadStride: headDim,
    vStride: stride.kv,
    vHeadStride: valueDim,
  });
  eachChunk(batch * newKeys, (begin, end) => {
    if (layer.wkv && keys === values) rowsOf(layer.wkv, keys, kdim, k, begin, end);
    else {
      rowsOf(layer.wk, keys, kdim, k, begin, end);
      rowsOf(layer.wv, values, vdim, v, begin, end);
    }
    if (qkNorm) normHeads(kernels, qkNorm, layer.kNorm, k, stride.kv, numKvHeads, headDim, end - begin);
    if (rotary) {
      const positions = (call.keyPositions ?? call.positions).subarray(begin, end);
      rotate(kernels, rotary, positions, places, base, k, stride.kv, numKvHeads, headDim);
    }
    eachBatchRow(newKeys, begin, end, (batchRow, from, to) => {
      const offset = (batchRow * newKeys + from - begin) * stride.kv * 4;
      const cacheShape = pointer.cacheShape(base + places.cacheShape);
      const table = pageTable(pages, batchRow);
      kernels.table.append_f32(
        table,
        pointer.f32(k + offset),
        pointer.f32(v + offset),
        cacheShape,
        past + from,
        0,
        to - from,
      );
    });
  });
}

/** Projects, norms and rotates the queries, attends, and projects the heads' outputs into y. */
function attendQueries(
  { kernels, config, layer, rotary, call, shape, places, base }: Run,
  pages: Pages,
  y: Float32Array,
  maps: Float32Array | undefined,
): void {
  const { batch, qLen, x, masks, target } = call;
  const { dModel, numHeads, headDim, qkNorm } = config;
  const stride = strides(config);
  const at = {
    x: pointer.f32(base + places.x),
    q: pointer.f32(base + places.q),
    heads: pointer.f32(base + places.heads),
    y: pointer.f32(base + places.y),
  };
  eachChunk(batch * qLen, (begin, end) => {
    const rows = end - begin;
    kernels.memory.f32(at.x, rows * dModel).set(x.subarray(begin * dModel, end * dModel));
    project(kernels, layer.wq, at.q, stride.q, at.x, dModel, rows);
    if (qkNorm) normHeads(kernels, qkNorm, layer.qNorm, at.q, stride.q, numHeads, headDim, rows);
    if (rotary) {
      const positions = call.positions.subarray(begin, end);
      rotate(kernels, rotary, positions, places, base, at.q, stride.q, numHeads, headDim);
    }
    eachBatchRow(qLen, begin, end, (batchRow, from, to) => {
      const row = batchRow * qLen + from - begin;
      const { position, kvLen } = call.placements[batchRow] as Placement;
      const segment = {
        batchRow,
        begin: from,
        end: to,
        position: position + from,
        kvLen,
        q: pointer.f32(at.q + row * stride.q * 4),
        out: pointer.f32(at.heads + row * stride.heads * 4),
        pages: pageTable(pages, batchRow),
      };
      attendSegment(kernels, base, places.segment, shape, masks, target, segment);
      if (maps) readScores(kernels, base, places.segment, shape, masks, target, segment, 3, maps);
    });
    project(kernels, layer.wo, at.y, stride.y, at.heads, stride.heads, rows);
    const got = kernels.memory.f32(at.y, rows * stride.y);
    if (stride.y === dModel) y.set(got, begin * dModel);
    else for (let r = 0; r < rows; r++) y.set(got.subarray(r * stride.y, r * stride.y + dModel), (begin + r) * dModel);
  });
}

function normHeads(
  { table }: Kernels,
  { kind, eps }: NonNullable<CheckedConfig["qkNorm"]>,
  gain: F32Ptr,
  x: F32Ptr,
  stride: number,
  heads: number,
  headDim: number,
  rows: number,
): void {
  if (kind === "full") table.rms_norm_f32(x, x, gain, heads * headDim, stride, eps, 0, rows);
  else
    for (let r = 0; r < rows; r++) {
      const row = pointer.f32(x + r * stride * 4);
      table.rms_norm_f32(row, row, gain, headDim, headDim, eps, 0, heads);
    }
}

function rotate(
  { table, memory }: Kernels,
  rotary: Rotary,
  positions: Int32Array,
  places: CallPlaces,
  base: number,
  x: F32Ptr,
  stride: number,
  heads: number,
  headDim: number,
): void {
  const { dim, pairing } = rotary;
  const floats = (positions.length * dim) / 2;
  const [cos, sin] = [pointer.f32(base + places.cos), pointer.f32(base + places.sin)];
  rotary.fill(positions, memory.f32(cos, floats), memory.f32(sin, floats));
  table.rope_f32(x, cos, sin, heads, headDim, dim, pairing === "interleaved" ? 1 : 0, stride, 0, positions.length);
}
