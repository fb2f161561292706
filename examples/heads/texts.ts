// Held-out texts of the trained models, as `detectHeads` reads them.

import type { Tensor } from "headwise/core";
import type { LabelledText, ReferencePair } from "headwise/inspect";
import { answerPairs, type Story } from "./labels.ts";

/** model/stories/heldout.json. */
export interface HeldOutStories {
  readonly probes: readonly { readonly name: string }[];
  readonly stories: readonly Story[];
}

/** model/heldout.json. */
export interface HeldOutSequences {
  readonly sequences: readonly { readonly text: string }[];
}

/** What is used of a tokenizer. */
export interface Codec {
  encode(text: string): ArrayLike<number>;
  decode(ids: readonly number[]): string;
}

/** Held-out stories that are read. */
const STORIES = 100;

/** Stories, with the places whose word was mentioned before as pairs. */
export function storyTexts(codec: Codec, { probes, stories }: HeldOutStories): LabelledText[] {
  const names = probes.map(({ name }) => name);
  return stories.slice(0, STORIES).map(({ text, probes }) => {
    const tokens = Array.from(codec.encode(text));
    return { tokens, pairs: answerPairs(wordsOf(codec, tokens), probes, names) };
  });
}

/** What gives the pattern of a head that looks as `pairsOf` says of the words of a text. */
export function patternOf(
  codec: Codec,
  pairsOf: (words: readonly string[]) => readonly ReferencePair[],
): (tokens: readonly number[]) => Tensor {
  return (tokens) => {
    const n = tokens.length;
    const data = new Float32Array(n * n);
    for (const { query, key } of pairsOf(wordsOf(codec, tokens))) data[query * n + key] = 1;
    return { data, shape: [n, n] };
  };
}

const wordsOf = ({ decode }: Codec, tokens: readonly number[]) => tokens.map((token) => decode([token]).trim());
