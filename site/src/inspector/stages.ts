// The stages of a head, one at a time: what each does, shapes, and values as bars that one can also read as numbers.

import { visible } from "../../../src/base/util/strings.ts";
import type { Stage, StageRow } from "../../worker/inspect-stages.ts";
import { make } from "../dom.ts";
import { barRows } from "./bars.ts";

export interface StagesView {
  readonly element: HTMLElement;
  /** Shows the stages of a cell of a text, of which `notes` say what they are. */
  show(stages: readonly Stage[], words: readonly string[], notes: readonly string[]): void;
  /** Goes to a stage. */
  go(stage: number): void;
  /** Shows none. */
  clear(): void;
  /** Says why there are none. */
  say(text: string): void;
}

/** Pixels of a row of bars, values that are written as numbers, and tokens that have a bar with their word each. */
const [HEIGHT, MOST_NUMBERS, MOST_WORDS] = [48, 4096, 48];

export function createStages(onGo: (stage: number) => void): StagesView {
  const list = make("div", { className: "steps", role: "group", ariaLabel: "Stages" });
  const step = (textContent: string, by: number) => {
    const button = make("button", { type: "button", textContent });
    button.addEventListener("click", () => goBy(by));
    return button;
  };
  const [back, on] = [step("← Back", -1), step("Next →", 1)];
  const move = make("div", { className: "actions", hidden: true }, back, on);
  const panel = make("div", { className: "stage" });
  const about = make("p", { className: "quiet small" });
  const element = make("div", { className: "stages", hidden: true }, about, list, move, panel);
  let stages: readonly Stage[] = [];
  let words: readonly string[] = [];
  let at = 0;
  /** Goes to the stage before or behind the one that is shown, if there is one. */
  const goBy = (by: number): boolean => {
    const next = Math.min(at, stages.length - 1) + by;
    if (next < 0 || next >= stages.length) return false;
    onGo(next);
    return true;
  };

  const show = (): void => {
    const shown = Math.min(at, stages.length - 1);
    const stage = stages[shown];
    for (const [i, button] of [...list.children].entries()) button.setAttribute("aria-pressed", String(i === shown));
    move.hidden = !stage;
    if (!stage) return;
    const focused = document.activeElement;
    [back.disabled, on.disabled] = [shown === 0, shown === stages.length - 1];
    // The focus would be lost with the last step.
    if ((focused === back && back.disabled) || (focused === on && on.disabled))
      (list.children[shown] as HTMLElement).focus();
    const { text, formula, shapes, rows } = stage;
    panel.replaceChildren(
      make("p", { textContent: text }),
      make("p", { className: "formula" }, make("code", { textContent: formula })),
      make("p", { className: "shapes quiet small" }, ...shapes.map((shape) => make("code", { textContent: shape }))),
      ...rows.map((row) => rowView(row, words)),
    );
  };
  const clear = (): void => {
    stages = [];
    about.textContent = "";
    list.replaceChildren();
    panel.replaceChildren();
    move.hidden = true;
  };
  element.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey || !goBy(by)) return;
    event.preventDefault(); // what scrolls would
    if (list.contains(document.activeElement)) (list.children[at] as HTMLElement).focus();
  });

  return {
    element,
    show(given, text, notes) {
      words = text;
      about.textContent = [...notes, "The map and the lines choose another cell."].join(" ");
      if (given.some(({ name }, i) => name !== stages[i]?.name) || given.length !== stages.length)
        list.replaceChildren(
          ...given.map(({ name }, i) => {
            const button = make("button", { type: "button" }, make("b", { textContent: String(i + 1) }), ` ${name}`);
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

/**
 * A row: bars above and below a line, the smallest and largest value, and all of them on request. What is infinite has no bar. Where
 * there is a value for each of the `words`, and they are few, each has its word.
 */
function rowView({ name, values, ofTokens = false }: StageRow, words: readonly string[]): HTMLElement {
  const [only] = values;
  if (values.length === 1)
    return make("p", { className: "small", textContent: `${name}: ${numberOf(only as number, 3)}` });
  const finite = values.filter(Number.isFinite);
  const [least, most] = [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))];
  const range = `${values.length} values, ${numberOf(least, 3)} to ${numberOf(most, 3)}`;
  const hasWords = ofTokens && values.length <= MOST_WORDS;
  const size = Math.max(Math.abs(least), Math.abs(most), 1e-9);
  const bars = barRows(
    Array.from(hasWords ? values : [], (value, i) => ({
      word: visible(words[i] ?? ""),
      share: Number.isFinite(value) ? value / size : 0,
      value: numberOf(value, 3),
    })),
  );
  const canvas = make("canvas", { width: values.length * 4, height: HEIGHT, role: "img", ariaLabel: range });
  queueMicrotask(() => drawBars(canvas, values, Math.max(most, 0), Math.min(least, 0)));
  const numbers = make("details", { className: "small" }, make("summary", { textContent: "Numbers" }));
  numbers.addEventListener("toggle", () => {
    if (numbers.children.length > 1) return;
    const text = Array.from(values.subarray(0, MOST_NUMBERS), (value) => numberOf(value, 4)).join(" ");
    numbers.append(make("p", { className: "numbers", textContent: text }));
  });
  const picture = hasWords ? make("ol", { className: "guesses" }, ...bars) : canvas;
  return make("figure", {}, picture, make("figcaption", {}, `${name}: ${range}`), numbers);
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
