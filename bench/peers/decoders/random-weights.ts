// The weights that all peers get: random values that every bfloat16 holds without loss, so that a checkpoint and every file made for a
// peer has the same values.

import type { DecoderShape, TensorSpec } from "./shape.ts";
import { elements, tensorsOf } from "./shape.ts";

/** Random values that all tensors repeat: a prime number, so that no two rows are the same. */
const RANDOM_VALUES = 1_048_583;

export interface RandomWeights {
  /** All tensors, in the order of the checkpoint. */
  readonly tensors: readonly TensorSpec[];
  /** Values begin..end of a tensor. */
  read(tensor: TensorSpec, begin?: number, end?: number): Float32Array;
}

/** Signed values of 2^-8 to 2^-4, with 7 bits of fraction. */
function createRandomValues(): Float32Array {
  const bits = new Uint32Array(RANDOM_VALUES);
  let state = 1;
  for (let i = 0; i < bits.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bits[i] = (state & 0x80000000) | ((119 + ((state >>> 20) & 3)) << 23) | (((state >>> 24) & 0x7f) << 16);
  }
  return new Float32Array(bits.buffer);
}

/** Norms are ones, so that activations and logits have the sizes of a trained model's. */
export function randomWeights(shape: DecoderShape): RandomWeights {
  const random = createRandomValues();
  const starts = new Map<string, number>();
  const tensors = tensorsOf(shape);
  let start = 0;
  for (const { name, shape: size } of tensors) {
    starts.set(name, start);
    start += elements(size);
  }
  return {
    tensors,
    read({ name, shape: size, fill }, begin = 0, end = elements(size)) {
      const values = new Float32Array(end - begin);
      if (fill !== undefined || size.length === 1) return values.fill(fill ?? 1);
      const first = starts.get(name)! + begin;
      for (let at = 0; at < values.length; ) {
        const from = (first + at) % RANDOM_VALUES;
        const piece = random.subarray(from, Math.min(RANDOM_VALUES, from + values.length - at));
        values.set(piece, at);
        at += piece.length;
      }
      return values;
    },
  };
}
