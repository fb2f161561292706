// The page of embeddings: lines by similarity to one of them or to a query, in clusters, and as a map of all pairs.

import type { Embedded, Pooling } from "../worker/embed.ts";
import { choice, createState, number, text } from "./address.ts";
import { clustersAt } from "./clusters.ts";
import { byId, make, oncePerFrame } from "./dom.ts";
import { startEngine } from "./engine.ts";
import { createHeatmap } from "./heatmap.ts";
import { createModelPicker } from "./model-picker.ts";
import { markReady, startPage } from "./page.ts";
import { saveText } from "./save.ts";

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
const OFFERED = [{ name: "stories.gguf", label: "Stories, 0.8 MB: a demonstration" }];
/** Lines that are compared: the map of 500 has a quarter of a million cosines. */
const MOST_LINES = 500;
/** Characters of lines that an address may have; longer ones stay on this device. */
const MOST_IN_ADDRESS = 1500;
/** Milliseconds without a key after which a change is read. */
const PAUSE = 300;
const KEPT = "headwise embeddings";

const state = createState({
  model: text("stories.gguf"),
  pooling: choice<Pooling>("mean", "cls", "last"),
  prefix: text(""),
  lines: text(LINES),
  /** Where the lines are: those of the address, or, too long for it, those that this device has kept. */
  place: choice("address", "device"),
  query: text(""),
  threshold: number(0.8, 0, 1),
  deterministic: choice("no", "yes"),
});

const engine = startEngine();
const field = byId("lines", HTMLTextAreaElement);
const query = byId("query", HTMLInputElement);
const prefix = byId("prefix", HTMLInputElement);
const pooling = byId("pooling", HTMLSelectElement);
const threshold = byId("threshold", HTMLInputElement);
const sorted = byId("sorted", HTMLElement);
const status = byId("status", HTMLElement);
const bar = byId("bar", HTMLProgressElement);
const stop = byId("stop", HTMLButtonElement);
const saves = [byId("csv", HTMLButtonElement), byId("json", HTMLButtonElement)];
let isLoaded = false;
let abort: AbortController | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

/** What is shown: lines, what the engine found of them, and the cosine of each with the query. */
interface Shown {
  readonly lines: readonly string[];
  readonly found: Embedded;
  readonly target: string;
  readonly scores: Float32Array;
}
let shown: Shown | undefined;
/** The line of the list under the cursor. */
let active = 0;

const map = createHeatmap();
byId("map", HTMLElement).append(map.element);

startPage();
field.value = state.values.place === "device" ? keptLines() : state.values.lines;
state.follow((values) => {
  for (const [input, value] of [
    [prefix, values.prefix],
    [query, values.query],
    [pooling, values.pooling],
    [threshold, String(values.threshold)],
  ] as const)
    if (input.value !== value) input.value = value;
  byId("threshold-value", HTMLElement).textContent = values.threshold.toFixed(2);
  byId("honest", HTMLElement).hidden = values.model !== "stories.gguf";
});

byId("picker", HTMLElement).append(
  createModelPicker({
    engine,
    offered: OFFERED,
    first: state.values.model,
    deterministic: state.values.deterministic === "yes",
    kind: "encoder",
    onChoice: (model) => state.set({ model }),
    onUnloaded() {
      isLoaded = false;
      abort?.abort();
      say("Waiting for the model.");
    },
    async onLoaded() {
      isLoaded = true;
      await read();
      markReady();
    },
  }),
);

/** Reads the lines and the query; what was asked for before is stopped. */
async function read(): Promise<void> {
  clearTimeout(timer);
  abort?.abort();
  if (!isLoaded) return;
  const lines = linesOf(field.value).slice(0, MOST_LINES);
  if (lines.length === 0) return say("There are no lines.");
  const own = new AbortController();
  abort = own;
  stop.disabled = false;
  bar.hidden = false;
  bar.value = 0;
  say("Reading …");
  const given = { pooling: state.values.pooling, prefix: state.values.prefix };
  const target = state.values.query.trim() || (lines[0] as string);
  const begin = performance.now();
  try {
    const found = await engine.run(
      "embed",
      { lines, ...given },
      {
        signal: own.signal,
        onReport: (report) => {
          if (report.kind !== "progress" || own !== abort) return;
          bar.value = report.done / report.all;
          say(`Reading ${report.done} of ${report.all} lines …`);
        },
      },
    );
    const vector = await engine.run("embedOne", { text: target, ...given }, { signal: own.signal });
    if (own !== abort) return;
    const scores = Float32Array.from(lines, (_, i) => {
      let sum = 0;
      for (const [j, x] of vector.entries()) sum += x * (found.vectors[i * found.dimensions + j] as number);
      return sum;
    });
    shown = { lines, found, target, scores };
    show();
    say(`${lines.length} lines, ${((performance.now() - begin) / 1000).toFixed(2)} s.`);
  } catch (error) {
    if (own !== abort) return;
    if (own.signal.aborted) say("Stopped.");
    else say((error as Error).message, true);
  }
  abort = undefined;
  bar.hidden = true;
  const hadFocus = document.activeElement === stop;
  stop.disabled = true;
  if (hadFocus) field.focus(); // a button that is disabled would lose the focus to the page
}

function show(): void {
  const { lines, found } = shown as Shown;
  for (const save of saves) save.disabled = false;
  byId("size", HTMLElement).textContent = `${lines.length} of ${found.dimensions} numbers`;
  byId("digest", HTMLElement).textContent = found.digest;
  showSorted();
  showClusters();
}

function showSorted(): void {
  const { lines, target, scores } = shown as Shown;
  const order = [...lines.keys()].sort((a, b) => (scores[b] as number) - (scores[a] as number));
  sorted.replaceChildren(
    ...order.map((i) => {
      const line = lines[i] as string;
      const fill = make("span", { className: "fill" });
      fill.style.width = `${100 * Math.max(0, scores[i] as number)}%`;
      const option = make(
        "div",
        { id: `line-${i}`, className: "line", role: "option", dataset: { line: String(i) } },
        make("span", { className: "score", textContent: (scores[i] as number).toFixed(3) }),
        make("span", { className: "meter", ariaHidden: "true" }, fill),
        make("span", { textContent: line }),
      );
      option.ariaSelected = String(line === target);
      return option;
    }),
  );
  moveTo(0);
}

/** Moves the list's cursor. */
function moveTo(next: number): void {
  sorted.children[active]?.classList.remove("here");
  active = Math.min(sorted.children.length - 1, Math.max(0, next));
  const option = sorted.children[active] as HTMLElement | undefined;
  if (!option) return;
  option.classList.add("here");
  sorted.setAttribute("aria-activedescendant", option.id);
  if (document.activeElement === sorted) option.scrollIntoView({ block: "nearest" });
}

/** Sorts by the line of an option. */
function choose(option: Element | null | undefined): void {
  const line = shown?.lines[Number((option as HTMLElement | undefined)?.dataset.line)];
  if (line === undefined) return;
  query.value = line;
  readQuery();
}

const showClusters = oncePerFrame(() => {
  if (!shown) return;
  const { lines, found } = shown;
  const clusters = clustersAt(found.joins, lines.length, state.values.threshold);
  const order = clusters.flat();
  const [several, single] = [
    clusters.filter(({ length }) => length > 1),
    clusters.filter(({ length }) => length === 1),
  ];
  const listOf = (title: string, members: readonly number[]) =>
    make(
      "section",
      { className: "cluster" },
      make("h3", { textContent: title }),
      make("ul", {}, ...members.map((i) => make("li", { textContent: lines[i] as string }))),
    );
  byId("clusters", HTMLElement).replaceChildren(
    ...several.map((members, i) => listOf(`Cluster ${i + 1}: ${members.length} lines`, members)),
    ...(single.length > 0 ? [listOf(`Alone: ${single.length}`, single.flat())] : []),
  );
  const least = Math.min(...found.joins.map(({ cosine }) => cosine), 1, ...found.cosines.subarray(0, lines.length));
  const from = Math.floor(least * 10) / 10;
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
});

/** The lines of a text that are not empty. */
const linesOf = (whole: string): string[] => whole.split("\n").flatMap((line) => line.trim() || []);

/** Keeps the lines in the address, or on this device where they are too long for it. */
function keepLines(): void {
  const isLong = field.value.length > MOST_IN_ADDRESS;
  if (isLong)
    try {
      localStorage.setItem(KEPT, field.value);
    } catch {
      // Without storage the next visit begins anew.
    }
  state.set(isLong ? { lines: LINES, place: "device" } : { lines: field.value, place: "address" });
  showPlace();
}

function showPlace(): void {
  const count = linesOf(field.value).length;
  const more = count > MOST_LINES ? ` Only the first ${MOST_LINES} of ${count} are compared.` : "";
  const where =
    state.values.place === "address"
      ? "The lines are part of the address: every view is a link."
      : `More than ${MOST_IN_ADDRESS} characters are too long for an address: they are kept on this device, and a link to this page has all but the lines.`;
  byId("lines-about", HTMLElement).textContent = where + more;
}

function keptLines(): string {
  try {
    return localStorage.getItem(KEPT) ?? LINES;
  } catch {
    return LINES;
  }
}

/** Reads what was changed as soon as one does not type any more. */
function readSoon(): void {
  clearTimeout(timer);
  timer = setTimeout(read, PAUSE);
}

function readQuery(): void {
  state.set({ query: query.value });
  readSoon();
}

function say(message: string, isError = false): void {
  status.textContent = message;
  status.className = isError ? "error" : "quiet";
}

/** A field of CSV: quotes around it, and those in it twice. */
const quoted = (value: string): string => `"${value.replaceAll('"', '""')}"`;

/** The lines with their cosine and the number of their cluster, from 1, in the order of the list. */
function table(): { readonly line: string; readonly cosine: number; readonly cluster: number; readonly at: number }[] {
  const { lines, found, scores } = shown as Shown;
  const clusters = clustersAt(found.joins, lines.length, state.values.threshold);
  return lines
    .map((line, at) => {
      const cluster = clusters.findIndex((members) => members.includes(at)) + 1;
      return { line, cosine: scores[at] as number, cluster, at };
    })
    .sort((a, b) => b.cosine - a.cosine);
}

field.addEventListener("input", () => {
  keepLines();
  readSoon();
});
query.addEventListener("input", readQuery);
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
sorted.addEventListener("click", ({ target }) => choose((target as Element).closest(".line")));
sorted.addEventListener("keydown", (event) => {
  const last = sorted.children.length - 1;
  const moves: Readonly<Record<string, number>> = { ArrowUp: active - 1, ArrowDown: active + 1, Home: 0, End: last };
  const next = moves[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (next !== undefined) moveTo(next);
  else if (event.key === "Enter" || event.key === " ") choose(sorted.children[active]);
  else return;
  event.preventDefault(); // the page would scroll
});
byId("csv", HTMLButtonElement).addEventListener("click", () => {
  const rows = table().map(({ line, cosine, cluster }) => `${cosine},${cluster},${quoted(line)}`);
  saveText("lines.csv", "text/csv", `cosine,cluster,line\r\n${rows.join("\r\n")}\r\n`);
});
byId("json", HTMLButtonElement).addEventListener("click", () => {
  const { found, target } = shown as Shown;
  const { model, pooling, prefix, threshold } = state.values;
  const lines = table().map(({ at, ...rest }) => {
    return { ...rest, vector: Array.from(found.vectors.subarray(at * found.dimensions, (at + 1) * found.dimensions)) };
  });
  const all = { model, pooling, prefix, threshold, query: target, digest: found.digest, lines };
  saveText("lines.json", "application/json", JSON.stringify(all));
});
showPlace();
