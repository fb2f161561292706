// Where a head looks when a question is answered, drawn over the words.

import type { Tensor } from "headwise";

/** Bars of an eighth to eight eighths. */
const BARS = "▁▂▃▄▅▆▇█";
/** Weights below this are not drawn. */
const LEAST = 0.05;

export interface Answer {
  /** The place of the first word of the question's sentence, and that of the answer. */
  readonly begin: number;
  readonly at: number;
}

/** The questions of a text that were answered: the answer is the word behind "?", "? the" or "? in the". */
export function findAnswers(words: readonly string[]): Answer[] {
  return words.flatMap((word, mark) => {
    if (word !== "?") return [];
    const at = words.findIndex((each, i) => i > mark && each !== "in" && each !== "the");
    return at < 0 ? [] : [{ begin: words.lastIndexOf(".", mark) + 1, at }];
  });
}

/** The weights [keys] of query `query` of head `head` of maps [numHeads, n, n]. */
export function weightsOf({ data, shape }: Tensor, head: number, query: number): Float32Array {
  const n = shape[1] as number;
  return data.slice((head * n + query) * n, (head * n + query) * n + query + 1);
}

/** The words, in lines of at most `width` columns, each below a line of bars as high as their weights. */
export function drawWeights(words: readonly string[], weights: Float32Array, width: number): string[] {
  const lines: [bars: string, text: string][] = [];
  for (const [i, word] of words.entries()) {
    const weight = weights[i] ?? 0;
    const bar = weight < LEAST ? " " : (BARS[Math.min(7, Math.floor(weight * 8))] as string);
    const last = lines.at(-1);
    if (last === undefined || last[1].length + word.length + 1 > width) lines.push(["", ""]);
    const line = lines.at(-1) as [string, string];
    const space = line[1] === "" ? "" : " ";
    line[0] += space + bar.repeat(word.length);
    line[1] += space + word;
  }
  return lines.flatMap(([bars, text]) => [bars.trimEnd(), text]);
}
