// A head as lines from each token to those that it looks at: one canvas behind two columns of words.

import { visible } from "../../../src/base/util/strings.ts";
import { make, oncePerFrame } from "../dom.ts";
import { type Cell, cellAfter, type MapData, sayCell } from "../heatmap.ts";
import { cellOf } from "./head.ts";

export interface LinesView {
  readonly element: HTMLElement;
  show(data: MapData): void;
  /** Moves the cursor. */
  point(cell: Cell): void;
}

/** Pixels of a line of words; weights below the least one have no line. */
const [LINE, LEAST] = [22, 0.01];
/** The lines of other queries than the cursor's: how much fainter, the least weight, and distinguishable strengths. */
const [FAINT, LEAST_FAINT, STRENGTHS] = [0.35, 0.05, 8];

/** The height of `.token-lines .scroll`. */
const MOST_HEIGHT = "36rem";

export function createLines(onMove: (cell: Cell) => void): LinesView {
  const canvas = make("canvas", { ariaHidden: "true" });
  const queries = make("div", { className: "tokens", ariaHidden: "true" });
  const keys = make("div", { className: "tokens", ariaHidden: "true" });
  const plot = make("div", { className: "plot", tabIndex: 0, role: "application" }, queries, canvas, keys);
  plot.setAttribute("aria-roledescription", "lines");
  const output = make("output", { className: "cell" });
  const scroll = make("div", { className: "scroll" }, plot);
  const element = make("div", { className: "token-lines" }, scroll, output);
  let data: MapData | undefined;
  let at: Cell = { query: 0, key: 0 };

  /** Draws the lines that pass the part which is scrolled to: those of other queries in a few strokes, as each costs time. */
  const draw = oncePerFrame(() => {
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!data || width === 0) return;
    const { weights, keys: words } = data;
    const n = words.length;
    const scale = Math.min(devicePixelRatio, 2);
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    if (!context) return;
    const style = getComputedStyle(plot);
    const top = canvas.getBoundingClientRect().top - queries.getBoundingClientRect().top;
    const place = (i: number) => (i + 0.5) * LINE - top;
    const isSeen = (query: number, key: number) =>
      place(Math.max(query, key)) > 0 && place(Math.min(query, key)) < height;
    const strokes = Array.from({ length: STRENGTHS + 1 }, () => new Path2D());
    const addLine = (path: Path2D, query: number, key: number) => {
      path.moveTo(0, place(query));
      path.bezierCurveTo(width / 2, place(query), width / 2, place(key), width, place(key));
    };
    const stroke = (path: Path2D, weight: number, strength: number) => {
      context.globalAlpha = weight * strength;
      context.lineWidth = 1 + 2 * weight;
      context.stroke(path);
    };
    context.scale(scale, scale);
    for (let query = 0; query < n; query++)
      for (let key = 0; query !== at.query && key < n; key++) {
        const weight = weights[query * n + key] as number;
        if (weight >= LEAST_FAINT && isSeen(query, key))
          addLine(strokes[Math.round(weight * STRENGTHS)] as Path2D, query, key);
      }
    context.strokeStyle = style.getPropertyValue("--quiet");
    for (const [i, path] of strokes.entries()) stroke(path, Math.max(LEAST_FAINT, i / STRENGTHS), FAINT);
    context.strokeStyle = style.getPropertyValue("--accent");
    for (let key = 0; key < n; key++) {
      const weight = weights[at.query * n + key] as number;
      if (weight < LEAST || !isSeen(at.query, key)) continue;
      const path = new Path2D();
      addLine(path, at.query, key);
      stroke(path, weight, 1);
    }
  });

  const point = (cell: Cell): void => {
    if (!data) return;
    const within = (i: number) => Math.min(keys.children.length - 1, Math.max(0, i));
    at = { query: within(cell.query), key: within(cell.key) };
    output.textContent = sayCell(data, at);
    for (const [column, here] of [
      [queries, at.query],
      [keys, at.key],
    ] as const)
      for (const [i, word] of [...column.children].entries()) word.classList.toggle("here", i === here);
    draw();
    onMove(at);
  };

  plot.addEventListener("pointermove", ({ target }) => {
    if (!data || !(target instanceof HTMLElement) || !target.dataset.token) return;
    const token = Number(target.dataset.token);
    const isQuery = target.parentElement === queries;
    point(isQuery ? cellOf({ ...data, words: data.keys }, { query: token, key: -1 }) : { ...at, key: token });
  });
  plot.addEventListener("keydown", (event) => {
    const next = cellAfter(event, at);
    if (!next) return;
    point(next);
    queries.children[at.query]?.scrollIntoView({ block: "nearest" });
  });
  scroll.addEventListener("scroll", () => draw(), { passive: true });
  new ResizeObserver(() => draw()).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());

  return {
    element,
    show(given) {
      const isSame = data?.keys.length === given.keys.length && given.keys.every((word, i) => word === data?.keys[i]);
      data = given;
      const about = `${given.name}: ${given.keys.length} tokens, and lines to those that they look at; arrow keys read weights`;
      plot.setAttribute("aria-label", about);
      if (!isSame)
        for (const column of [queries, keys])
          column.replaceChildren(
            ...given.keys.map((word, i) => make("span", { textContent: visible(word), dataset: { token: String(i) } })),
          );
      canvas.style.height = `min(${given.keys.length * LINE}px, ${MOST_HEIGHT})`;
      draw();
    },
    point,
  };
}
