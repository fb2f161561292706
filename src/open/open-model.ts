// Opens a model: finds its files, loads what they need, and gives what it can do.

import { machineMemory } from "../base/platform/machine.ts";
import type { ThreadHost, ThreadWorker } from "../base/platform/workers.ts";
import {
  expectFlag,
  expectFunction,
  expectInt,
  expectOneOf,
  expectRecord,
  expectSignal,
  type Global,
  readFields,
  readOptions,
} from "../base/util/arguments.ts";
import { describe, HeadwiseError, throwUnder } from "../base/util/errors.ts";
import { makeHandle, type Releasable } from "../base/util/lifetime.ts";
import type { ModelStore } from "../files/store.ts";
import { CACHE_FORMATS } from "../layers/state/pages.ts";
import { readFormats } from "../models/load/plan-model.ts";
import { findJinja, type JinjaLibrary, type TokenizersLibrary } from "../text/libraries.ts";
import { loadTokenizer, readGgufTokenizer } from "../text/load-tokenizer.ts";
import { expectTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { chooseMemory } from "./choose.ts";
import { createEmbedding } from "./embed.ts";
import type { EmbedIds, Engine } from "./engine.ts";
import { type Fetch, readHub } from "./hub.ts";
import { type KernelHost, type Loaded, type LoadingOptions, loadParts } from "./load.ts";
import type { ModelMethods, ModelParts, ModelTask, OpenedModel } from "./model.ts";
import { type Description, recognise } from "./recognise.ts";
import { openRemotely, type Remote } from "./remote.ts";
import { createUrlOpener, defaultStore, findPlace, type OpenSource, type Place } from "./source.ts";
import { createWriting } from "./write.ts";

/** The optional packages, where they cannot be imported by their names, such as in a page without a bundler. */
export interface OpenLibraries {
  /** The exports of `@huggingface/tokenizers`. */
  readonly tokenizers?: TokenizersLibrary | undefined;
  /** The exports of `@huggingface/jinja`. */
  readonly jinja?: JinjaLibrary | undefined;
}

/** Options of `openModel`. All have defaults that suit the model and the host; `choices` of the opened model says which. */
export interface OpenModelOptions<Task extends ModelTask = ModelTask> extends LoadingOptions<Task> {
  /**
   * Keeps what is read of URLs for the next start. Default the user's cache folder (Node, Deno, Bun) or the browser's storage of the
   * page's origin, where there is one; false: nothing is kept.
   */
  readonly store?: ModelStore | false | undefined;
  /** Bytes of memory that the model and its sessions may take, at most 4 GiB. Default nine tenths of what the machine has free. */
  readonly memory?: number | undefined;
  /** A tokenizer instead of the one in the model's files. */
  readonly tokenizer?: Tokenizer | undefined;
  /** A Jinja template of conversations instead of the model's own. */
  readonly template?: string | undefined;
  /** The optional packages, where they cannot be imported by their names. */
  readonly libraries?: OpenLibraries | undefined;
  /** The address of the hub that names are looked up on. Default the environment variable HF_ENDPOINT, else https://huggingface.co. */
  readonly hub?: string | Global<"URL"> | undefined;
  /**
   * Runs the model in a worker, so that the thread of the page, or of the server, is free while it computes: true, or for pages whose
   * content security policy forbids workers of inlined source, what makes one that runs `headwise/open-worker` of this version.
   * Tokenizers and templates run in the calling thread. Bytes that are given as the source are transferred. Such a model has no
   * `parts`, and takes no function as its source, no store of your own, no `createWorker`, `statistics` or
   * `logitsProcessors`. Default false.
   */
  readonly worker?: boolean | (() => ThreadWorker) | undefined;
  /** The token for files of the hub that ask for one, which no other host is sent. Default the environment variable HF_TOKEN. */
  readonly token?: string | undefined;
}

const OPTIONS = [
  ...["for", "onProgress", "signal", "store", "weights", "activations", "cache", "threads", "createWorker"],
  ...[
    "deterministic",
    "statistics",
    "maxSeqLen",
    "keptBytes",
    "memory",
    "tokenizer",
    "template",
    "libraries",
    "hub",
    "token",
    "integrity",
    "worker",
  ],
] as const;

/** What an entry has that this room may not use: kernels, requests, and the source of workers. */
export interface OpenHost extends KernelHost {
  readonly fetch: Fetch;
  workers(createWorker: (() => ThreadWorker) | undefined): Promise<ThreadHost>;
}

const WHERE = "openModel";
const TASKS: readonly ModelTask[] = ["text", "chat", "embed"];

/** `openModel`, with what `host` has. */
export async function openOn(host: OpenHost, source: OpenSource, given: OpenModelOptions): Promise<OpenedModel> {
  const options = readOptions(WHERE, given, OPTIONS);
  checkOptions(options);
  checkWorker(source, options);
  const { signal } = options;
  const hub = readHub(WHERE, options.hub, options.token);
  const store = options.store ?? defaultStore();
  const opener = createUrlOpener(store || undefined, hub, host.fetch);
  try {
    signal?.throwIfAborted();
    const place = await findPlace(WHERE, source, hub, (url) => opener.open(url, { signal }));
    const description = await recognise(WHERE, place, signal, opener);
    expectTask(description, options.for);
    const tokenizer = await findTokenizer(place, description, options, opener);
    if (options.for === "chat") {
      expectTemplate(description, tokenizer, options);
      // Before the weights are read, which may take minutes.
      await findJinja(WHERE, options.libraries?.jinja);
    }
    if (options.worker) {
      const remote = await openRemotely(await host.workers(options.worker === true ? undefined : options.worker), {
        ...{ where: WHERE, place, options: pickLoading(options), hub, memory: options.memory },
        keeps: Boolean(store),
      });
      return wrap(ofRemote(remote), description, tokenizer, options);
    }
    const loaded = await loadParts({
      ...{ where: WHERE, host, options, place, description, opener },
      memory: chooseMemory(options.memory, machineMemory()),
      store: { value: Boolean(store), reason: storeReason(options.store, store) },
    });
    return wrap(ofLocal(loaded, tokenizer), description, tokenizer, options);
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    return throwUnder(WHERE, renamed(error));
  }
}

/** Errors about options that the functions within call otherwise. */
function renamed(error: unknown): unknown {
  if (!(error instanceof HeadwiseError)) return error;
  const text = error.message
    .replace("options.maxBytes", "options.memory")
    .replace("options.library", "options.libraries");
  return text === error.message ? error : new HeadwiseError(error.code, text, { cause: error });
}

function checkOptions(options: OpenModelOptions): void {
  const { onProgress, signal, store, weights, cache, createWorker, tokenizer, libraries } = options;
  if (options.for !== undefined) expectOneOf(WHERE, "options.for", options.for, TASKS);
  if (onProgress !== undefined) expectFunction(WHERE, "onProgress", onProgress);
  if (signal !== undefined) expectSignal(WHERE, signal);
  if (store !== undefined && store !== false) expectFunction(WHERE, "options.store.open", Object(store).open);
  readFormats(WHERE, weights);
  if (cache !== undefined) expectOneOf(WHERE, "options.cache", cache, CACHE_FORMATS);
  if (createWorker !== undefined) expectFunction(WHERE, "createWorker", createWorker);
  expectFlag(WHERE, "options.deterministic", options.deterministic);
  if (options.maxSeqLen !== undefined) expectInt(WHERE, "options.maxSeqLen", options.maxSeqLen);
  if (options.keptBytes !== undefined)
    expectInt(WHERE, "options.keptBytes", options.keptBytes, 0, Number.MAX_SAFE_INTEGER);
  if (options.memory !== undefined) expectInt(WHERE, "options.memory", options.memory, 1, Number.MAX_SAFE_INTEGER);
  if (tokenizer !== undefined) expectTokenizer(WHERE, tokenizer);
  if (options.template !== undefined && typeof options.template !== "string")
    throw new TypeError(`${WHERE}: options.template expected a string, got ${describe(options.template)}`);
  if (libraries !== undefined) {
    expectRecord(WHERE, "options.libraries", libraries);
    readFields(WHERE, "options.libraries", libraries, ["tokenizers", "jinja"]);
  }
}

/** What crosses no threads is refused with the option `worker`. */
function checkWorker(source: OpenSource, { worker, store, createWorker, statistics }: OpenModelOptions): void {
  if (worker === undefined || worker === false) return;
  if (typeof source === "function")
    throw new TypeError(`${WHERE}: source expected one that can be sent to a worker, got a function`);
  if (worker !== true) expectFunction(WHERE, "options.worker", worker);
  if (store) throw new TypeError(`${WHERE}: options.store expected none or false with the option worker, got one`);
  if (createWorker) throw new TypeError(`${WHERE}: createWorker expected none with the option worker, got a function`);
  if (statistics) throw new TypeError(`${WHERE}: options.statistics expected none with the option worker, got some`);
}

function storeReason(given: ModelStore | false | undefined, store: ModelStore | false | undefined): string {
  if (given !== undefined) return "asked for";
  return store ? "the cache of this user or origin" : "this host has no place for it";
}

/** Throws unless the files are those of a model for the task. */
function expectTask({ kind, type }: Description, task: ModelTask | undefined): void {
  const fail = (rule: string, got: string) => {
    throw new HeadwiseError("BAD_FILE", `${WHERE}: source expected ${rule}, got ${type}, ${got}`);
  };
  if (task === "chat" && kind !== "decoder")
    fail("a decoder that can chat", kind === "encoder" ? "an encoder" : "a model with two halves");
  if (task === "text" && kind === "encoder") fail("a model that writes", "an encoder, which can embed");
  if (task === "embed" && kind === "halves") fail("an encoder or a decoder", "a model with two halves");
}

/** The tokenizer that was given, or else that of the files. */
async function findTokenizer(
  { source }: Place,
  { metadata }: Description,
  { tokenizer, libraries, signal, integrity }: OpenModelOptions,
  store: ModelStore,
): Promise<Tokenizer> {
  if (tokenizer) return tokenizer;
  const library = libraries?.tokenizers;
  if (metadata) return readGgufTokenizer({ metadata }, { library });
  return loadTokenizer(source, { library, signal, store, integrity });
}

const hasTemplate = (tokenizer: Tokenizer, { template }: OpenModelOptions) =>
  template !== undefined || tokenizer.chatTemplate !== undefined;

function expectTemplate({ type }: Description, tokenizer: Tokenizer, options: OpenModelOptions): void {
  if (hasTemplate(tokenizer, options)) return;
  const rule = "a model with a chat template, or options.template";
  throw new HeadwiseError("BAD_FILE", `${WHERE}: source expected ${rule}, got ${type} without one`);
}

/** Symbol.asyncDispose, or on engines that lack it the symbol that compiled `await using` declarations look up. */
const ASYNC_DISPOSE: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose);

/** A loaded model, in this thread or in a worker. */
interface Opened extends Pick<Loaded, "choices"> {
  readonly engine: Engine | undefined;
  readonly embedIds: EmbedIds | undefined;
  /** Whether it reads features of sounds instead of text. */
  readonly hears: boolean;
  /** What tells whether it was released. */
  readonly model: { readonly released: boolean };
  parts(): ModelParts;
  release(): void;
}

function ofLocal({ kernels, model, engine, embedIds, choices }: Loaded, tokenizer: Tokenizer): Opened {
  const parts: ModelParts = Object.freeze({
    ...{ kernels, model, tokenizer },
    get sessions() {
      return engine?.sessions ?? [];
    },
  });
  const hears = model.encoder?.spec.embed.channels !== undefined;
  const release = () => {
    engine?.release();
    kernels.release();
  };
  return { engine, embedIds, hears, choices, model: kernels, parts: () => parts, release };
}

function ofRemote({ engine, embedIds, writes, hears, choices, release }: Remote): Opened {
  const parts = () => {
    throw new TypeError("parts: model expected one that was opened without the option worker, got one in a worker");
  };
  const calls = { engine: writes ? engine : undefined, embedIds: writes ? undefined : embedIds };
  return { ...calls, hears, choices, model: engine, parts, release };
}

/** What a loaded model can do, and the methods for it. */
function methodsOf(
  { engine, embedIds, hears, model, choices }: Opened,
  { embedding: rules }: Description,
  tokenizer: Tokenizer,
  options: OpenModelOptions,
): { readonly can: readonly ModelTask[]; readonly methods: Partial<ModelMethods> } {
  if (embedIds) {
    const maxTokens = choices.maxSeqLen.value ?? Number.POSITIVE_INFINITY;
    return { can: ["embed"], methods: createEmbedding({ embedIds, tokenizer, rules, maxTokens, model }) };
  }
  if (engine === undefined || hears) return { can: [], methods: {} };
  const { template, libraries } = options;
  const { text, chat, countTokens } = createWriting({ engine, tokenizer, template, jinja: libraries?.jinja });
  if (engine.isHalves) return { can: ["text"], methods: { text, countTokens } };
  return { can: hasTemplate(tokenizer, options) ? ["text", "chat"] : ["text"], methods: { text, chat, countTokens } };
}

/** The handle of an opened model. */
function wrap(opened: Opened, description: Description, tokenizer: Tokenizer, options: OpenModelOptions): OpenedModel {
  const { choices } = opened;
  const { type } = description;
  const { can, methods } = methodsOf(opened, description, tokenizer, options);
  const refuse = (method: keyof ModelMethods): never => {
    const what = can.length > 0 ? `${type}, which can ${can.join(" and ")}` : `${type}, whose parts are in model.parts`;
    const hint = method === "embed" && description.kind === "decoder" ? ': open it with { for: "embed" }' : "";
    throw new TypeError(`${method}: model expected one that can ${method}, got ${what}${hint}`);
  };
  const parts: Omit<OpenedModel, "released" | "release" | typeof Symbol.dispose> = {
    ...{ type, choices: Object.freeze(choices), can: Object.freeze([...can]) },
    get parts() {
      return opened.parts();
    },
    text: methods.text ?? (() => refuse("text")),
    chat: methods.chat ?? (() => refuse("chat")),
    countTokens: methods.countTokens ?? (() => refuse("countTokens")),
    embed: methods.embed ?? (() => refuse("embed")),
    async [ASYNC_DISPOSE](this: Releasable) {
      this.release();
    },
  };
  return makeHandle<OpenedModel>(
    "OpenedModel",
    WHERE,
    parts,
    ["parts"],
    () => opened.release(),
    options.worker !== undefined,
  );
}

/** The options that a worker is given. */
function pickLoading(options: OpenModelOptions): LoadingOptions {
  const { signal, onProgress, activations, integrity, weights, cache, threads, deterministic } = options;
  const { for: task, maxSeqLen, keptBytes } = options;
  const formats = { activations, integrity, weights, cache, threads, deterministic };
  return { signal, onProgress, ...formats, for: task, maxSeqLen, keptBytes };
}
