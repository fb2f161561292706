// A head as lines from each token to those that it looks at: one canvas behind two columns of words.

import { make, oncePerFrame } from "../dom.ts";
import type { Cell, MapData } from "../heatmap.ts";
import { visible } from "./bars.ts";

export interface LinesView {
  readonly element: HTMLElement;
  show(data: MapData): void;
  /** Moves the cursor. */
  point(cell: Cell): void;
}

/** Pixels of a line of words; weights below the least one have no line. */
const [LINE, LEAST] = [22, 0.01];
/** How much fainter the lines of other queries are than those of the cursor's. */
const FAINT = 0.35;

const MOVES: Readonly<Record<string, (cell: Cell) => Cell>> = {
  ArrowUp: ({ query, key }) => ({ query: query - 1, key }),
  ArrowDown: ({ query, key }) => ({ query: query + 1, key }),
  ArrowLeft: ({ query, key }) => ({ query, key: key - 1 }),
  ArrowRight: ({ query, key }) => ({ query, key: key + 1 }),
  Home: ({ query }) => ({ query, key: 0 }),
  End: ({ query }) => ({ query, key: query }),
};

export function createLines(onMove: (cell: Cell) => void): LinesView {
  const canvas = make("canvas", { ariaHidden: "true" });
  const queries = make("div", { className: "words", ariaHidden: "true" });
  const keys = make("div", { className: "words", ariaHidden: "true" });
  const plot = make("div", { className: "plot", tabIndex: 0, role: "application" }, queries, canvas, keys);
  plot.setAttribute("aria-roledescription", "lines");
  const output = make("output", { className: "cell" });
  const element = make("div", { className: "lines" }, make("div", { className: "scroll" }, plot), output);
  let data: MapData | undefined;
  let at: Cell = { query: 0, key: 0 };

  const draw = oncePerFrame(() => {
    if (!data || canvas.clientWidth === 0) return;
    const { weights, keys: words } = data;
    const n = words.length;
    const scale = Math.min(devicePixelRatio, 2);
    const width = canvas.clientWidth;
    canvas.width = width * scale;
    canvas.height = n * LINE * scale;
    const context = canvas.getContext("2d");
    if (!context) return;
    const style = getComputedStyle(plot);
    context.scale(scale, scale);
    const middle = (i: number) => (i + 0.5) * LINE;
    const drawQuery = (query: number, strength: number) => {
      for (let key = 0; key <= query; key++) {
        const weight = weights[query * n + key] as number;
        if (weight < LEAST) continue;
        context.globalAlpha = weight * strength;
        context.lineWidth = 1 + 2 * weight;
        context.beginPath();
        context.moveTo(0, middle(query));
        context.bezierCurveTo(width / 2, middle(query), width / 2, middle(key), width, middle(key));
        context.stroke();
      }
    };
    context.strokeStyle = style.getPropertyValue("--quiet");
    for (let query = 0; query < n; query++) if (query !== at.query) drawQuery(query, FAINT);
    context.strokeStyle = style.getPropertyValue("--accent");
    drawQuery(at.query, 1);
  });

  const point = (cell: Cell): void => {
    if (!data) return;
    const { weights, keys: words, name } = data;
    const within = (i: number) => Math.min(words.length - 1, Math.max(0, i));
    at = { query: within(cell.query), key: within(cell.key) };
    const weight = weights[at.query * words.length + at.key] as number;
    output.textContent = `${name}: “${words[at.query]}” at ${at.query} gives “${words[at.key]}” at ${at.key} ${weight.toFixed(3)}`;
    for (const [column, here] of [
      [queries, at.query],
      [keys, at.key],
    ] as const)
      for (const [i, word] of [...column.children].entries()) word.classList.toggle("here", i === here);
    draw();
    onMove(at);
  };

  plot.addEventListener("pointermove", ({ target }) => {
    if (!(target instanceof HTMLElement) || !target.dataset.token) return;
    const token = Number(target.dataset.token);
    point(target.parentElement === queries ? { query: token, key: strongest(token) } : { ...at, key: token });
  });
  const strongest = (query: number): number => {
    const { weights, keys: words } = data as MapData;
    const row = weights.subarray(query * words.length, (query + 1) * words.length);
    return row.indexOf(row.reduce((a, b) => Math.max(a, b)));
  };
  plot.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault(); // the page would scroll
    point(move(at));
    queries.children[at.query]?.scrollIntoView({ block: "nearest" });
  });
  new ResizeObserver(() => draw()).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());

  return {
    element,
    show(given) {
      const isSame = data?.keys.length === given.keys.length && given.keys.every((word, i) => word === data?.keys[i]);
      data = given;
      plot.ariaLabel = `${given.name}: ${given.keys.length} tokens, and lines to those that they look at; arrow keys read weights`;
      if (!isSame)
        for (const column of [queries, keys])
          column.replaceChildren(
            ...given.keys.map((word, i) => make("span", { textContent: visible(word), dataset: { token: String(i) } })),
          );
      canvas.style.height = `${given.keys.length * LINE}px`;
      draw();
    },
    point,
  };
}
