// What a layer computes on the way to y, one intermediate result at a time: by the steps of `forward`, which keeps none of them, and
// with its bits.

import { createFloats } from "../../base/tensor/tensor.ts";
import { CHUNK_ROWS, chunksOf } from "../../base/util/rows.ts";
import { finish } from "../../base/util/steps.ts";
import { ROPE_SHAPE_BYTES } from "../../wasm/abi.ts";
import { Layout } from "../../wasm/memory.ts";
import type { LayerParts } from "../attention/attention.ts";
import { projectionSizes } from "../attention/weights.ts";
import { runLinear } from "./linear.ts";
import { fillTables, normAndRotate } from "./steps.ts";

/** Rows x [rows, inputs] times the layer's wq, wk or wv, plus the bias: [rows, heads·dim]. */
export function projectPart(
  where: string,
  { kernels, config, layer }: LayerParts,
  part: "q" | "k" | "v",
  x: Float32Array,
): Float32Array {
  const { n: outputs, k: inputs } = projectionSizes(config)[part];
  const packed = layer.linears[part];
  const linear = { kernels, packed, mode: layer.mode, outputs, inputs, format: packed.format };
  return finish(runLinear({ where, layer: linear, rows: x.length / inputs, x, out: undefined }));
}

/**
 * Projected queries or keys [rows, heads·headDim], normalised and rotated as the layer does it, to the RoPE `positions` [rows] if it
 * has RoPE.
 */
export function placeHeads(
  where: string,
  attention: LayerParts,
  part: "q" | "k",
  projected: Float32Array,
  positions: Int32Array,
): Float32Array {
  const { kernels, config, rotary } = attention;
  const { memory } = kernels;
  const width = (part === "q" ? config.numHeads : config.numKvHeads) * config.headDim;
  const rows = projected.length / width;
  const chunk = Math.min(rows, CHUNK_ROWS);
  const half = (rotary?.dim ?? 0) / 2;
  const out = createFloats(where, part, projected.length);
  const layout = new Layout();
  const x = layout.floats(chunk * width);
  const [cos, sin] = [layout.floats(chunk * half), layout.floats(chunk * half)];
  const places = { q: x, k: x, cos, sin, ropeShape: layout.take(ROPE_SHAPE_BYTES), stride: { qkv: width } };
  const work = { attention, places, base: memory.scratch(where, layout.bytes) };
  for (const [begin, end] of chunksOf(rows, CHUNK_ROWS)) {
    const inMemory = memory.f32(work.base + x, (end - begin) * width);
    inMemory.set(projected.subarray(begin * width, end * width));
    fillTables(work, [{ of: positions, begin, end, at: 0 }], (all) => all);
    normAndRotate(work, part, end - begin);
    out.set(inMemory, begin * width);
  }
  return out;
}
