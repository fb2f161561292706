// A head as a figure that stands alone.

import { drawHeads } from "headwise/inspect";
import { shownReading } from "./inspect.ts";
import { loadedModel } from "./load.ts";

/** Tokens that a figure has room for. */
const MOST_TOKENS = 128;

/** A head of the text that is shown as SVG. */
export function figureTask({
  layer,
  head,
  title,
}: {
  readonly layer: number;
  readonly head: number;
  readonly title: string;
}): string {
  const { tokenizer } = loadedModel();
  const { ids, patterns } = shownReading();
  const n = ids.length;
  if (n > MOST_TOKENS)
    throw new Error(`A figure has room for ${MOST_TOKENS} tokens, and the text has ${n}. CSV has all of them.`);
  const data = (patterns[layer] as Float32Array).slice();
  const tokens = ids.map((id) => tokenizer.decode([id], { keepSpecial: true }));
  return drawHeads({ data, shape: [data.length / (n * n), n, n] }, { heads: [head], tokens, title });
}
