// A list of texts, the largest score first, of which one chooses: one focus stop, which the arrow keys go through.

import { make } from "./dom.ts";

export interface RankedList {
  /** Shows texts by their scores of 0 to 1; `chosen` is the one that is marked, -1 for none. */
  show(texts: readonly string[], scores: Float32Array, chosen: number): void;
}

/** Fills an element, which has a label; `onChoose` gets the number of the text that is clicked, or taken by Enter. */
export function createRankedList(list: HTMLElement, onChoose: (i: number) => void): RankedList {
  let active = 0;
  list.tabIndex = 0;
  list.setAttribute("role", "listbox");

  const moveTo = (next: number): void => {
    list.children[active]?.classList.remove("here");
    active = Math.min(list.children.length - 1, Math.max(0, next));
    const option = list.children[active] as HTMLElement | undefined;
    if (!option) return;
    option.classList.add("here");
    list.setAttribute("aria-activedescendant", option.id);
    if (document.activeElement === list) option.scrollIntoView({ block: "nearest" });
  };
  const choose = (option: Element | null | undefined): void => {
    if (option instanceof HTMLElement) onChoose(Number(option.dataset.text));
  };

  list.addEventListener("click", ({ target }) => choose((target as Element).closest(".ranked")));
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const last = list.children.length - 1;
    const moves: Readonly<Record<string, number>> = { ArrowUp: active - 1, ArrowDown: active + 1, Home: 0, End: last };
    const next = moves[event.key];
    if (next !== undefined) moveTo(next);
    else if (event.key === "Enter" || event.key === " ") choose(list.children[active]);
    else return;
    event.preventDefault(); // the page would scroll
  });

  return {
    show(texts, scores, chosen) {
      const score = (i: number) => scores[i] as number;
      const order = [...texts.keys()].sort((a, b) => score(b) - score(a));
      list.replaceChildren(
        ...order.map((i) => {
          const fill = make("span", { className: "fill" });
          fill.style.width = `${100 * Math.max(0, score(i))}%`;
          const ariaSelected = String(i === chosen);
          return make(
            "div",
            { id: `${list.id}-${i}`, className: "ranked", role: "option", ariaSelected, dataset: { text: String(i) } },
            make("span", { className: "score", textContent: score(i).toFixed(3) }),
            make("span", { className: "meter", ariaHidden: "true" }, fill),
            make("span", { textContent: texts[i] as string }),
          );
        }),
      );
      moveTo(0);
    },
  };
}
