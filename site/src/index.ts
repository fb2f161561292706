// The first page: a model goes on with a text while one looks, with the weights of one of its heads above the words.

import { copyText } from "../../src/entries/copy.ts";
import { createState, text } from "./address.ts";
import { byId, make } from "./dom.ts";
import { type OnReport, startEngine } from "./engine.ts";
import { markReady, startPage } from "./page.ts";

/** The head that looks back at what a question asks for: model/stories/README.md. */
const HEAD = { layer: 1, head: 6 };
/** Tokens that are written at once: three sentences. */
const MOST = 21;
/** Milliseconds for which each word is the last one, which the model writes in about one. */
const PACE = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 70;

/** A word of the text, and where the head looked from it. */
interface Look {
  readonly word: string;
  readonly weights: Float32Array;
  readonly isWritten: boolean;
}

const state = createState({ text: text("the cat sat on the mat because it was") });
const engine = startEngine();
const place = byId("words", HTMLElement);
const output = byId("look", HTMLOutputElement);
const prompt = byId("prompt", HTMLInputElement);
const [write, more] = [byId("write", HTMLButtonElement), byId("more", HTMLButtonElement)];
const speed = byId("speed", HTMLElement);
/** The same look in the inspector. */
const inspect = byId("inspect", HTMLAnchorElement);
let looks: Look[] = [];
let elements: HTMLElement[] = [];
let at = 0;
let isLoaded = false;

startPage();
state.follow(({ text }) => {
  prompt.value = text;
});
void writeOn(state.values.text).then(markReady);

/** Goes on with a text; shows the words one after the other, as fast as one can follow. */
async function writeOn(given: string): Promise<void> {
  const { activeElement } = document;
  write.disabled = more.disabled = true;
  speed.textContent = "";
  // The looks at each word are too many to be read aloud: the last one is.
  output.setAttribute("aria-busy", "true");
  const shown: Promise<void>[] = [];
  const onReport: OnReport = (report) => {
    if (report.kind !== "looks") return;
    const isWritten = looks.length > 0;
    looks.push(...report.words.map((word, i) => ({ word, isWritten, weights: report.weights[i] as Float32Array })));
    const known = looks.length;
    shown.push(wait(PACE * shown.length).then(() => reveal(known)));
  };
  try {
    if (!isLoaded) await load();
    looks = [];
    elements = [];
    place.replaceChildren();
    const { tokensPerSecond, isEnd } = await engine.run(
      "look",
      { prompt: given, maxTokens: MOST, ...HEAD },
      { onReport },
    );
    await Promise.all(shown);
    const unknown = looks.some(({ word }) => word.endsWith("<unk>"));
    const rate = tokensPerSecond === undefined ? "" : `${Math.round(tokensPerSecond)} tokens/s on this device`;
    speed.textContent = [rate, unknown && "<unk> is a word that the model does not know"].filter(Boolean).join("; ");
    more.disabled = isEnd;
    point(strongestWord());
  } catch (error) {
    await Promise.all(shown);
    say((error as Error).message, true);
  }
  output.removeAttribute("aria-busy");
  write.disabled = false;
  // A button that was disabled has lost the focus to the page, unless it was taken elsewhere meanwhile.
  const isLost = document.activeElement === document.body || document.activeElement === activeElement;
  if (isLost && (activeElement === write || activeElement === more))
    (more.disabled ? write : (activeElement as HTMLElement)).focus();
}

async function load(): Promise<void> {
  say("The model, 0.8 MB, is being loaded.");
  try {
    await engine.run("load", { source: { model: "stories.gguf" } });
  } catch (error) {
    throw new Error(`The model could not be loaded: ${(error as Error).message} “Write” tries again.`);
  }
  isLoaded = true;
}

/** The text of words, which have the spaces before them. */
const textOf = (words: readonly Look[]): string =>
  words
    .map(({ word }) => word)
    .join("")
    .trim();

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Shows the first `count` words, with the look from before the last one. */
function reveal(count: number): void {
  for (const { word, isWritten } of looks.slice(elements.length, count)) {
    const bar = make("span", { className: "weight" });
    const element = make("span", { className: isWritten ? "word written" : "word" }, bar, word.trim());
    if (/^\p{P}/u.test(word)) element.classList.add("mark");
    elements.push(element);
    place.append(element);
  }
  if (looks[count - 1]?.isWritten) performance.mark("first word");
  point(count - 1);
}

/** Marks a word, and shows where the head looked before it was written. */
function point(next: number): void {
  elements[at]?.classList.remove("here");
  at = Math.min(elements.length - 1, Math.max(1, next));
  elements[at]?.classList.add("here");
  const weights = looks[at - 1]?.weights;
  if (!weights) return;
  const layerAndHead = { layer: String(HEAD.layer), head: String(HEAD.head) };
  inspect.href = `./inspector.html#${new URLSearchParams({ text: textOf(looks.slice(1, at)), ...layerAndHead })}`;
  for (const [i, element] of elements.entries()) {
    const bar = element.firstElementChild as HTMLElement;
    bar.style.height = `${100 * (weights[i] ?? 0)}%`;
  }
  const nameOf = (i: number) => `“${looks[i]?.word.trim()}”`;
  const most = weights.indexOf(Math.max(...weights));
  const when = looks[at]?.isWritten ? `${nameOf(at)} was written while` : `Before ${nameOf(at)},`;
  const where = most === 0 ? "at the beginning, as heads do when no other token matches," : `at ${nameOf(most)},`;
  say(`${when} the head looked ${where} with a weight of ${(weights[most] as number).toFixed(2)}.`);
}

/** The written word before which the head looked at one thing most, other than the beginning and the word before. */
function strongestWord(): number {
  const scores = looks.map(({ isWritten }, i) =>
    isWritten ? Math.max(0, ...(looks[i - 1]?.weights.subarray(1, i - 1) ?? [])) : 0,
  );
  return scores.indexOf(Math.max(...scores));
}

function say(message: string, isError = false): void {
  output.textContent = message;
  output.className = isError ? "error" : "";
}

const wordAt = ({ target }: Event): number =>
  elements.indexOf((target as Element).closest<HTMLElement>(".word") as HTMLElement);
for (const kind of ["pointerover", "pointerdown"])
  place.addEventListener(kind, (event) => {
    const found = wordAt(event);
    if (found > 0 && !write.disabled) point(found);
  });
place.addEventListener("keydown", (event) => {
  const last = elements.length - 1;
  const moves: Readonly<Record<string, number>> = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 1, End: last };
  const next = moves[event.key];
  if (next === undefined || event.ctrlKey || event.metaKey || event.altKey || write.disabled) return;
  event.preventDefault(); // the page would scroll
  point(next);
});
byId("begin", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  if (write.disabled) return;
  state.set({ text: prompt.value });
  void writeOn(prompt.value);
});
more.addEventListener("click", () => {
  state.set({ text: textOf(looks.slice(1)) });
  void writeOn(state.values.text);
});
const [copied, manual] = [byId("copied", HTMLElement), byId("manual", HTMLTextAreaElement)];
for (const id of ["install", "code"])
  byId(`copy-${id}`, HTMLButtonElement).addEventListener("click", () =>
    copyText(byId(id, HTMLElement).textContent ?? "", copied, manual),
  );
