// Statistics of long texts: how one head looks as the text grows, and means of all heads.

import type { Measured } from "../../worker/inspect-statistics.ts";
import { createChart } from "../chart.ts";
import { make, showMessage } from "../dom.ts";
import { createTable } from "../table.ts";
import { headAt } from "./head.ts";
import type { Place } from "./heads-grid.ts";

/** What is measured, as `Measured.values` has it. */
const MEASURES = [
  { label: "effective keys", about: "how many keys a query looks at, 1 / Σ w²", unit: "keys", digits: 1 },
  { label: "distance", about: "how far back a query looks, a mean", unit: "tokens", digits: 1 },
  { label: "first token", about: "how much a query looks at the first token", unit: "weight", digits: 3 },
  { label: "last 64", about: "how much a query looks at the last 64 tokens", unit: "weight", digits: 3 },
];

const INTRODUCTION =
  "How heads look as a text grows: four numbers of each query, for which the matrix of weights is never stored.";

export interface StatisticsView {
  readonly element: HTMLElement;
  /** Shows a head, of which `notes` say what the numbers are. */
  show(place: Place, heads: readonly number[], notes: readonly string[]): void;
  /** Forgets what was measured, and stops what is being measured: of another text or model it would be wrong. */
  clear(): void;
  /** The longest text that the model was made for, if it says. */
  setTrained(length: number | undefined): void;
  /** The length of the address. */
  setLength(length: number): void;
}

const count = (tokens: number): string => tokens.toLocaleString("en");

const LENGTHS = [256, 1024, 4096, 16384];
/** Pixels of a chart. */
const HEIGHT = 150;

/** `measure` runs the measurement, and reports how far it is. */
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
  const charts = MEASURES.map((measured) => ({ ...measured, chart: createChart({ height: HEIGHT }) }));
  const figures = charts.map(({ label, about, chart }) =>
    make("figure", {}, make("figcaption", {}, make("b", { textContent: label }), `: ${about}`), chart.element),
  );
  const note = make("p", { className: "quiet small" });
  const table = make("div");
  const results = make("div", { hidden: true }, note, make("div", { className: "charts" }, ...figures), table);
  const controls = make("div", { className: "actions" }, select, go, stop);
  const element = make("div", { className: "statistics" }, label, controls, bar, status, results);
  let found: Measured | undefined;
  let place: Place = { layer: 0, head: 0 };
  let heads: readonly number[] = [];
  let abort: AbortController | undefined;
  let trained: number | undefined;

  const say = (text: string, isError = false): void => {
    showMessage(status, text, isError);
  };
  const valuesOf = ({ values, bins }: Measured, head: number, m: number): Float32Array => {
    const from = (head * MEASURES.length + m) * bins;
    return values.subarray(from, from + bins);
  };

  const drawCharts = (): void => {
    if (!found) return;
    const { tokens, bins } = found;
    const marks = trained !== undefined && tokens > trained ? [{ x: trained, name: `made for ${count(trained)}` }] : [];
    for (const [m, { label, about, unit, chart }] of charts.entries()) {
      const values = valuesOf(found, headAt(heads, place), m);
      const points = Array.from(values, (value, i) => [((i + 0.5) * tokens) / bins, value] as const);
      chart.show({
        ...{ title: `${label} of layer ${place.layer}, head ${place.head}`, about, marks },
        x: { label: "token", range: [0, tokens] },
        y: { label: unit, range: [0, values.reduce((a, b) => Math.max(a, b), 0)] },
        lines: [{ name: label, points }],
      });
    }
  };
  const drawTable = (measured: Measured): void => {
    const mean = (row: Float32Array) => row.reduce((sum, value) => sum + value, 0) / row.length;
    const rows = heads.flatMap((own, layer) =>
      Array.from({ length: own }, (_, head) => {
        const index = headAt(heads, { layer, head });
        const means = MEASURES.map(({ digits }, m) => mean(valuesOf(measured, index, m)).toFixed(digits));
        return [`${layer}.${head}`, ...means];
      }),
    );
    const columns = ["head", ...MEASURES.map(({ label }) => label)];
    table.replaceChildren(createTable("Means over all tokens, of all heads", columns, rows));
  };

  const sayFound = ({ tokens, ms, matrixBytes, sessionBytes }: Measured): string => {
    const size = (bytes: number) => (bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`);
    const beyond =
      trained !== undefined && tokens > trained
        ? ` The model was made for ${count(trained)} tokens: beyond them its heads do what they never learned.`
        : "";
    return `${count(tokens)} tokens in ${(ms / 1000).toFixed(1)} s. The weights of all heads would take ${size(matrixBytes)}; the session took ${size(sessionBytes)}.${beyond}`;
  };

  const run = async (): Promise<void> => {
    const own = new AbortController();
    abort = own;
    go.disabled = true;
    stop.hidden = bar.hidden = false;
    bar.value = 0;
    say("Measuring …");
    stop.focus();
    try {
      const onProgress = (share: number) => {
        if (own === abort) bar.value = share;
      };
      const measured = await measure(Number(select.value), onProgress, own.signal);
      if (own !== abort) return;
      found = measured;
      say(sayFound(measured));
      results.hidden = false;
      drawCharts();
      drawTable(measured);
    } catch (error) {
      if (own !== abort) return;
      const { name, message } = error as Error;
      if (name === "AbortError") say("Stopped.");
      else say(message, true);
    }
    finish();
  };
  const finish = (): void => {
    const hadFocus = document.activeElement === stop;
    abort = undefined;
    go.disabled = false;
    stop.hidden = bar.hidden = true;
    if (hadFocus) go.focus();
  };
  go.addEventListener("click", run);
  stop.addEventListener("click", () => abort?.abort());
  select.addEventListener("change", () => onLength(Number(select.value)));
  say(INTRODUCTION);

  return {
    element,
    show(given, counts, notes) {
      place = given;
      heads = counts;
      note.textContent = notes.join(" ");
      note.hidden = notes.length === 0;
      drawCharts();
    },
    clear() {
      found = undefined;
      results.hidden = true;
      say(INTRODUCTION);
      if (!abort) return;
      abort.abort();
      finish();
    },
    setTrained(length) {
      trained = length;
    },
    setLength(length) {
      select.value = String(LENGTHS.includes(length) ? length : LENGTHS[1]);
    },
  };
}
