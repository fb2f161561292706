import type { MatrixLayout } from "../tensor/matrix.ts";
import { cutOutputs, expectMatrix, toTensor, type WeightTensor } from "../tensor/matrix.ts";
import { expectFloats } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import type { AttentionWeights, SeparateWeights } from "./weights.ts";

/** Outputs of q, k and v, and the length of the rows that all three project. */
interface FusedSizes {
  readonly q: number;
  readonly k: number;
  readonly v: number;
  readonly inputs: number;
}

/**
 * Weights with separate wq, wk and wv: unchanged, or with wqkv (outputs of q, then k, then v) and bqkv split. Parts are
 * views where they are contiguous, else copies.
 * @param prefix The beginning of names in errors.
 * @param sizesOf The expected sizes, given those of the matrix.
 */
export function separateWeights(
  where: string,
  prefix: string,
  weights: AttentionWeights,
  layout: MatrixLayout,
  sizesOf: (outputs: number, inputs: number) => FusedSizes,
): SeparateWeights {
  const { wqkv, bqkv, ...rest } = weights;
  if (wqkv === undefined) {
    if (bqkv === undefined) return weights as SeparateWeights;
    throw new RangeError(`${where}: ${prefix}bqkv expected none without wqkv, got ${describe(bqkv)}`);
  }
  for (const name of ["wq", "wk", "wv", "bq", "bk", "bv"] as const)
    if (rest[name] !== undefined)
      throw new RangeError(`${where}: ${prefix}${name} expected none beside wqkv, got ${describe(rest[name])}`);
  const matrix = expectMatrix(where, `${prefix}wqkv`, wqkv, layout);
  const [rows, columns] = matrix.shape as [number, number];
  const outIn = layout === "out-in";
  const { q, k, v, inputs } = outIn ? sizesOf(rows, columns) : sizesOf(columns, rows);
  const total = q + k + v;
  const [wantedRows, wantedColumns] = outIn ? [total, inputs] : [inputs, total];
  if (rows !== wantedRows || columns !== wantedColumns)
    throw new RangeError(
      `${where}: ${prefix}wqkv expected shape [${wantedRows}, ${wantedColumns}], got [${rows}, ${columns}]`,
    );
  const bias = bqkv === undefined ? undefined : expectFloats(where, `${prefix}bqkv`, bqkv);
  if (bias && bias.length !== total)
    throw new RangeError(`${where}: ${prefix}bqkv expected ${total} floats, got ${bias.length}`);

  const part = (begin: number, width: number): WeightTensor => {
    const cut = cutOutputs(matrix, layout, begin, begin + width);
    return "dtype" in wqkv ? cut : toTensor(cut);
  };
  return {
    ...rest,
    wq: part(0, q),
    wk: part(q, k),
    wv: part(q + k, v),
    bq: bias?.subarray(0, q),
    bk: bias?.subarray(q, q + k),
    bv: bias?.subarray(q + k),
  };
}
