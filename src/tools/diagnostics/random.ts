/** Seeded random numbers, the same on every engine. */
export interface Random {
  /** A number in [0, 1), a multiple of 2^-32. */
  next(): number;
  /** An integer from `min` to `max`, both included. */
  int(min: number, max: number): number;
  /** About normal, with mean 0 and deviation 1: a sum of four uniform numbers, which only exact operations make. */
  normal(): number;
  /** `length` numbers in [-1, 1), rounded to float32. */
  floats(length: number): Float32Array;
}

/** A linear congruential generator. The published digests are of numbers that it makes. */
export function createRandom(seed: number): Random {
  const after = (state: number) => (Math.imul(state, 1664525) + 1013904223) >>> 0;
  let state = seed * 7919 + 17;
  const next = () => {
    state = after(state);
    return state / 2 ** 32;
  };
  return {
    next,
    int: (min, max) => min + Math.floor(next() * (max - min + 1)),
    normal: () => (next() + next() + next() + next() - 2) * Math.sqrt(3),
    floats(length) {
      const values = new Float32Array(length);
      // A local variable, which takes a fourth of the time of one that `next` shares.
      let at = state;
      for (let i = 0; i < length; i++) {
        at = after(at);
        values[i] = 2 * (at / 2 ** 32) - 1;
      }
      state = at;
      return values;
    },
  };
}
