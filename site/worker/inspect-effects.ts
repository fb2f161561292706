// What each head carries of a token that may come next: the pass of the model as it is, and once without each head and each layer's.

import { nextTokens, sitesOf } from "headwise/inspect";
import type { Call } from "./call.ts";
import { shownReading } from "./inspect.ts";
import { loadedModel, replaced } from "./load.ts";
import { pause } from "./pause.ts";
import { type HeadPlace, logOdds, passWithout } from "./story-run.ts";

/** Changes of the log-odds of a token, in the text that was read last. */
export interface HeadEffects {
  readonly id: number;
  readonly word: string;
  /** Its log-odds with all heads. */
  readonly logOdds: number;
  /** By layer and head, without that head alone; and by layer, without all of its heads. */
  readonly heads: readonly (readonly number[])[];
  readonly layers: readonly number[];
}

/** The effects on token `token`; on the likeliest one if it is negative. */
export async function effectsTask(
  { token }: { readonly token: number },
  { report, signal }: Call,
): Promise<HeadEffects> {
  const { model, tokenizer } = loadedModel();
  const { ids } = shownReading();
  const places = Array.from({ length: model.layers }, (): HeadPlace[] => []);
  for (const { layer = 0, head = 0 } of sitesOf(model, "z")) places[layer]?.push({ layer, head });
  const all = passWithout(model, ids, []);
  const id = token < 0 || token >= model.vocabSize ? (nextTokens(all, 1)[0]?.id as number) : token;
  const before = logOdds(all, id);
  const passes = places.flat().length + places.length;
  let done = 0;
  const without = async (off: readonly HeadPlace[]): Promise<number> => {
    await pause(signal);
    if (shownReading().ids !== ids) throw replaced();
    report({ kind: "progress", done: ++done, all: passes });
    return off.length === 0 ? 0 : logOdds(passWithout(model, ids, off), id) - before;
  };
  const heads: number[][] = [];
  const layers: number[] = [];
  for (const own of places) {
    const row: number[] = [];
    for (const place of own) row.push(await without([place]));
    heads.push(row);
    layers.push(await without(own));
  }
  return { id, word: tokenizer.decode([id], { keepSpecial: true }), logOdds: before, heads, layers };
}
