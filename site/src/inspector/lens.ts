// The logit lens: what the model would say after the chosen token if it ended at each layer.

import { visible } from "../../../src/base/util/strings.ts";
import type { LensLayer } from "../../worker/inspect-lens.ts";
import { make } from "../dom.ts";
import { createTable } from "../table.ts";

export interface LensView {
  readonly element: HTMLElement;
  /** Shows the layers of a token, of which `notes` say what they are. */
  show(token: string, layers: readonly LensLayer[], notes: readonly string[]): void;
  clear(): void;
  /** Says why there are none. */
  say(text: string): void;
}

const percent = (share: number): string => (share < 0.005 ? "<\u00a01\u00a0%" : `${(100 * share).toFixed(0)}\u00a0%`);

export function createLens(): LensView {
  const element = make("div", { className: "lens", hidden: true });
  const say = (textContent: string) => element.replaceChildren(make("p", { className: "quiet", textContent }));
  return {
    element,
    show(token, layers, notes) {
      const rows = layers.map((likeliest, layer) => [
        `layer\u00a0${layer}`,
        ...likeliest.map(({ word, probability }) => `${visible(word)}\u00a0${percent(probability)}`),
      ]);
      const said = layers.map((likeliest) => likeliest[0]?.word);
      const since = said.reduce((from, word, layer) => (word === said.at(-1) ? from : layer + 1), 0);
      const last = visible(said.at(-1) ?? "");
      element.replaceChildren(
        make("p", { textContent: `After “${token}” the model settles on “${last}” in layer ${since}.` }),
        createTable("What it would say if it ended there", ["after", "first", "second", "third"], rows),
        make("p", {
          className: "quiet small",
          textContent: [
            `What is between layers goes through the last norm and the head. The map chooses another token.`,
            ...notes,
          ].join(" "),
        }),
      );
    },
    clear: () => element.replaceChildren(),
    say,
  };
}
