// Loads a model: opens its files, checks its tensors, and packs them one after the other.

import { type ModelFiles, type ModelSource, openModelFiles } from "../files/model-files.ts";
import type { ModelStore } from "../files/model-store.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { modeOf } from "../linear/linear.ts";
import { expectActivations, expectFormatLoaded } from "../linear/options.ts";
import { checkTensors, findRoot } from "../models/decoder/check-tensors.ts";
import type { Decoder } from "../models/decoder/read-spec.ts";
import { expectFunction, expectInt, expectSignal } from "../util/arguments.ts";
import { describe, HeadwiseError, throwUnder } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import { makeHandle } from "../util/lifetime.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { expectTiedHead } from "./check-head.ts";
import { expectFit, type PlanKind, planDecoder } from "./fit.ts";
import type { GgufReader } from "./gguf.ts";
import { type BlockContext, type LoadMore, loadBlock } from "./load-blocks.ts";
import { loadEnds, mostStaged } from "./load-ends.ts";
import type { Model, ModelHalf, ModelWeights } from "./model.ts";
import { type ModelFormats, readFormats } from "./model-formats.ts";
import { linearsOf, type ModelPlaces, placeModel } from "./places.ts";
import { planSpec } from "./plan-model.ts";
import { readOptions } from "./read-options.ts";
import { reserve } from "./reserve.ts";
import { storedFormats } from "./stored-formats.ts";
import { WeightReader } from "./weight-reader.ts";

/** Options of `loadModel`. */
export interface LoadModelOptions {
  /**
   * Formats of the matrices: one for all, or one each for attention, MLPs (experts among them), and the table of tokens, which
   * is often the head too. Default those that they are stored in, the blocks of GGUF's types without loss (`PackedFormat`), and
   * float32 instead of 16-bit floats for kernels that were loaded without `quantized`.
   */
  readonly weights?: WeightFormat | ModelFormats | undefined;
  /**
   * Tokens of the longest sequence that will be run. It decides between the two lists of factors of LongRoPE (Phi-3), and is
   * the default of sessions; as of `createSession`, it may exceed what config.json says where the model has no table of positions.
   * Default what config.json says, of which sessions by default have at most 4096.
   */
  readonly maxSeqLen?: number | undefined;
  /**
   * Bytes of linear memory that the model, one session of `maxSeqLen` tokens and its calls may take together. If they take more,
   * nothing is read of the weights, and the error says what would fit. Default none: loading goes on until memory is full.
   */
  readonly maxBytes?: number | undefined;
  /** As `WeightOptions.activations`. Default "exact". */
  readonly activations?: "exact" | "fast" | undefined;
  /** What GGUF files are read by, where `source` is one: `gguf`. */
  readonly gguf?: GgufReader | undefined;
  /** Called after each read with the bytes that were read, and all that will be: those of the tensors that the model has. */
  readonly onProgress?: ((done: number, all: number) => void) | undefined;
  /** Ends loading: it rejects with the signal's reason, and all memory is freed. */
  readonly signal?: Global<"AbortSignal"> | undefined;
  /**
   * Keeps what is read of URLs, so that the next start reads it from there, also without a network, and a download that was
   * interrupted goes on: of `createFolderStore`, `createBrowserStore` or `createStore`. Default none.
   */
  readonly store?: ModelStore | undefined;
  /**
   * The SHA-256 of the file, as hubs publish it: 64 hex digits, or "sha256-" and base64; of a model in several files, an object with
   * that of each file that is read, by its name. A file with another one is refused (`BAD_FILE`) before the model is given out, and
   * `store` keeps nothing of it. It is computed while tensors are read; what no tensor needs is read at the end. Default none.
   */
  readonly integrity?: string | Readonly<Record<string, string>> | undefined;
}

const OPTIONS = [
  ...["weights", "maxSeqLen", "maxBytes", "activations", "gguf", "onProgress", "signal", "store", "integrity"],
] as const;

/** Reads what a model consists of from its files. */
export type ReadDecoder = (
  where: string,
  files: ModelFiles,
  maxSeqLen: number | undefined,
  gguf: GgufReader | undefined,
) => Decoder | Promise<Decoder>;

/** How a kind of models is loaded. */
export interface ModelKind {
  readonly read: ReadDecoder;
  readonly open?: typeof openModelFiles;
  readonly loadMore?: LoadMore;
  /** What `maxBytes` counts. Default a model with one session. */
  readonly plan?: PlanKind;
}

/** `loadModel` under the name of the public function `where`, for another kind of models. */
export async function loadWith(
  where: string,
  kernels: Kernels,
  source: ModelSource,
  options: LoadModelOptions,
  { read, open = openModelFiles, loadMore, plan = planDecoder }: ModelKind,
): Promise<Model> {
  expectKernels(where, kernels);
  const given = readOptions(where, options, OPTIONS);
  const { weights, maxSeqLen, maxBytes, activations, gguf, onProgress, signal, store, integrity } = given;
  if (maxSeqLen !== undefined) expectInt(where, "options.maxSeqLen", maxSeqLen);
  if (maxBytes !== undefined) expectInt(where, "options.maxBytes", maxBytes, 0, Number.MAX_SAFE_INTEGER);
  const formats = readFormats(where, weights);
  const fast = expectActivations(where, "options.activations", activations);
  if (onProgress !== undefined) expectFunction(where, "onProgress", onProgress);
  if (signal !== undefined) expectSignal(where, signal);
  expectGguf(where, gguf);
  if (store !== undefined) expectFunction(where, "options.store.open", Object(store).open);
  expectModelKernels(where, kernels, formats);
  const expectActive = () => {
    signal?.throwIfAborted();
    expectKernels(where, kernels);
  };
  expectActive();
  let files: ModelFiles | undefined;
  try {
    files = await open(where, source, gguf?.open, signal, store, { whole: true, integrity });
    const decoder = await read(where, files, maxSeqLen, gguf);
    expectLatent(where, kernels, decoder);
    const tensors = checkTensors(where, decoder, files.tensors);
    const all = [...tensors.values()].reduce((sum, { bytes }) => sum + bytes, 0);
    let done = 0;
    const onRead = (bytes: number) => {
      done += bytes;
      onProgress?.(done, all);
    };
    const layout = decoder.family.layout ?? "out-in";
    const { file, pieceBytes } = files;
    const reader = new WeightReader(tensors, file, { where, kernels, layout, pieceBytes, expectActive, onRead });
    if (maxBytes !== undefined) {
      const weights = (half: Decoder) => storedFormats(reader, half, formats);
      const wanted = { weights, maxSeqLen: decoder.spec.sessionLength };
      expectFit(where, plan(where, decoder), wanted, maxBytes);
    }
    await expectTiedHead(where, decoder, files);
    expectActive();
    const model = await packModel(where, kernels, decoder, reader, formats, fast, loadMore);
    try {
      await files.verify();
      expectActive();
    } catch (error) {
      model.release();
      throw error;
    }
    return model;
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    await files?.verify(error);
    return throwUnder(where, error);
  } finally {
    await files?.close();
  }
}

/** Throws unless `kernels` can run whole decoders with these formats. */
export function expectModelKernels(where: string, kernels: Kernels, formats: ModelFormats): void {
  if (!kernels.models)
    throw new HeadwiseError(
      "NO_MODELS",
      `${where}: kernels expected ones that were loaded with { models }, which headwise/models exports, got kernels without it`,
    );
  for (const [part, format] of Object.entries(formats)) expectFormatLoaded(where, kernels.quantized, part, format);
}

function expectLatent(where: string, kernels: Kernels, { spec }: Decoder): void {
  if (kernels.latent || !spec.blocks.some(({ attention }) => attention.kind === "latent")) return;
  const rule = "ones that were loaded with { latent }, which headwise/latent exports";
  const text = `${where}: kernels expected ${rule}, for a model of type ${describe(spec.type)}, got kernels without it`;
  throw new HeadwiseError("NO_LATENT", text);
}

async function packModel(
  where: string,
  kernels: Kernels,
  decoder: Decoder,
  reader: WeightReader,
  formats: ModelFormats,
  fast: boolean,
  loadMore: LoadMore | undefined,
): Promise<Model> {
  const { spec, encoder } = decoder;
  const { memory } = kernels;
  const owned: BlockContext["owned"] = [];
  const free = () => {
    for (const each of owned.splice(0)) each.release();
  };
  const staging = memory.allocate(where, 4 * Math.max(mostStaged(decoder), encoder ? mostStaged(encoder) : 0));
  try {
    const context = {
      ...{ kernels, reader, where, owned, staging, loadMore },
      formats: { attention: formats.attention, mlp: formats.mlp },
      activations: fast ? ("fast" as const) : ("exact" as const),
    };
    const half = await packHalf(context, decoder, formats, undefined);
    const encoderHalf = encoder && (await packHalf(context, encoder, formats, half.weights));
    memory.free(staging);
    const parts = {
      ...{ kernels, type: spec.type, dModel: spec.dModel, vocabSize: spec.vocabSize, encoder: encoderHalf },
      layers: (spec.order ?? spec.blocks).length,
      ...{ maxSeqLen: spec.maxSeqLen, bytes: owned.reduce((sum, { bytes }) => sum + bytes, 0), ...half },
    };
    const release = () => {
      if (!kernels.released) free();
    };
    const kind = where.slice("load".length);
    return makeHandle<Model>(kind, where, parts, ["kernels", "spec", "places", "weights", "encoder"], release);
  } catch (error) {
    if (!kernels.released) {
      memory.free(staging);
      free();
    }
    throw error;
  }
}

/** Packs a model, or a half of one, of which the encoder has the table of tokens of `decoder`. */
async function packHalf(
  shared: Omit<BlockContext, "names" | "family" | "attention" | "dModel">,
  half: Decoder,
  formats: ModelFormats,
  decoder: ModelWeights | undefined,
): Promise<ModelHalf> {
  const { spec, names, family, attention } = half;
  const { kernels, reader, where, activations } = shared;
  const context: BlockContext = { ...shared, names, family, attention, dModel: spec.dModel };
  const root = findRoot(half, reader.tensors);
  const layerAt = (i: number) => `${root}${names.layers}.${i}.`;
  const stored = storedFormats(reader, half, formats);
  const places = placeModel(spec, stored.ends, stored.mlp);
  reserve(where, kernels.memory, planSpec(where, spec, stored).weights);
  const ends = await loadEnds(context, half, places, root, decoder);
  const blocks: ModelWeights["blocks"][number][] = [];
  for (const [i, block] of spec.blocks.entries())
    blocks.push(await loadBlock(context, block, places.blocks[i] as ModelPlaces["blocks"][number], layerAt(i)));
  const outer = [...Object.values(places.ends), places.ends.transform?.dense];
  const linears = [...outer, ...places.blocks.flatMap(({ place }) => linearsOf(place))];
  const used = linears.flatMap((each) => (each && typeof each === "object" && "format" in each ? [each.format] : []));
  return { spec, places, weights: { ...ends, blocks, mode: modeOf(kernels, used, activations === "fast") } };
}

/** Throws unless the option `gguf` is absent or what reads GGUF files. */
export function expectGguf(where: string, gguf: GgufReader | undefined): void {
  if (gguf !== undefined && typeof Object(gguf).open !== "function")
    throw new TypeError(`${where}: options.gguf expected gguf, which headwise/models exports, got ${describe(gguf)}`);
}
