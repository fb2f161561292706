// The page of embeddings: lines by similarity to one of them or to a query, in clusters, and as a map of all pairs.

import { clustersAt } from "../worker/clusters.ts";
import type { Pooling } from "../worker/embed.ts";
import { choice, createState, integer, number, text } from "./address.ts";
import { byId, make, oncePerFrame, showMessage } from "./dom.ts";
import { type OnReport, startEngine } from "./engine.ts";
import { createHeatmap } from "./heatmap.ts";
import { HUB_ENCODERS } from "./hub.ts";
import { keepOnDevice, keptLines, MOST_IN_ADDRESS, PLACES } from "./kept-lines.ts";
import { NO_MODEL, openModelPicker, WAITING } from "./model-picker.ts";
import { markReady, startPage } from "./page.ts";
import { createRankedList } from "./ranked-list.ts";
import { type Ranked, saveCsv, saveJson } from "./save-lines.ts";
import { sayUnknown } from "./unknown.ts";

const LINES = `the cat sat on the mat because it was soft.
anna put the apple in the box.
tom was hungry, so he opened the bag and took the cake.
the dog slept on the rug because it was warm.
emma put the book in the bucket.
anna walked to the garden.
kate was cold, so she opened the trunk and took the scarf.
tom ran to the shop.
the ball did not fit in the box because it was too big.
emma ran to the park.
the coat did not fit in the bag because it was too long.`;
const OFFERED = [{ name: "stories.gguf", label: "Stories, 0.8 MB: a demonstration" }, ...HUB_ENCODERS];
/** Lines that are compared: the map of 500 has a quarter of a million cosines. */
const MOST_LINES = 500;
/** Milliseconds without a key after which a change is read. */
const PAUSE = 300;

const state = createState({
  model: text("stories.gguf"),
  pooling: choice<Pooling>("mean", "cls", "last"),
  prefix: text(""),
  lines: text(LINES),
  /** Where the lines are: those of the address, or, too long for it, those that this device has kept. */
  place: choice("address", "device"),
  query: text(""),
  /** The line that the others are compared with where there is no query. */
  line: integer(1, 1, MOST_LINES),
  threshold: number(0.8, 0, 1),
  deterministic: choice("no", "yes"),
});

const engine = startEngine();
const field = byId("lines", HTMLTextAreaElement);
const query = byId("query", HTMLInputElement);
const prefix = byId("prefix", HTMLInputElement);
const pooling = byId("pooling", HTMLSelectElement);
const threshold = byId("threshold", HTMLInputElement);
const sorted = createRankedList(byId("sorted", HTMLElement), (i) => {
  state.set({ line: i + 1, query: "" });
  void read();
});
const status = byId("status", HTMLElement);
const bar = byId("bar", HTMLProgressElement);
const stop = byId("stop", HTMLButtonElement);
const saves = [byId("csv", HTMLButtonElement), byId("json", HTMLButtonElement)];
let isLoaded = false;
let abort: AbortController | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

/** What is shown: lines, what the engine found of them, and the cosine of each with the query or the chosen line. */
interface Shown extends Ranked {
  /** What the engine was given. */
  readonly key: string;
  readonly by: { readonly model: string; readonly pooling: Pooling; readonly prefix: string };
  /** The chosen line. */
  readonly chosen: number;
  readonly query: string;
}
let shown: Shown | undefined;

const map = createHeatmap();
byId("map", HTMLElement).append(map.element);

startPage();
showLines();
state.follow((values) => {
  for (const [input, value] of [
    [prefix, values.prefix],
    [query, values.query],
    [pooling, values.pooling],
    [threshold, String(values.threshold)],
  ] as const)
    if (input.value !== value) input.value = value;
  byId("threshold-value", HTMLElement).textContent = values.threshold.toFixed(2);
  byId("untrained", HTMLElement).hidden = values.model !== "stories.gguf";
});

openModelPicker({
  engine,
  state,
  offered: OFFERED,
  kind: "encoder",
  onUnloaded(isWaiting) {
    isLoaded = false;
    if (shown) shown = { ...shown, key: "" };
    end();
    say(isWaiting ? WAITING : NO_MODEL);
  },
  async onLoaded() {
    isLoaded = true;
    await read();
    markReady();
  },
});

/** Reads the lines and the query; what was asked for before is stopped. */
async function read(): Promise<void> {
  clearTimeout(timer);
  end();
  if (!isLoaded) return;
  const lines = linesOf(field.value).slice(0, MOST_LINES);
  if (lines.length === 0) return say("There are no lines.");
  const own = new AbortController();
  abort = own;
  stop.disabled = false;
  bar.hidden = false;
  bar.value = 0;
  say("Reading …");
  const { model, pooling, prefix } = state.values;
  const given = { pooling, prefix };
  const chosen = Math.min(state.values.line, lines.length) - 1;
  const asked = state.values.query.trim();
  const begin = performance.now();
  const onReport: OnReport = (report) => {
    if (report.kind !== "progress" || own !== abort) return;
    bar.value = report.done / report.all;
    say(`Reading ${report.done} of ${report.all} lines …`);
  };
  try {
    const key = JSON.stringify([given, lines]);
    const isKnown = shown?.key === key;
    const found = isKnown
      ? (shown as Shown).found
      : await engine.run("embed", { lines, ...given }, { signal: own.signal, onReport });
    const vector = await engine.run(
      "embedOne",
      { text: asked || (lines[chosen] as string), ...given },
      { signal: own.signal },
    );
    if (own !== abort) return;
    const scores = Float32Array.from(lines, (_, i) => {
      let sum = 0;
      for (const [j, x] of vector.entries()) sum += x * (found.vectors[i * found.dimensions + j] as number);
      return sum;
    });
    shown = { key, by: { model, ...given }, lines, found, chosen, query: asked, scores };
    sorted.show(lines, scores, asked === "" ? chosen : -1);
    query.placeholder = `line ${chosen + 1}; type anything, or choose a line below`;
    if (!isKnown) showFound();
    const unknown = await engine.run("unknown", { text: [...lines, asked].join("\n") }, { signal: own.signal });
    if (own !== abort) return;
    say(`${lines.length} lines, ${((performance.now() - begin) / 1000).toFixed(2)} s. ${sayUnknown(unknown)}`.trim());
  } catch (error) {
    if (own !== abort) return;
    if (own.signal.aborted) say("Stopped.");
    else say((error as Error).message, true);
  }
  end();
}

/** Ends what is read, if anything is. */
function end(): void {
  abort?.abort();
  abort = undefined;
  bar.hidden = true;
  if (document.activeElement === stop) field.focus(); // a button that is disabled would lose the focus to the page
  stop.disabled = true;
}

/** Shows what does not depend on the query. */
function showFound(): void {
  const { lines, found } = shown as Shown;
  for (const save of saves) save.disabled = false;
  byId("size", HTMLElement).textContent = `${lines.length} of ${found.dimensions} numbers`;
  byId("digest", HTMLElement).textContent = found.digest;
  showClusters();
  showMap();
}

const showClusters = oncePerFrame(() => {
  if (!shown) return;
  const { lines, found } = shown;
  const clusters = clustersAt(found.joins, lines.length, state.values.threshold);
  const single = clusters.filter(({ length }) => length === 1).flat();
  const listOf = (title: string, members: readonly number[]) =>
    make(
      "section",
      { className: "cluster" },
      make("h3", { textContent: title }),
      make("ul", {}, ...members.map((i) => make("li", { textContent: lines[i] as string }))),
    );
  byId("clusters", HTMLElement).replaceChildren(
    ...clusters
      .slice(0, clusters.length - single.length)
      .map((members, i) => listOf(`Cluster ${i + 1}: ${members.length} lines`, members)),
    ...(single.length > 0 ? [listOf(`Alone: ${single.length}`, single)] : []),
  );
});

/** The map, in the order in which clusters join, which no threshold changes. */
function showMap(): void {
  const { lines, found } = shown as Shown;
  const order = clustersAt(found.joins, lines.length, Number.POSITIVE_INFINITY).flat();
  const least = found.cosines.reduce((least, cosine) => Math.min(least, cosine), 1);
  const from = Math.min(0.9, Math.floor(least * 10) / 10);
  const at = (a: number, b: number) =>
    found.cosines[(order[a] as number) * lines.length + (order[b] as number)] as number;
  const words = order.map((i) => lines[i] as string);
  map.show({
    name: "similarity",
    weights: Float32Array.from({ length: order.length ** 2 }, (_, i) => {
      return (at(Math.floor(i / order.length), i % order.length) - from) / (1 - from);
    }),
    queries: words,
    keys: words,
    say: ({ query: a, key: b }) => `${at(a, b).toFixed(3)}: “${words[a]}” and “${words[b]}”`,
  });
  byId("least", HTMLElement).textContent = from.toFixed(1);
}

/** The lines of a text that are not empty. */
function linesOf(whole: string): string[] {
  return whole.split("\n").flatMap((line) => line.trim() || []);
}

/** Keeps the lines in the address, or on this device where they are too long for it. */
function keepLines(): void {
  const isLong = field.value.length > MOST_IN_ADDRESS;
  state.set(isLong ? { lines: LINES, place: "device" } : { lines: field.value, place: "address" });
  showPlace(!isLong ? "address" : keepOnDevice(field.value) ? "device" : "nowhere");
}

/** Shows the lines of the address, or those that this device has kept. */
function showLines(): void {
  const { place } = state.values;
  const lines = place === "device" ? keptLines() : state.values.lines;
  field.value = lines ?? LINES;
  showPlace(lines === undefined ? "elsewhere" : place);
}

function showPlace(place: keyof typeof PLACES): void {
  const count = linesOf(field.value).length;
  const more = count > MOST_LINES ? ` Only the first ${MOST_LINES} of ${count} are compared.` : "";
  byId("lines-about", HTMLElement).textContent = PLACES[place] + more;
}

/** Reads what was changed as soon as one does not type any more. */
function readSoon(): void {
  clearTimeout(timer);
  timer = setTimeout(read, PAUSE);
}

function say(message: string, isError = false): void {
  showMessage(status, message, isError);
}

field.addEventListener("input", () => {
  keepLines();
  readSoon();
});
query.addEventListener("input", () => {
  state.set({ query: query.value });
  readSoon();
});
prefix.addEventListener("input", () => {
  state.set({ prefix: prefix.value });
  readSoon();
});
pooling.addEventListener("change", () => {
  state.set({ pooling: pooling.value as Pooling });
  void read();
});
threshold.addEventListener("input", () => {
  state.set({ threshold: threshold.valueAsNumber });
  showClusters();
});
stop.addEventListener("click", () => abort?.abort());
byId("csv", HTMLButtonElement).addEventListener("click", () => saveCsv(shown as Shown, state.values.threshold));
byId("json", HTMLButtonElement).addEventListener("click", () => {
  const { by, lines, chosen, query } = shown as Shown;
  saveJson(shown as Shown, { ...by, threshold: state.values.threshold, to: query || lines[chosen] });
});
