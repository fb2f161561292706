// Scores of logits, and of vectors that are compared.

import { exp } from "../base/util/math.ts";

/** Weights of tokens of the vocabulary, those above 0. */
export interface SparseVector {
  /** Ids of tokens, ascending. */
  readonly ids: Int32Array;
  /** The weight of each. */
  readonly weights: Float32Array;
}

/** A document's place in a ranking, or a row that a search found. */
export interface Ranked {
  /** Its index in the list of documents, or among the rows. */
  readonly index: number;
  /** How well it fits: the higher the better. Its range depends on the model, or on the function that compares. */
  readonly score: number;
}

/** A function of single numbers. */
export type Activation = "identity" | "tanh" | "relu" | "gelu" | "gelu_new" | "sigmoid" | "silu";

/** Shares of numbers, in float64. */
export function softmax(logits: ArrayLike<number>): number[] {
  let largest = -Infinity;
  for (let i = 0; i < logits.length; i++) largest = Math.max(largest, logits[i] as number);
  const powers = Array.from(logits, (x) => exp(x - largest));
  const sum = powers.reduce((all, x) => all + x, 0);
  return powers.map((x) => x / sum);
}

function tanh(x: number): number {
  const power = exp(-2 * Math.abs(x));
  return (Math.sign(x) * (1 - power)) / (1 + power);
}

/** Functions of single numbers, in float64. Others are those of the kernels. */
export const FUNCTIONS: Readonly<Record<"identity" | "tanh" | "relu" | "sigmoid", (x: number) => number>> = {
  identity: (x) => x,
  tanh,
  relu: (x) => Math.max(0, x),
  sigmoid: (x) => 1 / (1 + exp(-x)),
};

/** How logits become scores. */
export type ScoreRule = keyof typeof FUNCTIONS | "softmax";

/** The scores of labels by the model's own rule. */
export const scoresOf = (rule: ScoreRule, logits: Float32Array): number[] =>
  rule === "softmax" ? softmax(logits) : Array.from(logits, FUNCTIONS[rule]);

/** The best of a list, of equal ones the first. */
export function bestOf(scores: readonly number[], count?: number): Ranked[] {
  const all = scores.map((score, index) => ({ index, score }));
  return all.sort((a, b) => b.score - a.score || a.index - b.index).slice(0, count);
}

/** The sum over a query's vectors of the largest product with one of a document's. */
export const maxSim = (query: readonly Float32Array[], document: readonly Float32Array[]): number =>
  query.reduce(
    (sum, own) => sum + document.reduce((most, other) => Math.max(most, SCORES.dot(own, other)), -Infinity),
    0,
  );

/** The vector of a row that has ids, and behind them their weights. */
export function sparseOf(row: Float32Array): SparseVector {
  const count = row.length / 2;
  return { ids: Int32Array.from(row.subarray(0, count)), weights: row.slice(count) };
}

/** The sum of the products of the weights of tokens that both have. */
export function sparseDot(a: SparseVector, b: SparseVector): number {
  const weightOf = new Map(Array.from(a.ids, (id, i) => [id, a.weights[i] as number]));
  return sumOf(b.ids, (id, i) => (weightOf.get(id) ?? 0) * (b.weights[i] as number));
}

// Vectors, by sums in float64, in ascending order.

/** How similar two vectors are: their cosine, their product, or minus their distance. */
export type ScoreFunction = "cosine" | "dot" | "euclidean" | "manhattan";

/** The least length that a cosine divides by, as in PyTorch: the cosine of zeros with any vector is 0. */
const LEAST_LENGTH = 1e-12;

export function sumOf(vector: ArrayLike<number>, of: (x: number, i: number) => number): number {
  let sum = 0;
  for (let i = 0; i < vector.length; i++) sum += of(vector[i] as number, i);
  return sum;
}

/** 1 / |x|, in a loop of its own, because it is taken of all vectors of an index. */
export function inverseLength(x: Float32Array | Int8Array | Int16Array): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += (x[i] as number) * (x[i] as number);
  return 1 / Math.max(Math.sqrt(sum), LEAST_LENGTH);
}

/** The score of two vectors by a function. */
export const SCORES: Readonly<Record<ScoreFunction, (x: Float32Array, y: Float32Array) => number>> = {
  cosine: (x, y) => SCORES.dot(x, y) * inverseLength(x) * inverseLength(y),
  dot: (x, y) => sumOf(x, (each, i) => each * (y[i] as number)),
  euclidean: (x, y) => -Math.sqrt(sumOf(x, (each, i) => (each - (y[i] as number)) * (each - (y[i] as number)))),
  manhattan: (x, y) => -sumOf(x, (each, i) => Math.abs(each - (y[i] as number))),
};
