// What is before the encoder of a model that reads sounds: two convolutions over time, the second of which takes every other
// frame. Each is a product of three neighbouring frames with its weights.

import type { Model, ModelWeights } from "../decoder/model.ts";
import { activateRows, projectRows, ROW_SHAPE_BYTES, type RowWork } from "../decoder/rows.ts";
import { wholePanels } from "../linear/formats.ts";
import { type PackedLinear, placeLinearScratch } from "../linear/linear.ts";
import type { ModelSpec } from "../models/decoder/spec.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { CHUNK_ROWS, chunksOf, copyRows } from "../util/rows.ts";
import type { Steps } from "../util/steps.ts";
import { NULL } from "../wasm/abi.ts";
import { aligned, Layout, pointer } from "../wasm/memory.ts";

/** Rows that `frames` frames become. */
export const stemRows = (frames: number): number => Math.ceil(frames / 2);

/** Places what both convolutions work in, for chunks of frames. */
function placeStem(dModel: number, linears: Parameters<typeof placeLinearScratch>[1]) {
  const layout = new Layout();
  const places = {
    x: layout.floats(CHUNK_ROWS * Math.max(...linears.map(({ k }) => k))),
    out: layout.floats(CHUNK_ROWS * wholePanels(dModel)),
    shape: layout.take(ROW_SHAPE_BYTES),
    linear: placeLinearScratch(layout, linears, CHUNK_ROWS),
  };
  return { ...places, bytes: layout.bytes };
}

/** Bytes that both convolutions work in; 0 for a model without. */
export function stemBytes({ dModel, embed: { channels } }: ModelSpec): number {
  const format = "f32" as const;
  return channels === undefined
    ? 0
    : aligned(
        placeStem(dModel, [
          { k: 3 * channels, format },
          { k: 3 * dModel, format },
        ]).bytes,
      );
}

/** The rows [stemRows(frames), dModel] of features [channels, frames], before positions are added. */
export function* runStem(
  where: string,
  { kernels, dModel }: Model,
  { stem, mode }: ModelWeights,
  { data, shape }: Tensor,
  stepFlops: number,
): Steps<Float32Array> {
  const { first, second } = stem as NonNullable<ModelWeights["stem"]>;
  const { memory } = kernels;
  const [channels, frames] = shape as [number, number];
  const { x, out, shape: shapeAt, linear, bytes } = placeStem(dModel, [first, second]);
  const base = memory.allocate(where, bytes);
  const work: RowWork = { kernels, base, shape: shapeAt, linear, mode, stepFlops };
  /** Every `step`-th row of frames [rows, width] with its neighbours, zeros beyond the ends, through a projection and GELU. */
  function* convolve(from: Float32Array, width: number, step: 1 | 2, weights: PackedLinear): Steps<Float32Array> {
    const rows = from.length / width;
    const to = new Float32Array(Math.ceil(rows / step) * dModel);
    for (const [begin, end] of chunksOf(to.length / dModel, CHUNK_ROWS)) {
      const count = end - begin;
      const neighbours = memory.f32(base + x, count * 3 * width).fill(0);
      for (let row = begin; row < end; row++) {
        const [low, high] = [Math.max(0, row * step - 1), Math.min(rows, row * step + 2)];
        neighbours.set(from.subarray(low * width, high * width), ((row - begin) * 3 + low - (row * step - 1)) * width);
      }
      const outputs = { at: pointer.f32(base + out), stride: wholePanels(dModel) };
      yield* projectRows(work, [weights], outputs, { at: pointer.f32(base + x), stride: 3 * width }, count);
      activateRows(work, { kind: "gelu", alpha: 1 }, outputs, NULL, dModel, count);
      const found = memory.f32(outputs.at, count * outputs.stride);
      copyRows(to, begin * dModel, dModel, found, outputs.stride, dModel);
    }
    return to;
  }
  try {
    const turned = new Float32Array(data.length);
    for (let channel = 0; channel < channels; channel++)
      for (let frame = 0; frame < frames; frame++)
        turned[frame * channels + channel] = data[channel * frames + frame] as number;
    return yield* convolve(yield* convolve(turned, channels, 1, first), dModel, 2, second);
  } finally {
    if (!kernels.released) memory.free(base);
  }
}
