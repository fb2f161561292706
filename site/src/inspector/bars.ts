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

/** A row for each bar; negative ones have another colour and a minus in their number. */
export function barRows(bars: readonly Bar[]): HTMLLIElement[] {
  return bars.map(({ word, share, before, value }) => {
    const fill = (part: number, name: string) => {
      const bar = make("span", { className: `${name}${part < 0 ? " negative" : ""}` });
      bar.style.width = `${Math.min(100, Math.abs(100 * part)).toFixed(2)}%`;
      return bar;
    };
    const track = make("span", { className: "track", ariaHidden: "true" }, fill(share, "fill"));
    if (before !== undefined) track.append(fill(before, "before"));
    const number = make("span", { className: "value", textContent: value });
    return make("li", {}, make("span", { className: "label", textContent: word }), track, number);
  });
}

/** The likeliest next tokens, with what they were without the changes. */
export function guessRows(list: readonly Guess[]): HTMLLIElement[] {
  const percent = (share: number) => (share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);
  return barRows(
    list.map(({ word, probability, before }) => ({
      word: visible(word),
      share: probability,
      ...(before !== undefined && { before }),
      value: before === undefined ? percent(probability) : `${percent(before)} → ${percent(probability)}`,
    })),
  );
}
