// Three numbers that describe an attention map, and the role of its head.

import type { Tensor } from "headwise";

export interface HeadScores {
  /** Mean weight of the previous token: 1 for a perfect previous-token head. */
  readonly previous: number;
  /**
   * Mean weight of the tokens that followed earlier occurrences of the current token, over the tokens that have one: 1
   * for a perfect induction head.
   */
  readonly induction: number;
  /** Mean entropy of a row in bits: 0 attends to one token, log2(t + 1) to all equally. */
  readonly entropy: number;
  /** The role that follows from the numbers. */
  readonly role: string;
}

/** Scores of one head of maps [numHeads, tokens, tokens]. */
export function scoreHead({ data, shape }: Tensor, head: number, tokens: readonly number[]): HeadScores {
  const n = shape[1] as number;
  const weight = (query: number, key: number) => data[(head * n + query) * n + key] as number;
  const previous = mean(rows(1, n, (t) => weight(t, t - 1)));
  const repeated = tokens.flatMap((token, t) => (tokens.indexOf(token) < t ? [t] : []));
  const induction = mean(
    repeated.map((t) => rows(0, t - 1, (j) => (tokens[j] === tokens[t] ? weight(t, j + 1) : 0)).reduce(sum, 0)),
  );
  const entropy = mean(
    rows(0, n, (t) =>
      rows(0, t + 1, (j) => weight(t, j)).reduce((bits, w) => (w > 0 ? bits - w * Math.log2(w) : bits), 0),
    ),
  );
  const role = previous > 0.5 ? "previous token" : induction > 0.5 ? "induction" : entropy > 2 ? "spread out" : "mixed";
  return { previous, induction, entropy, role };
}

const sum = (a: number, b: number) => a + b;
const mean = (values: readonly number[]) => (values.length === 0 ? 0 : values.reduce(sum, 0) / values.length);

function rows(begin: number, end: number, value: (t: number) => number): number[] {
  return Array.from({ length: Math.max(0, end - begin) }, (_, i) => value(begin + i));
}
