// The documents: examples that run in place, code that is copied, and a search that needs no network.

import MiniSearch from "minisearch";
import { copyText } from "../../src/entries/copy.ts";
import { createState, text } from "./address.ts";
import { excerpt, queryOf } from "./docs-search.ts";
import { afterPause, byId, make, oncePerFrame, showMessage } from "./dom.ts";
import { prepareExample, root } from "./example.ts";
import { markReady, startPage } from "./page.ts";

/** A part of a document, as the search knows it: docs-search.json, which build.ts writes. */
interface Entry {
  readonly id: string;
  readonly title: string;
  readonly document: string;
  readonly text: string;
}

const MOST_RESULTS = 12;

startPage();
for (const element of document.querySelectorAll<HTMLElement>("[data-example]")) prepareExample(element);
for (const button of document.querySelectorAll<HTMLButtonElement>(".code .copy")) prepareCopy(button);
prepareSearch();
markReady();

/** Lets a button copy the code beside it, and say so for a while. */
function prepareCopy(button: HTMLButtonElement): void {
  const code = button.parentElement?.querySelector("code")?.textContent ?? "";
  const back = afterPause(() => {
    button.textContent = "Copy";
  }, 1500);
  button.hidden = false;
  button.addEventListener("click", async () => {
    await copyText(code, button, byId("manual", HTMLTextAreaElement));
    back();
  });
}

/** Guides come before what one looks up, and both before how the package is made. */
const boostDocument = (id: string): number =>
  /^docs\/(?:guide\/|overview)/.test(id) ? 2 : /^docs\/(?:reference|design|kernels)/.test(id) ? 0.5 : 1;

/** An index of all documents, made in short tasks. */
async function createIndex(): Promise<MiniSearch<Entry>> {
  const answer = await fetch(new URL("docs-search.json", root));
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const entries: Entry[] = await answer.json();
  const index = new MiniSearch<Entry>({
    fields: ["title", "document", "text"],
    storeFields: ["title", "document", "text"],
    searchOptions: { boost: { title: 4, document: 2 }, prefix: true, fuzzy: 0.15, combineWith: "AND", boostDocument },
  });
  await index.addAllAsync(entries);
  return index;
}

/** The search: results as one types, as links to the parts of documents. */
function prepareSearch(): void {
  const state = createState({ search: text("") });
  const field = byId("search", HTMLInputElement);
  const results = byId("results", HTMLElement);
  const status = byId("found", HTMLElement);
  let index: MiniSearch<Entry> | undefined;
  let reading: Promise<void> | undefined;
  const say = (message: string, isError = false) => {
    showMessage(status, message, isError);
  };
  const show = oncePerFrame(() => {
    const { search } = state.values;
    const isAsked = search.trim() !== "";
    const all = isAsked && index ? index.search(queryOf(search)) : [];
    const found = all.slice(0, MOST_RESULTS);
    results.replaceChildren(
      ...found.map(({ id, title, document: of, text, terms }) => {
        const link = make("a", { href: new URL(id, root).href, textContent: title });
        const where = make("span", { className: "quiet small", textContent: title === of ? "" : ` ${of}` });
        return make("li", {}, link, where, make("p", { className: "quiet small" }, ...excerpt(text, terms)));
      }),
    );
    if (!isAsked) say("");
    else if (reading) say("Reading the documents …");
    else if (all.length > found.length) say(`${found.length} of ${all.length} found`);
    else if (index) say(found.length === 0 ? "Nothing found." : `${found.length} found`);
  });
  /** Reads the index, unless it is there: most visits of a document need no search. Where it fails, the next key tries again. */
  const read = () => {
    if (index) return;
    reading ??= createIndex()
      .then(
        (made) => {
          index = made;
        },
        (error: Error) => say(`The search could not be loaded (${error.message}). Type on to try again.`, true),
      )
      .finally(() => {
        reading = undefined;
        show();
      });
  };
  addEventListener("keydown", (event) => {
    const isTyping = (event.target as Element).matches("input, textarea, select");
    const isCommand = event.ctrlKey || event.metaKey;
    const isAsked = event.key === "k" ? isCommand : event.key === "/" && !isTyping && !isCommand && !event.altKey;
    if (!isAsked) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
  /** The arrow keys lead from the field through what was found, and back; Enter in the field opens the first. */
  field.parentElement?.addEventListener("keydown", (event) => {
    const stops = [field, ...results.querySelectorAll("a")];
    const here = stops.indexOf(document.activeElement as HTMLAnchorElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && here === 0) stops[1]?.click();
    if (event.key === "Escape") field.focus();
    const to = step === undefined || here < 0 ? undefined : stops[here + step];
    if (!to) return;
    event.preventDefault(); // the page would scroll
    to.focus();
  });
  field.addEventListener("focus", read);
  field.addEventListener("input", () => state.set({ search: field.value }));
  state.follow(({ search }) => {
    if (field.value !== search) field.value = search;
    if (search !== "") read();
    show();
  });
  field.disabled = false;
}
