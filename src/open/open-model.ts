// Opens a model: finds its files, loads what they need, and gives what it can do.

import { machineMemory } from "../base/platform/host.ts";
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
import { followSignal } from "../base/util/steps.ts";
import { folderOf } from "../files/model-files.ts";
import type { ModelStore } from "../files/store.ts";
import { CACHE_FORMATS } from "../layers/state/pages.ts";
import { TABLE_PLACES } from "../models/load/load-model.ts";
import { readFormats } from "../models/load/plan-model.ts";
import { recipeFor, TEXT_TASKS, tasksOf } from "../retrieval/recipe.ts";
import type { RunTexts } from "../retrieval/run.ts";
import type { TaskParts } from "../retrieval/tasks.ts";
import { findJinja, type JinjaLibrary, type TokenizersLibrary } from "../text/libraries.ts";
import { loadTokenizer, readGgufTokenizer } from "../text/load-tokenizer.ts";
import { expectTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { expectKernels } from "../wasm/kernels.ts";
import { type Choices, chooseMemory } from "./choose.ts";
import type { Engine } from "./engine.ts";
import { isReading, type KernelHost, type Loaded, type LoadingOptions, loadParts, type Reading } from "./load.ts";
import type { ModelMethods, ModelParts, ModelTask, OpenedModel } from "./model.ts";
import { type Description, recognise } from "./recognise.ts";
import { openRemotely, type Remote } from "./remote.ts";
import {
  createUrlOpener,
  defaultStore,
  type Fetch,
  findPlace,
  type OpenSource,
  type Place,
  readHub,
} from "./source.ts";
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
   * `parts`, and takes no function as its source, no store of your own, no `kernels`, `createWorker`, `statistics` or
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
    "kernels",
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
    "perLayer",
    "worker",
  ],
] as const;

/** What an entry has that this room may not use: kernels, requests, and the source of workers. */
export interface OpenHost extends KernelHost {
  readonly fetch: Fetch;
  workers(createWorker: (() => ThreadWorker) | undefined): Promise<ThreadHost>;
}

const WHERE = "openModel";
const TASKS: readonly ModelTask[] = ["text", "chat", ...TEXT_TASKS];
const METHODS: readonly (keyof ModelMethods)[] = [...TASKS, "countTokens"];

/** `openModel`, with what `host` has. */
export async function openOn(host: OpenHost, source: OpenSource, given: OpenModelOptions): Promise<OpenedModel> {
  const asked = readOptions(WHERE, given, OPTIONS);
  checkOptions(asked);
  checkWorker(source, asked);
  checkKernels(asked);
  const hub = readHub(WHERE, asked.hub, asked.token);
  const store = asked.store ?? defaultStore();
  const opener = createUrlOpener(store || undefined, hub, host.fetch);
  const { signal, end } = followSignal(asked.signal);
  const options = { ...asked, signal };
  try {
    signal?.throwIfAborted();
    const place = await findPlace(WHERE, source, hub, (url) => opener.open(url, { signal }));
    const found = await recognise(WHERE, place, signal, opener);
    expectKind(found, options.for);
    const tokenizer = await findTokenizer(place, found, options, opener);
    const answersOf = () => [idOf(tokenizer, "no"), idOf(tokenizer, "yes")] as const;
    const description = { ...found, recipe: recipeFor(found, options.for, answersOf) };
    expectReading(description, tokenizer, options.for);
    if (options.for === "chat") {
      expectTemplate(description, tokenizer, options);
      // Before the weights are read, which may take minutes.
      await findJinja(WHERE, options.libraries?.jinja);
    }
    const kept = { value: Boolean(store), reason: storeReason(options.store, store) };
    const memory = chooseMemory(options.memory, machineMemory(), options.kernels?.usedBytes);
    const reading = isReading(description, options.for)
      ? await prepareReading(await host.reading(), place, description, options, opener, tokenizer)
      : undefined;
    if (description.kind === "lookup") return wrap(ofTables(kept, memory), description, tokenizer, options, reading);
    if (options.worker) {
      const remote = await openRemotely(await host.workers(options.worker === true ? undefined : options.worker), {
        ...{ where: WHERE, place, options: pickLoading(options), hub, memory: options.memory },
        ...{ keeps: Boolean(store), recipe: description.recipe },
      });
      return wrap(ofRemote(remote), description, tokenizer, options, reading);
    }
    const loaded = await loadParts({
      ...{ where: WHERE, host, options, place, description, opener },
      ...{ memory, store: kept },
    });
    try {
      return wrap(ofLocal(loaded, tokenizer), description, tokenizer, options, reading);
    } catch (error) {
      loaded.release();
      throw error;
    }
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    return throwUnder(WHERE, renamed(error));
  } finally {
    end();
    opener.drop();
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
  if (options.perLayer !== undefined) expectOneOf(WHERE, "options.perLayer", options.perLayer, TABLE_PLACES);
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

/** Given kernels have what they were loaded with. */
function checkKernels({ kernels, ...rest }: OpenModelOptions): void {
  if (kernels === undefined) return;
  expectKernels(WHERE, kernels, "options.kernels");
  for (const name of ["worker", "threads", "deterministic", "createWorker", "statistics"] as const)
    if (rest[name] !== undefined && rest[name] !== false)
      throw new TypeError(`${WHERE}: options.${name} expected none with options.kernels, got ${describe(rest[name])}`);
}

function storeReason(given: ModelStore | false | undefined, store: ModelStore | false | undefined): string {
  if (given !== undefined) return "asked for";
  return store ? "the cache of this user or origin" : "this host has no place for it";
}

/** Throws unless the files are those of a kind of models that can do the task. */
function expectKind({ kind, type }: Description, task: ModelTask | undefined): void {
  const fail = (rule: string, got: string) => {
    throw new HeadwiseError("BAD_FILE", `${WHERE}: source expected ${rule}, got ${type}, ${got}`);
  };
  const names = {
    decoder: "a decoder",
    encoder: "an encoder, which reads texts",
    halves: "a model with two halves",
    lookup: "a table of rows",
  };
  if (task === "chat" && kind !== "decoder") fail("a decoder that can chat", names[kind]);
  if (task === "text" && kind !== "decoder" && kind !== "halves") fail("a model that writes", names[kind]);
  if (task !== undefined && task !== "chat" && task !== "text" && kind === "halves")
    fail("an encoder or a decoder", names[kind]);
}

/** Throws unless what the files ask for is the task, where that is one of models that read, and the tokenizer can do it. */
function expectReading(
  { recipe, type, ...rest }: Description,
  tokenizer: Tokenizer,
  task: ModelTask | undefined,
): void {
  const isOwn = tokenizer.made === undefined && recipe.gives !== "vector";
  if (isOwn && isReading({ recipe, type, ...rest }, task)) {
    const rule = `one of loadTokenizer or readGgufTokenizer, for a model that can ${tasksOf(recipe)[0]}`;
    throw new TypeError(`${WHERE}: options.tokenizer expected ${rule}, got another one`);
  }
  const can: readonly ModelTask[] = tasksOf(recipe);
  if (task === undefined || task === "text" || task === "chat" || can.includes(task)) return;
  const text = `${WHERE}: source expected a model that can ${task}, got ${type}, which can ${can.join(" and ")}`;
  throw new HeadwiseError("BAD_FILE", text);
}

/** The tokenizer that was given, or else that of the files. */
async function findTokenizer(
  { source }: Place,
  { metadata, recipe }: Description,
  { tokenizer, libraries, signal, integrity }: OpenModelOptions,
  store: ModelStore,
): Promise<Tokenizer> {
  if (tokenizer) return tokenizer;
  const library = libraries?.tokenizers;
  if (metadata) return readGgufTokenizer({ metadata }, { library });
  const folder = recipe.base ?? recipe.lookup?.folder ?? "";
  const { lowercase } = recipe.texts;
  return loadTokenizer(folderOf(source, folder), { library, signal, store, integrity, lowercase });
}

/** The id of a word, of several tokens the last one. */
function idOf(tokenizer: Tokenizer, word: string): number {
  const id = tokenizer.encode(word, { addSpecial: false }).at(-1);
  if (id !== undefined) return id;
  throw new HeadwiseError(
    "BAD_FILE",
    `${WHERE}: source expected a tokenizer with a token for ${describe(word)}, got none`,
  );
}

/** What makes the tasks of a model that reads texts, and tables whose rows these become. */
type Prepared = Pick<Reading, "createTasks"> & Pick<TaskParts, "lookup" | "queryLookup">;

async function prepareReading(
  { createTasks, createLookup, loadLookup }: Reading,
  { source }: Place,
  { recipe }: Description,
  { signal, libraries }: OpenModelOptions,
  store: ModelStore,
  tokenizer: Tokenizer,
): Promise<Prepared> {
  const load = async (rules: typeof recipe.lookup) => rules && loadLookup(WHERE, source, rules, signal, store);
  const { lookup, queryLookup } = { lookup: await load(recipe.lookup), queryLookup: await load(recipe.queryLookup) };
  const folder = recipe.queryLookup?.folder;
  const options = { library: libraries?.tokenizers, signal, store };
  const queries = folder === undefined ? undefined : await loadTokenizer(folderOf(source, folder), options);
  return {
    createTasks,
    lookup: lookup && createLookup(lookup, tokenizer),
    queryLookup: queryLookup && queries && createLookup(queryLookup, queries),
  };
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
  readonly run: RunTexts | undefined;
  /** Whether it reads features of sounds instead of text. */
  readonly hears: boolean;
  /** What tells whether it was released. */
  readonly model: { readonly released: boolean };
  parts(): ModelParts;
  release(): void;
}

function ofLocal({ kernels, model, engine, run, choices, release }: Loaded, tokenizer: Tokenizer): Opened {
  const parts: ModelParts = Object.freeze({
    ...{ kernels, model, tokenizer },
    get sessions() {
      return engine?.sessions ?? [];
    },
  });
  const hears = model.encoder?.spec.embed.channels !== undefined;
  const alive = {
    get released() {
      return model.released || kernels.released;
    },
  };
  return { engine, run, hears, choices, model: alive, parts: () => parts, release };
}

function ofRemote({ engine, run, writes, hears, choices, release }: Remote): Opened {
  const parts = () => {
    throw new TypeError("parts: model expected one that was opened without the option worker, got one in a worker");
  };
  const calls = { engine: writes ? engine : undefined, run: writes ? undefined : run };
  return { ...calls, hears, choices, model: engine, parts, release };
}

/** A model of tables alone, which runs no kernels. */
function ofTables(store: Choices["store"], memory: Choices["memory"]): Opened {
  const model = { released: false };
  const parts = () => {
    throw new TypeError("parts: model expected one that runs kernels, got a table of rows");
  };
  const reason = "rows of a table need no kernels";
  const choices: Choices = {
    ...{ build: { value: "simd", reason }, threads: { value: 0, reason }, store, memory, cache: undefined },
    ...{ weights: { value: "f32", reason }, maxSeqLen: { value: undefined, reason: "any number of tokens" } },
  };
  const release = () => {
    model.released = true;
  };
  return { engine: undefined, run: undefined, hears: false, choices, model, parts, release };
}

/** What a loaded model can do, and the methods for it. */
function methodsOf(
  { engine, run, hears, model, choices }: Opened,
  { recipe }: Description,
  tokenizer: Tokenizer,
  options: OpenModelOptions,
  reading: Prepared | undefined,
): { readonly can: readonly ModelTask[]; readonly methods: Partial<ModelMethods> } {
  if (reading) {
    const { createTasks, ...tables } = reading;
    const maxTokens = choices.maxSeqLen.value ?? Infinity;
    const { template, libraries } = options;
    const own = { recipe, tokenizer, template, run, ...tables, maxTokens, jinja: libraries?.jinja };
    const tasks = createTasks({ ...own, model });
    const can = tasksOf(recipe);
    const methods = Object.fromEntries(can.map((task) => [task, tasks[task]]));
    return { can, methods: { ...methods, countTokens: (text) => tasks.countTokens(text as string) } };
  }
  if (engine === undefined || hears) return { can: [], methods: {} };
  const { template, libraries } = options;
  const { text, chat, countTokens } = createWriting({ engine, tokenizer, template, jinja: libraries?.jinja });
  if (engine.isHalves) return { can: ["text"], methods: { text, countTokens } };
  return { can: hasTemplate(tokenizer, options) ? ["text", "chat"] : ["text"], methods: { text, chat, countTokens } };
}

/** The handle of an opened model. */
function wrap(
  opened: Opened,
  description: Description,
  tokenizer: Tokenizer,
  options: OpenModelOptions,
  reading: Prepared | undefined,
): OpenedModel {
  const { choices } = opened;
  const { type } = description;
  const { can, methods } = methodsOf(opened, description, tokenizer, options, reading);
  const refuse = (method: keyof ModelMethods): never => {
    const what = can.length > 0 ? `${type}, which can ${can.join(" and ")}` : `${type}, whose parts are in model.parts`;
    const isOpen = description.kind === "decoder" && (method === "embed" || method === "rank");
    const hint = isOpen ? `: open it with { for: "${method}" }` : "";
    throw new TypeError(`${method}: model expected one that can ${method}, got ${what}${hint}`);
  };
  const parts: Omit<OpenedModel, "released" | "release" | typeof Symbol.dispose> = {
    ...{ type, choices: Object.freeze(choices), can: Object.freeze([...can]) },
    get parts() {
      return opened.parts();
    },
    ...(Object.fromEntries(
      METHODS.map((name) => [name, methods[name] ?? (() => refuse(name))]),
    ) as unknown as ModelMethods),
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
  const { for: task, maxSeqLen, keptBytes, perLayer } = options;
  const formats = { activations, integrity, weights, cache, threads, deterministic };
  return { signal, onProgress, ...formats, for: task, maxSeqLen, keptBytes, perLayer };
}
