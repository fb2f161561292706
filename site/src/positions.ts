// The positional lab: six schemes side by side, drawn anew within a frame as sliders move.

import { type Kernels, loadKernels } from "headwise";
import { choice, createState, integer, number } from "./address.ts";
import { createChart } from "./chart.ts";
import { byId, make, oncePerFrame } from "./dom.ts";
import { markReady, startPage } from "./page.ts";
import { createPatternMap } from "./pattern-map.ts";
import {
  decay,
  digest,
  HEAD_DIM,
  MOST_CONTEXT,
  type Pattern,
  runScheme,
  SCALINGS,
  SCHEMES,
  type Scheme,
  type Setting,
} from "./position-schemes.ts";
import { ABOUT, sentence } from "./position-text.ts";

const state = createState({
  content: choice("same", "random"),
  seed: integer(1, 0, 65535),
  trained: integer(48, 8, MOST_CONTEXT),
  context: integer(96, 8, MOST_CONTEXT),
  base: integer(10_000, 10, 1e6),
  scaling: choice("yarn", ...SCALINGS),
  factor: number(2, 1, 16),
  head: integer(3, 1, 8),
  /** The cell that is read, and whose it is: that of the panel which was pointed at last. */
  panel: choice<Scheme>("rope", "sinusoidal", "learned", "scaled", "alibi", "nope"),
  query: integer(80, 0, MOST_CONTEXT - 1),
  key: integer(60, 0, MOST_CONTEXT - 1),
});

/** A panel of the page. */
interface Panel {
  readonly name: string;
  /** `scores` is the range of the chart, which all panels share. */
  show(setting: Setting, pattern: Pattern, rope: Pattern, scores: readonly [least: number, most: number]): void;
  /** Reads the cell of the cursor. */
  point(query: number, key: number, pattern: Pattern): string;
}

const schemes = Object.keys(SCHEMES) as Scheme[];
const cellText = byId("cell", HTMLOutputElement);
const panels = new Map(schemes.map((scheme) => [scheme, createPanel(scheme)]));

function createPanel(scheme: Scheme): Panel {
  const { name, about, usedBy } = ABOUT[scheme];
  const map = createPatternMap(({ query, key }) => state.set({ panel: scheme, query, key }));
  const chart = createChart({ height: 150, legend: scheme === "scaled" });
  const cell = make("p", { className: "cell small" });
  const seen = make("p", { className: "small" });
  const heading = make("h2", { textContent: name });
  const panel = make("section", { className: "scheme" }, heading, map.element, cell, seen, chart.element);
  panel.dataset.scheme = scheme;
  seen.before(make("p", { className: "small quiet", textContent: `${about} ${usedBy}` }));
  byId("schemes", HTMLElement).append(panel);
  return {
    name,
    show(setting, pattern, rope, scores) {
      const { context, trained } = setting;
      map.show({ name, context, trained, ...pattern });
      seen.textContent = sentence(scheme, setting, pattern);
      const line = (of: Pattern) => decay(of).map((score, distance) => [distance, score] as const);
      const own = { name: scheme === "scaled" ? "scaled" : name, points: line(pattern), style: 0 };
      chart.show({
        title: `${name}: score by distance`,
        about: `The mean score of keys from distance 0 to ${pattern.length - 1}.`,
        x: { label: "tokens back", range: [0, context - 1] },
        y: { label: "score", range: scores },
        lines: scheme === "scaled" ? [own, { name: "not scaled", points: line(rope), style: 6 }] : [own],
        marks: [{ x: trained, name: "trained" }],
      });
    },
    point(query, key, { length, weights, scores }) {
      map.point({ query, key });
      const at = query * length + key;
      const text =
        query < length
          ? `weight ${(weights[at] as number).toFixed(4)}, score ${(scores[at] as number).toFixed(2)}`
          : `no vector for position ${query}`;
      cell.textContent = text;
      return text;
    },
  };
}

const patterns = new Map<Scheme, { readonly key: string; readonly pattern: Pattern }>();
let kernels: Kernels | undefined;

/** Runs the schemes that a change concerns, and draws these. */
function draw(): void {
  if (!kernels) return;
  const begin = performance.now();
  const { values } = state;
  const key = JSON.stringify(values, ["content", "seed", "trained", "context", "base", "scaling", "factor", "head"]);
  if (key !== drawn) {
    drawn = key;
    const found = schemes.map((scheme) => patternOf(scheme, values));
    const rope = found[schemes.indexOf("rope")] as Pattern;
    const means = found.flatMap((pattern) => Array.from(decay(pattern))).filter(Number.isFinite);
    const scores = [Math.min(...means, 0), Math.max(...means, 0)] as const;
    for (const [i, scheme] of schemes.entries()) panels.get(scheme)?.show(values, found[i] as Pattern, rope, scores);
    byId("digest", HTMLElement).textContent = digest(found);
    byId("time", HTMLElement).textContent = `${(performance.now() - begin).toFixed(0)} ms`;
  }
  const query = Math.min(values.query, values.context - 1);
  const back = Math.min(values.key, query);
  for (const [scheme, panel] of panels) {
    const text = panel.point(query, back, patternOf(scheme, values));
    const distance = query === back ? "itself" : `token ${back}, ${query - back} back`;
    if (scheme === values.panel) cellText.textContent = `${panel.name}, token ${query} looks at ${distance}: ${text}.`;
  }
}

let drawn = "";

/** What a scheme gives; computed again only if something has changed that it depends on. */
function patternOf(scheme: Scheme, setting: Setting): Pattern {
  const key = JSON.stringify(setting, [...SCHEMES[scheme]]);
  const before = patterns.get(scheme);
  if (before?.key === key) return before.pattern;
  const pattern = runScheme(kernels as Kernels, scheme, setting);
  patterns.set(scheme, { key, pattern });
  return pattern;
}

const sliders = (["trained", "context", "factor", "head"] as const).map(
  (name) => [name, byId(name, HTMLInputElement), byId(`${name}-value`, HTMLOutputElement)] as const,
);
for (const [name, input] of sliders) input.addEventListener("input", () => state.set({ [name]: input.valueAsNumber }));
const base = byId("base", HTMLInputElement);
base.addEventListener("input", () => state.set({ base: Number((10 ** base.valueAsNumber).toPrecision(2)) }));
const seed = byId("seed", HTMLInputElement);
seed.addEventListener("input", () => seed.checkValidity() && state.set({ seed: seed.valueAsNumber }));
const scaling = byId("scaling", HTMLSelectElement);
scaling.addEventListener("change", () => state.set({ scaling: scaling.value as Setting["scaling"] }));
const contents = [...byId("content-kind", HTMLFieldSetElement).querySelectorAll<HTMLInputElement>("[type=radio]")];
for (const input of contents)
  input.addEventListener("change", () => state.set({ content: input.value as Setting["content"] }));

function showControls(values: typeof state.values): void {
  const words = {
    ...{ trained: String(values.trained), context: String(values.context), factor: String(values.factor) },
    head: `${values.head} of 8, slope 1/${2 ** values.head}`,
  };
  for (const [name, input, output] of sliders) {
    if (input.valueAsNumber !== values[name]) input.value = String(values[name]);
    output.textContent = words[name];
  }
  // The slider has the logarithm: it is moved only if it says another number.
  if (Number((10 ** base.valueAsNumber).toPrecision(2)) !== values.base) base.value = String(Math.log10(values.base));
  const baseText = values.base.toLocaleString("en");
  byId("base-value", HTMLElement).textContent = baseText;
  base.setAttribute("aria-valuetext", baseText);
  if (seed.valueAsNumber !== values.seed) seed.value = String(values.seed);
  byId("seed-field", HTMLElement).hidden = values.content === "same";
  scaling.value = values.scaling;
  for (const input of contents) input.checked = input.value === values.content;
}

startPage();
const drawSoon = oncePerFrame(draw);
state.follow((values) => {
  showControls(values);
  drawSoon();
});

try {
  // The build whose bits are the same on every device.
  kernels = await loadKernels({ deterministic: true });
  byId("kernels", HTMLElement).textContent = `${kernels.build}, heads of ${HEAD_DIM}`;
  draw();
} catch (error) {
  const line = byId("error", HTMLElement);
  line.hidden = false;
  line.textContent = `The kernels could not be started: ${(error as Error).message}`;
}
markReady();
