// Values as bars with their words and numbers beside them.

import { visible } from "../../../src/base/util/strings.ts";
import type { Guess } from "../../worker/inspect.ts";
import { make } from "../dom.ts";

export interface Bar {
  readonly word: string;
  /** From -1 to 1, of the bar's width; and of a bar below it, for comparison. */
  readonly share: number;
  readonly before?: number;
  readonly value: string;
}

/** A row for each bar; negative ones have another colour and a minus in their number. With `onChoice`, words are buttons. */
export function barRows(bars: readonly Bar[], onChoice?: (at: number) => void): HTMLLIElement[] {
  return bars.map(({ word, share, before, value }, at) => {
    const fill = (part: number, name: string) => {
      const bar = make("span", { className: `${name}${part < 0 ? " negative" : ""}` });
      bar.style.width = `${Math.min(100, Math.abs(100 * part)).toFixed(2)}%`;
      return bar;
    };
    const track = make("span", { className: "track", ariaHidden: "true" }, fill(share, "fill"));
    if (before !== undefined) track.append(fill(before, "before"));
    const number = make("span", { className: "value", textContent: value });
    const label = onChoice ? make("button", { type: "button" }) : make("span");
    Object.assign(label, { className: "label", textContent: word, onclick: onChoice && (() => onChoice(at)) });
    return make("li", {}, label, track, number);
  });
}

/** The likeliest next tokens, with what they were without the changes; each chooses its id. */
export function guessRows(list: readonly Guess[], onChoice: (id: number) => void): HTMLLIElement[] {
  const percent = (share: number) => (share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);
  return barRows(
    list.map(({ word, probability, before }) => ({
      word: visible(word),
      share: probability,
      ...(before !== undefined && { before }),
      value: before === undefined ? percent(probability) : `${percent(before)} → ${percent(probability)}`,
    })),
    (at) => onChoice((list[at] as Guess).id),
  );
}
