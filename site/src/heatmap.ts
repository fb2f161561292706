// An attention map that one can read: a canvas of one pixel a weight, labels, and a cursor that the pointer and the arrow keys move.

import { paint } from "./colours.ts";
import { make } from "./dom.ts";

/** What a map shows: weights [queries, keys], with a word for each. */
export interface MapData {
  readonly name: string;
  readonly weights: Float32Array;
  readonly queries: readonly string[];
  readonly keys: readonly string[];
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

/** Pixels that a label needs: below each other, side by side. */
const LABEL = { queries: 12, keys: 14 };

/** Where each key moves the cursor: Home to the first key, End to the last one that the query may look at. */
const MOVES: Readonly<Record<string, (cell: Cell) => Cell>> = {
  ArrowLeft: ({ query, key }) => ({ query, key: key - 1 }),
  ArrowRight: ({ query, key }) => ({ query, key: key + 1 }),
  ArrowUp: ({ query, key }) => ({ query: query - 1, key }),
  ArrowDown: ({ query, key }) => ({ query: query + 1, key }),
  Home: ({ query }) => ({ query, key: 0 }),
  End: ({ query }) => ({ query, key: query }),
};

/** A map, whose `onMove` hears of the cell under the cursor. */
export function createHeatmap(onMove: (cell: Cell, weight: number) => void = () => {}): Heatmap {
  const canvas = make("canvas", { ariaHidden: "true" });
  const cursor = make("div", { className: "cursor" });
  const plot = make("div", { className: "plot", tabIndex: 0, role: "application" }, canvas, cursor);
  plot.setAttribute("aria-roledescription", "map");
  const axes = { queries: make("div", { className: "queries" }), keys: make("div", { className: "keys" }) };
  const cell = make("output", { className: "cell" });
  for (const axis of Object.values(axes)) axis.ariaHidden = "true";
  const element = make("div", { className: "heatmap" }, axes.keys, axes.queries, plot, cell);
  let data: MapData | undefined;
  let at: Cell = { query: Number.POSITIVE_INFINITY, key: Number.POSITIVE_INFINITY };

  const point = ({ query, key }: Cell): void => {
    if (!data || data.queries.length === 0) return;
    const { weights, queries, keys, name } = data;
    const within = (i: number, count: number) => Math.min(count - 1, Math.max(0, i));
    at = { query: within(query, queries.length), key: within(key, keys.length) };
    const weight = weights[at.query * keys.length + at.key] as number;
    const named = (words: readonly string[], i: number) => `“${words[i]}” at ${i}`;
    cell.textContent =
      data.say?.(at) ?? `${name}: ${named(queries, at.query)} gives ${named(keys, at.key)} ${weight.toFixed(3)}`;
    const percent = (i: number, count: number) => `${(100 * i) / count}%`;
    cursor.style.left = percent(at.key, keys.length);
    cursor.style.top = percent(at.query, queries.length);
    cursor.style.width = percent(1, keys.length);
    cursor.style.height = percent(1, queries.length);
    placeLabels();
    onMove(at, weight);
  };

  /** As many labels as there is room for; those of the cursor always. */
  const placeLabels = (): void => {
    if (!data) return;
    const pixels = { queries: plot.clientHeight / data.queries.length, keys: plot.clientWidth / data.keys.length };
    for (const name of ["queries", "keys"] as const) {
      const here = name === "keys" ? at.key : at.query;
      const step = Math.max(1, Math.ceil(LABEL[name] / pixels[name]));
      for (const [i, label] of [...axes[name].children].entries()) {
        label.className = i === here ? "here" : "";
        (label as HTMLElement).hidden = i % step !== 0 && i !== here;
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
    const move = MOVES[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault(); // the page would scroll
    point(move(at));
  });
  new ResizeObserver(placeLabels).observe(plot);

  return {
    element,
    show(given) {
      const sameWords = (name: "queries" | "keys") =>
        data?.[name].length === given[name].length && given[name].every((word, i) => data?.[name][i] === word);
      for (const name of ["queries", "keys"] as const) {
        if (sameWords(name)) continue;
        const side = name === "keys" ? "left" : "top";
        axes[name].replaceChildren(
          ...given[name].map((word, i) => {
            const label = make("span", { textContent: word.replace(/^ /, "·") });
            label.style[side] = `${(100 * (i + 0.5)) / given[name].length}%`;
            return label;
          }),
        );
      }
      data = given;
      const { weights, queries, keys, name } = given;
      paint(canvas, weights, queries.length, keys.length);
      plot.ariaLabel = `${name}: ${queries.length} by ${keys.length}; arrow keys read its cells`;
      const isKnown = at.query < queries.length && at.key < keys.length;
      point(isKnown ? at : { query: queries.length - 1, key: keys.length - 1 });
    },
    point,
  };
}
