// How often the model is right on the held-out sequences that it is shipped with.

import type { Decoder } from "./decoder.ts";

/** model/heldout.json: texts whose first `segmentLen` characters repeat. */
export interface HeldOut {
  readonly sequences: readonly { readonly segmentLen: number; readonly text: string }[];
}

export interface Accuracy {
  readonly hits: number;
  readonly targets: number;
}

/** The token of the largest logit. */
export function argmax(logits: Float32Array): number {
  return logits.indexOf(logits.reduce((a, b) => Math.max(a, b)));
}

/**
 * Predicts every character from all before it, from the second repeated one on: where a text begins anew cannot be
 * foreseen. Leaves the caches empty.
 */
export function measureAccuracy(decoder: Decoder, { sequences }: HeldOut): Accuracy {
  let [hits, targets] = [0, 0];
  const forget = () => {
    for (const cache of decoder.caches) cache.truncate(0);
  };
  for (const { segmentLen, text } of sequences) {
    forget();
    const tokens = Array.from(text, (character) => decoder.vocabulary.indexOf(character));
    const logits = decoder.logits(tokens.slice(0, -1));
    for (let t = segmentLen + 1; t < tokens.length; t++) {
      targets++;
      if (argmax(logits[t - 1] as Float32Array) === tokens[t]) hits++;
    }
  }
  forget();
  return { hits, targets };
}
