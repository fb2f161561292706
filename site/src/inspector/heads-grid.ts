// All heads, small: a button each, by layer or by what they do. The arrow keys go from one to the next.

import { KIND_ORDER } from "../../../src/tools/inspect/detect-heads.ts";
import type { Attended, HeadAbout } from "../../worker/inspect.ts";
import { paint } from "../colours.ts";
import { make } from "../dom.ts";
import { headKind } from "../head-kinds.ts";

/** What a head does, in words. */
export function sayHead(about: HeadAbout | undefined): string {
  if (!about) return "";
  const { kind, by, score, tokens } = about;
  const of = tokens === 1 ? "this token's attention" : `the attention of ${tokens} tokens`;
  const share = kind === "mixed" ? "" : `: ${(100 * score).toFixed(0)}\u00a0% of ${of}`;
  const does = kind === "offset" ? `looks at the token ${by} before` : headKind(kind).does;
  return `In this text it ${does}${share}.`;
}

export interface Place {
  readonly layer: number;
  readonly head: number;
}

export interface HeadsGrid {
  readonly element: HTMLElement;
  show(view: Attended, isEdited: (place: Place) => boolean): void;
  /** What each head does, layer by layer; empty while that is not known. */
  describe(heads: readonly HeadAbout[]): void;
  sort(by: "layer" | "kind"): void;
}

interface Tile extends Place {
  readonly button: HTMLButtonElement;
  readonly canvas: HTMLCanvasElement;
  readonly note: HTMLElement;
}

export function createHeadsGrid(onChoice: (place: Place) => void): HeadsGrid {
  const element = make("div", { className: "groups" });
  let tiles: Tile[] = [];
  let abouts: readonly HeadAbout[] = [];
  let by: "layer" | "kind" = "layer";
  let arranged = "";
  let chosen: HTMLElement | undefined;

  /** Where the heads are a strip, the one that is chosen is in sight. */
  const reveal = (button: HTMLElement): void => {
    if (button === chosen) return;
    chosen = button;
    const [own, strip] = [button.getBoundingClientRect(), element.getBoundingClientRect()];
    if (element.scrollWidth > element.clientWidth)
      element.scrollLeft += own.left + own.width / 2 - (strip.left + strip.width / 2);
  };

  const makeTile = (layer: number, head: number): Tile => {
    const canvas = make("canvas", { ariaHidden: "true" });
    const note = make("small", { className: "quiet" });
    const button = make("button", { type: "button", className: `head-${head % 8}` }, canvas, `${layer}.${head} `, note);
    button.addEventListener("click", () => onChoice({ layer, head }));
    return { layer, head, button, canvas, note };
  };

  /** The tiles in groups; nothing moves if they are in them already. */
  const arrange = (): void => {
    const groups = new Map<string, Tile[]>();
    const indexed = tiles.map((tile, i) => ({ tile, about: abouts[i] }));
    if (by === "kind" && abouts.length === tiles.length) {
      const order = (kind = "") => KIND_ORDER.indexOf(kind);
      indexed.sort(
        (a, b) => order(a.about?.kind) - order(b.about?.kind) || (b.about?.score ?? 0) - (a.about?.score ?? 0),
      );
      for (const { tile, about } of indexed) {
        const { title, does } = headKind(about?.kind ?? "");
        const name = `${title}: ${does}`;
        groups.set(name, [...(groups.get(name) ?? []), tile]);
      }
    } else
      for (const tile of tiles) {
        const name = `layer ${tile.layer}`;
        groups.set(name, [...(groups.get(name) ?? []), tile]);
      }
    const now = JSON.stringify(
      [...groups].map(([name, list]) => [name, ...list.map(({ layer, head }) => [layer, head])]),
    );
    if (now === arranged) return;
    arranged = now;
    const { activeElement } = document;
    element.replaceChildren(
      ...[...groups].map(([name, list]) => {
        const [kind, ...about] = name.split(":");
        const title = make(
          "h3",
          {},
          kind as string,
          make("span", { className: "quiet", textContent: about.join(":") }),
        );
        return make("section", {}, title, make("div", { className: "heads" }, ...list.map(({ button }) => button)));
      }),
    );
    if (activeElement instanceof HTMLElement && element.contains(activeElement)) activeElement.focus();
    const again = chosen;
    chosen = undefined;
    if (again?.isConnected) reveal(again);
  };

  element.addEventListener("keydown", (event) => {
    const buttons = [...element.querySelectorAll("button")];
    const here = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const moves: Record<string, number> = {
      ...{ ArrowLeft: here - 1, ArrowRight: here + 1, ArrowUp: above(buttons, here, -1) },
      ...{ ArrowDown: above(buttons, here, 1), Home: 0, End: buttons.length - 1 },
    };
    const to = buttons[moves[event.key] ?? -1];
    if (here < 0 || !to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault(); // the page would scroll
    to.focus();
    to.click();
  });

  return {
    element,
    show({ heads, small, side, layer, head }, isEdited) {
      const count = heads.reduce((sum, each) => sum + each, 0);
      const fits = tiles.length === count && tiles.every((tile) => tile.head < (heads[tile.layer] ?? 0));
      if (!fits) tiles = heads.flatMap((each, l) => Array.from({ length: each }, (_, h) => makeTile(l, h)));
      arrange();
      for (const [i, tile] of tiles.entries()) {
        const isChosen = tile.layer === layer && tile.head === head;
        tile.button.setAttribute("aria-pressed", String(isChosen));
        tile.button.tabIndex = isChosen ? 0 : -1;
        if (isChosen) reveal(tile.button);
        tile.button.classList.toggle("edited", isEdited(tile));
        paint(tile.canvas, small.subarray(i * side * side, (i + 1) * side * side), side, side);
      }
    },
    describe(heads) {
      abouts = heads;
      for (const [i, { note, button, layer, head }] of tiles.entries()) {
        const about = heads[i];
        const { kind = "mixed", by } = about ?? {};
        note.textContent = kind === "mixed" ? "" : kind === "offset" ? `-${by}` : kind.replace("reference", "answer");
        button.title = `Layer ${layer}, head ${head}. ${sayHead(about)}`;
      }
      arrange();
    },
    sort(given) {
      by = given;
      arrange();
    },
  };
}

/** The button above or below another one: the nearest of the next row. */
function above(buttons: readonly HTMLButtonElement[], here: number, direction: 1 | -1): number {
  const from = buttons[here]?.getBoundingClientRect();
  if (!from) return -1;
  let best = -1;
  let distance = Number.POSITIVE_INFINITY;
  for (const [i, button] of buttons.entries()) {
    const { left, top } = button.getBoundingClientRect();
    const [down, across] = [(top - from.top) * direction, Math.abs(left - from.left)];
    if (down < from.height / 2) continue;
    const away = down * 10 + across;
    if (away < distance) [best, distance] = [i, away];
  }
  return best;
}
