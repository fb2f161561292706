// Small line charts in SVG: axes with labels, lines that differ by colour and dash, a legend, and the same numbers as a table.
// Colours are classes of styles/charts.css (line-0, line-1, …), so that light and dark need no other drawing.

import { make } from "./dom.ts";
import { createTable } from "./table.ts";

/** An axis. The numbers of a logarithmic one are above 0. */
export interface Axis {
  readonly label: string;
  readonly scale?: "linear" | "log";
  /** Where lines of the grid are; default at round numbers. */
  readonly ticks?: readonly number[];
  /** The first and the last number; default those of the lines. */
  readonly range?: readonly [number, number];
  /** How a number is written, on the axis and in the table. */
  format?(value: number): string;
}

/** A line through points, in the order of x. A y that is not finite leaves a gap. */
export interface Line {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
  /** The number of its colour and dash; default its place in the list. */
  readonly style?: number;
}

/** What a chart shows. */
export interface ChartData {
  readonly title: string;
  /** What one sees, for those who do not see it. */
  readonly about: string;
  readonly x: Axis;
  readonly y: Axis;
  readonly lines: readonly Line[];
  /** Vertical lines, such as where something ends. */
  readonly marks?: readonly { readonly x: number; readonly name: string }[];
}

export interface Chart {
  readonly element: HTMLElement;
  show(data: ChartData): void;
}

export interface ChartOptions {
  /** Pixels of the plot, without legend and table. Default 200. */
  readonly height?: number;
  /** Names below the plot; default where there are several lines. */
  readonly legend?: boolean;
  /** The numbers as a table that opens below; default true. Without it, the page has them elsewhere. */
  readonly table?: boolean;
}

const MARGIN = { top: 26, right: 12, bottom: 36, left: 52 };
/** Pixels of width that a number below the axis needs. */
const TICK_PIXELS = 60;
const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
let charts = 0;

/** Makes an element of SVG with these attributes, and `children` in it. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string | number>> = {},
  ...children: readonly (Node | string)[]
): SVGElementTagNameMap[K] {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** Round numbers in a range: 1, 2 or 5 times a power of ten apart, about `count` of them. */
export function roundTicks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  // The nearest of the three, by ratio.
  const step = power * (rough < 1.5 * power ? 1 : rough < 3.5 * power ? 2 : rough < 7.5 * power ? 5 : 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** The powers of ten in a range, or those of two where there are fewer than two. */
function logTicks(low: number, high: number): number[] {
  const powers = (base: number) => {
    const [first, last] = [low, high].map((value) => Math.log(value) / Math.log(base)) as [number, number];
    const exponents = Array.from({ length: Math.max(0, Math.floor(last) - Math.ceil(first) + 1) }, (_, i) => i);
    return exponents.map((i) => base ** (Math.ceil(first) + i));
  };
  const tens = powers(10);
  return tens.length > 1 ? tens : powers(2);
}

/** Where a number is drawn, and which ones the axis names. */
interface Scale {
  readonly ticks: readonly number[];
  place(value: number): number;
  format(value: number): string;
}

function createScale(axis: Axis, values: readonly number[], from: number, to: number, count: number): Scale {
  const finite = values.filter(Number.isFinite);
  const isLog = axis.scale === "log";
  let [low, high] = axis.range ?? [Math.min(...finite), Math.max(...finite)];
  if (!(low <= high)) [low, high] = isLog ? [1, 10] : [0, 1];
  if (low === high) [low, high] = isLog ? [low / 2, high * 2] : [low - 1, high + 1];
  // Room for the width of the line.
  const room = axis.range || isLog ? 0 : (high - low) * 0.04;
  [low, high] = [low - room, high + room];
  const map = isLog ? Math.log : (value: number) => value;
  return {
    ticks: axis.ticks ?? (isLog ? logTicks(low, high) : roundTicks(low, high, count)),
    place: (value) => from + ((map(value) - map(low)) / (map(high) - map(low))) * (to - from),
    format: axis.format ?? NUMBER.format,
  };
}

/** A chart, which is drawn anew when its width changes. */
export function createChart({ height = 200, legend, table = true }: ChartOptions = {}): Chart {
  const id = `chart-${charts++}`;
  const heading = svg("title", { id: `${id}-title` });
  const about = svg("desc", { id: `${id}-about` });
  const plot = svg("svg", { role: "img", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-about`, height });
  const names = make("ul", { className: "legend" });
  const numbers = make("div");
  const details = make("details", {}, make("summary", { textContent: "As table" }), numbers);
  const element = make("div", { className: "chart" }, plot, names, ...(table ? [details] : []));
  let data: ChartData | undefined;
  // As last observed: reading it from the element would have the page laid out again for each chart that is drawn.
  let width = 0;

  const draw = (): void => {
    if (!data || width === 0) return;
    const { x, y, lines, marks = [] } = data;
    const [right, bottom] = [width - MARGIN.right, height - MARGIN.bottom];
    const points = lines.flatMap((line) => line.points);
    const across = createScale(
      x,
      points.map((point) => point[0]),
      MARGIN.left,
      right,
      Math.floor((right - MARGIN.left) / TICK_PIXELS),
    );
    const up = createScale(
      y,
      points.map((point) => point[1]),
      bottom,
      MARGIN.top,
      4,
    );
    const all: SVGElement[] = [];
    const text = (at: Readonly<Record<string, string | number>>, content: string) => svg("text", at, content);
    for (const tick of up.ticks) {
      const at = up.place(tick);
      all.push(svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: at, y2: at }));
      all.push(text({ x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" }, up.format(tick)));
    }
    for (const tick of across.ticks) {
      const at = across.place(tick);
      all.push(svg("line", { class: "grid", x1: at, x2: at, y1: MARGIN.top, y2: bottom }));
      all.push(text({ x: at, y: bottom + 15, "text-anchor": "middle" }, across.format(tick)));
    }
    for (const { x: at, name } of marks) {
      const place = across.place(at);
      if (!(place >= MARGIN.left && place <= right + 0.5)) continue;
      const isRight = place > width * 0.6;
      const side = { x: place + (isRight ? -4 : 4), "text-anchor": isRight ? "end" : "start" };
      all.push(svg("line", { class: "mark", x1: place, x2: place, y1: MARGIN.top, y2: bottom }));
      all.push(text({ ...side, y: MARGIN.top + 10 }, name));
    }
    all.push(text({ class: "axis", x: right, y: height - 4, "text-anchor": "end" }, x.label));
    all.push(text({ class: "axis", x: 0, y: 12 }, y.label));
    for (const [i, { points: own, style = i }] of lines.entries()) {
      let isOpen = false;
      const path = own.map(([px, py]) => {
        const wasOpen = isOpen;
        isOpen = Number.isFinite(py);
        return isOpen ? `${wasOpen ? "L" : "M"}${across.place(px).toFixed(1)} ${up.place(py).toFixed(1)}` : "";
      });
      all.push(svg("path", { class: `line line-${style}`, d: path.join("") }));
      // Few points are seen as such: a line of one would not be seen at all.
      if (own.length > 12) continue;
      for (const [px, py] of own)
        if (Number.isFinite(py))
          all.push(svg("circle", { class: `dot line-${style}`, cx: across.place(px), cy: up.place(py), r: 2.5 }));
    }
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    plot.replaceChildren(heading, about, ...all);
  };

  const showNames = ({ lines }: ChartData): void => {
    names.hidden = !(legend ?? lines.length > 1);
    if (names.hidden) return;
    const key = lines.map(({ name, style }) => `${name} ${style}`).join();
    if (names.dataset.key === key) return;
    names.dataset.key = key;
    names.replaceChildren(...legendOf(lines).children);
  };

  const showNumbers = (): void => {
    if (!data || !details.open) return;
    const { x, y, lines, title } = data;
    const xs = [...new Set(lines.flatMap(({ points }) => points.map((point) => point[0])))].sort((a, b) => a - b);
    const found = lines.map(({ points }) => new Map(points));
    const format = y.format ?? ((value: number) => String(Number(value.toPrecision(4))));
    const rows = xs.map((at) => [
      (x.format ?? String)(at),
      ...found.map((own) => {
        const value = own.get(at) ?? Number.NaN;
        return Number.isFinite(value) ? format(value) : "–";
      }),
    ]);
    numbers.replaceChildren(createTable(`${title}: ${y.label}`, [x.label, ...lines.map(({ name }) => name)], rows));
  };

  details.addEventListener("toggle", showNumbers);
  new ResizeObserver(([entry]) => {
    width = entry?.contentRect.width ?? 0;
    draw();
  }).observe(element);
  return {
    element,
    show(given) {
      data = given;
      heading.textContent = given.title;
      about.textContent = given.about;
      draw();
      showNames(given);
      showNumbers();
    },
  };
}

/** The names of lines, each with its colour and dash: for several charts with the same lines. */
export function legendOf(lines: readonly Pick<Line, "name" | "style">[]): HTMLUListElement {
  const items = lines.map(({ name, style }, i) => {
    const sample = svg("svg", { width: 28, height: 10, "aria-hidden": "true" });
    sample.append(svg("path", { class: `line line-${style ?? i}`, d: "M1 5H27" }));
    return make("li", {}, sample, name);
  });
  return make("ul", { className: "legend" }, ...items);
}
