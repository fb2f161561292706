// The sentence: its words, an arc for each head from the last word to the one that it looks at, and the word that the model says.

import type { HeadPlace, Story } from "../../worker/story-run.ts";
import { make } from "../dom.ts";
import { arcPaths, type Box } from "./arcs.ts";
import { answerOf, isSame, nameOf, percent, targetOf } from "./say.ts";

const SVG = "http://www.w3.org/2000/svg";

export interface Sentence {
  show(story: Story): void;
}

/** Fills the element, which has the words of the recorded run already, and keeps the arcs in place when its size changes. */
export function createSentence(element: HTMLElement, seven: readonly HeadPlace[]): Sentence {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("role", "img");
  const arcs = seven.map(({ head }) => {
    const arc = document.createElementNS(SVG, "path");
    arc.setAttribute("class", `arc head-${head}`);
    picture.append(arc);
    return arc;
  });
  let shown: Story | undefined;
  let tokens: HTMLElement[] = [];
  const targets = () => shown?.looks.map(targetOf) ?? [];

  const measure = (): { boxes: Box[]; isOneLine: boolean; width: number } => {
    const own = element.getBoundingClientRect();
    const boxes = tokens.map((token) => {
      const { left, top, right } = token.getBoundingClientRect();
      return { left: left - own.left, top: top - own.top, right: right - own.left };
    });
    const isOneLine = boxes.every(({ top }) => Math.abs(top - (boxes[0]?.top as number)) < 1);
    return { boxes, isOneLine, width: own.width };
  };

  /** One line has more room above it, for arcs; whether words fit on one does not depend on it. */
  const place = (): void => {
    if (!shown) return;
    element.classList.toggle("one", measure().isOneLine);
    const { boxes, width } = measure();
    const paths = arcPaths(boxes, shown.words.length - 1, targets(), width);
    for (const [i, arc] of arcs.entries()) arc.setAttribute("d", paths[i] ?? "");
  };

  new ResizeObserver(place).observe(element);
  for (const [kind, isOver] of [
    ["pointerover", true],
    ["pointerout", false],
  ] as const)
    element.addEventListener(kind, ({ target }) => {
      const at = tokens.indexOf((target as Element).closest<HTMLElement>(".token") as HTMLElement);
      if (at < 0 || !shown) return;
      const isAsking = at === shown.words.length - 1;
      for (const [i, each] of targets().entries())
        arcs[i]?.classList.toggle("dim", isOver && !isAsking && each !== at && targets().includes(at));
    });

  return {
    show(story) {
      const isSameText = shown?.text === story.text && shown.words.length === story.words.length;
      shown = story;
      const reached = targets();
      if (!isSameText || tokens.length === 0) {
        tokens = story.words.map(({ word, isKnown }, i) =>
          make("span", { className: classOf(isKnown, i === story.words.length - 1), textContent: word }),
        );
        tokens.push(make("span", { className: "token guess" }));
        element.replaceChildren(picture, ...tokens);
      }
      for (const [i, token] of tokens.entries()) token.classList.toggle("answer", reached.includes(i));
      const answer = answerOf(story);
      const guess = tokens.at(-1) as HTMLElement;
      guess.textContent = answer?.word ?? "";
      guess.classList.toggle("lost", answer?.word !== answerOf({ ...story, off: [] })?.word);
      for (const [i, arc] of arcs.entries()) {
        const weight = story.looks[i]?.[reached[i] ?? -1] ?? 0;
        arc.setAttribute("stroke-width", (1 + 2.4 * weight).toFixed(1));
        arc.classList.toggle(
          "off",
          story.off.some((place) => isSame(place, seven[i] as HeadPlace)),
        );
      }
      picture.setAttribute("aria-label", sayArcs(story, seven));
      place();
    },
  };
}

const classOf = (isKnown: boolean, isLast: boolean): string =>
  `token${isKnown ? "" : " unknown"}${isLast ? " asking" : ""}`;

function sayArcs({ words, looks, off }: Story, seven: readonly HeadPlace[]): string {
  const from = words.at(-1)?.word;
  const each = looks.flatMap((weights, i) => {
    const place = seven[i] as HeadPlace;
    const target = targetOf(weights);
    if (target === undefined || off.some((one) => isSame(one, place))) return [];
    return [`head ${nameOf(place)} gives ${percent(weights[target] as number)} to “${words[target]?.word}”`];
  });
  return each.length === 0 ? "No head looks back" : `From “${from}”: ${each.join("; ")}`;
}
