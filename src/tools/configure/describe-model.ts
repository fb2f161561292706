// What a model costs: its parameters, what it keeps of a sequence, and the linear memory that it takes here.

import { BLOCK, PANEL } from "../../../assembly/layout.ts";
import {
  type AllFieldsOf,
  expectFunction,
  expectInt,
  expectSignal,
  type Global,
  readFields,
} from "../../base/util/arguments.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { nearestNames, parseJson } from "../../base/util/strings.ts";
import { type GgufFile, openGgufParts } from "../../files/gguf.ts";
import { type ModelFiles, type ModelSource, openModelFiles } from "../../files/model-files.ts";
import type { ModelStore } from "../../files/store.ts";
import { FORMATS, panelsOf, type WeightFormat } from "../../layers/linear/formats.ts";

import { checkTruncatable } from "../../layers/state/kv-cache.ts";
import { type CacheFormat, checkCacheFormat } from "../../layers/state/pages.ts";
import { type Fields, fieldsOf } from "../../models/families/facts.ts";
import { DECODERS, GGUF_DECODERS, LAYERS } from "../../models/families/index.ts";
import { reasonAgainst, UNSUPPORTED_MODELS } from "../../models/families/unsupported.ts";
import { planDecoderFiles } from "../../models/load/load-model.ts";
import {
  checkCounts,
  type ModelPlan,
  type ModelPlanSizes,
  planSpec,
  readFormats,
  SIZES,
  uniformFormats,
} from "../../models/load/plan-model.ts";
import { MEMORIES } from "../../models/mixers/mixers.ts";
import { readGgufDecoder } from "../../models/spec/read-gguf.ts";
import { readDecoder } from "../../models/spec/read-spec.ts";
import { type ModelSpec, SESSION_LENGTH } from "../../models/spec/spec.ts";
import { countDecoder, type Decoder, resolveHead } from "../../models/spec/tensors.ts";
import { weightsOf } from "../../models/spec/weights.ts";

import { type Keys, keysOf } from "../../models/weights/gguf-layer.ts";
import { type ModelParts, OTHER_MODELS } from "./other-models.ts";

// What the layers of a model keep of a sequence: keys and values, latents, or a state that does not grow.

/** What layers of one kind keep of a sequence. */
export interface LayerMemory {
  /**
   * "heads": keys and values of heads; "latent": latents, of which both are computed (MLA); "shared": nothing of their own, since
   * they attend to the keys and values of earlier layers; "recurrent": a state; "both": keys, values and a state; "none": nothing.
   */
  readonly kind: "heads" | "latent" | "shared" | "recurrent" | "both" | "none";
  /** How many layers of the model are of this kind. */
  readonly layers: number;
  /** Numbers that each of them keeps of a token. */
  readonly perToken: number;
  /** The most tokens that each of them keeps; undefined without a window. */
  readonly window: number | undefined;
  /** Numbers of each layer's state, whatever the length of the sequence. */
  readonly state: number;
}

type OneLayer = Omit<LayerMemory, "layers">;

/** Layers that keep the same, counted, in the order of the first of each kind. */
function groupLayers(layers: readonly OneLayer[]): LayerMemory[] {
  const groups = new Map<string, OneLayer[]>();
  for (const layer of layers) {
    const key = [layer.kind, layer.perToken, layer.window, layer.state].join();
    groups.set(key, [...(groups.get(key) ?? []), layer]);
  }
  return Array.from(groups.values(), (same) => ({ ...(same[0] as OneLayer), layers: same.length }));
}

/** Of a decoder that this package runs. */
function memoryOfSpec({ blocks, order }: ModelSpec): LayerMemory[] {
  const layers = blocks.map(
    ({ mixer }): OneLayer => ({
      kind: MEMORIES[mixer.kind].kind,
      ...MEMORIES[mixer.kind].keeps(mixer),
    }),
  );
  return groupLayers(order ? order.map((i) => layers[i] as OneLayer) : layers);
}

/** Of another model. */
function memoryOfParts({ layers }: ModelParts): LayerMemory[] {
  return groupLayers(
    layers.map(({ mixers, shares }): OneLayer => {
      if (shares) return { kind: "shared", perToken: 0, window: undefined, state: 0 };
      const sum = (name: "perToken" | "state") => mixers.reduce((all, mixer) => all + (mixer[name] ?? 0), 0);
      return layerOf(sum("perToken"), sum("state"), mixers.find(({ window }) => window !== undefined)?.window);
    }),
  );
}

/** A layer that keeps so many numbers of each token, and so many of a state. */
function layerOf(perToken: number, state: number, window?: number): OneLayer {
  const kind = perToken > 0 ? (state > 0 ? "both" : "heads") : state > 0 ? "recurrent" : "none";
  return { kind, perToken, window: perToken > 0 ? window : undefined, state };
}

/** Numbers that the caches hold after `seqLen` tokens, and those of all states. */
function countMemory(layers: readonly LayerMemory[], seqLen: number): { cached: number; state: number } {
  const sum = (of: (layer: LayerMemory) => number) => layers.reduce((all, each) => all + each.layers * of(each), 0);
  return {
    cached: sum(({ perToken, window = seqLen }) => perToken * Math.min(window, seqLen)),
    state: sum(({ state }) => state),
  };
}

// A GGUF file's model, of any architecture: parameters from the shapes of its tensors, and what its layers keep of a sequence from
// its metadata and from which tensors they have.

type Header = Pick<GgufFile, "metadata" | "tensors">;

/** What a header says of a model. */
interface GgufFacts {
  readonly type: string;
  readonly parameters: number;
  /** Without the experts that a token does not take. */
  readonly active: number;
  readonly layers: readonly LayerMemory[];
  /** Tokens that the file states. */
  readonly length: number | undefined;
}

/** Tensors of numbers that were computed from the configuration. */
const COMPUTED = /^rope_(freqs|factors_(long|short))\.weight$/;
/** Tensors that hold one matrix for each expert. */
const EXPERTS = /_exps\.(weight|bias)$/;
const MOST_LAYERS = 10_000;

/** Reads the facts for the public function `where`. */
function readGgufFacts(where: string, { metadata, tensors }: Header): GgufFacts {
  const type = metadata.get("general.architecture");
  if (typeof type !== "string") {
    const text = `${where}: key "general.architecture" expected the name of one, got ${describe(type)}`;
    throw new HeadwiseError("BAD_FILE", text);
  }
  const keys = keysOf(where, metadata, type, 0);
  const experts = keys.countOrNone("expert_count");
  const taken = experts > 0 ? keys.count("expert_used_count") / experts : 1;
  let [parameters, active] = [0, 0];
  for (const [name, { shape }] of tensors) {
    if (COMPUTED.test(name)) continue;
    const size = shape.reduce((a, b) => a * b, 1);
    parameters += size;
    active += EXPERTS.test(name) ? size * taken : size;
  }
  const count = keys.count("block_count");
  if (count > MOST_LAYERS) keys.fail("block_count", `at most ${MOST_LAYERS}`, count);
  const shared = keys.countOrNone("attention.shared_kv_layers");
  const layers = Array.from({ length: count }, (_, i) =>
    i >= count - shared
      ? { ...layerOf(0, 0), kind: "shared" as const }
      : readLayer(keysOf(where, metadata, type, i), i, tensors),
  );
  const length = keys.countOrNone("context_length") || undefined;
  return { type, parameters, active: Math.round(active), layers: groupLayers(layers), length };
}

/** What layer `i` keeps. A window is known where the file says which layers have it. */
function readLayer(keys: Keys, i: number, tensors: Header["tensors"]) {
  const shapeOf = (name: string) => tensors.get(`blk.${i}.${name}.weight`)?.shape;
  const latent = keys.countOrNone("attention.kv_lora_rank");
  if (latent > 0 && shapeOf("attn_kv_a_mqa"))
    return { ...layerOf(latent + keys.countOrNone("rope.dimension_count"), 0), kind: "latent" as const };
  const attends = shapeOf("attn_k") ?? shapeOf("attn_qkv");
  const slides = keys.raw("attention.sliding_window_pattern");
  const isWindowed = Array.isArray(slides) && Boolean(slides[i]);
  const window = isWindowed ? keys.count("attention.sliding_window") : undefined;
  return layerOf(attends ? keyValueNumbers(keys) : 0, stateOf(keys, shapeOf), window);
}

/** Numbers of keys and values of a token. */
function keyValueNumbers(keys: Keys): number {
  const heads = keys.count("attention.head_count");
  const headDim = keys.countOrNone("attention.key_length") || keys.count("embedding_length") / heads;
  const valueDim = keys.countOrNone("attention.value_length") || headDim;
  return keys.countOrNone("attention.head_count_kv", heads) * (headDim + valueDim);
}

/** Numbers of the states of Mamba and DeltaNet, of short convolutions, and of RWKV; 0 without any of them. */
function stateOf(keys: Keys, shapeOf: (name: string) => readonly number[] | undefined): number {
  const before = ([channels = 0, kernel = 1]: readonly number[] = []) => channels * (kernel - 1);
  const conv = shapeOf("ssm_conv1d");
  if (conv) return before(conv) + keys.count("ssm.inner_size") * keys.count("ssm.state_size");
  if (shapeOf("time_mix_receptance")) return keys.count("embedding_length") * (keys.count("wkv.head_size") + 2);
  return before(shapeOf("shortconv.conv"));
}

/** The formats whose bytes are given. */
const NAMED: readonly CacheFormat[] = ["f32", "f16", "q8", "q4"];

/** For what to describe a model: lengths, formats, sessions, as `planModel` takes them. */
export interface DescribeOptions extends Omit<ModelPlanSizes, "maxSeqLen"> {
  /** Tokens of the sequence that is planned. Default what the file states, at most 4096. */
  readonly seqLen?: number | undefined;
}

/** `DescribeOptions` for a model in files. */
export interface DescribeFilesOptions extends DescribeOptions {
  /** Ends requests: the promise rejects with the signal's reason. */
  readonly signal?: Global<"AbortSignal"> | undefined;
  /** Keeps what is read of URLs, as of `loadModel`. */
  readonly store?: ModelStore | undefined;
}

/** What a model costs. */
export interface ModelCost {
  /** `model_type` of config.json, or `general.architecture` of a GGUF file. */
  readonly type: string;
  /** Numbers of all tensors. Of several modalities, those of the text model. */
  readonly parameters: number;
  /** Without the experts that a token does not take. */
  readonly activeParameters: number;
  /** Bytes of all weights in each format; a plan's are exact, those of models that are not run here leave out padding. */
  readonly weightBytes: Readonly<Record<CacheFormat, number>>;
  /** Bytes of the tensors of files, as they are stored; undefined of config.json alone, which does not say it. */
  readonly storedBytes: number | undefined;
  /** The dtypes of their matrices, those of the most bytes first, such as "BF16" or "Q8_0". */
  readonly storedAs: readonly string[] | undefined;
  /** What layers keep of a sequence, those of a kind together. */
  readonly layers: readonly LayerMemory[];
  /** Tokens of the longest sequence that the model is for, as its files state them. */
  readonly maxSeqLen: number | undefined;
  /** Tokens for which the following are. */
  readonly seqLen: number;
  /** Bytes that a token adds to the caches of all layers while no window is full, at 16 bits a number, as papers state them. */
  readonly tokenBytes: number;
  /** Bytes of all caches after `seqLen` tokens at 16 bits a number: those with a window hold no more than it. */
  readonly cacheBytes: number;
  /** Bytes of recurrent states, at 32 bits a number. */
  readonly stateBytes: number;
  /** The linear memory that the model takes here, exactly; undefined if this package does not run it. */
  readonly memory: ModelPlan | undefined;
  /** Why it does not. */
  readonly refusal: string | undefined;
}

const OPTIONS = ["seqLen", ...SIZES.filter((name) => name !== "maxSeqLen")] as const;
const FILE_OPTIONS = [...OPTIONS, "signal", "store"] as const;

/** What a description is made of. */
interface ModelFacts extends Pick<ModelCost, "type" | "parameters" | "layers"> {
  readonly active: number;
  readonly storedBytes?: number;
  readonly storedAs?: readonly string[];
  /** Of a decoder that this package runs, before its files say whether it has a head. */
  readonly decoder?: Decoder;
  /** Tokens that the file states. */
  readonly length: number | undefined;
  readonly plan?: (sizes: ModelPlanSizes) => ModelPlan;
  readonly weights?: (format: WeightFormat) => number;
  readonly refusal?: string;
}

/**
 * What the model of a config.json costs: parameters, caches and states, and the linear memory that it takes here. Besides the models
 * that `headwise/models` runs, it knows some that it does not: Mamba, RWKV, and hybrids such as Jamba, Falcon-H1, Granite 4.0,
 * Nemotron-H, Qwen3-Next, LFM2 and Gemma 3n.
 * @param config The text of config.json, not its path, or the object it parses to.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a type of model that is not known, with the
 * nearest ones, and for a field that is missing or wrong.
 * @example
 * import { describeModel } from "headwise/configure";
 * const cost = describeModel({ model_type: "mistral", hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32,
 *   num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 32000, sliding_window: 4096, tie_word_embeddings: false },
 *   { seqLen: 16384, weights: "q4" });
 * console.log(cost.parameters, cost.tokenBytes, cost.cacheBytes); // 7241732096 131072 536870912: the window's 4096 tokens
 */
export function describeModel(config: string | object, options: DescribeOptions = {}): ModelCost {
  const where = "describeModel";
  return costOf(readConfigFacts(where, config), readOptions(where, options, OPTIONS));
}

/**
 * `describeModel` of a model's files: of a folder config.json and the headers of safetensors, if there are any, of a GGUF file the
 * header. They say the formats of the weights and whether there is a head, so `memory` is that of `planModelFiles`. Of URLs, only
 * these ranges are read. GGUF files of any architecture are described.
 * @param source A folder or a GGUF file, by path (on hosts with a file system) or URL; files; bytes of a GGUF; or what opens files.
 * @throws As `describeModel`, and the signal's reason.
 * @example
 * import { describeFiles } from "headwise/configure";
 * const { type, parameters, storedBytes = 0, memory } = await describeFiles("model/stories/stories.gguf");
 * console.log(type, parameters, storedBytes, memory !== undefined); // llama 743296 793136 true
 */
export async function describeFiles(source: ModelSource, options: DescribeFilesOptions = {}): Promise<ModelCost> {
  const where = "describeFiles";
  const { signal, store, ...given } = readOptions(where, options, FILE_OPTIONS);
  if (signal !== undefined) expectSignal(where, signal);
  if (store !== undefined) expectFunction(where, "options.store.open", Object(store).open);
  signal?.throwIfAborted();
  let files: ModelFiles | undefined;
  try {
    files = await openModelFiles(where, source, openGgufParts, signal, store, { configAlone: true });
    const { description } = files;
    const facts =
      typeof description === "string"
        ? readFolderFacts(where, description, files)
        : await readGgufFileFacts(where, description, files, given.seqLen);
    return costOf(facts, given);
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    throw error;
  } finally {
    await files?.close();
  }
}

function readOptions<T extends DescribeOptions, const Name extends string>(
  where: string,
  options: T,
  names: readonly Name[] & AllFieldsOf<T, Name>,
): T {
  const given = readFields(where, "options", options, names);
  if (given.seqLen !== undefined) expectInt(where, "options.seqLen", given.seqLen);
  readFormats(where, given.weights);
  // Here too, as models that are not run are not planned. A head of one component has every format.
  checkCounts(where, given);
  checkCacheFormat(where, "format", given.format, { numKvHeads: 1, headDim: 1, valueDim: 1 });
  checkTruncatable(where, given.truncatable);
  return given;
}

/** The facts of a config.json, by the rules of its type, and of the tensors beside it, where they are known. */
function readConfigFacts(where: string, config: string | object, tensors?: ModelFiles["tensors"]): ModelFacts {
  const json = parseJson(where, "config", config) as object;
  const whole = fieldsOf("config.json", json, where);
  const isKnown = (type: unknown) =>
    typeof type === "string" && (DECODERS.has(type) || Object.hasOwn(OTHER_MODELS, type));
  const file = isKnown(whole.raw("model_type")) ? whole : (whole.fields("text_config") ?? whole);
  const type = file.raw("model_type");
  if (type === undefined)
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: config expected the fields of config.json, got none named model_type`,
    );
  if (!isKnown(type)) {
    const names = [...(DECODERS.keys() as Iterable<string>), ...Object.keys(OTHER_MODELS)];
    const nearest = `one whose costs are known${nearestNames(type, names)}`;
    throw file.refusal("model_type", nearest, type, whyUnknown(type));
  }
  return DECODERS.has(type)
    ? factsOfDecoder(where, resolveHead(readDecoder(where, json), tensors), file)
    : factsOfParts(file, type as string);
}

/** What is known of a type whose costs are not. */
function whyUnknown(type: unknown): string {
  const { causal, sides, isEncoder } = LAYERS.get(type) ?? {};
  if (causal !== undefined || sides || isEncoder)
    return ", an encoder or a model with one, of which headwise/models runs some";
  const reason = reasonAgainst(type, UNSUPPORTED_MODELS);
  return reason === undefined ? "" : `, which has ${reason}`;
}

/** Of a decoder that this package runs. */
function factsOfDecoder(where: string, decoder: Decoder, file: Fields): ModelFacts {
  const { spec } = decoder;
  const { parameters, active } = countDecoder(decoder, file);
  return {
    ...{ type: spec.type, parameters, active, layers: memoryOfSpec(spec), length: spec.maxSeqLen, decoder },
    plan: ({ weights, ...sizes }) => planSpec(where, spec, uniformFormats(readFormats(where, weights)), sizes),
    weights: (format) => weightBytesOf(where, decoder, format),
  };
}

/** Of a folder: by its config.json, in what its safetensors hold, if there are any. */
function readFolderFacts(where: string, config: string, files: ModelFiles): ModelFacts {
  const { tensors } = files;
  if (tensors.size === 0) return readConfigFacts(where, config);
  const { decoder, ...facts } = readConfigFacts(where, config, tensors);
  return {
    ...{ ...facts, ...storedIn(tensors) },
    ...(decoder && { plan: (sizes) => planDecoderFiles(where, decoder, files, sizes, true) }),
  };
}

/** How tensors are stored. */
function storedIn(tensors: ModelFiles["tensors"]): Required<Pick<ModelFacts, "storedBytes" | "storedAs">> {
  const matrices = new Map<string, number>();
  let storedBytes = 0;
  for (const { dtype, shape, bytes } of tensors.values()) {
    storedBytes += bytes;
    if (shape.length > 1) matrices.set(dtype, (matrices.get(dtype) ?? 0) + bytes);
  }
  const storedAs = Array.from(matrices).sort(([, a], [, b]) => b - a);
  return { storedBytes, storedAs: storedAs.map(([dtype]) => dtype) };
}

/** Bytes of all weights in a format, also of those that stay outside of linear memory. */
function weightBytesOf(where: string, { spec }: Decoder, format: WeightFormat): number {
  let outside = 0;
  for (const { outside: stays, shape } of weightsOf(spec))
    if (stays) outside += panelsOf(shape[0]) * FORMATS[format].panelBytes(shape[1] ?? 1);
  const formats = uniformFormats(readFormats(where, format));
  return outside + planSpec(where, spec, formats, { sessions: 0, maxSeqLen: 1 }).weights;
}

/** Of a model that it does not run. */
function factsOfParts(file: Fields, type: string): ModelFacts {
  const parts: ModelParts = (OTHER_MODELS[type] as (file: Fields) => ModelParts)(file);
  const sum = (of: (layer: ModelParts["layers"][number]) => number) =>
    parts.layers.reduce((all, layer) => all + of(layer), 0);
  const mixers = sum(({ mixers }) => mixers.reduce((all, mixer) => all + mixer.parameters, 0));
  const parameters = parts.embed * (parts.tied ? 1 : 2) + parts.rest + mixers + sum(({ rest }) => rest);
  const length = file.raw("max_position_embeddings") === undefined ? undefined : file.count("max_position_embeddings");
  const refusal = reasonAgainst(type, UNSUPPORTED_MODELS) ?? "layers that this package does not run";
  const active = parameters - sum(({ idle = 0 }) => idle);
  return { type, parameters, active, layers: memoryOfParts(parts), length, refusal };
}

/** Of a GGUF file. */
async function readGgufFileFacts(
  where: string,
  file: Exclude<ModelFiles["description"], string>,
  files: ModelFiles,
  seqLen: number | undefined,
): Promise<ModelFacts> {
  const facts = { ...readGgufFacts(where, file), ...storedIn(files.tensors) };
  if (!GGUF_DECODERS.has(facts.type)) {
    const refusal = `the architecture ${describe(facts.type)}, which this package does not run`;
    return { ...facts, refusal };
  }
  const decoder = await readGgufDecoder(where, file, seqLen);
  return {
    ...facts,
    layers: memoryOfSpec(decoder.spec),
    plan: (sizes) => planDecoderFiles(where, decoder, files, sizes, true),
    weights: (format) => weightBytesOf(where, decoder, format),
  };
}

function costOf(facts: ModelFacts, { seqLen: given, ...sizes }: DescribeOptions): ModelCost {
  const { type, parameters, active, layers, storedBytes, storedAs } = facts;
  const seqLen = given ?? Math.min(facts.length ?? SESSION_LENGTH, SESSION_LENGTH);
  const { cached, state } = countMemory(layers, seqLen);
  const panel = (format: WeightFormat) => FORMATS[format].panelBytes(BLOCK) + FORMATS[format].sumBytes(BLOCK);
  const weights = facts.weights ?? ((format) => Math.ceil((parameters * panel(format)) / (PANEL * BLOCK)));
  return {
    ...{ type, parameters, activeParameters: active, storedBytes, storedAs, layers, maxSeqLen: facts.length, seqLen },
    weightBytes: Object.fromEntries(NAMED.map((format) => [format, weights(format)])) as ModelCost["weightBytes"],
    tokenBytes: 2 * countMemory(layers, 1).cached,
    ...{ cacheBytes: 2 * cached, stateBytes: 4 * state },
    ...planOrRefuse(facts, { ...sizes, maxSeqLen: seqLen }),
  };
}

/** The memory of a model, or why it is not run: its layers, or what is wrong with its files. */
function planOrRefuse({ plan, refusal }: ModelFacts, sizes: ModelPlanSizes): Pick<ModelCost, "memory" | "refusal"> {
  try {
    return { memory: plan?.(sizes), refusal };
  } catch (error) {
    if (!(error instanceof HeadwiseError && error.code === "BAD_FILE")) throw error;
    return { memory: undefined, refusal: error.message.replace(/^\w+: /, "") };
  }
}
