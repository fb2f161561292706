// The inspector: a text, all heads of a model, and one of them large.

import { visible } from "../../src/base/util/strings.ts";
import type { Attended, HeadAbout } from "../worker/inspect.ts";
import { afterPause, byId, make, showMessage } from "./dom.ts";
import { startEngine } from "./engine.ts";
import { type Cell, createHeatmap } from "./heatmap.ts";
import { HUB_DECODERS } from "./hub.ts";
import { answerControl } from "./inspector/answer.ts";
import { createEditControls, readEdits, writeEdits } from "./inspector/edits.ts";
import { createEffectsView } from "./inspector/effects.ts";
import { exportControls } from "./inspector/exports.ts";
import { cellOf, headAt, sayDifference, sayGroup, saySum, UNCHANGED } from "./inspector/head.ts";
import { createHeadsGrid, type Place, sayHead } from "./inspector/heads-grid.ts";
import { createLens } from "./inspector/lens.ts";
import { createLines } from "./inspector/lines.ts";
import { createStages } from "./inspector/stages.ts";
import { changesOf, state, type Values } from "./inspector/state.ts";
import { createStatistics } from "./inspector/statistics.ts";
import { createSwitches } from "./inspector/switches.ts";
import { whyView } from "./inspector/why.ts";
import { NO_MODEL, openModelPicker, WAITING } from "./model-picker.ts";
import { markReady, startPage } from "./page.ts";
import { sayUnknown } from "./unknown.ts";

const OFFERED = [
  { name: "stories.gguf", label: "Stories, 8 bits, 0.8 MB: 743,296 parameters" },
  { name: "stories", label: "Stories, 16 bits, 1.5 MB: the same" },
  { name: "induction", label: "Induction, 0.2 MB: 45,248 parameters, characters" },
  ...HUB_DECODERS,
];

type OnReport = NonNullable<NonNullable<Parameters<typeof engine.run>[2]>["onReport"]>;

startPage();
const engine = startEngine();
const field = byId("text", HTMLTextAreaElement);
const status = byId("status", HTMLElement);
const [does, digest] = ["does", "digest"].map((id) => byId(id, HTMLElement)) as [HTMLElement, HTMLElement];
/** All that is of a model: while there is none, what was shown last is faint, and answers nothing. */
const results = byId("results", HTMLElement);
const grid = createHeadsGrid((place) => state.set(place));
const edits = createEditControls((changed, from) => state.set({ edits: changed, from }));
const switches = createSwitches((change) => state.set(change));
const sum = byId("sum", HTMLElement);
const effects = createEffectsView(
  byId("guesses", HTMLElement),
  (token, onProgress, signal) => {
    const onReport: OnReport = (report) => report.kind === "progress" && onProgress(report.done / report.all);
    return engine.run("effects", { token }, { signal, onReport });
  },
  {
    onToken: (token) => state.set({ token }),
    onEdits: (changed) => state.set({ edits: writeEdits(changed) }),
  },
);
const answer = answerControl(byId("answer", HTMLElement), (given) => state.set({ answer: given }));
let isLoaded = false;
/** Bytes of the model. */
let bytes = 0;
/** Models that were unloaded. */
let models = 0;
let isShowing = false;
let shown: Attended | undefined;
let abouts: readonly HeadAbout[] = [];

const map = createHeatmap((cell) => {
  if (!isShowing) moveTo(cell);
});
const legend = make("div", { className: "legend", ariaHidden: "true" });
const lines = createLines((cell) => {
  if (!isShowing) moveTo(cell);
});
const stages = createStages((stage) => state.set({ stage }));
const lens = createLens();
const statistics = createStatistics(
  (length, onProgress, signal) => {
    const onReport: OnReport = (report) => report.kind === "progress" && onProgress(report.done / report.all);
    return engine.run("measure", { text: field.value, length }, { signal, onReport });
  },
  (length) => state.set({ length }),
);
const views = {
  ...{ map: map.element, lines: lines.element, stages: stages.element, lens: lens.element },
  statistics: statistics.element,
};
map.element.append(legend);
byId("view", HTMLElement).append(...Object.values(views));
byId("exports", HTMLElement).append(
  "Save these weights as",
  ...exportControls(
    () => shown,
    ({ words, weights, head }, title) => engine.run("figure", { words, weights, head, title }),
  ),
);
byId("heads", HTMLElement).append(grid.element);
byId("change", HTMLElement).append(edits.element);
byId("switches", HTMLElement).append(switches.element);
byId("effects", HTMLElement).append(effects.element);

openModelPicker({
  engine,
  state,
  offered: OFFERED,
  onUnloaded(isWaiting) {
    isLoaded = false;
    results.inert = true;
    forget();
    say(isWaiting ? WAITING : NO_MODEL);
  },
  onLoaded({ maxSeqLen, bytes: size }) {
    [isLoaded, bytes] = [true, size];
    results.inert = false;
    statistics.setTrained(maxSeqLen);
    ask();
  },
});

function say(message: string, isError = false): void {
  showMessage(status, message, isError);
}

/** What was shown is of a model that is no longer there: answers about it that come later are left out. */
function forget(): void {
  shown = undefined;
  models++;
  abouts = [];
  grid.describe(abouts);
  effects.clear();
  statistics.clear();
  stages.clear();
  lens.clear();
  byId("why", HTMLElement).replaceChildren();
  digest.textContent = "–";
}

/** One question at a time: what was typed meanwhile is asked next. */
let [isAsking, isStale] = [false, false];
/** The question that was asked last, as text. */
let asked = "";
const questionOf = (values: Values) => JSON.stringify([field.value, values.layer, values.head, changesOf(values)]);
async function ask(): Promise<void> {
  if (!isLoaded) return;
  isStale = true;
  if (isAsking) return;
  isAsking = true;
  while (isStale && isLoaded) {
    isStale = false;
    const { values } = state;
    const { layer, head } = values;
    const model = models;
    asked = questionOf(values);
    try {
      const view = await engine.run("attend", { text: field.value, changes: changesOf(values), layer, head });
      if (model === models) show(view);
    } catch (error) {
      if (model !== models) continue;
      say((error as Error).message, true);
      markReady();
    }
  }
  isAsking = false;
  studyLater();
}

function show(view: Attended): void {
  const { words, layer, head } = view;
  shown = view;
  results.classList.add("shown");
  showHead(view);
  grid.show(view, isEdited);
  switches.showLayer(view);
  byId("one-title", HTMLElement).textContent = `Layer ${layer}, head ${head}`;
  does.textContent = sayAbout(view);
  effects.show(view, state.values.edits, state.values.token);
  const read = view.read === 0 ? "" : `; ${view.read} read in ${view.ms.toFixed(0)} ms`;
  const tokens = words.length === 1 ? "1 token" : `${words.length} tokens`;
  const shownOf = view.cut === 0 ? tokens : `The first ${words.length} of ${words.length + view.cut} tokens`;
  say(`${shownOf}${read}. ${sayUnknown(view.unknown)}`.trim());
}

const isEdited = (place: Place) =>
  readEdits(state.values.edits).some(({ layer, head }) => layer === place.layer && head === place.head);

function sayAbout(view: Attended): string {
  const difference = state.values.view === "difference" ? sayDifference(view) : "";
  return [difference, sayHead(abouts[headAt(view.heads, view)]), sayGroup(view)].join(" ").trim();
}

const studyLater = afterPause(async () => {
  const of = shown;
  if (!of || !isLoaded) return;
  const given = answer.read(state.values.answer);
  const studied = await engine.run("study", { answer: given }).catch(() => undefined);
  if (!studied || of !== shown) return;
  abouts = studied.heads;
  grid.describe(abouts);
  does.textContent = studied.reason || sayAbout(of);
  digest.textContent = studied.digest;
  answer.show(of.words, studied.answer, given !== undefined);
  await explain();
  markReady();
  await effects.measure(bytes);
});

/** What “Why” says is of another cell, until the answer for this one comes. */
const setStale = (isStale: boolean): void => byId("why", HTMLElement).setAttribute("aria-busy", String(isStale));

let cursor: Cell | undefined;
const moveTo = (cell: Cell): void => {
  cursor = cell;
  const of = shown && cellOf(shown, state.values);
  setStale(of?.query !== cell.query || of?.key !== cell.key);
  if (shown && state.values.view !== "difference") sum.textContent = saySum(shown, cell);
  answer.point(cell);
  keepCursor();
};

/** The head in the view that is open; all views have one cursor. */
function showHead(view: Attended): void {
  const { words, weights, before, layer, head } = view;
  const { view: kind } = state.values;
  statistics.show(view, view.heads, notesOf(view));
  sum.textContent = "";
  sum.hidden = kind === "stages" || kind === "lens" || kind === "statistics";
  if (sum.hidden) return;
  const open = kind === "lines" ? lines : map;
  const sides = { queries: "looks", keys: "is looked at" };
  const data = { name: `Layer ${layer}, head ${head}`, queries: words, keys: words, weights, sides, hasNumbers: true };
  const difference = () => ({
    ...{ ...data, name: `${data.name}, difference`, signed: true },
    weights: weights.map((weight, i) => weight - (before?.[i] ?? weight)),
  });
  const ends = kind === "difference" ? ["−1", "+1"] : ["0", "1"];
  const scale = make("span", { className: kind === "difference" ? "scale signed" : "scale" });
  legend.replaceChildren(ends[0] as string, scale, ends[1] as string);
  sum.textContent = kind === "difference" ? "" : saySum(view, cellOf(view, state.values));
  answer.point(cellOf(view, state.values));
  isShowing = true;
  open.show(kind === "difference" ? difference() : data);
  open.point(cellOf(view, state.values));
  isShowing = false;
}

const notesOf = ({ before }: Attended) => (before ? [UNCHANGED] : []);

async function showStages(of: Attended, cell: Cell, isLast: () => boolean): Promise<void> {
  try {
    const list = await engine.run("stages", { layer: of.layer, head: of.head, ...cell });
    const word = (i: number) => `“${visible(of.words[i] as string)}” at ${i}`;
    const said = [`${word(cell.query)} looks at ${word(cell.key)}, step by step.`, ...notesOf(of)];
    if (isLast()) stages.show(list, of.words, said);
  } catch (error) {
    if (isLast()) stages.say((error as Error).message);
  }
}

async function showLens(of: Attended, query: number, isLast: () => boolean): Promise<void> {
  try {
    const layers = await engine.run("lens", { query });
    if (isLast()) lens.show(visible(of.words[query] as string), layers, notesOf(of));
  } catch (error) {
    if (isLast()) lens.say((error as Error).message);
  }
}

let explanations = 0;
/** Explains the cell under the cursor. */
const explain = async (): Promise<void> => {
  const of = shown;
  if (!of || !isLoaded) return;
  const own = ++explanations;
  const isLast = () => own === explanations && of === shown;
  const { query, key } = cellOf(of, state.values);
  const { layer, head, words } = of;
  if (state.values.view === "lens") await showLens(of, query, isLast);
  const place = byId("why", HTMLElement);
  setStale(true);
  const showThere = (element: HTMLElement) => {
    place.replaceChildren(element);
    setStale(false);
  };
  const sayThere = (textContent: string) => showThere(make("p", { className: "quiet small", textContent }));
  if (key > query) {
    const none = ["A token sees none that come later.", ...notesOf(of)].join(" ");
    stages.say(none);
    return sayThere(none);
  }
  if (state.values.view === "stages") await showStages(of, { query, key }, isLast);
  try {
    const why = await engine.run("why", { layer, head, query, key });
    if (isLast()) showThere(whyView(why, visible(words[query] as string), visible(words[key] as string), notesOf(of)));
  } catch (error) {
    if (isLast()) sayThere((error as Error).message);
  }
};
const keepCursor = afterPause(() => cursor && state.set(cursor));
const keepText = afterPause(() => state.set({ text: field.value }));

field.addEventListener("input", () => {
  statistics.clear();
  void ask();
  keepText();
});

/** A group of buttons, one of which is pressed: a field of the state. */
function segments<K extends "view" | "sort">(id: string, name: K, labels: Record<string, string>): void {
  const group = byId(id, HTMLElement);
  for (const [value, label] of Object.entries(labels)) {
    const button = make("button", { type: "button", textContent: label });
    button.addEventListener("click", () => state.set({ [name]: value }));
    state.follow((values) => {
      button.setAttribute("aria-pressed", String(values[name] === value));
    });
    group.append(button);
  }
}
segments("views", "view", {
  map: "Map",
  difference: "Difference",
  lines: "Lines",
  stages: "Stages",
  lens: "Lens",
  statistics: "Statistics",
});
segments("sorts", "sort", { layer: "By layer", kind: "By what they do" });

field.value = state.values.text;
let [explained, measured] = ["", ""];
state.follow((values) => {
  edits.show(values.edits, values.from, values);
  switches.show(values);
  statistics.setLength(values.length);
  grid.sort(values.sort);
  for (const [name, element] of Object.entries(views))
    element.hidden = name !== (values.view === "difference" ? "map" : values.view);
  const cell = `${values.query} ${values.key} ${values.view}`;
  const named = `${values.answer} ${values.token} ${values.edits}`;
  stages.go(values.stage);
  if (questionOf(values) !== asked) void ask();
  else if (cell !== explained) {
    void explain();
    if (shown) {
      showHead(shown);
      does.textContent = sayAbout(shown);
    }
  }
  if (shown && named !== measured) {
    effects.show(shown, values.edits, values.token);
    studyLater();
  }
  [explained, measured] = [cell, named];
});
