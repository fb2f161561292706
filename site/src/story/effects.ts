// What each head carries alone: a cell a head, which takes the head away. The arrow keys go from one to the next.

import type { HeadPlace, Story } from "../../worker/story-run.ts";
import { make } from "../dom.ts";
import { isSame, nameOf, signed } from "./say.ts";

/** Log-odds of the darkest cells, and the least that stand in a cell. */
const [MOST, LEAST] = [5, 0.5];

export interface Effects {
  show(story: Story): void;
}

export function createEffects(
  element: HTMLElement,
  seven: readonly HeadPlace[],
  onToggle: (place: HeadPlace) => void,
): Effects {
  let cells: { readonly place: HeadPlace; readonly button: HTMLButtonElement }[] = [];
  let columns = 0;

  const build = (effects: Story["effects"]): void => {
    columns = effects[0]?.length ?? 0;
    const head = Array.from({ length: columns }, (_, i) => make("span", { className: "axis", textContent: String(i) }));
    cells = [];
    const rows = effects.flatMap((row, layer) => [
      make("span", { className: "axis", textContent: `layer ${layer}` }),
      ...row.map((_, head) => {
        const place = { layer, head };
        const button = make("button", { type: "button", tabIndex: cells.length === 0 ? 0 : -1 });
        if (seven.some((each) => isSame(each, place))) button.classList.add("seven", `head-${head}`);
        button.addEventListener("click", () => onToggle(place));
        cells.push({ place, button });
        return button;
      }),
    ]);
    element.replaceChildren(make("span"), ...head, ...rows);
  };

  element.addEventListener("keydown", (event) => {
    const here = cells.findIndex(({ button }) => button === document.activeElement);
    const steps: Readonly<Record<string, number>> = {
      ...{ ArrowLeft: here - 1, ArrowRight: here + 1, ArrowUp: here - columns, ArrowDown: here + columns },
      ...{ Home: 0, End: cells.length - 1 },
    };
    const to = cells[steps[event.key] ?? -1];
    if (here < 0 || !to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault(); // the page would scroll
    for (const { button } of cells) button.tabIndex = button === to.button ? 0 : -1;
    to.button.focus();
  });

  return {
    show({ effects, off }) {
      if (cells.length === 0) build(effects);
      for (const { place, button } of cells) {
        const effect = effects[place.layer]?.[place.head] ?? 0;
        const isOff = off.some((each) => isSame(each, place));
        button.textContent = isOff ? "off" : Math.abs(effect) >= LEAST ? signed(effect) : "";
        button.setAttribute("aria-pressed", String(isOff));
        button.setAttribute("aria-label", `Take head ${nameOf(place)} away: ${signed(effect)}`);
        button.classList.toggle("hurts", effect > 0);
        button.style.setProperty("--share", String(Math.min(1, Math.abs(effect) / MOST)));
      }
    },
  };
}
