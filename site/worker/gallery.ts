// The gallery: what every head of a model of the site does, and where its heads look in a text.

import { type DetectedHead, detectHeads, forwardWith, HEAD_KINDS } from "headwise/inspect";
import { createSession, type Model } from "headwise/models";
import { agreementPairs, pronounPairs } from "../../examples/heads/labels.ts";
import { patternOf, storyTexts } from "../../examples/heads/texts.ts";
import type { Call } from "./call.ts";
import { loadedModel, readOfSite } from "./load.ts";

/** Models whose held-out texts the site has, by their names in load.ts. */
export type Shipped = "induction" | "stories.gguf";

/** What every head of a model does. */
export interface Detection {
  /** Layer by layer. */
  readonly heads: readonly DetectedHead[];
  /** What was read for it, and how long that took. */
  readonly texts: number;
  readonly tokens: number;
  readonly ms: number;
}

/** Where all heads look in a text. */
export interface Patterns {
  readonly words: readonly string[];
  /** [heads of all layers, tokens, tokens], in the order of `Detection.heads`. */
  readonly weights: Float32Array;
}

/** Detects the heads of the model that is loaded, in the held-out texts of `model`, which it must be. */
export async function detectTask({ model: name }: { readonly model: Shipped }, { signal }: Call): Promise<Detection> {
  const { model, tokenizer } = loadedModel();
  const read = async (file: string) => (await readOfSite(file, signal)).json();
  const isStories = name === "stories.gguf";
  const texts = isStories
    ? storyTexts(tokenizer, await read("stories/heldout.json"))
    : (await read("induction/heldout.json")).sequences.map(({ text }: { text: string }) => tokenizer.encode(text));
  const own = {
    pronoun: patternOf(tokenizer, pronounPairs),
    agreement: patternOf(tokenizer, agreementPairs),
  };
  const kinds = isStories ? { ...HEAD_KINDS, ...own } : HEAD_KINDS;
  const begin = performance.now();
  const heads = detectHeads(model, texts, { kinds });
  const tokens = heads[0]?.scores.current?.tokens ?? 0; // each token can look at itself
  return { heads, texts: texts.length, tokens, ms: performance.now() - begin };
}

/** The maps of all heads of the model that is loaded, for a text. */
export async function patternsTask({ text }: { readonly text: string }): Promise<Patterns> {
  const { model, tokenizer } = loadedModel();
  const ids = [...tokenizer.encode(text)];
  const patterns = readPatterns(model, ids);
  const weights = new Float32Array(patterns.reduce((sum, { data }) => sum + data.length, 0));
  let at = 0;
  for (const { data } of patterns) {
    weights.set(data, at);
    at += data.length;
  }
  return { words: ids.map((id) => tokenizer.decode([id], { keepSpecial: true })), weights };
}

function readPatterns(model: Model, ids: readonly number[]) {
  const session = createSession(model, { maxSeqLen: ids.length });
  try {
    return forwardWith(session, ids, { patterns: Array.from({ length: model.layers }, (_, i) => i) }).patterns;
  } finally {
    session.release();
  }
}
