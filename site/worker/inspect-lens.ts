// The logit lens: what the model would say after a token if it ended at each layer.

import { logitLens, type NextToken } from "headwise/inspect";
import { capturedRun } from "./inspect-why.ts";
import { loadedModel } from "./load.ts";

/** What the model would say after a layer: the likeliest tokens, with their probabilities. */
export type LensLayer = readonly (Pick<NextToken, "probability"> & { readonly word: string })[];

/** Tokens of a layer. */
const LIKELIEST = 3;

/** By layer, in the pass without changes. */
export function lensTask({ query }: { readonly query: number }): LensLayer[] {
  const { model, tokenizer } = loadedModel();
  const { logits, ids = new Int32Array(), logSumExp } = logitLens(capturedRun(), { tokens: [query], top: LIKELIEST });
  return Array.from({ length: model.layers }, (_, layer) =>
    Array.from(ids.subarray(layer * LIKELIEST, (layer + 1) * LIKELIEST), (id, i) => ({
      word: tokenizer.decode([id], { keepSpecial: true }),
      probability: Math.exp((logits.data[layer * LIKELIEST + i] as number) - (logSumExp.data[layer] as number)),
    })),
  );
}
