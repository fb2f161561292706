// What every head of a model of the site does. The build records it for the gallery, and the page measures the same on request.

import { type DetectedHead, detectHeads, HEAD_KINDS } from "headwise/inspect";
import type { Model } from "headwise/models";
import type { Tokenizer } from "headwise/text";
import { agreementPairs, pronounPairs } from "../../examples/heads/labels.ts";
import { type HeldOutSequences, type HeldOutStories, patternOf, storyTexts } from "../../examples/heads/texts.ts";

/** Models whose held-out texts the site has, by their names in load.ts. */
export type Shipped = "induction" | "stories.gguf";

/** The held-out texts of the models, below models/. */
export const HELD_OUT: Readonly<Record<Shipped, string>> = {
  induction: "induction/heldout.json",
  "stories.gguf": "stories/heldout.json",
};

/** What every head of a model does. */
export interface Detection {
  /** Layer by layer. */
  readonly heads: readonly DetectedHead[];
  /** What was read for it. */
  readonly texts: number;
  readonly tokens: number;
}

/** Detects the heads of a model in its held-out texts. */
export function detectIn(
  name: Shipped,
  model: Model,
  tokenizer: Tokenizer,
  heldOut: HeldOutStories | HeldOutSequences,
): Detection {
  const texts =
    "stories" in heldOut
      ? storyTexts(tokenizer, heldOut)
      : heldOut.sequences.map(({ text }) => Array.from(tokenizer.encode(text)));
  const own = {
    pronoun: patternOf(tokenizer, pronounPairs),
    agreement: patternOf(tokenizer, agreementPairs),
  };
  const kinds = name === "stories.gguf" ? { ...HEAD_KINDS, ...own } : HEAD_KINDS;
  const heads = detectHeads(model, texts, { kinds });
  return { heads, texts: texts.length, tokens: heads[0]?.scores.current?.tokens ?? 0 }; // each token can look at itself
}
