// The documents: examples that run in place, and a search that needs no network.

import MiniSearch from "minisearch";
import { createState, text } from "./address.ts";
import { byId, make, oncePerFrame, showMessage } from "./dom.ts";
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
prepareSearch();
markReady();

/** An index of all documents, made in short tasks. */
async function createIndex(): Promise<MiniSearch<Entry>> {
  const answer = await fetch(new URL("docs-search.json", root));
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const entries: Entry[] = await answer.json();
  const index = new MiniSearch<Entry>({
    fields: ["title", "document", "text"],
    storeFields: ["title", "document"],
    searchOptions: { boost: { title: 4, document: 2 }, prefix: true, fuzzy: 0.15, combineWith: "AND" },
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
    const all = isAsked && index ? index.search(search) : [];
    const found = all.slice(0, MOST_RESULTS);
    results.replaceChildren(
      ...found.map(({ id, title, document: of }) => {
        const link = make("a", { href: new URL(id, root).href, textContent: title });
        return make(
          "li",
          {},
          link,
          make("span", { className: "quiet small", textContent: title === of ? "" : ` ${of}` }),
        );
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
  field.addEventListener("focus", read);
  field.addEventListener("input", () => state.set({ search: field.value }));
  state.follow(({ search }) => {
    if (field.value !== search) field.value = search;
    if (search !== "") read();
    show();
  });
  field.disabled = false;
}
