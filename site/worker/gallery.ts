// The gallery: what every head of a model of the site does, and where its heads look in a text.

import { forwardWith } from "headwise/inspect";
import { createSession, type Model } from "headwise/models";
import type { Call } from "./call.ts";
import { type Detection, detectIn, HELD_OUT, type Shipped } from "./gallery-run.ts";
import { loadedModel, readOfSite } from "./load.ts";

/** Where all heads look in a text. */
export interface Patterns {
  readonly words: readonly string[];
  /** [heads of all layers, tokens, tokens], in the order of `Detection.heads`. */
  readonly weights: Float32Array;
}

/** Detects the heads of the model that is loaded, in the held-out texts of `model`, which it must be. */
export async function detectTask({ model: name }: { readonly model: Shipped }, { signal }: Call): Promise<Detection> {
  const { model, tokenizer } = loadedModel();
  return detectIn(name, model, tokenizer, await (await readOfSite(HELD_OUT[name], signal)).json());
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
