// The accuracy of the model on the held-out sequences that are shipped with it.

import type { Cache } from "headwise";
import { argmax, type Decoder } from "../decoder/decoder.ts";

/** model/heldout.json: texts whose first `segmentLen` characters repeat. */
export interface HeldOut {
  readonly sequences: readonly { readonly segmentLen: number; readonly text: string }[];
}

export interface Accuracy {
  readonly hits: number;
  readonly targets: number;
}

/**
 * Predicts every character from all before it, from the second repeated one on: where a text begins anew cannot be
 * foreseen. Leaves the caches empty.
 */
export function measureAccuracy(decoder: Decoder, caches: readonly Cache[], { sequences }: HeldOut): Accuracy {
  let [hits, targets] = [0, 0];
  const clear = () => {
    for (const cache of caches) cache.truncate(0);
  };
  for (const { segmentLen, text } of sequences) {
    clear();
    const tokens = decoder.encode(text);
    const logits = decoder.logits({ tokens: tokens.slice(0, -1), caches });
    for (let t = segmentLen + 1; t < tokens.length; t++) {
      targets++;
      if (argmax(logits[t - 1] as Float32Array) === tokens[t]) hits++;
    }
  }
  clear();
  return { hits, targets };
}
