// The page that writes: a text that goes on, or a conversation; both can be edited, and are kept for the next visit.

import type { WriteOptions, Written } from "../worker/write.ts";
import { choice, createState, integer, number, text } from "./address.ts";
import { afterPause, byId, make, showMessage } from "./dom.ts";
import { type OnReport, startEngine } from "./engine.ts";
import { HUB_DECODERS } from "./hub.ts";
import { NO_MODEL, openModelPicker, WAITING } from "./model-picker.ts";
import { markReady, startPage } from "./page.ts";
import { sayUnknown } from "./unknown.ts";
import { createTokens } from "./write/tokens.ts";

const BEGINNING = "the cat sat on the mat because it was";
const OFFERED = [{ name: "stories.gguf", label: "Stories, 0.8 MB: 290 words and marks" }, ...HUB_DECODERS];

/** Characters of a text that the address has: a longer one is kept on this device only, as conversations are. */
const MOST_LINKED = 4096;

const state = createState({
  text: text(""),
  model: text("stories.gguf"),
  mode: choice("text", "chat"),
  temperature: number(0.7, 0, 5),
  tokens: integer(64, 1, 4096),
  seed: integer(2, 0, 2 ** 32 - 1),
  deterministic: choice("no", "yes"),
});

/** What one said, and what the model answered. */
interface Message {
  readonly role: "user" | "assistant";
  content: string;
}

type Mode = typeof state.values.mode;

/** What is kept on this device: what the field holds in each mode, and the conversation. */
interface Words extends Readonly<Record<Mode, string>> {
  readonly messages: readonly Message[];
}

const engine = startEngine();
const field = byId("text", HTMLTextAreaElement);
const [go, stop, anew] = ["go", "stop", "new"].map((id) => byId(id, HTMLButtonElement)) as [
  HTMLButtonElement,
  HTMLButtonElement,
  HTMLButtonElement,
];
const status = byId("status", HTMLElement);
const conversation = byId("conversation", HTMLElement);
const mode = byId("mode", HTMLFieldSetElement);
/** The name under which the words are kept; the engine keeps what it has read of them. */
const WORDS = "headwise write";
const FACTS = ["speed", "context", "memory", "digest"].map((id) => byId(id, HTMLElement));
function clearFacts(): void {
  for (const fact of FACTS) fact.textContent = "–";
}
let { messages, ...drafts } = keptWords();
let shownMode: Mode | undefined;
let abort: AbortController | undefined;
let isLoaded = false;
const tokens = createTokens(byId("tokens-part", HTMLElement), (text) => {
  if (go.disabled) return;
  field.value = text;
  void generate();
});
/** What is said while there is no model. */
let waits = WAITING;

startPage();

/** Says which words of the field the model does not know, once nothing is typed for a while. */
const sayUnknownWords = afterPause(async () => {
  const text = field.value;
  const line = byId("unknown", HTMLElement);
  if (!isLoaded) line.textContent = "";
  else {
    const unknown = await engine.run("unknown", { text }).catch(() => undefined);
    if (text === field.value) line.textContent = sayUnknown(unknown);
  }
});
field.addEventListener("input", sayUnknownWords);
field.addEventListener("input", tokens.clear);

openModelPicker({
  engine,
  state,
  offered: OFFERED,
  onUnloaded(isWaiting) {
    isLoaded = false;
    abort?.abort();
    abort = undefined;
    clearFacts();
    waits = isWaiting ? WAITING : NO_MODEL;
    showState(waits);
    sayUnknownWords();
  },
  async onLoaded({ canChat }, isCurrent) {
    mode.hidden = !canChat;
    if (!canChat) state.set({ mode: "text" });
    // What cannot be restored is read anew.
    const restored = await engine.run("restore", undefined).catch(() => 0);
    if (!isCurrent()) return;
    isLoaded = true;
    sayUnknownWords();
    showState(restored > 0 ? `Ready: ${restored} tokens of the last visit need not be read again.` : "Ready.");
    markReady();
  },
});

const numbers = (["temperature", "tokens", "seed"] as const).map(
  (name) => [name, byId(name, HTMLInputElement)] as const,
);
for (const [name, input] of numbers)
  input.addEventListener("change", () => input.reportValidity() && state.set({ [name]: input.valueAsNumber }));
for (const input of mode.querySelectorAll("input"))
  input.addEventListener("change", () => state.set({ mode: input.value as "text" | "chat" }));
state.follow((values) => {
  for (const [name, input] of numbers) if (input.valueAsNumber !== values[name]) input.value = String(values[name]);
  for (const input of mode.querySelectorAll("input")) input.checked = input.value === values.mode;
  showMode();
});

/** Shows a text, or a conversation with a line to add to it. */
function showMode(): void {
  const { mode } = state.values;
  if (mode === shownMode) return;
  abort?.abort(); // what is written belongs to the other mode
  if (shownMode) drafts = { ...drafts, [shownMode]: field.value };
  shownMode = mode;
  const isChat = mode === "chat";
  tokens.clear();
  conversation.hidden = !isChat;
  byId("text-label", HTMLElement).textContent = isChat ? "Your message" : "Text";
  byId("about-text", HTMLElement).hidden = isChat;
  byId("about-chat", HTMLElement).hidden = !isChat;
  field.rows = isChat ? 3 : 12;
  go.textContent = isChat ? "Send" : "Go on";
  field.value = drafts[mode];
  if (isChat) showMessages();
  sayUnknownWords();
}

function showMessages(): void {
  conversation.replaceChildren(
    ...messages.map(({ role, content }, i) => {
      const edit = make("button", {
        type: "button",
        textContent: "Edit",
        hidden: role !== "user",
        ariaLabel: `Edit message ${i + 1} and answer it anew`,
      });
      edit.addEventListener("click", () => {
        abort?.abort();
        field.value = content;
        messages = messages.slice(0, i);
        showMessages();
        field.focus();
      });
      const who = role === "user" ? "You" : "Model";
      return make(
        "div",
        { className: `message ${role}` },
        make("b", { textContent: who }),
        make("p", { textContent: content }),
        edit,
      );
    }),
  );
  conversation.scrollTop = conversation.scrollHeight;
}

function showState(message: string, isError = false): void {
  const isBusy = abort !== undefined;
  const { activeElement } = document;
  showMessage(status, message, isError);
  go.disabled = !isLoaded || isBusy;
  stop.disabled = !isBusy;
  anew.disabled = isBusy;
  // A text that is typed into while pieces are added to it would lose its cursor.
  field.readOnly = isBusy && state.values.mode === "text";
  // Read aloud as a whole, not piece by piece.
  conversation.setAttribute("aria-busy", String(isBusy));
  // A button that is disabled would lose the focus to the page.
  if (activeElement === go && go.disabled) stop.focus();
  if (activeElement === stop && stop.disabled) go.focus();
}

/** Generates: shows each piece as it comes. */
async function generate(): Promise<void> {
  if (go.disabled) return;
  const { values } = state;
  if (values.mode === "chat" && field.value.trim() === "") {
    showState("There is no message to send.");
    return field.focus();
  }
  if (numbers.some(([, input]) => !input.reportValidity())) return;
  const options: WriteOptions = { maxTokens: values.tokens, temperature: values.temperature, seed: values.seed };
  const own = new AbortController();
  abort = own;
  showState("Reading …");
  const showEnd = (message: string, isError = false) => {
    if (abort !== own) return; // of a model that was unloaded meanwhile
    abort = undefined;
    showState(message, isError);
  };
  try {
    const written = values.mode === "chat" ? await answer(options, own.signal) : await goOn(options, own.signal);
    if (abort === own) showFacts(written);
    showEnd(WHY[written.reason]);
  } catch (error) {
    const { name, message } = error as Error;
    if (name === "AbortError") showEnd("Stopped.");
    else showEnd(message, true);
  }
  keepWords();
}

const WRITING = "Writing …";
const WHY: Readonly<Record<Written["reason"], string>> = {
  stop: "The model ended the text.",
  full: "The model has room for no more.",
  length: "As many tokens as asked for.",
  left: "Stopped.",
  aborted: "Stopped.",
};

async function goOn(options: WriteOptions, signal: AbortSignal): Promise<Written> {
  const prompt = field.value;
  const append = (piece: string) => {
    const atEnd = field.scrollTop + field.clientHeight >= field.scrollHeight - 4;
    field.value += piece;
    if (atEnd) field.scrollTop = field.scrollHeight;
  };
  tokens.begin(prompt);
  const onPiece = onPieces(append, signal);
  const onReport: OnReport = (report) => {
    onPiece(report);
    if (report.kind === "piece" && !signal.aborted) tokens.add(report.written);
  };
  const written = await engine.run("write", { prompt, options }, { signal, onReport });
  if (!signal.aborted) tokens.add(written.written);
  return written;
}

async function answer(options: WriteOptions, signal: AbortSignal): Promise<Written> {
  const asked: Message = { role: "user", content: field.value };
  const own: Message = { role: "assistant", content: "" };
  const given = [...messages, asked].map((message) => ({ ...message }));
  field.value = "";
  messages = [...messages, asked, own];
  showMessages();
  const shown = conversation.lastElementChild?.querySelector("p") as HTMLElement;
  const append = (piece: string) => {
    own.content += piece;
    shown.textContent = own.content;
    conversation.scrollTop = conversation.scrollHeight;
  };
  /** A message without an answer goes back to where it was typed. */
  const takeBack = () => {
    if (own.content !== "" || !messages.includes(own)) return;
    messages = messages.filter((message) => message !== asked && message !== own);
    showMessages();
    if (shownMode === "chat") field.value ||= asked.content;
    else drafts = { ...drafts, chat: drafts.chat || asked.content };
  };
  try {
    const report = { signal, onReport: onPieces(append, signal) };
    const written = await engine.run("chat", { messages: given, options }, report);
    if (written.reason === "aborted") takeBack();
    return written;
  } catch (error) {
    takeBack();
    throw error;
  }
}

const onPieces =
  (append: (piece: string) => void, signal: AbortSignal): OnReport =>
  (report) => {
    if (report.kind !== "piece" || signal.aborted) return;
    append(report.text);
    if (status.textContent !== WRITING) status.textContent = WRITING;
    if (report.ms > 0)
      byId("speed", HTMLElement).textContent = `${((1000 * report.tokens) / report.ms).toFixed(1)} tokens/s`;
  };

function showFacts({ length, memoryBytes, digest }: Written): void {
  byId("context", HTMLElement).textContent = `${length} tokens`;
  byId("memory", HTMLElement).textContent = `${(memoryBytes / 1e6).toFixed(1)} MB`;
  byId("digest", HTMLElement).textContent = digest;
}

/** The words of the last visit, or of the link. */
function keptWords(): Words {
  const first: Words = { text: BEGINNING, chat: "", messages: [] };
  const linked = state.values.text === "" ? {} : { text: state.values.text };
  try {
    return { ...first, ...JSON.parse(localStorage.getItem(WORDS) ?? "{}"), ...linked };
  } catch {
    return { ...first, ...linked }; // no storage, or something else under this name
  }
}

function keepWords(): void {
  const words: Words = { ...drafts, [state.values.mode]: field.value, messages };
  state.set({ text: words.text.length > MOST_LINKED ? "" : words.text });
  try {
    localStorage.setItem(WORDS, JSON.stringify(words));
  } catch {
    // Without storage the next visit begins anew.
  }
}

go.addEventListener("click", generate);
stop.addEventListener("click", () => abort?.abort());
anew.addEventListener("click", () => {
  const isChat = state.values.mode === "chat";
  if (isChat) messages = [];
  field.value = isChat ? "" : BEGINNING;
  showMessages();
  tokens.clear();
  clearFacts();
  showState(isLoaded ? "Ready." : waits);
  keepWords();
  field.focus();
});
// Also when the page is left without a change of focus.
document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && keepWords());
field.addEventListener("change", keepWords);
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || go.disabled) return;
  event.preventDefault();
  if (state.values.mode === "text") field.value = field.value.slice(0, field.selectionEnd);
  void generate();
});
