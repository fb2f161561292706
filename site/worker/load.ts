// The model that the engine has, its tokenizer and its kernels.

import * as tokenizers from "@huggingface/tokenizers";
import type { Kernels } from "headwise";
import { statistics } from "headwise/inspect";
import { latent } from "headwise/latent";
import {
  createBrowserStore,
  type Encoder,
  gguf,
  type LoadModelOptions,
  loadModel,
  type Model,
  type ModelSource,
  type ModelStore,
  models,
} from "headwise/models";
import { quantized } from "headwise/quantized";
import { loadTokenizer, type Tokenizer } from "headwise/text";
import { loadKernels } from "headwise/threads";
import type { Call } from "./call.ts";
import { plainLoadError } from "./plain-error.ts";

/** A model of the site by its name, one by URL, or files of the visitor: a GGUF, its parts, or those of a folder. */
export type Source = { readonly model: string } | { readonly url: string } | { readonly files: readonly File[] };

/** What a model is loaded as: to write, or to give vectors. */
export type Kind = "decoder" | "encoder";

/** What the page shows of a model. */
export interface Loaded {
  readonly type: string;
  readonly layers: number;
  readonly vocabulary: number;
  readonly bytes: number;
  readonly maxSeqLen: number | undefined;
  readonly canChat: boolean;
  /** Which kernels run, and why so many threads. */
  readonly build: string;
  readonly threads: number;
  readonly reason: string;
}

interface Current<Of = Model> {
  readonly kernels: Kernels;
  readonly model: Of;
  /** Loads the model again, with its matrices in another format. */
  loadAs(weights: WeightFormat): Promise<Model>;
  readonly tokenizer: Tokenizer;
}

/** A format that all matrices of a model may be loaded in. */
export type WeightFormat = Extract<NonNullable<LoadModelOptions["weights"]>, string>;

let current: Current<Model | Encoder> | undefined;
/** The model once more, in another format. */
let other: { readonly weights: WeightFormat; readonly model: Promise<Model> } | undefined;
let started: { readonly deterministic: boolean; readonly kernels: Promise<Kernels> } | undefined;
/** How many loads began. */
let loads = 0;
/** What tasks keep of the model that is loaded, each as a function that releases it. */
const kept: (() => void)[] = [];

/** Calls `release` whenever the model is released: its sessions would keep their memory. */
export function onRelease(release: () => void): void {
  kept.push(release);
}

/** What a task ends with if the model or the text is replaced while it waits. */
export const replaced = (): DOMException =>
  new DOMException("The model or the text was replaced meanwhile.", "AbortError");

/** The model that was loaded last: a page loads models of one kind. */
export function loadedModel<Of extends Model | Encoder = Model>(): Current<Of> {
  if (!current) throw new Error("No model is loaded.");
  return current as Current<Of>;
}

/** A file beside the models of the site, from the worker's place in assets/. */
export async function readOfSite(path: string, signal?: AbortSignal): Promise<Response> {
  const answer = await fetch(new URL(`../models/${path}`, import.meta.url), { signal: signal ?? null });
  if (!answer.ok) throw new Error(`The site has no models/${path} (status ${answer.status}).`);
  return answer;
}

/** A folder of the site; files that it has not are not asked for. */
const folder =
  (path: string, ...files: readonly string[]): ModelSource =>
  async (name) =>
    files.includes(name) ? new Uint8Array(await (await readOfSite(`${path}/${name}`)).arrayBuffer()) : undefined;

const FILES = ["config.json", "model.safetensors", "tokenizer.json"];

/** Models of the site. */
const PLACES: Readonly<Record<string, ModelSource>> = {
  stories: folder("stories", ...FILES, "tokenizer_config.json"),
  "stories.gguf": new URL("../models/stories/stories.gguf", import.meta.url).href,
  induction: folder("induction", ...FILES),
};

/** The kernels of this worker. Those of the other build are released; what they hold must have been before. */
export function startKernels(deterministic = false): Promise<Kernels> {
  if (started?.deterministic === deterministic) return started.kernels;
  started?.kernels.then(
    (previous) => previous.release(),
    () => {}, // who asked for them got the error
  );
  const own = { deterministic, kernels: loadKernels({ deterministic, models, quantized, latent, statistics }) };
  started = own;
  own.kernels.catch(() => {
    if (started === own) started = undefined; // the next call tries again
  });
  return own.kernels;
}

interface LoadRequest {
  readonly source: Source;
  readonly deterministic?: boolean;
  readonly kind?: Kind;
}

/**
 * Loads a model; the one before is released first, as memory may hold only one. Of two loads at once, the first is rejected when it
 * has loaded.
 */
export async function loadTask(given: LoadRequest, call: Call): Promise<Loaded> {
  try {
    return await load(given, call);
  } catch (error) {
    if (call.signal.aborted || !(error instanceof Error)) throw error;
    throw await plainLoadError(error, () => beginningOf(given.source));
  }
}

async function load(
  { source, deterministic = false, kind = "decoder" }: LoadRequest,
  { report, signal }: Call,
): Promise<Loaded> {
  const own = ++loads;
  releaseAll();
  const kernels = await startKernels(deterministic);
  if ("files" in source) await expectWhole(source.files);
  const { place, store } = placeOf(source);
  const tokenizer = await loadTokenizer(place, { library: tokenizers, signal, store });
  const onProgress = (done: number, all: number) => report({ kind: "progress", done, all });
  const options = { gguf, onProgress, signal, store };
  // What looks into passes are synchronous calls.
  const perLayer = "resident";
  const model =
    kind === "encoder"
      ? await (await import("headwise/models")).loadEncoder(kernels, place, options)
      : await loadModel(kernels, place, { ...options, perLayer });
  if (own !== loads) {
    model.release();
    throw replaced();
  }
  const loadAs = (weights: WeightFormat) => loadModel(kernels, place, { gguf, store, weights, perLayer });
  current = { kernels, model, tokenizer, loadAs };
  return {
    ...{ type: model.type, layers: model.layers, vocabulary: model.vocabSize, bytes: model.bytes },
    ...{ maxSeqLen: model.maxSeqLen, canChat: tokenizer.chatTemplate !== undefined },
    ...{ build: kernels.build, threads: kernels.threads.used, reason: kernels.threads.reason },
  };
}

/** The model with all matrices in a format: beside the one that is loaded, until another format is asked for. */
export async function modelAs(weights: "stored" | WeightFormat): Promise<Model> {
  const { model, loadAs } = loadedModel();
  if (other?.weights !== weights) {
    releaseOther();
    if (weights === "stored") return model;
    other = { weights, model: loadAs(weights) };
  }
  const own = other;
  const found = await own.model.catch((error) => {
    if (own === other) other = undefined; // the next call tries again
    throw error;
  });
  if (own !== other) throw replaced();
  return found;
}

/** Releases the model in another format, also one that is being loaded. */
function releaseOther(): void {
  other?.model.then(
    (model) => model.release(),
    () => {}, // who asked for it gets the error
  );
  other = undefined;
}

function releaseAll(): void {
  for (const release of kept) release();
  releaseOther();
  current?.model.release();
  current = undefined;
}

/** Throws a sentence that names the files of safetensors that are missing. A lone file of any other name may be a GGUF. */
async function expectWhole(files: readonly File[]): Promise<void> {
  const names = new Set(files.map(({ name }) => name));
  const isLone = files.length === 1 && !files.some(({ name }) => PART_OF_FOLDER.test(name));
  if (isLone || files.some(({ name }) => /\.gguf$/i.test(name))) return;
  const index = files.find(({ name }) => name === INDEX);
  const hasShards = files.some(({ name }) => SHARD.test(name));
  const tensors = index ? await shardsOf(index) : [hasShards ? INDEX : "model.safetensors"];
  const missing = ["config.json", "tokenizer.json", ...tensors].filter((name) => !names.has(name));
  if (missing.length === 0) return;
  const [shown, more] = [missing.slice(0, 3).join(", "), missing.length - 3];
  const list = more > 0 ? `${shown} and ${more} more are` : missing.length > 1 ? `${shown} are` : `${shown} is`;
  throw new Error(
    `${list} missing. Choose a GGUF file, or config.json, tokenizer.json and model.safetensors, or its shards with their index.`,
  );
}

const INDEX = "model.safetensors.index.json";
const SHARD = /-\d+-of-\d+\.safetensors$/;
/** Names of files that are no model by themselves. */
const PART_OF_FOLDER = /\.(?:safetensors|json|jinja)$/i;

/** The shards that an index names. What is wrong with an index, loading says. */
async function shardsOf(index: File): Promise<string[]> {
  const read: unknown = await index
    .text()
    .then(JSON.parse)
    .catch(() => undefined);
  return Object.values(Object(Object(read).weight_map)).filter(
    (name, i, all): name is string => all.indexOf(name) === i,
  );
}

/** The first bytes of a lone file, or of what the URL of a file answers; none of folders, of which any file may be the wrong one. */
async function beginningOf(source: Source): Promise<Uint8Array> {
  const [file, ...others] = "files" in source ? source.files : [];
  if (file && others.length === 0) return new Uint8Array(await file.slice(0, 64).arrayBuffer());
  if (!("url" in source) || source.url.endsWith("/")) return new Uint8Array();
  const { body } = await fetch(source.url, { headers: { Range: "bytes=0-63" } });
  const reader = body?.getReader();
  const first = await reader?.read();
  void reader?.cancel();
  return first?.value ?? new Uint8Array();
}

/** Where a source lies; what is read of a visitor's URL is kept for the next visit, where pages may keep files. */
function placeOf(source: Source): { readonly place: ModelSource; readonly store?: ModelStore } {
  if ("files" in source) {
    const [first, ...others] = source.files;
    return { place: first && others.length === 0 ? first : source.files };
  }
  if ("url" in source) return { place: source.url, ...(isSecureContext && { store: createBrowserStore("models") }) };
  const place = PLACES[source.model];
  if (place === undefined) throw new Error(`The site has no model “${source.model}”.`);
  return { place };
}
