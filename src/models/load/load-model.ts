// Loads a model: opens its files, checks its tensors, and packs them one after the other; and plans one from headers alone.

import { toFloats } from "../../base/tensor/dtypes.ts";
import {
  expectFlag,
  expectFunction,
  expectInt,
  expectOneOf,
  expectSignal,
  type Global,
  readFields,
  readOptions,
} from "../../base/util/arguments.ts";
import { describe, HeadwiseError, throwUnder } from "../../base/util/errors.ts";
import { makeHandle } from "../../base/util/lifetime.ts";
import { followSignal } from "../../base/util/signals.ts";
import { type ModelFiles, type ModelSource, openModelFiles } from "../../files/model-files.ts";
import type { ModelStore } from "../../files/store.ts";
import { expectActivations, expectFormatLoaded, type WeightFormat } from "../../layers/linear/formats.ts";

import { modeOf } from "../../layers/linear/products.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import {
  type BlockPlaces,
  type LoadedModel,
  type Model,
  type ModelHalf,
  type ModelWeights,
  placeModel,
  reserve,
} from "../blocks/model.ts";
import { MIXERS } from "../mixers/mixers.ts";
import type { GgufReader } from "../spec/read-gguf.ts";
import { readDecoder } from "../spec/read-spec.ts";
import { checkTensors, type Decoder, endSources, findRoot, resolveHead } from "../spec/tensors.ts";
import {
  type EncoderParts,
  formatsOf,
  type Packing,
  packEnds,
  packLayer,
  stagingBytes,
  WeightReader,
} from "./pack-weights.ts";
import {
  expectFit,
  type ModelFormats,
  type ModelPlan,
  type ModelPlanSizes,
  type PlanKind,
  planDecoder,
  planSpec,
  readFormats,
  SIZES,
  storedFormats,
} from "./plan-model.ts";
import { scaledFiles, scaledTensors } from "./scaled.ts";

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
  /**
   * Where the table is of which Gemma 3n and 4 give each layer an input for each token, often half of the model: "on-demand" leaves it
   * in the file, which stays open until `release()`, and asynchronous calls read the rows of their tokens from there; a synchronous
   * one is refused (`NOT_RESIDENT`) unless all of its rows were read of late, 16 MiB of which are held. "resident" reads all of it.
   * Of bytes that were given as `source`, rows are read where they lie, in either way. Default "on-demand".
   */
  readonly perLayer?: "on-demand" | "resident" | undefined;
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

const LOAD_OPTIONS = [
  ...["weights", "maxSeqLen", "maxBytes", "perLayer", "activations"],
  ...["gguf", "onProgress", "signal", "store", "integrity"],
] as const;

/**
 * Loads a whole decoder from safetensors with config.json, or with the option `gguf` from GGUF: reads tensors one after the other,
 * and packs each as it comes. A model, a field of config.json or a rule of the metadata that is not known is refused by name, as are
 * tensors that are missing, unexpected or of another shape, all in one error. Not read are masks and tables that follow from the
 * configuration, nor a head where `tie_word_embeddings` says that it is the table of tokens, which it must equal.
 * @param source A folder or a GGUF file, by path (on hosts with a file system) or URL; files; bytes of a GGUF; or what opens files.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, `NO_LATENT`, `NO_GGUF`, or the signal's reason. All memory is freed then.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadModel, models } from "headwise/models";
 * import { writeSafetensors } from "headwise/weights";
 * const tensor = (...shape: number[]) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)).fill(0.1), shape });
 * const [layer, mlp] = ["model.layers.0.", { gate_proj: [16, 8], up_proj: [16, 8], down_proj: [8, 16] }];
 * const bytes = writeSafetensors({
 *   "model.embed_tokens.weight": tensor(32, 8), "model.norm.weight": tensor(8),
 *   [`${layer}input_layernorm.weight`]: tensor(8), [`${layer}post_attention_layernorm.weight`]: tensor(8),
 *   ...Object.fromEntries(["q", "k", "v", "o"].map((name) => [`${layer}self_attn.${name}_proj.weight`, tensor(8, 8)])),
 *   ...Object.fromEntries(Object.entries(mlp).map(([name, shape]) => [`${layer}mlp.${name}.weight`, tensor(...shape)])),
 * });
 * const config = { model_type: "llama", hidden_size: 8, num_attention_heads: 2, num_hidden_layers: 1, intermediate_size: 16,
 *   vocab_size: 32 };
 * const files = new Map([["config.json", new TextEncoder().encode(JSON.stringify(config))], ["model.safetensors", bytes]]);
 * const kernels = await loadKernels({ models });
 * using model = await loadModel(kernels, (name) => files.get(name));
 * console.log(model.type, model.layers, model.vocabSize); // llama 1 32
 */
export async function loadModel(kernels: Kernels, source: ModelSource, options: LoadModelOptions = {}): Promise<Model> {
  return loadWith("loadModel", kernels, source, options, { read: readModel }) as Promise<Model>;
}

/** Reads what a decoder consists of from its opened files. */
async function readModel(
  where: string,
  { description, tensors }: ModelFiles,
  maxSeqLen: number | undefined,
  gguf: GgufReader | undefined,
): Promise<Decoder> {
  if (typeof description === "string") return resolveHead(readDecoder(where, description, maxSeqLen), tensors);
  return (gguf as GgufReader).read(where, description, maxSeqLen);
}

/** Reads what a model consists of from its files. */
type ReadDecoder = (
  where: string,
  files: ModelFiles,
  maxSeqLen: number | undefined,
  gguf: GgufReader | undefined,
) => Decoder | Promise<Decoder>;

/** How a kind of models is loaded. */
interface ModelKind {
  readonly read: ReadDecoder;
  readonly open?: typeof openModelFiles;
  readonly encoders?: EncoderParts;
  /** A head beside the table of tokens is not read. */
  readonly headless?: true;
  /** What `maxBytes` counts. Default a model with one session. */
  readonly plan?: PlanKind;
}

/** `loadModel` under the name of the public function `where`, for another kind of models. */
export async function loadWith(
  where: string,
  kernels: Kernels,
  source: ModelSource,
  options: LoadModelOptions,
  { read, open = openModelFiles, encoders, headless, plan = planDecoder }: ModelKind,
): Promise<LoadedModel> {
  expectKernels(where, kernels);
  const given = readOptions(where, options, LOAD_OPTIONS);
  const { weights, maxSeqLen, maxBytes, perLayer, activations, gguf, onProgress, store, integrity } = given;
  expectReading(where, given);
  if (perLayer !== undefined) expectOneOf(where, "options.perLayer", perLayer, TABLE_PLACES);
  if (maxBytes !== undefined) expectInt(where, "options.maxBytes", maxBytes, 0, Number.MAX_SAFE_INTEGER);
  const formats = readFormats(where, weights);
  const fast = expectActivations(where, "options.activations", activations);
  if (onProgress !== undefined) expectFunction(where, "onProgress", onProgress);
  expectModelKernels(where, kernels, formats);
  const { signal, end } = followSignal(given.signal);
  const expectActive = () => {
    signal?.throwIfAborted();
    expectKernels(where, kernels);
  };
  let files: ModelFiles | undefined;
  let staysOpen = false;
  try {
    expectActive();
    files = await open(where, source, gguf?.open, signal, store, { whole: true, integrity });
    const decoder = await read(where, files, maxSeqLen, gguf);
    files = scaledFiles(where, decoder, files);
    expectMixers(where, kernels, decoder);
    const tensors = checkTensors(where, decoder, files.tensors);
    const table = perLayer === "resident" || files.inMemory || encoders ? undefined : tableOutside(decoder, tensors);
    let all = 0;
    for (const [name, { bytes }] of tensors) if (name !== table) all += bytes;
    let done = 0;
    const onRead = (bytes: number) => {
      done += bytes;
      onProgress?.(done, all);
    };
    const { file, pieceBytes, inMemory } = files;
    const tables = table ? "on-demand" : inMemory ? "views" : "copies";
    const reader = new WeightReader(tensors, file, { where, kernels, pieceBytes, tables, expectActive, onRead });
    if (maxBytes !== undefined) {
      const weights = (half: Decoder) => storedFormats(reader, half, formats);
      const wanted = { weights, maxSeqLen: decoder.spec.sessionLength };
      expectFit(where, plan(where, decoder), wanted, maxBytes);
    }
    if (!headless) await expectTiedHead(where, decoder, files);
    expectActive();
    const close = table ? files.close : undefined;
    const model = await packModel(where, kernels, decoder, reader, formats, fast, encoders, close);
    try {
      await files.verify();
      expectActive();
      if (table) files.settle();
      staysOpen = table !== undefined;
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
    end();
    if (!staysOpen) await files?.close();
  }
}

/** Values of the option `perLayer`. */
export const TABLE_PLACES = ["on-demand", "resident"] as const;

/** The name of the tensor that stays outside of linear memory, if there is one. */
function tableOutside(decoder: Decoder, tensors: ReadonlyMap<string, unknown>): string | undefined {
  const sources = endSources(decoder, findRoot(decoder, tensors));
  return [...sources].find(({ weights: [weight] }) => weight?.outside)?.name;
}

// What is checked before a weight is read.

/** Throws unless `kernels` can run whole decoders with these formats. */
export function expectModelKernels(where: string, kernels: Kernels, formats: ModelFormats): void {
  if (!kernels.models)
    throw new HeadwiseError(
      "NO_MODELS",
      `${where}: kernels expected ones that were loaded with { models }, which headwise/models exports, got kernels without it`,
    );
  for (const [part, format] of Object.entries(formats)) expectFormatLoaded(where, kernels.quantized, part, format);
}

/** Throws unless `kernels` can run the mixers of the model. */
function expectMixers(where: string, kernels: Kernels, { spec }: Decoder): void {
  for (const { mixer } of spec.blocks) {
    const { needs } = MIXERS[mixer.kind];
    if (!needs || kernels[needs.option]) continue;
    const { option, code } = needs;
    const rule = `ones that were loaded with { ${option} }, which headwise/${option} exports`;
    const text = `${where}: kernels expected ${rule}, for a model of type ${describe(spec.type)}, got kernels without it`;
    throw new HeadwiseError(code, text);
  }
}

/** Checks how files are read. */
function expectReading(
  where: string,
  { maxSeqLen, gguf, signal, store }: Pick<LoadModelOptions, "maxSeqLen" | "gguf" | "signal" | "store">,
): void {
  if (maxSeqLen !== undefined) expectInt(where, "options.maxSeqLen", maxSeqLen);
  if (signal !== undefined) expectSignal(where, signal);
  if (store !== undefined) expectFunction(where, "options.store.open", Object(store).open);
  if (gguf !== undefined && typeof Object(gguf).open !== "function")
    throw new TypeError(`${where}: options.gguf expected gguf, which headwise/models exports, got ${describe(gguf)}`);
}

/** Rows at either end that are compared: a head that was trained on its own differs in all of them. */
const ROWS = 8;

/**
 * Throws BAD_FILE if the file has a head that is tied to the table of tokens, and differs from it: programs disagree on which of the
 * two such a model means.
 */
async function expectTiedHead(where: string, decoder: Decoder, { tensors, file }: ModelFiles): Promise<void> {
  const { spec, names } = decoder;
  const [head, table] = [`${names.head}.weight`, `${findRoot(decoder, tensors)}${names.embed}.weight`];
  const stored = tensors.get(head);
  if (spec.head.tied === false || stored === undefined || head === table) return;
  const [rows = 0] = stored.shape;
  const read = async (name: string, begin: number) =>
    toFloats(await file.readRows(name, begin, Math.min(begin + ROWS, rows), where), where).slice();
  const differ = async (begin: number) => {
    const [own, other] = [await read(head, begin), await read(table, begin)];
    return own.some((value, i) => !Object.is(value, other[i]));
  };
  const isSame =
    `${stored.shape}` === `${tensors.get(table)?.shape}` &&
    !((await differ(0)) || (await differ(Math.max(0, rows - ROWS))));
  if (isSame) return;
  const rule = `the values of ${describe(table)}, to which the head is tied`;
  throw new HeadwiseError(
    "BAD_FILE",
    `${where}: tensor ${describe(head)} expected ${rule}, got others; it is the head where tie_word_embeddings is false`,
  );
}

// What was checked, in memory.

/** Packs a model, whose files were opened and checked, into memory that is freed with it; files that stay open are closed then. */
async function packModel(
  where: string,
  kernels: Kernels,
  decoder: Decoder,
  reader: WeightReader,
  formats: ModelFormats,
  fast: boolean,
  encoders: EncoderParts | undefined,
  close: (() => Promise<void>) | undefined,
): Promise<LoadedModel> {
  const { spec, encoder } = decoder;
  const { memory } = kernels;
  const owned: Packing["owned"] = [];
  const free = () => {
    for (const each of owned.splice(0)) each.release();
  };
  const staging = memory.allocate(where, Math.max(stagingBytes(decoder), encoder ? stagingBytes(encoder) : 0));
  try {
    const shared = {
      ...{ kernels, reader, where, owned, staging, encoders, attention: formats.attention },
      activations: fast ? ("fast" as const) : ("exact" as const),
    };
    const half = await packHalf(shared, decoder, formats, undefined);
    const encoderHalf = encoder && (await packHalf(shared, encoder, formats, half.weights));
    memory.free(staging);
    const parts = {
      ...{ kernels, type: spec.type, dModel: spec.dModel, vocabSize: spec.vocabSize, encoder: encoderHalf },
      vectorDim: (encoder?.spec ?? spec).vectorDim ?? spec.dModel,
      layers: (spec.order ?? spec.blocks).length,
      ...{ maxSeqLen: spec.maxSeqLen, bytes: owned.reduce((sum, { bytes }) => sum + bytes, 0), ...half },
    };
    const release = () => {
      if (!kernels.released) free();
      // What fails then is nobody's concern.
      void close?.().catch(() => {});
    };
    const kind = where.slice("load".length);
    return makeHandle<LoadedModel>(
      kind,
      where,
      parts,
      ["kernels", "vectorDim", "spec", "places", "weights", "encoder"],
      release,
    );
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
  shared: Omit<Packing, "half" | "root">,
  half: Decoder,
  formats: ModelFormats,
  decoder: ModelWeights | undefined,
): Promise<ModelHalf> {
  const { spec } = half;
  const { kernels, reader, where, activations } = shared;
  const packing: Packing = { ...shared, half, root: findRoot(half, reader.tensors) };
  const formatOf = storedFormats(reader, half, formats);
  const places = placeModel(spec, formatOf);
  reserve(where, kernels.memory, planSpec(where, spec, formatOf).weights);
  const ends = await packEnds(packing, places, decoder);
  const blocks: ModelWeights["blocks"][number][] = [];
  for (const [layer, own] of places.blocks.entries()) blocks.push(await packLayer(packing, own, layer));
  const used = [places.ends, ...places.blocks].flatMap(({ linears }: BlockPlaces) =>
    Array.from(linears.values(), ({ format }) => format),
  );
  return {
    spec,
    places,
    weights: { ...ends, blocks, mode: modeOf(kernels, used, activations === "fast", spec.rounded) },
  };
}

// The memory of a model in files, from their headers alone.

/** What to plan memory for, and how files are read. */
export interface FilesPlanOptions extends ModelPlanSizes {
  /** What GGUF files are read by, where `source` is one: `gguf`. */
  readonly gguf?: GgufReader | undefined;
  /** Whether the kernels will be loaded with `quantized`, which keep 16-bit floats as they are stored. Default true. */
  readonly quantized?: boolean | undefined;
  /** Ends requests: the promise rejects with the signal's reason. */
  readonly signal?: Global<"AbortSignal"> | undefined;
  /** Keeps what is read of URLs, as of `loadModel`. */
  readonly store?: ModelStore | undefined;
}

const PLAN_OPTIONS = [...SIZES, "gguf", "quantized", "signal", "store"] as const;

/**
 * The memory that `loadModel` of the same source, its sessions and its calls will take. Of each file only the header is read: of a
 * URL, a few requests for ranges. Formats are those of the files unless `options.weights` asks for others, and files say whether
 * there is a head beside the table of tokens, so this is exact where `planModel` has to assume.
 * @param source As `loadModel` takes it: a folder or a GGUF file, by path or URL; files; bytes; or what opens files.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `NO_GGUF`, or the signal's reason.
 * @example
 * import { gguf, planModelFiles } from "headwise/models";
 * const { weights } = await planModelFiles("model/stories/stories.gguf", { gguf, maxSeqLen: 256 });
 * console.log(weights > 700_000 && weights < 1_200_000); // true
 */
export async function planModelFiles(source: ModelSource, options: FilesPlanOptions = {}): Promise<ModelPlan> {
  const where = "planModelFiles";
  const given = readFields(where, "options", options, PLAN_OPTIONS);
  const { maxSeqLen, gguf, quantized = true, signal, store } = given;
  expectReading(where, given);
  readFormats(where, given.weights);
  expectFlag(where, "options.quantized", quantized);
  signal?.throwIfAborted();
  let files: ModelFiles | undefined;
  try {
    files = await openModelFiles(where, source, gguf?.open, signal, store);
    return planDecoderFiles(where, await readModel(where, files, maxSeqLen, gguf), files, given, quantized);
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    return throwUnder(where, error);
  } finally {
    await files?.close();
  }
}

/** The memory of a decoder whose files were opened, in the formats that they store where none is asked for. */
export function planDecoderFiles(
  where: string,
  decoder: Decoder,
  files: Pick<ModelFiles, "tensors">,
  { weights, ...sizes }: ModelPlanSizes,
  quantized: boolean,
): ModelPlan {
  const tensors = scaledTensors(decoder, files.tensors);
  const stored = formatsOf(where, checkTensors(where, decoder, tensors), quantized);
  return planSpec(where, decoder.spec, storedFormats(stored, decoder, readFormats(where, weights)), sizes);
}
