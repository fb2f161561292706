import { ln } from "../util/math.ts";

type Floats = ArrayLike<number>;

/** How far numbers z are from the exact numbers y. */
export interface Deviation {
  /** ‖z - y‖ / ‖y‖, the ratio of the Euclidean norms. */
  readonly relative: number;
  /** Cosine of the angle between y and z; 0 if one of them is 0. */
  readonly cosine: number;
  /** max |z - y| / max |y|. */
  readonly largest: number;
}

/** Sums the error over pairs of numbers. */
export class DeviationSum {
  #lost = 0;
  #exact = 0;
  #other = 0;
  #product = 0;
  #mostLost = 0;
  #most = 0;

  /** Adds the pairs y[i], z[i] for i from `begin` to `end`. */
  add(y: Floats, z: Floats, begin: number, end: number): void {
    for (let i = begin; i < end; i++) {
      const [exact, other] = [y[i] as number, z[i] as number];
      const lost = Math.abs(other - exact);
      this.#lost += lost * lost;
      this.#exact += exact * exact;
      this.#other += other * other;
      this.#product += exact * other;
      this.#mostLost = Math.max(this.#mostLost, lost);
      this.#most = Math.max(this.#most, Math.abs(exact));
    }
  }

  result(): Deviation {
    const lengths = Math.sqrt(this.#exact * this.#other);
    return {
      relative: ratio(Math.sqrt(this.#lost), Math.sqrt(this.#exact)),
      // Rounding may make the cosine of equal vectors larger than 1.
      cosine: this.#lost === 0 ? 1 : lengths === 0 ? 0 : Math.min(1, this.#product / lengths),
      largest: ratio(this.#mostLost, this.#most),
    };
  }
}

/** lost / all; 0 of 0 is no error. */
function ratio(lost: number, all: number): number {
  return lost === 0 ? 0 : lost / all;
}

/**
 * Weights of the other map count as at least the smallest normal float32: a weight that was rounded to 0 was not
 * excluded.
 */
const LEAST = 2 ** -126;

/**
 * Σ p·ln(p / q) + q - p over weights p and q, in nats. Each term is >= 0. For maps with equal row sums it is the
 * Kullback-Leibler divergence.
 */
export function divergence(p: Floats, q: Floats, begin: number, end: number): number {
  let sum = 0;
  for (let i = begin; i < end; i++) {
    const [exact, other] = [p[i] as number, q[i] as number];
    sum += exact === 0 ? other : exact * ln(exact / Math.max(other, LEAST)) + other - exact;
  }
  return sum;
}
