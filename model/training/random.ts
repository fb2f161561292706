/** A seeded source of numbers, so that a run can be repeated. */
export interface Random {
  /** Uniform in [0, 1). */
  uniform(): number;
  /** Uniform whole number in [low, high], both ends included. */
  integer(low: number, high: number): number;
  /** Normal, mean 0, deviation 1. */
  normal(): number;
}

/** Xorshift over 32 bits, output scrambled by a multiplication because its low bits alone are weak. */
export function createRandom(seed: number): Random {
  // Spreads small seeds over all bits: 1 and 2 must not start close together. The state must not be 0.
  let state = (Math.imul(seed + 1, 0x9e3779b1) ^ 0x5bd1e995) >>> 0 || 1;

  function uniform(): number {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return ((Math.imul(state, 0x2c9277b5) ^ (state >>> 15)) >>> 0) / 2 ** 32;
  }
  for (let i = 0; i < 16; i++) uniform();

  return {
    uniform,
    integer: (low, high) => low + Math.floor(uniform() * (high - low + 1)),
    normal: () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()),
  };
}
