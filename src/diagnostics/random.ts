/** Numbers in [-1, 1) from a linear congruential generator, whose products stay exact: the same on every engine. */
export function createNoise(seed: number): (length: number) => Float32Array {
  let state = seed * 7919 + 17;
  return (length) =>
    new Float32Array(length).map(() => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 31 - 1;
    });
}
