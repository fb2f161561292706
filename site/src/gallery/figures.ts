// The figures of the tutorial: projections, mixing before splitting, a small layer, and shapes.

import type { Figure, TutorialFigures } from "../../worker/tutorial.ts";
import { make } from "../dom.ts";
import { type Cell, createHeatmap } from "../heatmap.ts";
import { digits } from "./kinds.ts";

export interface FigureList {
  readonly elements: readonly HTMLElement[];
  /** Moves the cursor on the products of mixing. */
  point(cell: Cell): void;
}

export function tutorialFigures(figures: TutorialFigures, onMove: (cell: Cell) => void): FigureList {
  const mixing = mixingFigure(figures, onMove);
  const { batch, seqLen, dModel, numHeads } = figures.layer;
  const weights = 3 * dModel * dModel;
  const elements = [
    section("projections", `${numHeads} heads cost as much as one`, [
      `Each of ${numHeads} heads has queries, keys and values of ${dModel / numHeads} numbers. Together their projections have ${weights.toLocaleString("en")} weights, as many as those of one head of full width; ${numHeads} heads of full width would have ${(numHeads * weights).toLocaleString("en")}.`,
      drawn(figures.projections),
    ]),
    section("shapes", "Shapes on the way", [
      `${batch} sequences of ${seqLen} tokens in a layer: rows are cut into heads, each head attends by itself, and their results lie side by side again.`,
      drawn(figures.shapes),
    ]),
    section("mixing", "Mix, then split", [
      "Each number of q mixes all numbers of x, and only then is q cut into heads: so each head sees all of x. A cell is x[i] · W[i, j], orange above 0 and blue below; a column adds up to q[j].",
      mixing.element,
      mixing.sum,
      drawn(figures.split),
    ]),
    section("small", "A layer small enough to read", smallLayer(figures)),
  ];
  return { elements, point: mixing.point };
}

function section(name: string, title: string, content: readonly (string | HTMLElement)[]): HTMLElement {
  const heading = make("h3", { textContent: title });
  const parts = content.map((each) => (typeof each === "string" ? make("p", { textContent: each }) : each));
  return make("section", { className: "drawn", dataset: { figure: name } }, heading, ...parts);
}

/** A figure, of which the style shows the one that fits. */
function drawn(figure: Figure): HTMLElement {
  const [wide, narrow] = figure.map((svg) => {
    const { documentElement } = new DOMParser().parseFromString(svg, "image/svg+xml");
    return document.importNode(documentElement, true);
  }) as [HTMLElement, HTMLElement];
  wide.classList.add("wide");
  narrow.classList.add("narrow-figure");
  return make("figure", { className: "svg" }, wide, narrow);
}

const four = (value: number): string => digits(value, 4);

/** The products x0[i] · W[i, j], whose columns add up to q0[j]. */
function mixingFigure({ x0, W, q0, sizes }: TutorialFigures, onMove: (cell: Cell) => void) {
  const n = x0.length;
  const products = W.map((weight, i) => weight * (x0[Math.floor(i / n)] as number));
  const most = products.reduce((largest, each) => Math.max(largest, Math.abs(each)), 0);
  const sum = make("p", { className: "small sum" });
  const headOf = (j: number) => Math.floor((j * sizes.numHeads) / n);
  let isShowing = true;
  const map = createHeatmap((cell) => {
    const column = Array.from({ length: n }, (_, i) => products[i * n + cell.key] as number);
    const terms = column.map((each, i) => (i === 0 ? four(each) : `${each < 0 ? "−" : "+"} ${four(Math.abs(each))}`));
    sum.textContent = `q[${cell.key}] = ${terms.join(" ")} = ${four(q0[cell.key] as number)}, for head ${headOf(cell.key)}`;
    if (!isShowing) onMove(cell);
  });
  map.show({
    name: "Products of x and W",
    weights: products.map((each) => each / most),
    signed: true,
    queries: Array.from(x0, (value, i) => `x[${i}] ${digits(value)}`),
    keys: Array.from(q0, (value, j) => `q[${j}] ${digits(value)}`),
    say: ({ query: i, key: j }) =>
      `x[${i}] · W[${i}, ${j}] = ${four(x0[i] as number)} · ${four(W[i * n + j] as number)} = ${four(products[i * n + j] as number)}`,
  });
  const point = (cell: Cell) => {
    isShowing = true;
    map.point(cell);
    isShowing = false;
  };
  point({ query: 0, key: 3 });
  return { element: map.element, sum, point };
}

/** The heads of the first sequence, with their weights as numbers. */
function smallLayer({ small, sizes }: TutorialFigures): (string | HTMLElement)[] {
  const { batch, seqLen, dModel, numHeads } = sizes;
  const tokens = Array.from({ length: seqLen }, (_, i) => String(i));
  const maps = Array.from({ length: numHeads }, (_, head) => {
    const weights = small.subarray(head * seqLen ** 2, (head + 1) * seqLen ** 2);
    const map = createHeatmap();
    const say = ({ query, key }: Cell) =>
      `Head ${head}: ${query} looks at ${key}: ${(weights[query * seqLen + key] as number).toExponential(4)}`;
    map.show({ name: `Head ${head} of the small layer`, weights, queries: tokens, keys: tokens, say });
    return map.element;
  });
  return [
    `A layer of ${numHeads} heads and ${dModel} numbers a row reads ${batch} sequences of ${seqLen} tokens; this is the first. Its matrices are random, and tokens see later ones.`,
    make("div", { className: "small-maps" }, ...maps),
  ];
}
