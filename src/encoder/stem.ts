// What is before the encoder of a model that reads sounds: two convolutions over time, the second of which takes every other
// frame. Each is a product of three neighbouring frames with its weights.

import type { Model, ModelWeights } from "../decoder/model.ts";
import { activateRows, projectRows, ROW_SHAPE_BYTES, type RowWork } from "../decoder/rows.ts";
import { wholePanels } from "../linear/formats.ts";
import { type PackedLinear, placeLinearScratch } from "../linear/linear.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { CHUNK_ROWS, chunksOf, copyRows } from "../util/rows.ts";
import type { Steps } from "../util/steps.ts";
import { NULL } from "../wasm/abi.ts";
import { Layout, pointer } from "../wasm/memory.ts";

/** Rows that `frames` frames become. */
export const stemRows = (frames: number): number => Math.ceil(frames / 2);

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
  const layout = new Layout();
  const x = layout.floats(CHUNK_ROWS * second.k);
  const out = layout.floats(CHUNK_ROWS * wholePanels(dModel));
  const shapeAt = layout.take(ROW_SHAPE_BYTES);
  const linear = placeLinearScratch(layout, [first, second], CHUNK_ROWS);
  const base = memory.allocate(where, layout.bytes);
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
