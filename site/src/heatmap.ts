// An attention map that one can read: a canvas of one pixel a weight, labels, and a cursor that the pointer and the arrow keys move.

import { visible } from "../../src/base/util/strings.ts";
import { inkOn } from "../../src/tools/inspect/colours.ts";
import { paint } from "./colours.ts";
import { make } from "./dom.ts";
import { differenceColour, weightColour } from "./ramps.ts";

/** What a map shows: weights [queries, keys], with a word for each. */
export interface MapData {
  readonly name: string;
  readonly weights: Float32Array;
  /** Whether the weights are differences, from -1 to 1. */
  readonly signed?: boolean;
  readonly queries: readonly string[];
  readonly keys: readonly string[];
  /** What is at the sides: rows, and columns. Default nothing is written there. */
  readonly sides?: { readonly queries: string; readonly keys: string };
  /** Whether cells have their weights as numbers, where there are few. */
  readonly hasNumbers?: boolean;
  /** The line below the map for a cell. Default the weight that its query gives its key. */
  say?(cell: Cell): string;
}

export interface Cell {
  readonly query: number;
  readonly key: number;
}

export interface Heatmap {
  readonly element: HTMLElement;
  /** Shows a map; the cursor stays where it was, if there is such a cell. */
  show(data: MapData): void;
  /** Moves the cursor. */
  point(cell: Cell): void;
}

/** Tokens below which numbers fit into cells. */
const FEW = 12;

/** Pixels that a label needs: below each other, side by side. */
const LABEL = { queries: 12, keys: 14 };

/**
 * The cell that a key leads to, also beyond the edges: arrow keys go one cell, with Shift ten; Home goes to the first key, End to
 * the last one that the query may look at. Undefined for all other keys.
 */
export function cellAfter(event: KeyboardEvent, { query, key }: Cell): Cell | undefined {
  if (event.ctrlKey || event.metaKey || event.altKey) return undefined;
  const step = event.shiftKey ? 10 : 1;
  const cells: Readonly<Record<string, Cell>> = {
    ...{ ArrowLeft: { query, key: key - step }, ArrowRight: { query, key: key + step } },
    ...{ ArrowUp: { query: query - step, key }, ArrowDown: { query: query + step, key } },
    ...{ Home: { query, key: 0 }, End: { query, key: query } },
  };
  const cell = cells[event.key];
  if (cell) event.preventDefault(); // the page would scroll
  return cell;
}

/** “was” at 9 looks at “mat” at 6: 0.902. */
export function sayCell({ name, weights, signed, queries, keys }: MapData, { query, key }: Cell): string {
  const weight = weights[query * keys.length + key] as number;
  const named = (words: readonly string[], i: number) => `“${visible(words[i] as string)}” at ${i}`;
  const value = `${signed && weight > 0 ? "+" : ""}${weight.toFixed(3)}`.replace("-", "−");
  return `${name}: ${named(queries, query)} looks at ${named(keys, key)}: ${value}`;
}

/** The number in a cell, in ink that its colours in light and dark pages carry: nothing for what is masked. */
function numberOf(weight: number, isLater: boolean, isSigned: boolean): HTMLElement {
  const digits = weight.toFixed(2).replace("-0.00", "0.00").replace(/^0/, "").replace("-0", "−");
  const cell = make("span", { textContent: isLater && weight === 0 ? "" : digits });
  const colour = isSigned ? differenceColour : weightColour;
  cell.style.setProperty("--ink-light", inkOn(colour(weight, false)));
  cell.style.setProperty("--ink-dark", inkOn(colour(weight, true)));
  return cell;
}

/** A map, whose `onMove` gets the cell under the cursor and its weight. */
export function createHeatmap(onMove: (cell: Cell, weight: number) => void = () => {}): Heatmap {
  const canvas = make("canvas", { ariaHidden: "true" });
  const cursor = make("div", { className: "cursor", hidden: true });
  const numbers = make("div", { className: "cells", ariaHidden: "true" });
  const plot = make("div", { className: "plot", tabIndex: 0, role: "application" }, canvas, numbers, cursor);
  plot.setAttribute("aria-roledescription", "map");
  const axes = { queries: make("div", { className: "queries" }), keys: make("div", { className: "keys" }) };
  const cell = make("output", { className: "cell" });
  const sides = make("div", { className: "sides-named quiet", ariaHidden: "true" });
  const note = make("p", { className: "quiet small note", hidden: true });
  for (const axis of Object.values(axes)) axis.setAttribute("aria-hidden", "true");
  const element = make("div", { className: "heatmap" }, sides, axes.keys, axes.queries, plot, cell, note);
  let data: MapData | undefined;
  /** Pixels of the plot. */
  let sizes = { queries: 0, keys: 0 };
  let at: Cell = { query: Number.POSITIVE_INFINITY, key: Number.POSITIVE_INFINITY };

  const point = ({ query, key }: Cell): void => {
    if (!data || data.queries.length === 0) return;
    const { weights, queries, keys } = data;
    const within = (i: number, count: number) => Math.min(count - 1, Math.max(0, i));
    at = { query: within(query, queries.length), key: within(key, keys.length) };
    cell.textContent = data.say?.(at) ?? sayCell(data, at);
    const percent = (i: number, count: number) => `${(100 * i) / count}%`;
    cursor.hidden = false;
    cursor.style.left = percent(at.key, keys.length);
    cursor.style.top = percent(at.query, queries.length);
    cursor.style.width = percent(1, keys.length);
    cursor.style.height = percent(1, queries.length);
    placeLabels();
    onMove(at, weights[at.query * keys.length + at.key] as number);
  };

  /** As many labels as there is room for; those of the cursor always. Long texts have only these, as each costs time. */
  const placeLabels = (): void => {
    if (!data) return;
    const stepOf = (name: "queries" | "keys") =>
      Math.max(1, Math.ceil((LABEL[name] * (data as MapData)[name].length) / Math.max(1, sizes[name])));
    const most = Math.max(stepOf("queries"), stepOf("keys"));
    note.hidden = most === 1 || sizes.keys === 0;
    note.textContent = `There is room for one label in ${most}; the line above names every cell.`;
    for (const name of ["queries", "keys"] as const) {
      const words = data[name];
      const here = name === "keys" ? at.key : at.query;
      const step = stepOf(name);
      const shown = words.flatMap((word, i) => (i % step === 0 || i === here ? [{ word, i }] : []));
      const { children } = axes[name];
      while (children.length > shown.length) axes[name].lastChild?.remove();
      while (children.length < shown.length) axes[name].append(make("span"));
      const side = name === "keys" ? "left" : "top";
      for (const [at, { word, i }] of shown.entries()) {
        const label = children[at] as HTMLElement;
        const [text, place] = [visible(word), `${(100 * (i + 0.5)) / words.length}%`];
        if (label.textContent !== text) label.textContent = text;
        if (label.style[side] !== place) label.style[side] = place;
        label.className = i === here ? "here" : "";
      }
    }
  };

  const pointAt = ({ clientX, clientY }: PointerEvent): void => {
    if (!data) return;
    const { left, top, width, height } = plot.getBoundingClientRect();
    const query = Math.floor(((clientY - top) / height) * data.queries.length);
    point({ query, key: Math.floor(((clientX - left) / width) * data.keys.length) });
  };
  plot.addEventListener("pointermove", pointAt);
  plot.addEventListener("pointerdown", pointAt);
  plot.addEventListener("keydown", (event) => {
    const next = cellAfter(event, at);
    if (next) point(next);
  });
  new ResizeObserver(([entry]) => {
    const { width, height } = (entry as ResizeObserverEntry).contentRect;
    sizes = { queries: height, keys: width };
    placeLabels();
  }).observe(plot);

  return {
    element,
    show(given) {
      data = given;
      const { weights, queries, keys, name } = given;
      paint(canvas, weights, queries.length, keys.length, given.signed);
      sides.replaceChildren(
        ...(given.sides
          ? [make("span", {}, `${given.sides.keys} →`), make("span", {}, `${given.sides.queries} ↓`)]
          : []),
      );
      const isFew = given.hasNumbers === true && Math.max(queries.length, keys.length) < FEW;
      numbers.style.gridTemplateColumns = `repeat(${keys.length}, 1fr)`;
      numbers.replaceChildren(
        ...(isFew
          ? Array.from(weights, (weight, i) =>
              numberOf(weight, i % keys.length > Math.floor(i / keys.length), given.signed === true),
            )
          : []),
      );
      const about = `${name}: ${queries.length} by ${keys.length}; arrow keys read its cells`;
      plot.setAttribute("aria-label", about);
      const isKnown = at.query < queries.length && at.key < keys.length;
      point(isKnown ? at : { query: queries.length - 1, key: keys.length - 1 });
    },
    point,
  };
}
