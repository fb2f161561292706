// Limits of numbers that callers give. No model reaches those of counts: they keep a wrong number from occupying the host.

/** The most heads of a layer or a rank-4 tensor. */
export const MOST_HEADS: number = 2 ** 16;

/** The most components of a head that RoPE rotates. */
export const MOST_DIM: number = 2 ** 16;

/** The most sequences of a call or cache. */
export const MOST_SEQUENCES: number = 2 ** 20;

/** Throws unless a tensor has 1 to MOST_HEADS heads, and these have components. */
export function expectHeads(where: string, name: string, heads: number, dim: number): void {
  if (heads >= 1 && heads <= MOST_HEADS && dim >= 1) return;
  throw new RangeError(`${where}: ${name} expected 1 to ${MOST_HEADS} heads and dim >= 1, got ${heads} and ${dim}`);
}

/**
 * Factors and limits of scores must be below this: the kernels hold scores in units of ln 2, which makes them larger by
 * half, and the largest float32 is 3.4e38.
 */
const MOST_SCORE = 1e38;

/** Whether a factor, limit or logit is within MOST_SCORE. */
export function isScore(value: number): boolean {
  return Math.abs(value) <= MOST_SCORE;
}
