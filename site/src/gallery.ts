// The gallery: one head of each kind, heads built by hand beside learned ones, and the figures of a tutorial.

import type { Detection, Shipped } from "../worker/gallery-run.ts";
import type { TutorialFigures } from "../worker/tutorial.ts";
import { createState, integer, text } from "./address.ts";
import { afterPause, byId, make } from "./dom.ts";
import { startEngine } from "./engine.ts";
import { root } from "./example.ts";
import { createCard, type Sample } from "./gallery/card.ts";
import { tutorialFigures } from "./gallery/figures.ts";
import { type Entry, KINDS, MODEL_NAMES } from "./gallery/kinds.ts";
import { findings, looksTable, pairMaps } from "./gallery/pairs.ts";
import type { Cell } from "./heatmap.ts";
import { markReady, startPage } from "./page.ts";

/** What each model reads for the maps. */
const SAMPLES: Readonly<Record<Shipped, string>> = {
  induction: "qz7 mfk qz7 mfk qz7 m",
  "stories.gguf": "the cat sat on the mat because it was soft. what was soft? the",
};

/** The models, the one that is measured sooner first. */
const MODELS: readonly Shipped[] = ["induction", "stories.gguf"];

/** The bits, and so the digits, are the same on every device. */
const deterministic = true;

const state = createState({
  /** Heads that were chosen, as "previous:induction.0.0,…". */
  heads: text(""),
  /** The map whose cursor was moved last, a kind or one of the names below, and its cell. */
  map: text(""),
  query: integer(0),
  key: integer(0),
});

/** Maps that are no kinds. */
const PAIRS = ["meaning", "syntax"];
const MIXING = "mixing";

startPage();
const engine = startEngine();
const status = byId("status", HTMLElement);
const again = byId("again", HTMLButtonElement);
again.addEventListener("click", measureAgain);

let last: { readonly map: string; readonly cell: Cell } | undefined;
const keepCursor = afterPause(() => last && state.set({ map: last.map, ...last.cell }));
const moved = (map: string) => (cell: Cell) => {
  last = { map, cell };
  keepCursor();
};

const cards = new Map(
  KINDS.map((kind) => {
    const onChoice = (key: string) => {
      const chosen = new Map(readHeads(state.values.heads)).set(kind.name, key);
      state.set({ heads: Array.from(chosen, (pair) => pair.join(":")).join(",") });
    };
    return [kind.name, createCard(kind, { onChoice, onMove: moved(kind.name) })];
  }),
);
byId("kinds", HTMLElement).append(...Array.from(cards.values(), ({ element }) => element));

/** Heads of the address by kind. */
const readHeads = (heads: string): [kind: string, key: string][] =>
  heads
    .split(",")
    .map((each) => each.split(":") as [string, string])
    .filter(([kind, key]) => kind && key);

/** Maps besides those of the cards, by name. */
const others = new Map<string, (cell: Cell) => void>();

function showState({ heads, map, query, key }: typeof state.values): void {
  const chosen = new Map(readHeads(heads));
  for (const [name, card] of cards) card.show(chosen.get(name), map === name ? { query, key } : undefined);
  others.get(map)?.({ query, key });
}

function say(message: string): void {
  status.textContent = message;
}

interface Study {
  readonly detection: Detection;
  readonly sample: Sample;
}

/** What the build has measured. */
async function readStored(): Promise<Readonly<Record<Shipped, Detection>>> {
  const answer = await fetch(new URL("gallery.json", root));
  if (!answer.ok) throw new Error(`the site has no gallery.json (status ${answer.status})`);
  return answer.json();
}

/** Loads a model and reads a text with all heads; what they do is known, or measured. */
async function study(model: Shipped, known: Detection | undefined): Promise<Study> {
  const label = MODEL_NAMES[model];
  say(`Loading ${label} …`);
  await engine.run("load", { source: { model }, deterministic });
  const sample = await readSample(SAMPLES[model]);
  if (!known) say(`Measuring the heads of ${label} …`);
  return { detection: known ?? (await engine.run("detect", { model })), sample };
}

const readSample = async (given: string): Promise<Sample> => ({
  text: given,
  ...(await engine.run("patterns", { text: given })),
});

/** Fills the cards with the heads of one model after the other: as they are stored, or as they are measured here. */
async function showHeads(stored?: Readonly<Record<Shipped, Detection>>): Promise<Map<Shipped, Study>> {
  const studies = new Map<Shipped, Study>();
  const samples = new Map<Shipped, Sample>();
  const entries: Entry[] = [];
  for (const [i, model] of MODELS.entries()) {
    const found = await study(model, stored?.[model]);
    studies.set(model, found);
    samples.set(model, found.sample);
    entries.push(...found.detection.heads.map((about, index): Entry => ({ model, about, index })));
    for (const card of cards.values()) card.fill(entries, samples, i === MODELS.length - 1);
    showState(state.values);
  }
  return studies;
}

function showLinks(): void {
  const links = MODELS.map((model) => {
    const query = new URLSearchParams({ model, text: SAMPLES[model], sort: "kind", deterministic: "yes" });
    return make("a", { href: `./inspector.html#${query}`, textContent: MODEL_NAMES[model] });
  });
  const [first, second] = links as [HTMLAnchorElement, HTMLAnchorElement];
  byId("all", HTMLElement).append("All heads, in the same texts, by what they do: ", first, ", ", second, ".");
}

/** What was read for what is shown; `where` says where, and how long it took. */
function sayRead(studies: ReadonlyMap<Shipped, Study>, where: string): void {
  const read = Array.from(studies, ([model, { detection }]) => {
    const { heads, texts, tokens } = detection;
    return `${heads.length} heads of ${MODEL_NAMES[model]} in ${texts} texts of ${tokens.toLocaleString("en")} tokens`;
  });
  say(`${where}: ${read.join(", ")}.`);
}

/** Measures all heads again, on this device. */
async function measureAgain(): Promise<void> {
  again.disabled = true;
  const begin = performance.now();
  try {
    const studies = await showHeads();
    sayRead(studies, `Measured here in ${((performance.now() - begin) / 1000).toFixed(1)} s`);
  } catch (error) {
    fail(error as Error);
  }
  again.disabled = false;
}

function fail({ message }: Error): void {
  const line = byId("error", HTMLElement);
  line.hidden = false;
  line.textContent = `The gallery could not be finished: ${message}`;
  say("");
}

/** Shows heads built by hand beside those of the model that is loaded. */
async function showPairs(tutorial: TutorialFigures, heads: Detection["heads"]): Promise<void> {
  const sentence = await readSample(tutorial.tokens.join(" "));
  const pairs = pairMaps(tutorial, sentence, heads, (pair, cell) => moved(PAIRS[pair] as string)(cell));
  byId("pairs", HTMLElement).append(...pairs.elements);
  byId("looks", HTMLElement).append(looksTable(tutorial, sentence, heads));
  byId("findings", HTMLElement).append(...findings(tutorial, sentence, heads));
  for (const [pair, name] of PAIRS.entries()) others.set(name, (cell) => pairs.point(pair, cell));
  showState(state.values);
}

state.follow(showState);
try {
  const tutorial = await engine.run("tutorial", { deterministic });
  const figures = tutorialFigures(tutorial, moved(MIXING));
  byId("figures", HTMLElement).append(...figures.elements);
  others.set(MIXING, figures.point);
  showState(state.values);
  const studies = await showHeads(await readStored());
  showLinks();
  await showPairs(tutorial, (studies.get("stories.gguf") as Study).detection.heads);
  sayRead(studies, "Measured when these pages were made");
} catch (error) {
  fail(error as Error);
}
again.disabled = false;
markReady();
