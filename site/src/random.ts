// Seeded random numbers, the same in every engine: only exact operations make them.

/** `length` numbers, about normal with mean 0 and deviation 1: a sum of four uniform ones each, rounded to float32. */
export function normals(length: number, seed: number): Float32Array {
  let state = (seed * 7919 + 17) >>> 0;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  return new Float32Array(length).map(() => (uniform() + uniform() + uniform() + uniform() - 2) * Math.sqrt(3));
}
