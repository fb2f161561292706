// A head as a figure that stands alone.

import { drawHeads } from "headwise/inspect";

/** Tokens that a figure has room for. */
const MOST_TOKENS = 128;

/** What a head does, as the page shows it: weights [tokens, tokens], and its number in the layer. */
export interface FigureRequest {
  readonly words: readonly string[];
  readonly weights: Float32Array;
  readonly head: number;
  readonly title: string;
}

/** The head as SVG. */
export function figureTask({ words, weights, head, title }: FigureRequest): string {
  const n = words.length;
  if (n > MOST_TOKENS)
    throw new Error(`A figure has room for ${MOST_TOKENS} tokens, and the text has ${n}. CSV has all of them.`);
  // Figures name heads by their place.
  const data = new Float32Array((head + 1) * n * n);
  data.set(weights, head * n * n);
  return drawHeads({ data, shape: [head + 1, n, n] }, { heads: [head], tokens: words, title });
}
