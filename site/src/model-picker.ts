// Choosing a model: one of the site, files of the visitor (also dropped on the page), or a URL; with progress, a stop button, and a
// sentence where it fails. The choice of a model of the site or of a URL is kept in the address by the page.

import type { Kind, Loaded, Source } from "../worker/load.ts";
import { make } from "./dom.ts";
import type { Engine } from "./engine.ts";

/** Models of the site, by the names of worker/load.ts. */
export interface Offered {
  readonly name: string;
  readonly label: string;
}

export interface PickerOptions {
  readonly engine: Engine;
  readonly offered: readonly Offered[];
  /** What the address names: a model of the site or a URL. */
  readonly first: string;
  readonly deterministic: boolean;
  /** What it is loaded as. Default "decoder". */
  readonly kind?: Kind;
  /** The choice that the address should name; empty for files, which it cannot. */
  onChoice(name: string): void;
  onLoaded(loaded: Loaded): void;
  /** There is no model from here on, until one is loaded. */
  onUnloaded(): void;
}

/** What may be chosen. */
const HINTS: Readonly<Record<string, string>> = {
  file: "A GGUF file or all of its parts; or config.json, tokenizer.json and the safetensors of a model.",
  folder: "With config.json, tokenizer.json, and model.safetensors or its shards with their index.",
  url: "Of a GGUF file, or of a folder of safetensors. Its server must allow other pages to read it (CORS).",
};

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;

/** Makes the controls, and loads the first choice. */
export function createModelPicker(options: PickerOptions): HTMLElement {
  const { engine, offered } = options;
  const select = make("select", { id: "model" }, ...offered.map(({ name, label }) => new Option(label, name)));
  select.append(new Option("Files of yours …", "file"), new Option("A folder of yours …", "folder"));
  select.append(new Option("A URL …", "url"));
  const file = make("input", { id: "model-file", type: "file", multiple: true, hidden: true });
  file.accept = ".gguf,.safetensors,.json,.jinja";
  file.ariaLabel = "A GGUF file, or config.json, tokenizer.json and the safetensors of a folder";
  const folder = make("input", { id: "model-folder", type: "file", webkitdirectory: true, hidden: true });
  folder.ariaLabel = "A folder with config.json, tokenizer.json and safetensors";
  const hint = make("p", { className: "quiet small", hidden: true });
  const url = make("input", { id: "model-url", type: "url", placeholder: "https://…/model.gguf", required: true });
  url.ariaLabel = "The URL of a GGUF file, or of a folder of safetensors";
  const open = make("button", { textContent: "Load" });
  const form = make("form", { className: "actions", hidden: true }, url, open);
  const bar = make("progress", { max: 1, value: 0, hidden: true });
  bar.ariaLabel = "How much of the model is loaded";
  const stop = make("button", { type: "button", textContent: "Stop loading", hidden: true });
  const status = make("p", { className: "quiet" });
  status.setAttribute("role", "status");
  const label = make("label", { htmlFor: "model", textContent: "Model" });
  let abort: AbortController | undefined;

  const load = async (source: Source, name: string, inAddress: string): Promise<void> => {
    abort?.abort();
    const own = new AbortController();
    abort = own;
    options.onUnloaded();
    options.onChoice(inAddress);
    bar.hidden = stop.hidden = false;
    bar.value = 0;
    show(`Loading ${name} …`);
    try {
      const loaded = await engine.run(
        "load",
        { source, deterministic: options.deterministic, kind: options.kind },
        {
          signal: own.signal,
          onReport: (report) => {
            if (own !== abort || report.kind !== "progress") return;
            bar.value = report.done / report.all;
            show(`Loading ${name}: ${megabytes(report.done)} of ${megabytes(report.all)}`);
          },
        },
      );
      if (own !== abort) return;
      const threads = loaded.threads === 1 ? "one thread" : `${loaded.threads} threads`;
      show(`${loaded.type}, ${loaded.layers} layers, ${megabytes(loaded.bytes)}; ${loaded.build} kernels, ${threads}.`);
      status.title = loaded.reason;
      options.onLoaded(loaded);
    } catch (error) {
      if (own !== abort) return;
      const { name: kind, message } = error as Error;
      if (kind === "AbortError") show("Loading was stopped.");
      else show(`The model could not be loaded: ${message}`, true);
    } finally {
      if (own === abort) bar.hidden = stop.hidden = true;
    }
  };
  const show = (text: string, isError = false): void => {
    status.textContent = text;
    status.className = isError ? "error" : "quiet";
  };
  /** Files of folders in a folder may have the same names, and belong to something else. */
  const isDirect = ({ webkitRelativePath }: File) => webkitRelativePath.split("/").length <= 2;
  const loadFiles = (chosen: FileList): void => {
    const files = Array.from(chosen).filter(isDirect);
    void load({ files }, files.map(({ name }) => name).join(", "), "");
  };
  const choose = (): void => {
    file.hidden = select.value !== "file";
    folder.hidden = select.value !== "folder";
    form.hidden = select.value !== "url";
    hint.textContent = HINTS[select.value] ?? "";
    hint.hidden = hint.textContent === "";
    const one = offered.find(({ name }) => name === select.value);
    if (one) void load({ model: one.name }, one.label, one.name);
  };

  select.addEventListener("change", choose);
  stop.addEventListener("click", () => abort?.abort());
  for (const input of [file, folder])
    input.addEventListener("change", () => input.files?.length && loadFiles(input.files));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void load({ url: url.value }, url.value, url.value);
  });
  followDrops((files) => {
    select.value = "file";
    choose();
    loadFiles(files);
  });

  if (offered.some(({ name }) => name === options.first)) {
    select.value = options.first;
    choose();
  } else {
    select.value = "url";
    url.value = options.first;
    choose();
    void load({ url: options.first }, options.first, options.first);
  }
  return make("div", { className: "picker" }, label, select, file, folder, form, hint, bar, stop, status);
}

/** Calls `take` with files that are dropped on the page. */
function followDrops(take: (files: FileList) => void): void {
  const { body } = document;
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    body.classList.add("target");
  });
  document.addEventListener("dragleave", ({ relatedTarget }) => {
    if (relatedTarget === null) body.classList.remove("target");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    body.classList.remove("target");
    const dropped = event.dataTransfer?.files;
    if (dropped?.length) take(dropped);
  });
}
