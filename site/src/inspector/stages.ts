// The stages of a head, one at a time: what each does, shapes, and values as bars that one can also read as numbers.

import type { Stage, StageRow } from "../../worker/inspect-stages.ts";
import { make } from "../dom.ts";

export interface StagesView {
  readonly element: HTMLElement;
  /** Shows the stages of a cell, of which `notes` say what they are. */
  show(stages: readonly Stage[], notes: readonly string[]): void;
  /** Goes to a stage. */
  go(stage: number): void;
  /** Shows none. */
  clear(): void;
  /** Says why there are none. */
  say(text: string): void;
}

/** Pixels of a row of bars, and values that are written as numbers. */
const [HEIGHT, MOST_NUMBERS] = [48, 4096];

export function createStages(onGo: (stage: number) => void): StagesView {
  const list = make("div", { className: "segments wrap", role: "group", ariaLabel: "Stages" });
  const panel = make("div", { className: "stage" });
  const about = make("p", { className: "quiet small" });
  const element = make("div", { className: "stages", hidden: true }, about, list, panel);
  let stages: readonly Stage[] = [];
  let at = 0;

  const show = (): void => {
    const shown = Math.min(at, stages.length - 1);
    const stage = stages[shown];
    for (const [i, button] of [...list.children].entries()) button.setAttribute("aria-pressed", String(i === shown));
    if (!stage) return;
    const { text, formula, shapes, rows } = stage;
    panel.replaceChildren(
      make("p", { textContent: text }),
      make("p", { className: "formula" }, make("code", { textContent: formula })),
      make("p", { className: "shapes quiet small" }, ...shapes.map((shape) => make("code", { textContent: shape }))),
      ...rows.map(rowView),
    );
  };
  const clear = (): void => {
    stages = [];
    about.textContent = "";
    list.replaceChildren();
    panel.replaceChildren();
  };
  list.addEventListener("keydown", ({ key }) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (step === undefined) return;
    const next = list.children[Math.min(at, stages.length - 1) + step];
    if (next instanceof HTMLElement) {
      next.focus();
      next.click();
    }
  });

  return {
    element,
    show(given, notes) {
      about.textContent = [...notes, "The map and the lines choose another cell."].join(" ");
      if (given.some(({ name }, i) => name !== stages[i]?.name) || given.length !== stages.length)
        list.replaceChildren(
          ...given.map(({ name }, i) => {
            const button = make("button", { type: "button", textContent: `${i + 1} ${name}` });
            button.addEventListener("click", () => onGo(i));
            return button;
          }),
        );
      stages = given;
      show();
    },
    go(stage) {
      at = stage;
      show();
    },
    clear,
    say(text) {
      clear();
      panel.replaceChildren(make("p", { className: "quiet", textContent: text }));
    },
  };
}

const numberOf = (value: number, digits: number): string =>
  (Number.isFinite(value) ? value.toFixed(digits) : String(value).replace("Infinity", "∞")).replace("-", "−");

/** A row: bars above and below a line, the smallest and largest value, and all of them on request. What is infinite has no bar. */
function rowView({ name, values }: StageRow): HTMLElement {
  const [only] = values;
  if (values.length === 1)
    return make("p", { className: "small", textContent: `${name}: ${numberOf(only as number, 3)}` });
  const finite = values.filter(Number.isFinite);
  const [least, most] = [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))];
  const range = `${values.length} values, ${numberOf(least, 3)} to ${numberOf(most, 3)}`;
  const canvas = make("canvas", { width: values.length * 4, height: HEIGHT, role: "img", ariaLabel: range });
  queueMicrotask(() => drawBars(canvas, values, Math.max(most, 0), Math.min(least, 0)));
  const numbers = make("details", { className: "small" }, make("summary", { textContent: "Numbers" }));
  numbers.addEventListener("toggle", () => {
    if (numbers.children.length > 1) return;
    const text = Array.from(values.subarray(0, MOST_NUMBERS), (value) => numberOf(value, 4)).join(" ");
    numbers.append(make("p", { className: "numbers", textContent: text }));
  });
  return make("figure", {}, canvas, make("figcaption", {}, `${name}: ${range}`), numbers);
}

function drawBars(canvas: HTMLCanvasElement, values: Float32Array, most: number, least: number): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(document.body);
  const range = most - least || 1;
  const zero = (most / range) * HEIGHT;
  const width = canvas.width / values.length;
  for (const [i, value] of values.entries()) {
    if (!Number.isFinite(value)) continue;
    context.fillStyle = style.getPropertyValue(value < 0 ? "--quiet" : "--accent");
    const size = (Math.abs(value) / range) * HEIGHT;
    context.fillRect(i * width, value < 0 ? zero : zero - size, Math.max(1, width - 1), Math.max(size, 0.5));
  }
}
