// Choosing a model: one of the site, files of the visitor (also dropped on the page), or a URL; with progress, a button that stops and
// loads again, and a sentence where it fails; and whether it gives the same bits in every engine. All but files is in the address: a
// link to a model of another host loads nothing from there before the visitor says so.

import type { Kind, Loaded, Source } from "../worker/load.ts";
import type { State } from "./address.ts";
import { byId, make, showMessage } from "./dom.ts";
import type { Engine, OnReport } from "./engine.ts";
import { markReady } from "./page.ts";

/** A model of the site, by its name of worker/load.ts; or one of another host, which is asked for before it is loaded. */
export interface Offered {
  readonly name: string;
  readonly label: string;
  /** Of another host: its URL, and its size. */
  readonly url?: string;
  readonly megabytes?: number;
}

export interface PickerOptions {
  readonly engine: Engine;
  /** `model` names a model of the site or a URL; it is empty for files, which an address cannot name. */
  readonly state: State<{ model: string; deterministic: "no" | "yes" }>;
  readonly offered: readonly Offered[];
  /** What it is loaded as. Default "decoder". */
  readonly kind?: Kind;
  /** After a wait, `isCurrent` says whether the model is still the one that was chosen last. */
  onLoaded(loaded: Loaded, isCurrent: () => boolean): void;
  /** There is no model from here on, until one is loaded: which `isWaiting` for, or which did not come or is to be chosen. */
  onUnloaded(isWaiting: boolean): void;
}

/** What pages say while they wait for a model, and where none is to come. */
export const WAITING = "Waiting for the model.";
export const NO_MODEL = "There is no model: choose one, or load it again.";

/** What may be chosen. */
const HINTS: Readonly<Record<string, string>> = {
  file: "A GGUF file or all of its parts; or config.json, tokenizer.json and the safetensors of a model.",
  folder: "With config.json, tokenizer.json, and model.safetensors or its shards with their index.",
  url: "Of a GGUF file, or of a folder of safetensors. Its server must allow other pages to read it (CORS).",
};

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;

/**
 * Fills the page's element `picker` with the controls, and loads the model of the address. If the address names none, or one of
 * another host, which a button loads, the page is marked ready.
 */
export function openModelPicker(options: PickerOptions): void {
  const { engine, state, offered } = options;
  const select = make("select", { id: "model" }, ...offered.map(({ name, label }) => new Option(label, name)));
  select.append(new Option("Files of yours …", "file"), new Option("A folder of yours …", "folder"));
  select.append(new Option("A URL …", "url"));
  const file = make("input", { id: "model-file", type: "file", multiple: true, hidden: true });
  file.setAttribute("aria-label", "A GGUF file, or config.json, tokenizer.json and the safetensors of a folder");
  file.accept = ".gguf,.safetensors,.json,.jinja";
  const folder = make("input", { id: "model-folder", type: "file", webkitdirectory: true, hidden: true });
  folder.setAttribute("aria-label", "A folder with config.json, tokenizer.json and safetensors");
  const hint = make("p", { className: "quiet small", hidden: true });
  const url = make("input", { id: "model-url", type: "url", placeholder: "https://…/model.gguf", required: true });
  url.setAttribute("aria-label", "The URL of a GGUF file, or of a folder of safetensors");
  const open = make("button");
  const nameHost = (host = ""): void => {
    open.textContent = host === "" ? "Load" : `Load from ${host}`;
  };
  const form = make("form", { className: "actions", hidden: true }, url, open);
  const bar = make("progress", { max: 1, value: 0, hidden: true, ariaLabel: "How much of the model is loaded" });
  /** Stops, or loads again what was stopped or has failed. */
  const button = make("button", { id: "model-load", type: "button" });
  const amount = make("span", { className: "quiet" });
  const actions = make("span", { className: "actions", hidden: true }, amount, button);
  const status = make("p", { className: "quiet small", role: "status" });
  const line = make("div", { className: "loading" }, bar, status, actions);
  const label = make("label", { htmlFor: "model", textContent: "Model" });
  const sameBits = make("input", { id: "deterministic", type: "checkbox" });
  sameBits.checked = state.values.deterministic === "yes";
  const bits = make("label", { className: "check" }, sameBits, " the same bits on every engine");
  let abort: AbortController | undefined;
  let again = (): void => {};
  /** Whether the button loads a model of another host, which was chosen but not loaded yet. */
  let isOffer = false;

  const load = async (source: Source, name: string, inAddress: string): Promise<void> => {
    abort?.abort();
    const own = new AbortController();
    const isCurrent = () => own === abort;
    abort = own;
    isOffer = false;
    again = () => void load(source, name, inAddress);
    options.onUnloaded(true);
    nameHost();
    state.set({ model: inAddress });
    bar.hidden = actions.hidden = false;
    bar.value = 0;
    button.textContent = "Stop loading";
    show(`Loading ${name} …`);
    const deterministic = state.values.deterministic === "yes";
    const onReport: OnReport = (report) => {
      if (!isCurrent() || report.kind !== "progress") return;
      bar.value = report.done / report.all;
      amount.textContent = `${megabytes(report.done)} of ${megabytes(report.all)}`;
    };
    try {
      const given = { source, deterministic, kind: options.kind };
      const loaded = await engine.run("load", given, { signal: own.signal, onReport });
      if (!isCurrent()) return;
      const threads = loaded.threads === 1 ? "one thread" : `${loaded.threads} threads`;
      show(`${loaded.type}, ${loaded.layers} layers, ${megabytes(loaded.bytes)}; ${loaded.build} kernels, ${threads}.`);
      status.title = loaded.reason;
      hideActions();
      options.onLoaded(loaded, isCurrent);
    } catch (error) {
      if (!isCurrent()) return;
      const { name: kind, message } = error as Error;
      if (kind === "AbortError") show("Loading was stopped.");
      else show(`The model could not be loaded: ${message}`, true);
      // A URL has a button of its own.
      if (select.value === "url") hideActions();
      else button.textContent = "Load again";
      options.onUnloaded(false);
      markReady();
    } finally {
      if (isCurrent()) {
        bar.hidden = true;
        amount.textContent = "";
      }
    }
  };
  const controlOf = (): HTMLElement => [file, folder, url].find(({ id }) => id === `model-${select.value}`) ?? select;
  const hideActions = (): void => {
    // The focus would be lost with the button.
    if (document.activeElement === button) controlOf().focus();
    actions.hidden = true;
  };
  const show = (text: string, isError = false): void => {
    showMessage(status, text, isError);
  };
  /** Files of folders in a folder may have the same names, and belong to something else. */
  const isDirect = ({ webkitRelativePath }: File) => webkitRelativePath.split("/").length <= 2;
  const loadFiles = (chosen: FileList): void => {
    const files = Array.from(chosen).filter(isDirect);
    void load({ files }, files.map(({ name }) => name).join(", "), "");
  };
  /** Offers a model of another host: what was loaded stays until the button is pressed. */
  const offer = ({ name, label, megabytes: size }: Offered, from: string): void => {
    const host = otherHost(from) ?? from;
    if (!bar.hidden) {
      abort?.abort();
      abort = undefined;
      bar.hidden = true;
      amount.textContent = "";
      options.onUnloaded(false);
    }
    state.set({ model: name });
    again = () => void load({ url: from }, label, name);
    button.textContent = `Load ${size} MB from ${host}`;
    actions.hidden = false;
    show(`${label}: read from ${host} when you choose so, and kept on this device where the browser allows it.`);
  };
  const choose = (): void => {
    file.hidden = select.value !== "file";
    folder.hidden = select.value !== "folder";
    form.hidden = select.value !== "url";
    hint.textContent = HINTS[select.value] ?? "";
    hint.hidden = hint.textContent === "";
    const one = offered.find(({ name }) => name === select.value);
    if (isOffer) hideActions();
    isOffer = one?.url !== undefined;
    if (one?.url !== undefined) offer(one, one.url);
    else if (one) void load({ model: one.name }, one.label, one.name);
  };

  select.addEventListener("change", choose);
  sameBits.addEventListener("change", () => {
    state.set({ deterministic: sameBits.checked ? "yes" : "no" });
    if (!isOffer) again();
  });
  button.addEventListener("click", () => (bar.hidden ? again() : abort?.abort()));
  for (const input of [file, folder]) {
    input.addEventListener("change", () => input.files?.length && loadFiles(input.files));
    // So that the same file can be chosen again, when it has changed.
    input.addEventListener("click", () => Object.assign(input, { value: "" }));
  }
  url.addEventListener("input", () => nameHost());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void load({ url: url.value }, url.value, url.value);
  });
  followDrops((files) => {
    select.value = "file";
    choose();
    loadFiles(files);
  });
  byId("picker", HTMLElement).append(
    make("div", { className: "picker" }, label, select, file, folder, form, hint, line, bits),
  );

  const { model } = state.values;
  const own = offered.find(({ name }) => name === model);
  select.value = own ? model : model === "" ? "file" : "url";
  choose();
  if (own?.url !== undefined) {
    options.onUnloaded(false);
    markReady();
  }
  if (own) return;
  if (model === "") {
    show("The model was a file of yours: choose it again.");
    options.onUnloaded(false);
    markReady();
    return;
  }
  url.value = model;
  const host = otherHost(model);
  nameHost(host);
  if (host === undefined) return void load({ url: model }, model, model);
  show(`This link names a model of ${host}. It is loaded from there when you choose so.`);
  options.onUnloaded(false);
  markReady();
}

/** The host of a URL of another origin than the site's; undefined of one of its own, and of what is no URL. */
function otherHost(url: string): string | undefined {
  try {
    const { origin, host, protocol } = new URL(url, location.href);
    return origin === location.origin ? undefined : host || protocol;
  } catch {
    return undefined; // loading it says why
  }
}

/** Calls `take` with files that are dropped on the page; text may still be dragged into its fields. */
function followDrops(take: (files: FileList) => void): void {
  const { body } = document;
  const hasFiles = ({ dataTransfer }: DragEvent) => dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    body.classList.add("target");
  });
  document.addEventListener("dragleave", ({ relatedTarget }) => {
    if (relatedTarget === null) body.classList.remove("target");
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    body.classList.remove("target");
    const dropped = event.dataTransfer?.files;
    if (dropped?.length) take(dropped);
  });
}
