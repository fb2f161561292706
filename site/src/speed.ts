// The speed of a model on this device, and a link that shows it to others.

import { copyText } from "../../src/entries/copy.ts";
import type { Loaded } from "../worker/load.ts";
import type { Speed } from "../worker/speed.ts";
import { choice, createState, text } from "./address.ts";
import { byId, showMessage } from "./dom.ts";
import { startEngine } from "./engine.ts";
import { HUB_DECODERS } from "./hub.ts";
import { NO_MODEL, openModelPicker, WAITING } from "./model-picker.ts";
import { markReady, startPage } from "./page.ts";

const OFFERED = [{ name: "stories.gguf", label: "Stories, 0.8 MB: 743,296 parameters" }, ...HUB_DECODERS];

const state = createState({
  model: text("stories.gguf"),
  deterministic: choice("no", "yes"),
  /** A result of another device, in a sentence. */
  shared: text(""),
});

/** Times of tokens, the slower over the faster of four of five, from which on other programs have taken the processor. */
const BUSY = 1.5;
/** Letters of a shared result that are shown. */
const MOST_SHARED = 200;

const engine = startEngine();
const [measure, stop, share] = ["measure", "stop", "share"].map((id) => byId(id, HTMLButtonElement)) as [
  HTMLButtonElement,
  HTMLButtonElement,
  HTMLButtonElement,
];
const status = byId("status", HTMLElement);
const bar = byId("bar", HTMLProgressElement);
const busy = byId("busy", HTMLElement);
let loaded: Loaded | undefined;
let result: Speed | undefined;
let abort: AbortController | undefined;

startPage();

const digits = (value: number): string => value.toLocaleString("en", { maximumSignificantDigits: 3 });
const milliseconds = (ms: number): string => (ms < 1000 ? `${digits(ms)} ms` : `${digits(ms / 1000)} s`);
const rate = (ms: number): string => digits(1000 / ms);
const set = (id: string, textContent: string): void => {
  byId(id, HTMLElement).textContent = textContent;
};

function showState(message: string, isError = false): void {
  const { activeElement } = document;
  showMessage(status, message, isError);
  measure.disabled = !loaded || abort !== undefined;
  stop.disabled = abort === undefined;
  share.disabled = !result;
  bar.hidden = abort === undefined;
  // A button that is disabled would lose the focus to the page.
  if (activeElement === measure && measure.disabled) stop.focus();
  if (activeElement === stop && stop.disabled) measure.focus();
}

const nameOf = ({ type, layers, bytes }: Loaded): string => `${type}, ${layers} layers, ${(bytes / 1e6).toFixed(1)} MB`;
const kernelsOf = ({ build, threads }: Loaded): string =>
  `${build}, ${threads === 1 ? "one thread" : `${threads} threads`}`;

/** Shows what was measured; without it, that nothing was. */
function showResult(): void {
  set("what", loaded ? nameOf(loaded) : "–");
  set("kernels", loaded ? kernelsOf(loaded) : "–");
  busy.hidden = true;
  if (!result) {
    for (const id of ["rate", "first", "token", "memory"]) set(id, "–");
    set("spread", "");
    return;
  }
  const { promptTokens, firstMs, tokenMs, range, memoryBytes, samples } = result;
  const [least, most] = range;
  set("rate", rate(tokenMs));
  set("spread", `between ${rate(most)} and ${rate(least)}, of ${samples} samples`);
  set(
    "first",
    `${milliseconds(firstMs)} after ${promptTokens} tokens: ${digits((1000 * promptTokens) / firstMs)} a second`,
  );
  set("token", `${milliseconds(tokenMs)} (${milliseconds(least)} to ${milliseconds(most)})`);
  set("memory", `${(memoryBytes / 1e6).toFixed(1)} MB`);
  busy.hidden = most / least < BUSY;
  busy.textContent = `This machine was busy: four of five samples took between ${milliseconds(least)} and ${milliseconds(most)} a token. Close other programs and tabs, and measure again.`;
}

async function run(): Promise<void> {
  const own = new AbortController();
  abort = own;
  bar.value = 0;
  showState("Measuring …");
  const end = (message: string, isError = false) => {
    if (abort !== own) return; // of a model that was unloaded meanwhile
    abort = undefined;
    showResult();
    showState(message, isError);
  };
  try {
    const found = await engine.run("speed", undefined, {
      signal: own.signal,
      onReport: (report) => {
        if (abort === own && report.kind === "progress") bar.value = report.done / report.all;
      },
    });
    if (abort === own) result = found;
    end("Measured.");
  } catch (error) {
    const { name, message } = error as Error;
    if (name === "AbortError") end("Stopped.");
    else end(message, true);
  }
}

openModelPicker({
  engine,
  state,
  offered: OFFERED,
  onUnloaded(isWaiting) {
    abort?.abort();
    abort = loaded = result = undefined;
    showResult();
    showState(isWaiting ? WAITING : NO_MODEL);
  },
  onLoaded(given) {
    [loaded, result] = [given, undefined];
    showResult();
    showState("Ready.");
    markReady();
  },
});

measure.addEventListener("click", run);
stop.addEventListener("click", () => abort?.abort());
share.addEventListener("click", () => {
  if (!loaded || !result) return;
  const { tokenMs, firstMs, promptTokens, memoryBytes } = result;
  const link = new URL(location.href);
  const shared = `${rate(tokenMs)} tokens a second, the first after ${milliseconds(firstMs)} (${promptTokens} tokens), ${(memoryBytes / 1e6).toFixed(0)} MB: ${nameOf(loaded)}; ${kernelsOf(loaded)}.`;
  const { model } = state.values;
  link.hash = String(new URLSearchParams({ ...(model && { model }), shared }));
  void copyText(link.href, status, byId("manual", HTMLTextAreaElement));
});
state.follow(({ shared }) => {
  byId("shared", HTMLElement).hidden = shared === "";
  set("shared-text", shared.slice(0, MOST_SHARED));
});
