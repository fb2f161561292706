// Loads the kernels and the weights of a model whose files are known.

import type { ThreadWorker } from "../base/platform/workers.ts";
import { folderOf } from "../files/model-files.ts";
import type { WeightFormat } from "../layers/linear/formats.ts";
import type { CacheFormat } from "../layers/state/pages.ts";
import type { Model } from "../models/blocks/model.ts";
import { type Encoder, loadEncoder, loadSeq2Seq, type Seq2Seq } from "../models/encoder/load.ts";
import { type LoadModelOptions, loadModel } from "../models/load/load-model.ts";
import type { ModelFormats } from "../models/load/plan-model.ts";
import { gguf } from "../models/spec/read-gguf.ts";
import type { createRunner, RunTexts, TextRunner } from "../retrieval/run.ts";
import type { createLookup, loadLookup } from "../retrieval/static.ts";
import type { createTasks } from "../retrieval/tasks.ts";
import type { Kernels } from "../wasm/kernels.ts";
import type { LatentKernels, LoadOptions, ModelKernels, QuantizedKernels, StatisticsKernels } from "../wasm/modules.ts";
import { type Choice, type Choices, chooseDecoder, chooseThreads } from "./choose.ts";
import { createEngine, type LocalEngine, type SessionBytes } from "./engine.ts";
import type { ModelTask } from "./model.ts";
import type { Description } from "./recognise.ts";
import type { Place, UrlOpener } from "./source.ts";

/** How far opening a model is. */
export interface OpenProgress {
  /** What is read: the name of the file or folder, or what was given for it. */
  readonly file: string;
  /** Files with weights. */
  readonly files: number;
  /** Bytes of weights that were read. */
  readonly bytes: number;
  /** All bytes of weights that will be read. */
  readonly allBytes: number;
  /** Seconds that the rest will take at the speed until now; undefined as long as that is not known. */
  readonly secondsLeft: number | undefined;
}

/** Options of `openModel` that say how weights are loaded. */
export interface LoadingOptions<Task extends ModelTask = ModelTask>
  extends Pick<LoadModelOptions, "signal" | "activations" | "integrity" | "perLayer"> {
  /**
   * What the model is opened for: the type then has the methods of that task alone, and a model that cannot do it is refused before
   * its weights are read. "embed" has decoders give vectors. Default all that its files say.
   */
  readonly for?: Task | undefined;
  /** Called after each read with what was read, and what remains. */
  readonly onProgress?: ((progress: OpenProgress) => void) | undefined;
  /**
   * The format of the weights, one for all or one each for attention, MLPs and the table of tokens. Default those of the files; of files
   * with 16- or 32-bit floats that do not fit in memory, "q8".
   */
  readonly weights?: WeightFormat | ModelFormats | undefined;
  /** The format of what sessions keep of their tokens. Default "q8" beside quantised weights, else "f16". */
  readonly cache?: CacheFormat | undefined;
  /**
   * Kernels to run on, loaded with `models`: for several models in one memory, such as one that finds texts beside one that writes.
   * They stay yours: releasing the opened model frees what it holds and leaves them. Default kernels of its own.
   */
  readonly kernels?: Kernels | undefined;
  /** Threads, 1 to 64, or "auto" for one each processor, up to 8. Default "auto", and 1 for small models. */
  readonly threads?: number | "auto" | undefined;
  /** Kernels for statistics of attention on the model's parts: `statistics` of `headwise/inspect`. Default none. */
  readonly statistics?: StatisticsKernels | undefined;
  /** Makes a worker of the threads that runs `headwise/worker`, for pages whose content security policy forbids inlined ones. */
  readonly createWorker?: (() => ThreadWorker) | undefined;
  /** Use the build with the same bits on every engine. Default false: the faster one of this engine. */
  readonly deterministic?: boolean | undefined;
  /**
   * Tokens of the longest conversation or text. Default what the model was made for; of models that write at most 4096, and fewer if
   * memory is short.
   */
  readonly maxSeqLen?: number | undefined;
  /**
   * Bytes of the sessions that are kept after their answers, for prompts that begin in the same way. Default a quarter of the memory
   * that the model leaves, at most 512 MiB; 0 keeps none.
   */
  readonly keptBytes?: number | undefined;
}

/** Options of `loadKernels` in `headwise/threads`. */
interface ThreadOptions extends LoadOptions {
  readonly createWorker?: () => ThreadWorker;
}

/** What only models need that read texts. */
export interface Reading {
  readonly createRunner: typeof createRunner;
  readonly createTasks: typeof createTasks;
  readonly loadLookup: typeof loadLookup;
  readonly createLookup: typeof createLookup;
}

/** Kernels as an entry has them, which this room may not import, and what is imported when it is needed. */
export interface KernelHost {
  readonly reading: () => Promise<Reading>;
  loadKernels(options: ThreadOptions): Promise<Kernels>;
  readonly models: ModelKernels;
  readonly quantized: QuantizedKernels;
  readonly latent: () => Promise<LatentKernels>;
}

/** What is loaded, and how. */
interface Loading {
  /** The public function, for messages. */
  readonly where: string;
  readonly host: KernelHost;
  readonly options: LoadingOptions;
  readonly place: Place;
  readonly description: Description;
  readonly opener: UrlOpener;
  readonly memory: Choice<number>;
  readonly store: Choice<boolean>;
}

/** A model in memory, and what was chosen for it: it writes tokens or makes vectors. */
export interface Loaded {
  readonly kernels: Kernels;
  readonly model: Model | Encoder | Seq2Seq;
  readonly choices: Choices;
  readonly engine?: LocalEngine;
  readonly run?: RunTexts;
  /** Frees all of it: kernels that were given stay. */
  release(): void;
}

/** Whether a model is loaded to read texts, as opposed to writing them. */
export const isReading = ({ kind, isReader }: Description, task: ModelTask | undefined): boolean =>
  kind === "encoder" ||
  kind === "lookup" ||
  (kind === "decoder" && (task === undefined ? isReader : task !== "text" && task !== "chat"));

/** Loads the kernels and the weights. */
export async function loadParts(loading: Loading): Promise<Loaded> {
  const { options, description } = loading;
  if (isReading(description, options.for)) return loadReader(loading);
  return description.kind === "halves" ? loadHalves(loading) : loadForText(loading);
}

/** Starts the kernels for a model whose weights take about so many bytes, or takes those that were given. */
async function startKernels({ host, options, description }: Loading, weightBytes: number) {
  const { deterministic = false, createWorker, statistics } = options;
  if (options.kernels) return { kernels: options.kernels, threadReason: GIVEN_KERNELS };
  const { threads, reason } = chooseThreads(options.threads, weightBytes);
  const { models, quantized } = host;
  const latent = description.isLatent ? { latent: await host.latent() } : {};
  const kernels = await host.loadKernels({
    ...{ threads, deterministic, models, quantized, ...latent },
    ...(createWorker && { createWorker }),
    ...(statistics && { statistics }),
  });
  return { kernels, threadReason: reason };
}

/** What all loaders are given. */
function commonOf({
  options,
  place,
  description,
  opener,
}: Loading): Pick<LoadModelOptions, "signal" | "store" | "activations" | "integrity" | "onProgress"> {
  const { signal, activations, integrity, onProgress } = options;
  const began = performance.now();
  const report = (bytes: number, allBytes: number) => {
    const seconds = (performance.now() - began) / 1000;
    const secondsLeft = seconds > 0.25 && bytes > 0 ? ((allBytes - bytes) * seconds) / bytes : undefined;
    onProgress?.({ file: place.name, files: description.files, bytes, allBytes, secondsLeft });
  };
  return { signal, activations, integrity, store: opener, ...(onProgress && { onProgress: report }) };
}

/** What every model has of its choices, once the kernels run. */
type Started = Pick<Choices, "build" | "threads" | "store" | "memory">;

/** What frees the parts of a model, and its kernels unless they were given. */
const releaseOf =
  ({ options }: Loading, kernels: Kernels, ...parts: readonly { release(): void }[]) =>
  () => {
    for (const part of parts) part.release();
    if (!options.kernels) kernels.release();
  };

/** Runs `work` with kernels, which are released if it fails, unless they were given. */
async function withKernels<T>(
  loading: Loading,
  weightBytes: number,
  work: (kernels: Kernels) => Promise<T>,
): Promise<{ readonly kernels: Kernels; readonly model: T; readonly started: Started }> {
  const { kernels, threadReason } = await startKernels(loading, weightBytes);
  const { opener, store, memory, options } = loading;
  opener.settle();
  try {
    const model = await work(kernels);
    const { used, reason } = kernels.threads;
    const build = { value: kernels.build, reason: options.kernels ? GIVEN_KERNELS : kernels.reason };
    const threads = { value: used, reason: threadReason ?? reason };
    return { kernels, model, started: { build, threads, store, memory } };
  } catch (error) {
    if (!options.kernels) kernels.release();
    throw error;
  }
}

const GIVEN_KERNELS = "that of the given kernels";
const STORED = "as the files store them";

/** Bytes of sessions that are kept by default, at most. */
const MOST_KEPT = 2 ** 29;

/** Bytes of the sessions of a model that takes so many besides. */
function sessionsOf({ options, memory }: Loading, taken: number): SessionBytes {
  const all = memory.value - taken;
  return { all, kept: options.keptBytes ?? Math.min(Math.floor(all / 4), MOST_KEPT) };
}

async function loadForText(loading: Loading): Promise<Loaded> {
  const { where, options, place, description, opener, memory } = loading;
  const { weights, cache, maxSeqLen, signal } = options;
  const wanted = { weights, cache, maxSeqLen };
  const chosen = await chooseDecoder(where, place, description, wanted, memory, { signal, store: opener });
  const { plan, ...choices } = chosen;
  const asked = {
    weights: chosen.weights.value === "stored" ? undefined : chosen.weights.value,
    maxSeqLen: chosen.maxSeqLen.value,
    perLayer: options.perLayer,
    gguf,
    ...commonOf(loading),
  };
  const { kernels, model, started } = await withKernels(loading, plan.weights, (kernels) =>
    loadModel(kernels, place.source, asked),
  );
  const engine = createEngine(model, chosen.cache.value, sessionsOf(loading, plan.weights + plan.scratch));
  const length = { ...choices.maxSeqLen, value: model.spec.sessionLength };
  const release = releaseOf(loading, kernels, engine, model);
  return { kernels, model, engine, choices: { ...started, ...choices, maxSeqLen: length }, release };
}

/** A model whose loader counts the memory itself, as those below. */
async function loadHalves(loading: Loading): Promise<Loaded> {
  const { options, place, memory } = loading;
  const { weights, maxSeqLen, cache = "f16" } = options;
  const asked = { weights, maxSeqLen, maxBytes: memory.value, ...commonOf(loading) };
  const { kernels, model, started } = await withKernels(loading, Infinity, (kernels) =>
    loadSeq2Seq(kernels, place.source, asked),
  );
  const choices = {
    ...{ ...started, weights: givenOr<Choices["weights"]["value"]>(weights, "stored", STORED) },
    cache: givenOr(options.cache, cache, "half of the memory of float32"),
    maxSeqLen: givenOr(maxSeqLen, model.spec.sessionLength, "what the model was made for, at most 4096"),
  };
  const engine = createEngine(model, cache, sessionsOf(loading, model.bytes));
  return { kernels, model, choices, engine, release: releaseOf(loading, kernels, engine, model) };
}

/** A model that reads texts, and what becomes of its rows. */
async function loadReader(loading: Loading): Promise<Loaded> {
  const { where, host, options, place, description, opener, memory } = loading;
  const { recipe } = description;
  const { createRunner } = await host.reading();
  const source = folderOf(place.source, recipe.base ?? "");
  const { weights } = options;
  const asked = { weights, gguf, maxBytes: memory.value, ...commonOf(loading) };
  const { kernels, model, started } = await withKernels(loading, Infinity, (kernels) =>
    loadEncoder(kernels, source, asked),
  );
  let runner: TextRunner;
  try {
    runner = await createRunner(where, model, recipe, {
      source: place.source,
      gguf,
      signal: options.signal,
      store: opener,
    });
  } catch (error) {
    releaseOf(loading, kernels, model)();
    throw error;
  }
  const stated = [options.maxSeqLen, recipe.texts.maxTokens, model.maxSeqLen].filter((length) => length !== undefined);
  const maxSeqLen = {
    value: stated.length > 0 ? Math.min(...stated) : undefined,
    reason: options.maxSeqLen === undefined ? "what the model's files say" : "asked for, or what the model's files say",
  };
  const choices = {
    ...started,
    maxSeqLen,
    weights: givenOr<Choices["weights"]["value"]>(weights, "stored", STORED),
    cache: undefined,
  };
  return { kernels, model, choices, run: runner.run, release: releaseOf(loading, kernels, runner, model) };
}

const givenOr = <Value>(given: Value | undefined, chosen: Value, reason: string): Choice<Value> =>
  given === undefined ? { value: chosen, reason } : { value: given, reason: "asked for" };
