// Rows of a matrix in the formats of integers, from [rows, columns] floats. Columns are whole blocks.

/** Weights that share a scale. */
export const BLOCK = 32;

interface IntegerRows {
  /** One for each weight, 0 is the value 0. */
  readonly values: Int8Array;
  /** One for each block. */
  readonly scales: Float32Array;
}

/** Integers of -127 to 127, with a scale for each `block` weights. */
export function toBytes(weights: Float32Array, block: number): IntegerRows {
  const values = new Int8Array(weights.length);
  const scales = new Float32Array(weights.length / block);
  for (let b = 0; b < scales.length; b++) {
    let most = 0;
    for (let i = b * block; i < (b + 1) * block; i++) most = Math.max(most, Math.abs(weights[i]!));
    const inverse = most === 0 ? 0 : 127 / most;
    scales[b] = most / 127;
    for (let i = b * block; i < (b + 1) * block; i++) values[i] = Math.round(weights[i]! * inverse);
  }
  return { values, scales };
}

/** Integers of -8 to 7, with a scale for each block, of which the largest weight is -8 or 8 times. */
export function toNibbles(weights: Float32Array): IntegerRows {
  const values = new Int8Array(weights.length);
  const scales = new Float32Array(weights.length / BLOCK);
  for (let b = 0; b < scales.length; b++) {
    let most = 0;
    for (let i = b * BLOCK; i < (b + 1) * BLOCK; i++) if (Math.abs(weights[i]!) > Math.abs(most)) most = weights[i]!;
    const inverse = most === 0 ? 0 : -8 / most;
    scales[b] = most / -8;
    for (let i = b * BLOCK; i < (b + 1) * BLOCK; i++) values[i] = Math.min(7, Math.round(weights[i]! * inverse));
  }
  return { values, scales };
}
