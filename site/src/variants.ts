// The page of variants: pictures that a slider or a button moves, bytes of the caches, and times that the engine measures on demand.

import { type Cost, FORMATS, type Format, hasFormat, NAMES, VARIANTS, type Variant } from "../worker/variant-layers.ts";
import type { Conditions } from "../worker/variants.ts";
import { choice, createState, integer } from "./address.ts";
import { createChart, legendOf, svg } from "./chart.ts";
import { byId, fact, make, oncePerFrame, showMessage } from "./dom.ts";
import { startEngine } from "./engine.ts";
import { markReady, startPage } from "./page.ts";
import { createTable } from "./table.ts";
import { describe, drawVariant, STEPS } from "./variant-picture.ts";
import { ABOUT, bytesText, lengthText, measuredText, msText } from "./variant-text.ts";

const state = createState({
  shape: choice("512", "1024", "2048"),
  most: choice("4096", "1024", "16384", "65536"),
  format: choice("f32", "q8", "q4"),
  step: integer(9, 1, STEPS),
});

const engine = startEngine();
const [measure, stop, play] = ["measure", "stop", "play"].map((id) => byId(id, HTMLButtonElement)) as [
  HTMLButtonElement,
  HTMLButtonElement,
  HTMLButtonElement,
];
const status = byId("status", HTMLElement);
const bar = byId("bar", HTMLProgressElement);
const numbers = byId("numbers", HTMLDetailsElement);
let costs: readonly Cost[] = [];
let abort: AbortController | undefined;

const cards = new Map(VARIANTS.map((variant) => [variant, createCard(variant)]));

function createCard(variant: Variant) {
  const { name, about, usedBy } = ABOUT[variant];
  const picture = svg("svg", { role: "img", class: "picture" });
  const words = make("p", { className: "small" });
  const [bytes, share, time] = [make("dd"), make("dd"), make("dd")];
  const card = make(
    "section",
    { className: "variant" },
    make("h2", { textContent: name }),
    picture,
    words,
    make("p", { className: "small quiet", textContent: `${about} ${usedBy}` }),
    make("dl", {}, fact("cache", bytes), fact("of MHA", share), fact("time of a token", time)),
  );
  card.dataset.variant = variant;
  byId("cards", HTMLElement).append(card);
  return { picture, words, bytes, share, time };
}

function showPictures(step: number): void {
  for (const [variant, { picture, words }] of cards) {
    drawVariant(picture, variant, step);
    words.textContent = describe(variant, step);
  }
}

const find = (variant: Variant, format: Format, length: number): Cost | undefined =>
  costs.find((cost) => cost.variant === variant && cost.format === format && cost.length === length);

const timeOf = (cost: Cost | undefined): string => (cost?.ms === undefined ? "–" : msText(cost.ms, cost.range));

/** The figures of the cards: of the longest context, in the chosen format. */
function showFigures(): void {
  const { format, most } = state.values;
  const whole = find("mha", format, Number(most));
  byId("figures", HTMLElement).textContent =
    `The figures are of the measured layer after ${Number(most).toLocaleString("en")} tokens, with the cache in ${format}.`;
  for (const [variant, { bytes, share, time }] of cards) {
    const cost = find(variant, format, Number(most));
    bytes.textContent = cost ? bytesText(cost.bytes) : hasFormat(variant, format) ? "…" : `no ${format}`;
    share.textContent = cost && whole ? `${Number(((100 * cost.bytes) / whole.bytes).toPrecision(3))} %` : "–";
    time.textContent = timeOf(cost);
    (time.parentElement as HTMLElement).hidden = cost?.ms === undefined;
  }
}

const charts = (["memory", "time"] as const).map((kind) => {
  const own = FORMATS.map((format) => {
    const chart = createChart({ height: 220, legend: false, table: false });
    const title = `${kind === "memory" ? "Memory" : "Time a token"}, ${format}`;
    byId(kind, HTMLElement).append(make("div", {}, make("h3", { textContent: title }), chart.element));
    return { format, title, chart };
  });
  return { kind, own };
});
byId("legend", HTMLElement).append(legendOf(VARIANTS.map((variant) => ({ name: NAMES[variant] }))));

/** Both rows of charts; those of a row have the same axes, so that formats can be compared. */
function showCharts(): void {
  const lengths = [...new Set(costs.map(({ length }) => length))];
  for (const { kind, own } of charts) {
    const figureOf = (cost: Cost | undefined) => (kind === "memory" ? cost?.bytes : cost?.ms) ?? Number.NaN;
    const values = costs.map(figureOf).filter(Number.isFinite);
    byId(kind, HTMLElement).hidden = values.length === 0;
    if (values.length === 0) continue;
    const [least, most] = [Math.min(...values) / 1.2, Math.max(...values) * 1.2];
    for (const { format, title, chart } of own)
      chart.show({
        title,
        about: "A line for each variant. The numbers are in the table below.",
        x: { label: "tokens in the context", scale: "log", ticks: lengths, format: lengthText },
        y: {
          ...{ label: kind === "memory" ? "bytes of the cache" : "milliseconds", scale: "log", range: [least, most] },
          ...(kind === "memory" && { format: bytesText }),
        },
        lines: VARIANTS.filter((variant) => hasFormat(variant, format)).map((variant) => ({
          name: NAMES[variant],
          style: VARIANTS.indexOf(variant),
          points: lengths.map((length) => [length, figureOf(find(variant, format, length))] as const),
        })),
      });
  }
}

function showTable(): void {
  if (!numbers.open) return;
  const columns = ["variant, tokens", ...FORMATS.flatMap((format) => [`${format}: cache`, `${format}: a token`])];
  const lengths = [...new Set(costs.map(({ length }) => length))];
  const rows = VARIANTS.flatMap((variant) =>
    lengths.map((length) => [
      `${NAMES[variant]}, ${length.toLocaleString("en")}`,
      ...FORMATS.flatMap((format) => {
        const cost = find(variant, format, length);
        return [cost ? bytesText(cost.bytes) : "–", timeOf(cost)];
      }),
    ]),
  );
  numbers.lastElementChild?.replaceChildren(createTable("Bytes of a cache, and time of a token", columns, rows));
}

function showAll(): void {
  showFigures();
  showCharts();
  showTable();
}

const showSoon = oncePerFrame(showAll);

/** The bytes of another layer or other lengths. What was measured of the one before is dropped, also if it ends only now. */
async function showBytes(): Promise<void> {
  const { shape, most } = state.values;
  abort?.abort();
  abort = undefined;
  costs = [];
  showConditions();
  showStatus("Memory is computed …");
  const found = await engine.run("variantBytes", { shape, most: Number(most) });
  if (shape !== state.values.shape || most !== state.values.most) return;
  costs = found;
  showAll();
  showStatus("Memory is exact; time is measured when you ask for it.");
}

function showStatus(message: string, isError = false): void {
  const { activeElement } = document;
  const isBusy = abort !== undefined;
  showMessage(status, message, isError);
  measure.disabled = isBusy || costs.length === 0;
  stop.disabled = !isBusy;
  bar.hidden = !isBusy;
  // A button that is disabled would lose the focus to the page.
  if (activeElement === measure && measure.disabled) stop.focus();
  if (activeElement === stop && stop.disabled) measure.focus();
}

function showConditions(found?: Conditions): void {
  const { shape, most } = state.values;
  byId("what", HTMLElement).textContent = measuredText(shape, most, found);
}

async function measureTimes(): Promise<void> {
  const { shape, most } = state.values;
  const own = new AbortController();
  abort = own;
  bar.value = 0;
  showStatus("Starting …");
  try {
    const found = await engine.run(
      "variantTimes",
      { shape, most: Number(most) },
      {
        signal: own.signal,
        onReport: (report) => {
          if (own !== abort || own.signal.aborted || report.kind !== "cost") return;
          const { cost, done, all } = report;
          const isCost = (each: Cost) =>
            each.variant === cost.variant && each.format === cost.format && each.length === cost.length;
          costs = costs.map((each) => (isCost(each) ? cost : each));
          bar.value = done / all;
          status.textContent = `${NAMES[cost.variant]} ${cost.format}, ${cost.length} tokens: ${done} of ${all}`;
          showSoon();
        },
      },
    );
    if (own === abort) showConditions(found);
    end("Measured.");
  } catch (error) {
    const { name, message } = error as Error;
    if (name === "AbortError") end("Stopped: what is shown has fewer samples.");
    else end(`Times could not be measured: ${message}`, true);
  }

  /** Says how it ended, unless another layer is shown by now. */
  function end(message: string, isError = false): void {
    if (own !== abort) return;
    abort = undefined;
    showStatus(message, isError);
  }
}

measure.addEventListener("click", () => void measureTimes());
stop.addEventListener("click", () => abort?.abort());
numbers.addEventListener("toggle", showTable);

const selects = (["shape", "most", "format"] as const).map((name) => [name, byId(name, HTMLSelectElement)] as const);
for (const [name, select] of selects) select.addEventListener("change", () => state.set({ [name]: select.value }));
const slider = byId("step", HTMLInputElement);
slider.addEventListener("input", () => {
  pause();
  state.set({ step: slider.valueAsNumber });
});

/** Milliseconds of a token in the pictures. */
const STEP_MS = 700;
let timer = 0;

/** Ends the animation. */
function pause(): void {
  clearInterval(timer);
  timer = 0;
  play.textContent = "Play";
}

play.addEventListener("click", () => {
  if (timer !== 0) return pause();
  play.textContent = "Pause";
  state.set({ step: 1 });
  timer = window.setInterval(() => {
    state.set({ step: state.values.step + 1 });
    if (state.values.step === STEPS) pause();
  }, STEP_MS);
});
// Who wants no motion has the slider.
const still = matchMedia("(prefers-reduced-motion: reduce)");
const followMotion = () => {
  play.hidden = still.matches;
  if (still.matches) pause();
};
still.addEventListener("change", followMotion);

startPage();
followMotion();
let shown = "";
state.follow((values) => {
  for (const [name, select] of selects) select.value = values[name];
  slider.value = String(values.step);
  byId("step-value", HTMLElement).textContent = `${values.step} of ${STEPS}`;
  showPictures(values.step);
  showFigures();
  const layer = `${values.shape} ${values.most}`;
  if (layer === shown) return;
  shown = layer;
  showBytes()
    .catch(({ message }: Error) => layer === shown && showStatus(`Memory could not be computed: ${message}`, true))
    .finally(markReady);
});
