// Seeded random numbers, the same in every engine.

import { createRandom } from "../../src/tools/diagnostics/random.ts";

/** `length` numbers, about normal with mean 0 and deviation 1, rounded to float32. */
export function normals(length: number, seed: number): Float32Array {
  return new Float32Array(length).map(createRandom(seed).normal);
}
