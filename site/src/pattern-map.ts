// A small attention pattern: a canvas of one pixel a weight, where training ended, and a cursor that the pointer and the arrow keys
// move. Several such maps show the same cell, so the page keeps where the cursor is.

import { paint } from "./colours.ts";
import { make } from "./dom.ts";
import { type Cell, cellAfter } from "./heatmap.ts";

/** What a map shows. */
export interface PatternData {
  readonly name: string;
  /** Tokens of the context. */
  readonly context: number;
  /** Tokens that could be computed: the others are hatched. */
  readonly length: number;
  /** [length, length]; of a later key 0. */
  readonly weights: Float32Array;
  /** Where training ended. */
  readonly trained: number;
}

export interface PatternMap {
  readonly element: HTMLElement;
  show(data: PatternData): void;
  /** Draws the cursor. */
  point(cell: Cell): void;
}

/** A map, whose `onMove` gets where the cursor should be: within the context, and no key later than its query. */
export function createPatternMap(onMove: (cell: Cell) => void): PatternMap {
  const canvas = make("canvas", { ariaHidden: "true" });
  const missing = make("div", { className: "missing" });
  const limits = [make("div", { className: "limit below" }), make("div", { className: "limit right" })];
  const cursor = make("div", { className: "cursor" });
  const element = make("div", { className: "plot pattern", tabIndex: 0, role: "application" }, canvas, missing);
  element.append(...limits, cursor);
  element.setAttribute("aria-roledescription", "map");
  let data: PatternData | undefined;
  let at: Cell = { query: 0, key: 0 };

  const move = (query: number, key: number): void => {
    if (!data) return;
    const last = Math.min(data.context - 1, Math.max(0, query));
    onMove({ query: last, key: Math.min(last, Math.max(0, key)) });
  };
  const pointAt = ({ clientX, clientY }: PointerEvent): void => {
    const { left, top, width, height } = element.getBoundingClientRect();
    const { context } = data ?? { context: 0 };
    move(Math.floor(((clientY - top) / height) * context), Math.floor(((clientX - left) / width) * context));
  };
  element.addEventListener("pointermove", pointAt);
  element.addEventListener("pointerdown", pointAt);
  element.addEventListener("keydown", (event) => {
    const next = cellAfter(event, at);
    if (next) move(next.query, next.key);
  });

  return {
    element,
    show(given) {
      data = given;
      const { name, context, length, weights, trained } = given;
      // The root of each weight's share of the largest of its row, so that small ones can be distinguished; nothing where there is none.
      const shares = new Float32Array(context * context).fill(Number.NaN);
      for (let query = 0; query < length; query++) {
        const row = weights.subarray(query * length, query * length + query + 1);
        let most = 0;
        for (const weight of row) most = Math.max(most, weight);
        for (let key = 0; key <= query; key++) shares[query * context + key] = Math.sqrt((row[key] as number) / most);
      }
      paint(canvas, shares, context, context);
      const percent = (tokens: number) => `${(100 * tokens) / context}%`;
      missing.hidden = length === context;
      missing.style.top = percent(length);
      for (const limit of limits) limit.hidden = trained >= context;
      (limits[0] as HTMLElement).style.top = (limits[1] as HTMLElement).style.left = percent(trained);
      const about = `${name}: ${context} queries by ${context} keys; arrow keys read weights`;
      element.setAttribute("aria-label", about);
    },
    point(cell) {
      at = cell;
      const { context } = data ?? { context: 1 };
      const percent = (tokens: number) => `${(100 * tokens) / context}%`;
      cursor.style.left = percent(cell.key);
      cursor.style.top = percent(cell.query);
      cursor.style.width = cursor.style.height = percent(1);
    },
  };
}
