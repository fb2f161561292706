// By what kinds of heads are detected: where they look, and what they write for the token that they read.

import { expectShape } from "../../base/tensor/dtypes.ts";
import { createFloats, expectTensor, type Tensor } from "../../base/tensor/tensor.ts";
import { expectFlag, expectInt, expectOneOf, readFields, readList, wrongValue } from "../../base/util/arguments.ts";
import { describe, underName } from "../../base/util/errors.ts";
import { eigenvaluesOf } from "../../base/util/linear-algebra.ts";
import { chunksOf } from "../../base/util/rows.ts";
import {
  expectModel,
  type Model,
  type PackedBlock,
  type PackedNorm,
  type PackedTable,
} from "../../models/blocks/model.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { kvHeadOf, multiply, outputsOf, type PackedRows, readMatrix, scaleRows } from "./parts.ts";
import { headsOf, type LayerHeads, viewOf } from "./views.ts";

/**
 * What a head may do, as a pattern [tokens, tokens] of where each token would look:
 *
 * | | the token at i looks at |
 * |---|---|
 * | `"current"` | i |
 * | `"previous"` | i - 1 |
 * | `{ offset: k }` | i - k |
 * | `"duplicate"` | earlier places of the same token |
 * | `"induction"` | the places behind earlier ones of the same token: what followed it before |
 * | `"first"` | 0, where heads look that have nothing to do |
 * | `{ window: w }` | i - w + 1 to i |
 * | `"uniform"` | all of 0 to i, by 1 / (i + 1) each |
 */
export type HeadKind =
  | "current"
  | "previous"
  | "duplicate"
  | "induction"
  | "first"
  | "uniform"
  | {
      /** How far back each token looks, 0 for itself. */
      readonly offset: number;
    }
  | {
      /** How many keys each token looks at, its own and those before it. */
      readonly window: number;
    };

const NAMES: readonly HeadKind[] = ["current", "previous", "duplicate", "induction", "first", "uniform"];

/** Longest text of a detection: its pattern has the square of it. */
export const MOST_TOKENS = 16_384;

/**
 * The pattern [tokens, tokens] of a kind of heads for a text, with 1 where a token would look ("uniform": 1 / (i + 1)). Duplicate and
 * induction patterns are those of TransformerLens' `head_detector`.
 * @param tokens Ids of the text, or anything whose equality is that of its tokens.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { detectionPattern } from "headwise/inspect";
 * const { data } = detectionPattern("induction", [7, 3, 7, 3]);
 * console.log(data.subarray(8, 12).join(" ")); // 0 1 0 0: the second 7 looks at what followed the first
 */
export function detectionPattern(kind: HeadKind, tokens: readonly unknown[]): Tensor {
  const where = "detectionPattern";
  const ids = readList(where, "tokens", tokens, MOST_TOKENS);
  if (ids.length > MOST_TOKENS)
    throw new RangeError(`${where}: tokens expected at most ${MOST_TOKENS}, got ${ids.length}`);
  const n = ids.length;
  const data = createFloats(where, "pattern", n * n);
  const look = lookOf(where, "kind", kind, Array.from(ids));
  for (let i = 0; i < n; i++) look(i, data.subarray(i * n, (i + 1) * n));
  return { data, shape: [n, n] };
}

/** Writes where the token at i looks: the first i + 1 floats of a row. */
type Look = (i: number, row: Float32Array) => void;

/** The rows of `detectionPattern`, for the argument `name` and a text that was checked. */
export function lookOf(where: string, name: string, kind: HeadKind, ids: readonly unknown[]): Look {
  const looks = looksOf(where, name, kind, ids);
  return (i, row) => {
    for (let j = 0; j <= i; j++) row[j] = looks(i, j);
  };
}

/** How much the token at i would look at that at j <= i. */
function looksOf(
  where: string,
  name: string,
  kind: HeadKind,
  ids: readonly unknown[],
): (i: number, j: number) => number {
  if (kind !== null && typeof kind === "object") {
    const { offset, window } = readFields(where, name, kind as { offset?: number; window?: number }, [
      "offset",
      "window",
    ]);
    if ((offset === undefined) === (window === undefined))
      throw new TypeError(
        `${where}: ${name} expected one of offset and window, got ${offset === undefined ? "none" : "both"}`,
      );
    if (window !== undefined) {
      const width = expectInt(where, `${name}.window`, window);
      return (i, j) => Number(i - j < width);
    }
    const by = expectInt(where, `${name}.offset`, offset, 0);
    return (i, j) => Number(i - j === by);
  }
  if (!NAMES.includes(kind)) {
    const names = NAMES.map((each) => JSON.stringify(each)).join(" or ");
    throw wrongValue(where, name, `${names} or { offset } or { window }`, kind, "string");
  }
  switch (kind) {
    case "current":
      return (i, j) => Number(i === j);
    case "previous":
      return (i, j) => Number(i - j === 1);
    case "duplicate":
      return (i, j) => Number(j < i && ids[i] === ids[j]);
    case "induction":
      return (i, j) => Number(j > 0 && ids[i] === ids[j - 1]);
    case "first":
      return (_, j) => Number(j === 0);
    default:
      return (i) => 1 / (i + 1);
  }
}

/** Options of `headScores` and `baselineScore`. */
export interface HeadScoreOptions {
  /**
   * With P the head's pattern and D the detection pattern, for n tokens:
   *
   * - "mul", the default: Σ P·D / Σ P, the share of all attention that lies where D is 1;
   * - "abs": 1 - Σ |P - D| / n;
   * - "overlap": the mean of Σ min(P, D) over the tokens that have anywhere to look, whose rows of D are not 0. Where D is 0 or 1,
   *   that is the attention which these tokens give to the places that they should look at.
   */
  readonly measure?: HeadMeasure | undefined;
  /** Leave out attention to the first token. Default false. */
  readonly excludeFirst?: boolean | undefined;
  /** Leave out attention of each token to itself. Default false. */
  readonly excludeCurrent?: boolean | undefined;
}

/** How patterns are compared: "mul" and "abs" as in TransformerLens, and "overlap". */
export type HeadMeasure = "mul" | "abs" | "overlap";

const MEASURES: readonly HeadMeasure[] = ["mul", "abs", "overlap"];

/**
 * How well each head matches a detection pattern: "mul" and "abs" by the definitions of TransformerLens' `detect_head`. 1 is a
 * perfect match, and `baselineScore` what a head scores that looks everywhere alike.
 * @param pattern Softmax weights [heads, tokens, tokens] of `forwardWith` or `attendWithMaps`.
 * @param detection [tokens, tokens] of `detectionPattern`, or one of your own.
 * @returns A score for each head; NaN if there is nothing to compare.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { detectionPattern, headScores } from "headwise/inspect";
 * const pattern = { data: Float32Array.of(1, 0, 0.75, 0.25), shape: [1, 2, 2] };
 * const previous = detectionPattern("previous", [5, 6]);
 * console.log(headScores(pattern, previous)[0]); // 0.375: 0.75 of 2
 * console.log(headScores(pattern, previous, { measure: "overlap" })[0]); // 0.75: of the one token that has a previous one
 */
export function headScores(pattern: Tensor, detection: Tensor, options: HeadScoreOptions = {}): number[] {
  const where = "headScores";
  const rules = readOptions(where, options);
  const { data, shape } = expectTensor(where, "pattern", pattern, [3]);
  const wanted = expectTensor(where, "detection", detection, [2]);
  const [heads, n, keys] = shape as [number, number, number];
  if (n !== keys || n === 0)
    throw new RangeError(`${where}: pattern expected shape [heads, tokens, tokens], got ${describe(shape)}`);
  expectShape(where, "detection", wanted.shape, [n, n]);
  return Array.from({ length: heads }, (_, head) => scoreHead(data, head * n * n, wanted.data, n, rules));
}

/**
 * The score of `headScores` of a head without preference, whose token i gives 1 / (i + 1) to each of its i + 1 keys. It is also what
 * heads of random weights score on average where no key is preferred, because the expected weights of exchangeable keys are equal.
 * @param detection [tokens, tokens] of `detectionPattern`, or one of your own.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { baselineScore, detectionPattern } from "headwise/inspect";
 * console.log(baselineScore(detectionPattern("previous", [5, 6, 7, 8])).toFixed(4)); // 0.2708: (1/2 + 1/3 + 1/4) / 4
 */
export function baselineScore(detection: Tensor, options: HeadScoreOptions = {}): number {
  const where = "baselineScore";
  const rules = readOptions(where, options);
  const { data, shape } = expectTensor(where, "detection", detection, [2]);
  const [n, keys] = shape as [number, number];
  if (n !== keys || n === 0)
    throw new RangeError(`${where}: detection expected shape [tokens, tokens], got [${shape.join(", ")}]`);
  const even = createFloats(where, "pattern", n * n);
  for (let i = 0; i < n; i++) even.fill(1 / (i + 1), i * n, i * n + i + 1);
  return scoreHead(even, 0, data, n, rules);
}

/** Options with their defaults. */
interface ScoreRules {
  readonly measure: HeadMeasure;
  readonly excludeFirst: boolean;
  readonly excludeCurrent: boolean;
}

function readOptions(where: string, options: HeadScoreOptions): ScoreRules {
  const given = readFields(where, "options", options, ["measure", "excludeFirst", "excludeCurrent"]);
  return {
    measure: expectOneOf(where, "options.measure", given.measure ?? "mul", MEASURES),
    excludeFirst: expectFlag(where, "options.excludeFirst", given.excludeFirst),
    excludeCurrent: expectFlag(where, "options.excludeCurrent", given.excludeCurrent),
  };
}

function scoreHead(
  pattern: Float32Array,
  at: number,
  wanted: Float32Array,
  n: number,
  { measure, excludeFirst, excludeCurrent }: ScoreRules,
): number {
  const sum: ScoreSum = { matched: 0, of: 0 };
  for (let i = 0; i < n; i++) {
    const [begin, end] = [Number(excludeFirst), excludeCurrent ? i : i + 1];
    addQuery(sum, measure, pattern, at + i * n, wanted, i * n, begin, end);
  }
  return sum.matched / sum.of;
}

/** A score as matched / of, which are sums over tokens. */
export interface ScoreSum {
  matched: number;
  of: number;
}

/** Adds a token to a score: its weights on the keys begin..end, which lie at `at`, and where it should look, at `wantedAt`. */
export function addQuery(
  sum: ScoreSum,
  measure: HeadMeasure,
  weights: Float32Array,
  at: number,
  wanted: Float32Array,
  wantedAt: number,
  begin: number,
  end: number,
): void {
  let [product, all, apart, both, want] = [0, 0, 0, 0, 0];
  for (let j = begin; j < end; j++) {
    const weight = weights[at + j] as number;
    const look = wanted[wantedAt + j] as number;
    product += weight * look;
    all += weight;
    apart += Math.abs(weight - look);
    both += Math.min(weight, look);
    want += look;
  }
  const [matched, of] =
    measure === "mul" ? [product, all] : measure === "abs" ? [1 - apart, 1] : want > 0 ? [both, 1] : [0, 0];
  sum.matched += matched;
  sum.of += of;
}

// What heads write for the token that they read: their OV circuits, from embedding to logits (Elhage et al. 2021).

/** Tokens whose rows are multiplied at a time. */
const BLOCK_TOKENS = 1024;

/**
 * How much each head copies the token that it reads: Σ λ / Σ |λ| over the eigenvalues of W_E·W_V·W_O·W_U, which leads from a token
 * in to the logits that the head adds for it (Elhage et al. 2021, TransformerLens' copying score). 1 if the head raises the logits
 * of what it reads, -1 if it lowers them. A head of random weights scores 0 on average, because with the values reversed it scores
 * the opposite.
 *
 * Norms before the head, of its output and before the logits are folded into the matrices: their gains, and the centring of layer
 * norms. What rows are divided by, biases, positions, and whatever other layers and norms do to the residual in between are left
 * out, so that scores of late layers mean less.
 *
 * The eigenvalues are those of W_V·(W_Eᵀ·W_U)·W_O [valueDim, valueDim] and zeros, so that the vocabulary is read once. The time is
 * about that of vocabSize·dModel² multiplications and additions, in one go. Weights may have any format, and attention may be latent.
 * @returns Scores [layers][heads]; none for recurrent layers.
 * @throws TypeError, or HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { copyingScores } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * console.log(copyingScores(model)[1]?.every((score) => score > 0.8)); // true: induction heads copy
 * kernels.release();
 */
export function copyingScores(model: Model): number[][] {
  const where = "copyingScores";
  expectModel(where, model);
  return underName(where, () => {
    const ends = multiplyEnds(where, model);
    return model.weights.blocks.map((block) => layerScores(where, model, block, ends));
  });
}

function layerScores(where: string, model: Model, block: PackedBlock, ends: Float32Array): number[] {
  const { kernels, dModel } = model;
  const heads = headsOf(block.attention);
  if (!heads) return [];
  const { config } = heads.layer;
  const { numHeads, valueDim } = config;
  const size = valueDim * dModel;
  const read = multiply(kernels, readValues(where, model, block, heads), ends, dModel, "in-out");
  const written = readOutputs(where, model, block, heads);
  return Array.from({ length: numHeads }, (_, head) => {
    const group = kvHeadOf(config, head);
    const own = read.subarray(group * size, (group + 1) * size);
    const outputs = written.subarray(head * size, (head + 1) * size);
    return positiveShare(multiply(kernels, own, outputs, dModel, "out-in"), valueDim);
  });
}

/** Σ λ / Σ |λ| of the eigenvalues of a square matrix; 0 if all are 0. */
function positiveShare(matrix: Float32Array, size: number): number {
  const { real, imaginary } = eigenvaluesOf(matrix, size);
  let [sum, sizes] = [0, 0];
  for (const [i, a] of real.entries()) {
    const b = imaginary[i] as number;
    sum += a;
    sizes += Math.sqrt(a * a + b * b);
  }
  return sizes === 0 ? 0 : sum / sizes;
}

/** Σ over tokens of what embeds a token and what gives its logit: W_Eᵀ·W_U [dModel, dModel]. */
function multiplyEnds(where: string, model: Model): Float32Array {
  const { kernels, weights, dModel } = model;
  const { dim } = weights.embed;
  const sum = new Float64Array(dim * dim);
  for (const [begin, end] of chunksOf(model.vocabSize, BLOCK_TOKENS)) {
    const rows = transpose(readMatrix(where, kernels, asPanels(weights.embed), begin, end), dim);
    const part = multiply(kernels, rows, readMatrix(where, kernels, weights.head, begin, end), dim, "in-out");
    for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) + (part[i] as number);
  }
  // Tables that are narrower than the model have projections to its width, and from it.
  const { projectIn, projectOut } = weights;
  let ends: Float32Array = Float32Array.from(sum);
  if (projectOut) ends = multiply(kernels, ends, readMatrix(where, kernels, projectOut, 0, dim), dModel, "in-out");
  if (projectIn) ends = multiply(kernels, readMatrix(where, kernels, projectIn, 0, dModel), ends, dModel, "in-out");
  return foldNorm(kernels, ends, weights.finalNorm, dModel);
}

const asPanels = ({ dim: k, at: w, format, mins }: PackedTable): PackedRows => ({ k, w, format, mins });

/** What a layer's values are of its residual: W_V [numKvHeads·valueDim, dModel], of latent attention for each head. */
function readValues(
  where: string,
  { kernels, weights, dModel }: Model,
  { norms }: PackedBlock,
  { layer }: LayerHeads,
): Float32Array {
  const values = viewOf(layer).values(where, layer);
  foldNorm(kernels, values, norms.attentionPre, dModel);
  return foldNorm(kernels, values, weights.embedNorm, dModel);
}

/** What a layer adds to its residual for the outputs of its heads: W_Oᵀ [numHeads·valueDim, dModel]. */
function readOutputs(
  where: string,
  { kernels, dModel }: Model,
  { norms }: PackedBlock,
  { layer, scale }: LayerHeads,
): Float32Array {
  const { numHeads, valueDim } = layer.config;
  const outputs = transpose(readMatrix(where, kernels, outputsOf(layer), 0, dModel), numHeads * valueDim);
  if (scale !== 1) scaleRows(outputs, Float32Array.of(scale));
  // Norms of outputs are RMS norms in all families.
  return foldNorm(kernels, outputs, norms.attentionPost, dModel);
}

/** What a head adds to the residual if its output is each of `values` [n, valueDim]: rows [n, dModel]. */
export function writtenFor(
  where: string,
  model: Model,
  block: PackedBlock,
  heads: LayerHeads,
  head: number,
  values: Float32Array,
): Float32Array {
  const { kernels, dModel } = model;
  const size = heads.layer.config.valueDim * dModel;
  const outputs = readOutputs(where, model, block, heads).subarray(head * size, (head + 1) * size);
  return multiply(kernels, values, outputs, dModel, "in-out");
}

/** Makes rows w, of products w·x, those of w·norm(x), but for the division: w·gain, less its mean for a layer norm. In place. */
function foldNorm({ memory }: Kernels, rows: Float32Array, norm: PackedNorm | undefined, width: number): Float32Array {
  if (!norm) return rows;
  scaleRows(rows, memory.f32(norm.gain, width));
  if (norm.kind === "layer")
    for (let at = 0; at < rows.length; at += width) {
      const row = rows.subarray(at, at + width);
      const mean = row.reduce((sum, value) => sum + value, 0) / width;
      for (let i = 0; i < width; i++) row[i] = (row[i] as number) - mean;
    }
  return rows;
}

/** [columns, rows] of a matrix [rows, columns]. */
function transpose(matrix: Float32Array, columns: number): Float32Array {
  const rows = matrix.length / columns;
  const transposed = new Float32Array(matrix.length);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) transposed[c * rows + r] = matrix[r * columns + c] as number;
  return transposed;
}
