// The numbers that files state. Kernels take them as float32.

export const POSITIVE_RULE = "a finite float32 number > 0";

/** Whether `value` rounds to a finite float32 above 0. */
export function isPositive(value: unknown): value is number {
  return typeof value === "number" && Math.fround(value) > 0 && Math.fround(value) < Infinity;
}

/**
 * The most that a file may multiply or divide rows, scores or logits by. Known models have 0.001 to 256. Activations reach some
 * thousands, and scores are products of two rows and at most three such factors: float32, up to 3e38, holds them.
 */
const MOST_FACTOR = 1e6;

export const FACTOR_RULE = "a number from 1e-6 to 1e6";

/** Whether `value` is such a factor. */
export function isFactor(value: unknown): value is number {
  return typeof value === "number" && value >= 1 / MOST_FACTOR && value <= MOST_FACTOR;
}
