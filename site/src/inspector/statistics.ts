// Statistics of long texts: how one head looks as the text grows, and means of all heads.

import type { Measured } from "../../worker/inspect-statistics.ts";
import { make } from "../dom.ts";
import type { Place } from "./heads-grid.ts";

/** What is measured, as `Measured.values` has it. */
const MEASURES = [
  { label: "effective keys", about: "how many keys a query looks at: 1 / Σ w²", digits: 1 },
  { label: "distance", about: "how far back, in tokens", digits: 1 },
  { label: "first token", about: "the weight on the first token", digits: 3 },
  { label: "last 64", about: "the weight on the last 64 tokens", digits: 3 },
];

export interface StatisticsView {
  readonly element: HTMLElement;
  show(place: Place, heads: readonly number[]): void;
  /** The longest text that the model was made for, if it says. */
  setTrained(length: number | undefined): void;
  /** The length of the address. */
  setLength(length: number): void;
}

const count = (tokens: number): string => tokens.toLocaleString("en");

const LENGTHS = [256, 1024, 4096, 16384];
/** Pixels of a chart's own coordinates. */
const [WIDTH, HEIGHT] = [400, 90];

/** `measure` runs the measurement, and tells how far it is. */
export function createStatistics(
  measure: (length: number, onProgress: (share: number) => void, signal: AbortSignal) => Promise<Measured>,
  onLength: (length: number) => void,
): StatisticsView {
  const select = make(
    "select",
    { id: "length" },
    ...LENGTHS.map((each) => new Option(`${count(each)} tokens`, String(each))),
  );
  const label = make("label", { htmlFor: "length", textContent: "The text, repeated up to" });
  const go = make("button", { type: "button", textContent: "Measure" });
  const stop = make("button", { type: "button", textContent: "Stop measuring", hidden: true });
  const bar = make("progress", { max: 1, value: 0, hidden: true, ariaLabel: "How much of the text is measured" });
  const status = make("p", { className: "quiet small" });
  status.setAttribute("role", "status");
  const charts = make("div", { className: "charts" });
  const table = make("div", {
    className: "table",
    tabIndex: 0,
    role: "region",
    ariaLabel: "Means of all heads",
    hidden: true,
  });
  const controls = make("div", { className: "actions" }, select, go, stop);
  const element = make("div", { className: "statistics" }, label, controls, bar, status, charts, table);
  let found: Measured | undefined;
  let place: Place = { layer: 0, head: 0 };
  let heads: readonly number[] = [];
  let abort: AbortController | undefined;
  let trained: number | undefined;

  const at = (measured: Measured, head: number, m: number): Float32Array => {
    const from = (head * MEASURES.length + m) * measured.bins;
    return measured.values.subarray(from, from + measured.bins);
  };
  const mean = (row: Float32Array) => row.reduce((sum, value) => sum + value, 0) / row.length;

  const draw = (): void => {
    if (!found) return;
    const measured = found;
    const index = heads.slice(0, place.layer).reduce((sum, count) => sum + count, place.head);
    charts.replaceChildren(
      ...MEASURES.map(({ label, about, digits }, m) =>
        chart(`${label}: ${about}`, at(measured, index, m), digits, measured.tokens),
      ),
    );
    const cell = (textContent: string) => make("td", { className: "number", textContent });
    const rows = heads.flatMap((count, layer) =>
      Array.from({ length: count }, (_, head) => {
        const own = heads.slice(0, layer).reduce((sum, each) => sum + each, head);
        const cells = MEASURES.map(({ digits }, m) => cell(mean(at(measured, own, m)).toFixed(digits)));
        return make("tr", {}, make("th", { scope: "row", textContent: `${layer}.${head}` }), ...cells);
      }),
    );
    const titles = ["head", ...MEASURES.map(({ label }) => label)];
    const header = make("tr", {}, ...titles.map((textContent) => make("th", { scope: "col", textContent })));
    table.hidden = false;
    table.replaceChildren(make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows)));
  };

  go.addEventListener("click", async () => {
    const own = new AbortController();
    abort = own;
    go.disabled = true;
    stop.hidden = bar.hidden = false;
    bar.value = 0;
    status.className = "quiet small";
    status.textContent = "Measuring …";
    stop.focus();
    try {
      found = await measure(Number(select.value), (share) => (bar.value = share), own.signal);
      const { tokens, ms, matrixBytes, sessionBytes } = found;
      const size = (bytes: number) =>
        bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
      const beyond =
        trained !== undefined && tokens > trained
          ? ` The model was made for ${count(trained)} tokens: beyond them its heads do what they never learned.`
          : "";
      status.textContent = `${count(tokens)} tokens in ${(ms / 1000).toFixed(1)} s. The weights of all heads would take ${size(matrixBytes)}; the session took ${size(sessionBytes)}.${beyond}`;
      draw();
    } catch (error) {
      const { name, message } = error as Error;
      status.textContent = name === "AbortError" ? "Stopped." : message;
      if (name !== "AbortError") status.className = "error small";
    }
    const hadFocus = document.activeElement === stop;
    go.disabled = false;
    stop.hidden = bar.hidden = true;
    if (hadFocus) go.focus();
  });
  stop.addEventListener("click", () => abort?.abort());
  select.addEventListener("change", () => onLength(Number(select.value)));

  return {
    element,
    show(given, counts) {
      place = given;
      heads = counts;
      draw();
    },
    setTrained(length) {
      trained = length;
    },
    setLength(length) {
      select.value = String(LENGTHS.includes(length) ? length : LENGTHS[1]);
    },
  };
}

const SVG = "http://www.w3.org/2000/svg";

/** A line over the places of the text. */
function chart(title: string, values: Float32Array, digits: number, tokens: number): HTMLElement {
  const most = Math.max(
    values.reduce((a, b) => Math.max(a, b), 0),
    1e-9,
  );
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("role", "img");
  const last = values.at(-1) as number;
  svg.setAttribute("aria-label", `${title}; ${last.toFixed(digits)} at the end, ${most.toFixed(digits)} at most`);
  const line = document.createElementNS(SVG, "polyline");
  const points = Array.from(values, (value, i) => {
    const x = values.length < 2 ? 0 : (WIDTH * i) / (values.length - 1);
    return `${x.toFixed(1)},${(HEIGHT - 2 - ((HEIGHT - 4) * value) / most).toFixed(1)}`;
  });
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  const caption = `${title}. ${most.toFixed(digits)} at most; ${last.toFixed(digits)} at token ${count(tokens)}.`;
  return make("figure", {}, svg as unknown as Node, make("figcaption", { textContent: caption }));
}
