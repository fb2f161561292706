// What heads carry of an answer: a cell a head, which takes the head away; and one a layer, of all its heads. The arrow keys go from
// one to the next.

import type { HeadPlace } from "../worker/story-run.ts";
import { make } from "./dom.ts";
import { nameOf, signed } from "./story/say.ts";

/** Changes of log-odds; those that are not known yet are undefined. */
export interface EffectsShown {
  /** By layer and head. */
  readonly heads: readonly (readonly (number | undefined)[])[];
  /** By layer, of all its heads together. Default the grid has no such cells. */
  readonly layers?: readonly (number | undefined)[];
  /** Whether a head is away. */
  isOff(place: HeadPlace): boolean;
}

export interface EffectsGrid {
  readonly element: HTMLElement;
  show(shown: EffectsShown): void;
}

/** Log-odds of the darkest cells, and the least that stand in a cell. */
const [MOST, LEAST] = [5, 0.5];

interface Cell {
  readonly layer: number;
  /** Undefined of the cell of all heads. */
  readonly head: number | undefined;
  readonly button: HTMLButtonElement;
}

/** `isMarked` heads are framed in their hues; `onToggle` gets the heads of the cell that was chosen, and whether they go. */
export function createEffectsGrid(
  element: HTMLElement,
  isMarked: (place: HeadPlace) => boolean,
  onToggle: (places: readonly HeadPlace[], goes: boolean) => void,
): EffectsGrid {
  let cells: readonly Cell[] = [];
  let shape = "";
  element.classList.add("effects");

  const build = (counts: readonly number[], hasLayers: boolean): void => {
    const columns = Math.max(...counts);
    const axis = (textContent: string) => make("span", { className: "axis", textContent });
    const cellOf = (layer: number, head: number | undefined): Cell => {
      const button = make("button", { type: "button", tabIndex: -1 });
      if (head !== undefined && isMarked({ layer, head })) button.classList.add("marked", `head-${head % 8}`);
      const count = counts[layer] as number;
      const places =
        head === undefined ? Array.from({ length: count }, (_, i) => ({ layer, head: i })) : [{ layer, head }];
      button.addEventListener("click", () => onToggle(places, button.getAttribute("aria-pressed") !== "true"));
      return { layer, head, button };
    };
    const rows = counts.map((count, layer) => {
      const own = Array.from({ length: count }, (_, head) => cellOf(layer, head));
      return hasLayers && count > 0 ? [...own, cellOf(layer, undefined)] : own;
    });
    cells = rows.flat();
    if (cells[0]) cells[0].button.tabIndex = 0;
    for (const { head, button } of cells) button.style.gridColumn = String(head === undefined ? columns + 2 : head + 2);
    element.style.setProperty("--columns", String(columns + Number(hasLayers)));
    const heads = Array.from({ length: columns }, (_, i) => axis(String(i)));
    element.replaceChildren(
      make("span"),
      ...heads,
      ...(hasLayers ? [axis("all")] : []),
      ...rows.flatMap((own, layer) => [axis(`layer ${layer}`), ...own.map(({ button }) => button)]),
    );
  };

  element.addEventListener("keydown", (event) => {
    const here = cells.findIndex(({ button }) => button === document.activeElement);
    const columnOf = ({ button }: Cell) => Number(button.style.gridColumn.split(" ")[0]);
    const beside = (step: number) => {
      const own = cells[here] as Cell;
      return cells.findIndex((each) => each.layer === own.layer + step && columnOf(each) === columnOf(own));
    };
    const steps: Readonly<Record<string, () => number>> = {
      ...{ ArrowLeft: () => here - 1, ArrowRight: () => here + 1, ArrowUp: () => beside(-1) },
      ...{ ArrowDown: () => beside(1), Home: () => 0, End: () => cells.length - 1 },
    };
    const step = here < 0 || event.ctrlKey || event.metaKey || event.altKey ? undefined : steps[event.key];
    const to = cells[step?.() ?? -1];
    if (!to) return;
    event.preventDefault(); // the page would scroll
    for (const { button } of cells) button.tabIndex = button === to.button ? 0 : -1;
    to.button.focus();
  });

  return {
    element,
    show({ heads, layers, isOff }) {
      const counts = heads.map(({ length }) => length);
      const now = JSON.stringify([counts, layers !== undefined]);
      if (now !== shape) build(counts, layers !== undefined);
      shape = now;
      for (const { layer, head, button } of cells) {
        const effect = head === undefined ? layers?.[layer] : heads[layer]?.[head];
        const all = Array.from({ length: counts[layer] as number }, (_, each) => isOff({ layer, head: each }));
        const isAway = head === undefined ? !all.includes(false) : all[head] === true;
        const size = Math.abs(effect ?? 0);
        button.textContent = isAway ? "off" : effect !== undefined && size >= LEAST ? signed(effect) : "";
        const what = head === undefined ? `all heads of layer ${layer}` : `head ${nameOf({ layer, head })}`;
        button.setAttribute("aria-label", `Take ${what} away${effect === undefined ? "" : `: ${signed(effect)}`}`);
        button.setAttribute("aria-pressed", String(isAway));
        button.classList.toggle("hurts", (effect ?? 0) > 0);
        button.style.setProperty("--share", String(Math.min(1, size / MOST)));
      }
    },
  };
}
