// The documents: examples that run in place, and a search that needs no network.

import MiniSearch from "minisearch";
import { byId, make, oncePerFrame } from "./dom.ts";
import { markReady, startPage } from "./page.ts";

/** A part of a document, as the search knows it: docs-search.json, which build.ts writes. */
interface Entry {
  readonly id: string;
  readonly title: string;
  readonly document: string;
  readonly text: string;
}

const MOST_RESULTS = 12;
const root = new URL("../", import.meta.url);

startPage();
for (const element of document.querySelectorAll<HTMLElement>("[data-example]")) prepare(element);
prepareSearch();
markReady();

/** Lets the button of an example run it in a worker, which ends when the example does or runs anew. */
function prepare(element: HTMLElement): void {
  const button = element.querySelector("button") as HTMLButtonElement;
  const output = element.querySelector("output") as HTMLOutputElement;
  let worker: Worker | undefined;
  const end = () => {
    worker?.terminate();
    worker = undefined;
    button.textContent = "Run again";
  };
  button.addEventListener("click", () => {
    if (worker) return end();
    output.hidden = false;
    output.replaceChildren();
    button.textContent = "Stop";
    worker = new Worker(new URL(element.dataset.example as string, root), { type: "module" });
    const print = (text: string, className = "") => output.append(make("div", { textContent: text, className }));
    worker.addEventListener("message", ({ data }: MessageEvent<{ line?: string; error?: string; done?: boolean }>) => {
      if (data.line !== undefined) print(data.line);
      if (data.error !== undefined) print(data.error, "error");
      if (data.done || data.error !== undefined) end();
    });
    worker.addEventListener("error", ({ message }) => {
      print(message || "The example could not be loaded.", "error");
      end();
    });
  });
}

/** An index of all documents, made in short tasks. */
async function createIndex(): Promise<MiniSearch<Entry>> {
  const entries: Entry[] = await (await fetch(new URL("docs-search.json", root))).json();
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
  const field = byId("search", HTMLInputElement);
  const results = byId("results", HTMLElement);
  const status = byId("found", HTMLElement);
  let index: MiniSearch<Entry> | undefined;
  const show = oncePerFrame(() => {
    if (!index) return;
    const found = field.value.trim() === "" ? [] : index.search(field.value).slice(0, MOST_RESULTS);
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
    status.textContent =
      field.value.trim() === "" ? "" : found.length === 0 ? "Nothing found." : `${found.length} found`;
  });
  field.addEventListener("input", show);
  // Most visits of a document need no search.
  const begin = async () => {
    index = await createIndex();
    show();
  };
  field.addEventListener("focus", () => void begin(), { once: true });
  field.disabled = false;
}
