// Layer norms of the heads of queries and keys.

import type { CheckedConfig } from "../../layers/attention/config.ts";
import type { HeadNorm } from "../../layers/attention/heads.ts";
import { type F32Ptr, NORM_SHAPE_BYTES, NULL, type NullPtr, storeNormShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { modelPointer } from "./model.ts";

/** Gains [headDim], or [heads, headDim], and biases of the same shape. */
export interface HeadGains {
  readonly gain: Float32Array;
  readonly bias: Float32Array | undefined;
}

/** Offsets in the block of a head norm: its gains and biases, of one head or of each. */
function placeHeadNorm({ numHeads, numKvHeads, headDim }: CheckedConfig, each: boolean) {
  const layout = new Layout();
  const place = (heads: number) => {
    const length = each ? heads * headDim : headDim;
    return { gain: layout.floats(length), bias: layout.floats(length) };
  };
  const places = { q: place(numHeads), k: place(numKvHeads), shape: layout.take(NORM_SHAPE_BYTES) };
  return { places, bytes: layout.bytes };
}

/** Bytes of linear memory of a head norm. */
export const headNormBytes = (config: CheckedConfig, each: boolean): number => placeHeadNorm(config, each).bytes;

/** Copies gains and biases to the block at `at`, of headNormBytes, and returns what normalises by them. */
export function packHeadNorm(
  kernels: Kernels,
  config: CheckedConfig,
  { eps, each }: { readonly eps: number; readonly each: boolean },
  gains: { readonly q: HeadGains; readonly k: HeadGains },
  at: number,
): HeadNorm {
  const { numHeads, numKvHeads, headDim } = config;
  const { memory, table } = kernels;
  const { places } = placeHeadNorm(config, each);
  const write = (place: number, values: Float32Array): F32Ptr => {
    memory.f32(at + place, values.length).set(values);
    return pointer.f32(at + place);
  };
  const normOf = (of: "q" | "k", heads: number) => {
    const { gain, bias } = gains[of];
    return {
      heads,
      step: each ? 4 * headDim : 0,
      gain: write(places[of].gain, gain),
      bias: bias ? write(places[of].bias, bias) : NULL,
    };
  };
  const norms = { eps, q: normOf("q", numHeads), k: normOf("k", numKvHeads) };
  const normalise = (of: "q" | "k", x: F32Ptr, stride: number, rows: number) => {
    const { heads, step, gain, bias } = norms[of];
    const shapeAt = modelPointer.normShape(at + places.shape);
    storeNormShape(memory.view(), shapeAt, { n: headDim, stride, eps });
    for (let head = 0; head < heads; head++) {
      const row = pointer.f32(x + 4 * head * headDim);
      const by = <P extends F32Ptr | NullPtr>(vector: P) =>
        (vector === NULL ? NULL : pointer.f32(vector + head * step)) as P;
      table.layer_norm_f32(row, row, by(gain), by(bias), shapeAt, 0, rows);
    }
  };
  return Object.assign(normalise, norms);
}
