// Converts GQA to MLA: the projections of keys and values become one latent.

import { type MatrixLayout, toTensor, type WeightTensor } from "../../base/tensor/matrix.ts";
import type { Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { decompose } from "../../base/util/linear-algebra.ts";
import { type AttentionConfig, type CheckedConfig, checkConfig } from "../../layers/attention/config.ts";
import type { RopeWithDim } from "../../layers/attention/rope.ts";
import { type AttentionWeights, type CheckedWeights, checkWeights } from "../../layers/attention/weights.ts";
import type { LatentConfig, LatentWeights } from "../../layers/latent/config.ts";

import type { CheckedLinear } from "../../layers/linear/formats.ts";
import { expectFiniteFloats, readRows, squaredNorm, writeRows } from "./convert-gqa.ts";

/** Options of `convertToMla`. */
export interface ConvertToMlaOptions {
  /**
   * Floats of a latent, from 1 to the rank of the key and value projections, stacked and with their biases. Default this rank,
   * which is at most numKvHeads·(headDim + valueDim) and represents the layer exactly.
   */
  readonly rank?: number;
}

/** A layer of latent attention that stands for another layer, and the errors that each rank makes. */
export interface ConvertedToMla {
  /** The configuration, for `createLatentAttention`. */
  readonly config: LatentConfig;
  /** The weights, in the layout of the input. `wo`, and `wq` unless its rows are reordered, are those of the input. */
  readonly weights: LatentWeights & {
    /** Query projection; in each head the rotated rows come last. */
    readonly wq: WeightTensor;
    /** To the latent and, behind it, the rotated key. */
    readonly wkvDown: Tensor;
    /** From latents to the keys and values of each head. */
    readonly wkvUp: Tensor;
  };
  /** The errors of all ranks, [full rank]: element r - 1 is that of rank r. */
  readonly errors: readonly LatentError[];
}

/** A layer as latent attention of any rank. */
export interface PreparedMla {
  /** The errors of all ranks, [full rank]: element r - 1 is that of rank r. */
  readonly errors: readonly LatentError[];
  /**
   * The layer of a rank, from 1 to the full one.
   * @throws TypeError or RangeError for another rank.
   */
  at(rank: number): Pick<ConvertedToMla, "config" | "weights">;
}

const WHERE = "convertToMla";

/**
 * Converts MHA, GQA or MQA to latent attention (MLA): finds a latent, which is a linear function of x, that keys and values of
 * all heads are linear functions of. At full rank, the default, the outputs are those of the given layer within rounding. A
 * smaller rank takes the best approximation of the stacked key and value projections in the Frobenius norm (truncated singular
 * value decomposition). Biases stay exact at every rank: one float of the latent is for them. Latents are not normalised.
 *
 * RoPE: keys are rotated by their position before the product with queries, so no function of a latent gives rotated keys, and
 * latent attention stores one rotated key for all heads. A layer is therefore converted exactly if its rotated components are the same
 * for all key-value heads: if it has one key-value head (MQA), or if all heads have the same rows for these components in wk
 * and bk. They become the rotated key, with ropeDim = rope.dim, and the latent stands for the other components and the values.
 * If all components rotate, keys get one component of zeros, since nopeDim is at least 1. Other layers with RoPE are refused.
 *
 * The time grows as n^2·m for wk and wv stacked to [m, n] or [n, m] with m >= n: some 3 seconds for n 512, and 30 for 1024.
 * @throws TypeError or RangeError naming the argument: also for what latent attention does not have, which is a window, alibi,
 * qkNorm, sinkLogits, biasK and biasV, addZeroAttn, and cross-attention of another width.
 * @example
 * import { convertToMla } from "headwise/weights";
 * const data = Float32Array.from({ length: 64 }, (_, i) => ((i * i) % 13) / 13 - 0.5);
 * const eye = { data: Float32Array.from({ length: 64 }, (_, i) => (i % 9 === 0 ? 1 : 0)), shape: [8, 8] };
 * const weights = { wq: eye, wk: { data, shape: [8, 8] }, wv: eye, wo: eye };
 * const { config, errors } = convertToMla(weights, { dModel: 8, numHeads: 2, causal: true }, { rank: 4 });
 * console.log(config.kvLoraRank, errors.length, errors[7]!.key < 1e-6); // 4 8 true
 */
export function convertToMla(
  weights: AttentionWeights,
  config: AttentionConfig,
  options: ConvertToMlaOptions = {},
): ConvertedToMla {
  const checked = checkConfig(WHERE, config);
  const { rank } = readFields(WHERE, "options", options, ["rank"]);
  // Before what takes long, after which its upper bound is known.
  if (rank !== undefined) expectInt(WHERE, "rank", rank);
  const { errors, at } = prepare(WHERE, checked, weights);
  return { ...at(rank ?? errors.length), errors };
}

/**
 * `convertToMla` for several ranks: does once what takes long, and then gives the layer of any rank, for instance to compare them by
 * `compareLayers`.
 * @throws As `convertToMla`.
 * @example
 * import { prepareMla } from "headwise/weights";
 * const data = Float32Array.from({ length: 64 }, (_, i) => ((i * i) % 13) / 13 - 0.5);
 * const square = { data, shape: [8, 8] };
 * const { errors, at } = prepareMla({ wq: square, wk: square, wv: square, wo: square }, { dModel: 8, numHeads: 2 });
 * const layers = [2, errors.length].map(at);
 * console.log(layers.map(({ config }) => config.kvLoraRank).join(), errors.length); // 2,8 8
 */
export function prepareMla(weights: AttentionWeights, config: AttentionConfig): PreparedMla {
  const where = "prepareMla";
  return prepare(where, checkConfig(where, config), weights);
}

/** The rows that latents stand for: of each key-value head its keys without position, and then its values. */
function stackRows(
  { numKvHeads, headDim, valueDim }: CheckedConfig,
  keys: Rows,
  values: Rows,
  plain: readonly number[],
) {
  return Array.from({ length: numKvHeads }, (_, g) => [
    ...plain.map((c) => keys.row(g * headDim + c)),
    ...Array.from({ length: valueDim }, (_, c) => values.row(g * valueDim + c)),
  ]).flat();
}

/** Does what takes long, once for all ranks. */
function prepare(where: string, checked: CheckedConfig, weights: AttentionWeights): PreparedMla {
  const given = checkWeights(where, checked, weights, { formats: {}, fast: false }, false);
  refuseOthers(where, checked, given);
  const { numHeads, numKvHeads, headDim, valueDim, dModel, rope, scale, softcap, causal } = checked;
  const { layout, linears } = given;
  const [keys, values] = (["k", "v"] as const).map((name) =>
    readLinear(where, name, linears[name] as CheckedLinear, layout),
  ) as [Rows, Rows];
  const { plain, rotated } = splitHead(headDim, rope);
  if (rotated.length > 0) expectShared(where, keys, rotated, checked);

  const nopeDim = Math.max(plain.length, 1);
  // Of one head: components of nopeDim, and then those that rotate; -1 for one of zeros.
  const order = [...(plain.length > 0 ? plain : [-1]), ...rotated];
  const kept = order.every((c, at) => c === at);
  const query = kept ? undefined : reorderHeads(readLinear(where, "q", linears.q, layout), numHeads, headDim, order);
  const wq = query ? writeRows(query.rows, dModel, layout) : handOn(linears.q);
  const [bq, bo] = [query ? query.bias : linears.q.bias, linears.o?.bias];

  const stacked = stackRows(checked, keys, values, plain);
  const isKey = (row: number) => row % (plain.length + valueDim) < plain.length;
  const norms = { key: keys.norm(), value: values.norm() };
  const { full, errors, cut } = factorLatent(stacked, dModel, isKey, norms);
  const rotatedKeys = rotated.map(keys.row);
  const perHead = plain.length + valueDim;
  const latentLayer = (rank: number) => {
    const { down, up } = cut(rank);
    const downRows = [...down, ...rotatedKeys];
    const upRows = Array.from({ length: numHeads }, (_, head) => {
      const at = Math.floor(head / (numHeads / numKvHeads)) * perHead;
      const zeros = plain.length > 0 ? [] : [new Float64Array(rank)];
      return [...zeros, ...up.slice(at, at + perHead)];
    }).flat();
    const bias = Float32Array.from(downRows, ({ bias }) => bias);
    return {
      config: {
        ...{ dModel, numHeads, kvLoraRank: rank, nopeDim, ropeDim: rotated.length, valueDim },
        ...{ latentNorm: false, causal, scale },
        ...(softcap > 0 && { softcap }),
        ...(rope && { rope: withoutRange(rope) }),
      },
      weights: {
        wq,
        wkvDown: writeRows(
          downRows.map(({ row }) => row),
          dModel,
          layout,
        ),
        wkvUp: writeRows(upRows, rank, layout),
        wo: handOn(linears.o as CheckedLinear),
        ...(bq && { bq }),
        ...(bias.some((b) => b !== 0) && { bkvDown: bias }),
        ...(bo && { bo }),
        layout,
      },
    };
  };
  return { errors, at: (rank) => latentLayer(expectInt(where, "rank", rank, 1, full)) };
}

/** Throws for what latent attention does not have. */
function refuseOthers(where: string, config: CheckedConfig, { vectors }: CheckedWeights): void {
  const { dModel, kdim, vdim, window, slopes, qkNorm, addZeroAttn } = config;
  const refuse = (name: string, value: unknown) => {
    throw new RangeError(`${where}: ${name} expected none, since latent attention has none, got ${describe(value)}`);
  };
  if (kdim !== dModel || vdim !== dModel)
    throw new RangeError(`${where}: kdim and vdim expected dModel (${dModel}), got ${kdim} and ${vdim}`);
  if (Math.min(window.left, window.right) < Number.POSITIVE_INFINITY) refuse("config.window", window);
  if (slopes) refuse("config.alibi", slopes);
  if (qkNorm) refuse("config.qkNorm", qkNorm);
  if (addZeroAttn) refuse("config.addZeroAttn", addZeroAttn);
  if (vectors.sinks) refuse("sinkLogits", vectors.sinks);
  if (vectors.extraKey) refuse("biasK", vectors.extraKey);
}

/** A projection in float64 with its bias. */
interface Rows {
  readonly row: (output: number) => Row;
  /** The Frobenius norm of the matrix. */
  readonly norm: () => number;
}

/** Reads a projection in any layout and dtype. Throws unless all of its numbers are finite. */
function readLinear(where: string, part: "q" | "k" | "v", { w, bias }: CheckedLinear, layout: MatrixLayout): Rows {
  const matrix = toTensor(w);
  expectFiniteFloats(where, `w${part}`, matrix.data);
  const { outputs, row } = readRows(matrix, layout);
  if (bias) expectFiniteFloats(where, `b${part}`, bias);
  return {
    row: (output) => ({ row: row(output), bias: bias?.[output] ?? 0 }),
    norm() {
      let sum = 0;
      for (let output = 0; output < outputs; output++) sum += squaredNorm(row(output));
      return Math.sqrt(sum);
    },
  };
}

/** The components of a head that carry no position, and those that rotate. */
function splitHead(headDim: number, rope: RopeWithDim | undefined): { plain: number[]; rotated: number[] } {
  const { start = 0, dim = 0 } = rope ?? {};
  const all = Array.from({ length: headDim }, (_, c) => c);
  const rotates = (c: number) => c >= start && c < start + dim;
  return { plain: all.filter((c) => !rotates(c)), rotated: all.filter(rotates) };
}

/** Throws unless all key-value heads have the same rows for the components that rotate. */
function expectShared(
  where: string,
  keys: Rows,
  rotated: readonly number[],
  { numKvHeads, headDim }: CheckedConfig,
): void {
  for (const c of rotated) {
    const first = keys.row(c);
    for (let g = 1; g < numKvHeads; g++) {
      const other = keys.row(g * headDim + c);
      if (first.bias === other.bias && first.row.every((number, i) => number === other.row[i])) continue;
      throw new RangeError(
        `${where}: config.rope expected rotated rows of wk that are the same for all ${numKvHeads} key-value heads, because latent attention has one rotated key for all heads and no latent gives keys that depend on their position, got another row for component ${c} of head ${g}`,
      );
    }
  }
}

/** The rows of each head in another order; component -1 is one of zeros. */
function reorderHeads(
  queries: Rows,
  numHeads: number,
  headDim: number,
  order: readonly number[],
): { rows: readonly Float64Array[]; bias: Float32Array | undefined } {
  const zeros = { row: new Float64Array(queries.row(0).row.length), bias: 0 };
  const all = Array.from({ length: numHeads }, (_, head) =>
    order.map((c) => (c < 0 ? zeros : queries.row(head * headDim + c))),
  ).flat();
  const bias = Float32Array.from(all, ({ bias }) => bias);
  return { rows: all.map(({ row }) => row), bias: bias.some((b) => b !== 0) ? bias : undefined };
}

/** A matrix that stays as it is. */
function handOn({ w }: CheckedLinear): WeightTensor {
  return w.dtype === "F32" ? toTensor(w) : w;
}

/** The rule of a rotated key, all of whose components rotate. */
function withoutRange({ theta, pairing, scaling }: RopeWithDim): NonNullable<LatentConfig["rope"]> {
  return { theta, pairing, ...(scaling && { scaling }) };
}

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
interface Row {
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
function factorLatent(
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
