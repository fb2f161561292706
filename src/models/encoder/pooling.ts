// How rows become one: the states of a text's tokens, or their logits.

/**
 * How the rows of a text become one: the first of them ("cls"), the last, the largest of each column, their mean, their sum divided by
 * the root of their count ("sqrt"), or a mean that weighs the token at place i by i + 1 ("weighted").
 */
export type Pooling = "cls" | "max" | "mean" | "sqrt" | "weighted" | "last";

export const POOLINGS: readonly Pooling[] = ["cls", "max", "mean", "sqrt", "weighted", "last"];

/** The rows of a text, of which those before `first` are left out. */
interface Rows {
  readonly first: number;
  readonly count: number;
}

/**
 * Takes rows one after the other, and gives those that they become side by side, in float64: the same sums however the rows come in
 * pieces. Without rows these are zeros.
 */
export class Pool {
  readonly #modes: readonly Pooling[];
  readonly #width: number;
  readonly #rows: Rows;
  readonly #sums: Float64Array;
  #seen = 0;
  #weights = 0;

  constructor(modes: readonly Pooling[], width: number, rows: Rows) {
    this.#modes = modes;
    this.#width = width;
    this.#rows = rows;
    this.#sums = new Float64Array(modes.length * width);
  }

  /** Takes row `index`, the floats of `rows` from `at` on. */
  add(index: number, rows: ArrayLike<number>, at = 0): void {
    const { first, count } = this.#rows;
    if (index < first || index >= count) return;
    const width = this.#width;
    const sums = this.#sums;
    for (const [m, mode] of this.#modes.entries()) {
      const to = m * width;
      if (mode === "max") {
        for (let i = 0; i < width; i++) {
          const x = rows[at + i] as number;
          if (this.#seen === 0 || x > (sums[to + i] as number)) sums[to + i] = x;
        }
        continue;
      }
      if ((mode === "cls" && index !== first) || (mode === "last" && index !== count - 1)) continue;
      const weight = mode === "weighted" ? index + 1 : 1;
      for (let i = 0; i < width; i++) sums[to + i]! += weight * (rows[at + i] as number);
    }
    this.#seen++;
    this.#weights += index + 1;
  }

  /** The rows that all became, [modes, width] side by side, as they are or of length 1. */
  result(isUnit = false): Float32Array {
    // The length of a single row does not matter then.
    if (isUnit && this.#modes.length === 1) return toUnit(this.#sums);
    const divisors = {
      cls: 1,
      max: 1,
      last: 1,
      mean: this.#seen,
      sqrt: Math.sqrt(this.#seen),
      weighted: this.#weights,
    };
    const row = this.#sums.map((sum, i) => sum / (divisors[this.#modes[Math.floor(i / this.#width)] as Pooling] || 1));
    return isUnit ? toUnit(row) : Float32Array.from(row);
  }
}

/** A row of length 1; zeros stay as they are. */
export function toUnit(row: Float64Array | Float32Array): Float32Array {
  let squares = 0;
  for (const x of row) squares += x * x;
  const length = Math.sqrt(squares);
  return Float32Array.from(row, (x) => x / (length || 1));
}
