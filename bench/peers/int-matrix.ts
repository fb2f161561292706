// Matrices of small integers with scales, and their bytes in the formats of the peers.

import { randomFloats } from "../lib/random.ts";

/** A matrix [rows, columns]: value = integer · scale, where `block` integers of a row share a scale. */
export interface Integers {
  readonly bits: 4 | 8;
  readonly rows: number;
  readonly columns: number;
  readonly block: number;
  /** In [-8, 7] or [-127, 127]. */
  readonly values: Int8Array;
  /** [rows, columns / block]. They have eight significant bits, so that float16 and bfloat16 represent them exactly. */
  readonly scales: Float32Array;
}

/** Random integers of the whole range, scales between 1/256 and 1/128. */
export function makeIntegers(bits: 4 | 8, rows: number, columns: number, block: number, seed: number): Integers {
  const numbers = randomFloats(rows * columns, seed);
  const factors = randomFloats((rows * columns) / block, seed + 1);
  const integer = bits === 4 ? (value: number) => Math.floor(8 * value) : (value: number) => Math.round(127 * value);
  return {
    ...{ bits, rows, columns, block },
    values: Int8Array.from(numbers, integer),
    scales: factors.map((value) => (128 + Math.floor(128 * Math.abs(value))) / 2 ** 15),
  };
}

/** The matrix in float32, which represents every product of an integer and a scale exactly. */
export function toFloats({ values, scales, block }: Integers): Float32Array {
  const floats = new Float32Array(values.length);
  for (let i = 0; i < floats.length; i++) floats[i] = values[i]! * scales[Math.floor(i / block)]!;
  return floats;
}

/** Integers plus `offset`, two to a byte, the first in the low half. */
export function nibbles({ values }: Integers, offset: number): Uint8Array {
  return Uint8Array.from(
    { length: values.length / 2 },
    (_, i) => ((values[2 * i]! + offset) & 15) | (((values[2 * i + 1]! + offset) & 15) << 4),
  );
}

/** Scales as float16. Those of `makeIntegers` are normal and need seven of its ten bits of fraction. */
export function halves(scales: Float32Array): Uint16Array {
  const bits = new Uint32Array(scales.buffer, scales.byteOffset, scales.length);
  return Uint16Array.from(bits, (word) => (word >>> 13) - ((127 - 15) << 10));
}

/** GGUF's Q4_0: for each block of 32, a float16 scale and 16 bytes, byte j with the elements j and j + 16, all plus 8. */
export function q4Blocks({ values, scales, block }: Integers): Uint8Array {
  const bits = halves(scales);
  const bytes = new Uint8Array((values.length / 32) * 18);
  for (let i = 0, at = 0; i < values.length; i += 32, at += 18) {
    const scale = bits[Math.floor(i / block)]!;
    bytes[at] = scale & 255;
    bytes[at + 1] = scale >> 8;
    for (let j = 0; j < 16; j++) bytes[at + 2 + j] = (values[i + j]! + 8) | ((values[i + j + 16]! + 8) << 4);
  }
  return bytes;
}
