import { createRandom } from "../../src/tools/diagnostics/random.ts";

/** Fills `data` with numbers in [-1, 1) from a seed: the same on every engine and machine. */
export function fill(data: Float32Array, seed: number): void {
  data.set(createRandom(seed).floats(data.length));
}

/** `length` numbers in [-scale, scale) from a seed. */
export function randomFloats(length: number, seed: number, scale = 1): Float32Array {
  const data = createRandom(seed).floats(length);
  return scale === 1 ? data : data.map((value) => value * scale);
}
