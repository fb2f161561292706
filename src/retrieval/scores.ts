// Scores of logits, and of vectors that are compared.

import { exp } from "../base/util/math.ts";
import { toUnit } from "../models/encoder/pooling.ts";
import type { Recipe } from "./recipe.ts";

/** Weights of tokens of the vocabulary, those above 0. */
export interface SparseVector {
  /** Ids of tokens, ascending. */
  readonly ids: Int32Array;
  /** The weight of each. */
  readonly weights: Float32Array;
}

/** A document's place in a ranking. */
export interface Ranked {
  /** Its index in the list of documents. */
  readonly index: number;
  /** How well it fits: the higher the better. Its range depends on the model. */
  readonly score: number;
}

/** Shares of numbers, in float64. */
export function softmax(logits: ArrayLike<number>): number[] {
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) largest = Math.max(largest, logits[i] as number);
  const powers = Array.from(logits, (x) => exp(x - largest));
  const sum = powers.reduce((all, x) => all + x, 0);
  return powers.map((x) => x / sum);
}

export const sigmoid = (x: number): number => 1 / (1 + exp(-x));

/** The scores of labels by the model's own rule. */
export function scoresOf({ scores }: Recipe, logits: Float32Array): number[] {
  if (scores === "softmax") return softmax(logits);
  return Array.from(logits, scores === "sigmoid" ? sigmoid : (x) => x);
}

/** How much likelier "yes" is than "no". */
export function answerScore({ asks, scores }: Recipe, row: Float32Array): number {
  const [first = 0, second = 0] = row;
  const [no, yes] = asks?.answers === undefined ? [second, first] : [first, second];
  return scores === "identity" ? yes - no : sigmoid(yes - no);
}

/** The best of a list, of equal ones the first. */
export function bestOf(scores: readonly number[], count: number): Ranked[] {
  const all = scores.map((score, index) => ({ index, score }));
  return all.sort((a, b) => b.score - a.score || a.index - b.index).slice(0, count);
}

function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

/** How similar two vectors are: the higher the more. */
export function compare(similarity: Recipe["similarity"], a: Float32Array, b: Float32Array): number {
  if (similarity === "dot") return dot(a, b);
  if (similarity === "cosine") return dot(toUnit(a), toUnit(b));
  const apart = a.map((x, i) => Math.abs(x - (b[i] as number)));
  return similarity === "manhattan" ? -apart.reduce((sum, x) => sum + x, 0) : -Math.sqrt(dot(apart, apart));
}

/** The sum over a query's vectors of the largest product with one of a document's. */
export const maxSim = (query: readonly Float32Array[], document: readonly Float32Array[]): number =>
  query.reduce(
    (sum, own) => sum + document.reduce((most, other) => Math.max(most, dot(own, other)), Number.NEGATIVE_INFINITY),
    0,
  );

export function sparseOf(row: Float32Array): SparseVector {
  const ids = Array.from(row.keys()).filter((id) => row[id] !== 0);
  return { ids: Int32Array.from(ids), weights: Float32Array.from(ids, (id) => row[id] as number) };
}
