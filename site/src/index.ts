// The start page: a story that a real run of a model tells. The build has recorded it, so that it shows at once; the model itself is
// loaded meanwhile, and tells the same, or that of other words and without other heads.

import { copyText } from "../../src/entries/copy.ts";
import type { HeadPlace, Recording, Story } from "../worker/story-run.ts";
import { createState, text } from "./address.ts";
import { afterPause, byId, make, showMessage } from "./dom.ts";
import { createEffectsGrid } from "./effects-grid.ts";
import { type Engine, startEngine } from "./engine.ts";
import { prepareExample } from "./example.ts";
import { markReady, startPage } from "./page.ts";
import { showNext } from "./story/next.ts";
import { isSame, nameOf, sayStory } from "./story/say.ts";
import { createSentence } from "./story/sentence.ts";

const {
  story: recorded,
  seven,
  words: known,
}: Recording = JSON.parse(byId("recording", HTMLElement).textContent ?? "");

/** Sentences to try, by what they are about. */
const EXAMPLES = {
  "two boxes": "emma put the scarf in the box. jack put the photo in the tin. where was the photo? in the",
  "who is shorter": "tom was taller than bill. who was shorter?",
  "what she lost": "emma had a kite. jack had a map. she lost the",
  "a dragon": "the dragon sat on the mat because it was soft. what was soft? the",
};

/** In the address, heads that are off; `seven` are those of the story. */
const SEVEN_OFF = "seven";
const state = createState({ text: text(recorded.text), off: text("") });

function readOff(given: string): readonly HeadPlace[] {
  if (given === SEVEN_OFF) return seven;
  const names = new Set(given.match(/\d+\.\d+/g));
  return [...names].flatMap((name) => {
    const [layer = 0, head = 0] = name.split(".").map(Number);
    return recorded.effects[layer]?.[head] === undefined ? [] : [{ layer, head }];
  });
}

function writeOff(off: readonly HeadPlace[]): string {
  const isSeven = off.length === seven.length && seven.every((place) => off.some((each) => isSame(each, place)));
  return isSeven ? SEVEN_OFF : off.map(nameOf).join(",");
}

startPage();
const say = byId("say", HTMLElement);
const whole = say.closest("section") as HTMLElement;
const status = byId("state", HTMLElement);
const unknown = byId("unknown", HTMLElement);
const prompt = byId("prompt", HTMLInputElement);
const toggle = byId("switch", HTMLButtonElement);
const send = byId("send", HTMLAnchorElement);
const next = byId("next", HTMLElement);
const sentence = createSentence(byId("sentence", HTMLElement), seven);
const effects = createEffectsGrid(
  byId("effects", HTMLElement),
  (place) => seven.some((each) => isSame(each, place)),
  (places, goes) => {
    const others = readOff(state.values.off).filter((off) => !places.some((place) => isSame(off, place)));
    state.set({ off: writeOff(goes ? [...others, ...places] : others) });
  },
);

function show(story: Story): void {
  whole.classList.remove("stale");
  sentence.show(story);
  showNext(next, story);
  effects.show({ heads: story.effects, isOff: (place) => story.off.some((each) => isSame(each, place)) });
  showMessage(say, sayStory(story, seven));
  sayUnknown(story);
}

function sayUnknown({ words }: Story): void {
  const lacking = [...new Set(words.flatMap(({ word, isKnown }) => (isKnown ? [] : [`“${word}”`])))];
  const are = lacking.length === 1 ? "is" : "are";
  unknown.textContent =
    lacking.length === 0
      ? `The model knows ${known} words and marks, and nothing about the world.`
      : `${lacking.slice(0, 4).join(", ")}${lacking.length > 4 ? " and others" : ""} ${are} not among the ${known} words and marks of this model, which reads “unknown” there.`;
}

/** The recorded run has the answer to a question if it is of its text, with all heads or without the seven. */
const isRecorded = (given: string, off: string): boolean =>
  given === recorded.text && (off === "" || off === SEVEN_OFF);

let engine: Engine | undefined;
let [isLoaded, hasFailed] = [false, false];
/** The question that is being answered; what is asked meanwhile is asked next. */
let asking: string | undefined;

async function ask(): Promise<void> {
  if (!engine || !isLoaded || asking !== undefined) return;
  for (let { values } = state; ; { values } = state) {
    asking = JSON.stringify(values);
    try {
      const story = await engine.run("story", { text: values.text, off: readOff(values.off) });
      if (JSON.stringify(state.values) === asking) show(story);
    } catch (error) {
      // What else is shown is the answer to another text.
      if (JSON.stringify(state.values) === asking) showMessage(say, (error as Error).message, true);
      if (JSON.stringify(state.values) === asking) whole.classList.add("stale");
    }
    if (JSON.stringify(state.values) === asking) break;
  }
  asking = undefined;
}

/** Of what only the model can answer, while it is not there. */
function sayWaiting(): void {
  if (isRecorded(state.values.text, writeOff(readOff(state.values.off)))) return;
  const waiting = "The model is being loaded, and then answers this.";
  showMessage(say, hasFailed ? "Only the model could answer this, and it could not be loaded." : waiting);
}

/** Loads the model behind the recorded run. */
async function load(): Promise<void> {
  engine ??= startEngine();
  try {
    await engine.run("load", { source: { model: "stories.gguf" }, deterministic: true });
    [isLoaded, hasFailed] = [true, false];
    await ask();
    status.replaceChildren("The model of ", make("i", { textContent: "stories" }), " runs on this device now.");
  } catch (error) {
    hasFailed = true;
    sayWaiting();
    const again = make("button", { type: "button", textContent: "Load again" });
    again.addEventListener("click", () => {
      status.textContent = "The model is being loaded.";
      toggle.focus();
      engine?.end();
      [engine, hasFailed] = [undefined, false];
      sayWaiting();
      void load();
    });
    status.replaceChildren(`The model could not be loaded: ${(error as Error).message} `, again);
  }
  markReady();
}

const askLater = afterPause(() => state.set({ text: prompt.value }));
prompt.addEventListener("input", askLater);
byId("own", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  state.set({ text: prompt.value });
});
byId("examples", HTMLElement).append(
  ...Object.entries(EXAMPLES).map(([name, given]) => {
    const button = make("button", { type: "button", className: "chip", textContent: name });
    button.addEventListener("click", () => state.set({ text: given }));
    return button;
  }),
);
toggle.addEventListener("click", () => state.set({ off: state.values.off === "" ? SEVEN_OFF : "" }));
state.follow((values) => {
  const given = values.text;
  const off = writeOff(readOff(values.off));
  if (document.activeElement !== prompt && prompt.value !== given) prompt.value = given;
  toggle.textContent =
    off === "" ? "Take the seven heads away" : off === SEVEN_OFF ? "Give them back" : "Give all heads back";
  const fields = new URLSearchParams();
  if (given !== recorded.text) fields.set("text", given);
  if (off !== "") fields.set("off", off);
  send.href = `./index.html${String(fields) === "" ? "" : `#${fields}`}`;
  if (isRecorded(given, off)) show({ ...recorded, off: readOff(off) });
  else if (!isLoaded) sayWaiting();
  void ask();
});
toggle.disabled = false;
performance.mark("story");
setTimeout(load); // the recorded run is drawn first

const [copied, sent] = [byId("copied", HTMLElement), byId("sent", HTMLElement)];
const manual = byId("manual", HTMLTextAreaElement);
for (const id of ["install", "code"])
  byId(`copy-${id}`, HTMLButtonElement).addEventListener("click", () =>
    copyText(byId(id, HTMLElement).textContent ?? "", copied, manual),
  );
send.addEventListener("click", (event) => {
  event.preventDefault();
  void copyText(send.href, sent, manual);
});
for (const element of document.querySelectorAll<HTMLElement>("[data-example]")) prepareExample(element);
