// A small layer of attention in a GGUF file, of any architecture.

import type { AttentionWeights, Tensor } from "../../src/entries/core.ts";
import { type GgufWeights, openGguf, readGgufLayer, toFloats } from "../../src/entries/weights.ts";
import { bytesOf, type Typed, text, toF16, toQ4_0, toQ8_0, u32, type Written, writeGguf } from "./gguf-writer.ts";

/** The number of a type, and what encodes floats in it. */
export const ENCODERS: Record<string, readonly [type: number, encode: (data: Float32Array) => Uint8Array]> = {
  F32: [0, (data) => bytesOf(data)],
  F16: [1, (data) => new Uint8Array(Uint16Array.from(data, toF16).buffer)],
  Q8_0: [8, toQ8_0],
  Q4_0: [2, toQ4_0],
};

export const vector = (name: string, data: Float32Array): Written => ({
  name,
  type: 0,
  shape: [data.length],
  bytes: bytesOf(data),
});

export const stored = (name: string, { data, shape }: Tensor, dtype = "F32"): Written => {
  const [type, encode] = ENCODERS[dtype] as (typeof ENCODERS)[string];
  return { name, type, shape, bytes: encode(data) };
};

/** The sizes of the layer. */
export const DIMS = { dModel: 64, numHeads: 4, numKvHeads: 2, headDim: 32, valueDim: 32 };
/** The outputs of its projection of queries, and of those of keys and of values. */
export const [q, kv] = [DIMS.numHeads * DIMS.headDim, DIMS.numKvHeads * DIMS.headDim];

/** The keys that every file has, and more. */
export function keys(name: string, more: Readonly<Record<string, Typed>> = {}): Record<string, Typed> {
  const own = {
    block_count: u32(8),
    context_length: u32(4096),
    embedding_length: u32(DIMS.dModel),
    "attention.head_count": u32(DIMS.numHeads),
    "attention.head_count_kv": u32(DIMS.numKvHeads),
    "attention.key_length": u32(DIMS.headDim),
    "attention.value_length": u32(DIMS.valueDim),
    ...more,
  };
  const named = Object.entries(own).map(([key, value]) => [`${name}.${key}`, value] as const);
  return { "general.architecture": text(name), ...Object.fromEntries(named) };
}

export const zeros = (...shape: number[]): Tensor => ({
  data: new Float32Array(shape.reduce((a, b) => a * b, 1)),
  shape,
});

export function tensors(layer = 0): Written[] {
  return [
    stored(`blk.${layer}.attn_q.weight`, zeros(q, DIMS.dModel)),
    stored(`blk.${layer}.attn_k.weight`, zeros(kv, DIMS.dModel)),
    stored(`blk.${layer}.attn_v.weight`, zeros(kv, DIMS.dModel)),
    stored(`blk.${layer}.attn_output.weight`, zeros(DIMS.dModel, q)),
  ];
}

export async function layerOf(metadata: Record<string, Typed>, written = tensors(), layer = 0, options = {}) {
  return readGgufLayer(await openGguf(writeGguf({ metadata, tensors: written })), layer, options);
}

/** What `createAttention` takes: matrices as floats. */
export function widen(weights: GgufWeights): AttentionWeights {
  const entries = Object.entries(weights).map(([name, value]) => [
    name,
    value instanceof Float32Array ? value : { data: toFloats(value), shape: value.shape },
  ]);
  return Object.fromEntries(entries) as AttentionWeights;
}
