// The accuracy of the model on the held-out sequences that are shipped with it.

import { forward, type Session } from "headwise/models";

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
 * foreseen. Leaves the session empty.
 */
export function measureAccuracy(session: Session, vocabulary: string, { sequences }: HeldOut): Accuracy {
  let [hits, targets] = [0, 0];
  for (const { segmentLen, text } of sequences) {
    session.truncate(0);
    const tokens = Array.from(text, (character) => vocabulary.indexOf(character));
    const { ids } = forward(session, tokens.slice(0, -1), { rows: "all", top: 1 });
    for (let t = segmentLen + 1; t < tokens.length; t++) {
      targets++;
      if (ids?.[t - 1] === tokens[t]) hits++;
    }
  }
  session.truncate(0);
  return { hits, targets };
}
