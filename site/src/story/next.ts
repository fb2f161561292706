// What comes next, as bars that move when heads are taken away.

import type { Story } from "../../worker/story-run.ts";
import { make } from "../dom.ts";
import { answerOf, percent } from "./say.ts";

/** Fills a list with a row for each word; rows stay when the words do, so that their bars move. */
export function showNext(list: HTMLElement, story: Story): void {
  const { next, off } = story;
  const words = next.map(({ word }) => word).join(" ");
  if (list.dataset.words !== words) {
    list.dataset.words = words;
    list.replaceChildren(
      ...next.map(({ word }) => {
        const track = make("span", { className: "track", ariaHidden: "true" }, make("span", { className: "fill" }));
        return make("li", {}, make("span", { className: "label", textContent: word }), track, make("span"));
      }),
    );
  }
  const answer = answerOf({ next, off: [] })?.word;
  for (const [i, { word, all, without }] of next.entries()) {
    const share = off.length > 0 ? without : all;
    const [, track, value] = (list.children[i] as HTMLElement).children;
    const fill = track?.firstElementChild as HTMLElement;
    fill.style.width = `${(100 * share).toFixed(1)}%`;
    fill.classList.toggle("answer", word === answer);
    (value as HTMLElement).textContent = percent(share);
  }
}
