import { decompose } from "../util/svd.ts";
import { squaredNorm } from "./matrix-rows.ts";

/** What a latent of some rank loses, without the rounding of weights to float32. */
export interface LatentError {
  /** Floats of the latent. */
  readonly rank: number;
  /** |approximation - wk| / |wk| in the Frobenius norm; what is rotated has no error. */
  readonly key: number;
  /** The same of wv. */
  readonly value: number;
}

/** A row of a projection, and its bias: 0 where there is none. */
export interface Row {
  readonly row: Float64Array;
  readonly bias: number;
}

/** Two projections whose product stands for the rows: x -> latent -> rows. */
interface Factors {
  /** [rank] rows over x, each with its bias. */
  readonly down: readonly Row[];
  /** For each of the given rows, [rank]. */
  readonly up: readonly Float64Array[];
}

/** Singular values below this fraction of the largest come from the rounding of a matrix to float32. */
const ROUNDING = 2 ** -24;

/**
 * Finds the best latents of every rank for rows W·x + b. The bias is exact at every rank: if there is one, the first float of the
 * latent is the part of the rows along b, which has the bias, and the others approximate what is left of W, of which every
 * multiple of b was removed. That is the best approximation in the Frobenius norm among those with an exact bias.
 * @param isKey Whether a row belongs to the keys, for the errors, which are relative to `norms`.
 */
export function factorLatent(
  rows: readonly Row[],
  inputs: number,
  isKey: (row: number) => boolean,
  norms: { readonly key: number; readonly value: number },
): { full: number; errors: readonly LatentError[]; cut: (rank: number) => Factors } {
  const count = rows.length;
  const matrix = new Float64Array(count * inputs);
  for (const [r, { row }] of rows.entries()) matrix.set(row, r * inputs);
  const biased = removeBias(matrix, rows, inputs);
  const { rank, values, left, right } = decompose(matrix, count, inputs);
  const largest = Math.max(values[0] ?? 0, biased?.length ?? 0);
  const kept = values.filter((value) => value > ROUNDING * largest).length;
  const first = biased ? 1 : 0;
  // A latent has one float at least, also for weights of zeros.
  const full = Math.max(first + kept, 1);

  // Squared errors when singular value i and all smaller ones are left out, [rank + 1].
  const lost = { key: new Float64Array(rank + 1), value: new Float64Array(rank + 1) };
  for (let i = rank - 1; i >= 0; i--) {
    const squares = { key: 0, value: 0 };
    for (let r = 0; r < count; r++) squares[isKey(r) ? "key" : "value"] += square(left[r * rank + i] as number);
    for (const part of ["key", "value"] as const)
      lost[part][i] = (lost[part][i + 1] as number) + squares[part] * square(values[i] as number);
  }
  const errorOf = (part: "key" | "value", at: number) => {
    const error = Math.sqrt(lost[part][Math.min(at - first, rank)] as number);
    return error === 0 ? 0 : error / norms[part];
  };
  return {
    full,
    errors: Array.from({ length: full }, (_, i) => ({
      rank: i + 1,
      key: errorOf("key", i + 1),
      value: errorOf("value", i + 1),
    })),
    cut(latent) {
      const used = Math.min(latent - first, rank);
      const padding = latent - first - used;
      return {
        down: [
          ...(biased ? [biased.down] : []),
          ...Array.from({ length: used }, (_, i) => ({ row: right.slice(i * inputs, (i + 1) * inputs), bias: 0 })),
          ...Array.from({ length: padding }, () => ({ row: new Float64Array(inputs), bias: 0 })),
        ],
        up: rows.map((_, r) => {
          const row = new Float64Array(latent);
          if (biased) row[0] = biased.up[r] as number;
          for (let i = 0; i < used; i++) row[first + i] = (left[r * rank + i] as number) * (values[i] as number);
          return row;
        }),
      };
    },
  };
}

/**
 * Removes from a matrix, in place, its part along the bias: with e = b / |b|, that is e·(eᵀW). Returns that part and the bias as
 * one float of a latent, and the length of eᵀW; undefined without a bias.
 */
function removeBias(
  matrix: Float64Array,
  rows: readonly Row[],
  inputs: number,
): { down: Row; up: Float64Array; length: number } | undefined {
  const norm = Math.sqrt(rows.reduce((sum, { bias }) => sum + bias * bias, 0));
  if (norm === 0) return undefined;
  const along = new Float64Array(inputs);
  for (const [r, { bias }] of rows.entries())
    for (let i = 0; i < inputs; i++)
      along[i] = (along[i] as number) + (bias / norm) * (matrix[r * inputs + i] as number);
  for (const [r, { bias }] of rows.entries())
    for (let i = 0; i < inputs; i++)
      matrix[r * inputs + i] = (matrix[r * inputs + i] as number) - (bias / norm) * (along[i] as number);
  const length = Math.sqrt(squaredNorm(along));
  // With its bias, the row has length 1, like those of the singular value decomposition.
  const scale = Math.sqrt(length * length + norm * norm);
  return {
    down: { row: along.map((number) => number / scale), bias: norm / scale },
    up: Float64Array.from(rows, ({ bias }) => (bias / norm) * scale),
    length,
  };
}

const square = (x: number) => x * x;
