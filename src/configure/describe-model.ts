// What a model costs: its parameters, what it keeps of a sequence, and the linear memory that it takes here.

import { BLOCK, PANEL } from "../../assembly/layout.ts";
import type { CacheFormat } from "../cache/page-layout.ts";
import { readFormats, uniformFormats } from "../decoder/model-formats.ts";
import { planDecoderFiles } from "../decoder/plan-files.ts";
import { type ModelPlan, type ModelPlanSizes, planSpec, SIZES } from "../decoder/plan-model.ts";
import { openGgufParts } from "../files/gguf/parts.ts";
import { isGgufSource, type ModelFiles, type ModelSource, openModelFiles, readTexts } from "../files/model-files.ts";
import type { ModelStore } from "../files/model-store.ts";
import { panelBytes, sumBytes, type WeightFormat } from "../linear/formats.ts";
import { resolveHead } from "../models/decoder/check-tensors.ts";
import { countDecoder } from "../models/decoder/count-tensors.ts";
import { FAMILIES } from "../models/decoder/families.ts";
import { type Decoder, readDecoder, SESSION_LENGTH } from "../models/decoder/read-spec.ts";
import { readGgufDecoder } from "../models/gguf/decoder.ts";
import { DECODERS } from "../models/gguf/decoders.ts";
import { type Fields, fieldsOf } from "../models/hf/config-fields.ts";
import { reasonAgainst, UNSUPPORTED_MODELS } from "../models/unsupported.ts";
import { expectFunction, expectInt, expectSignal, readFields } from "../util/arguments.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import { parseJson } from "../util/json.ts";
import { nearestNames } from "../util/near-name.ts";
import { readGgufFacts } from "./describe-gguf.ts";
import { countMemory, type LayerMemory, memoryOfParts, memoryOfSpec } from "./layer-memory.ts";
import { type ModelParts, OTHER_MODELS } from "./other-models.ts";

const CONFIG = "config.json";

/** The formats whose bytes are given. */
const FORMATS: readonly CacheFormat[] = ["f32", "f16", "q8", "q4"];

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
  /** Bytes of the tensors of a GGUF file, as they are stored; undefined of config.json, which does not say it. */
  readonly storedBytes: number | undefined;
  /** What layers keep of a sequence, those of a kind together. */
  readonly layers: readonly LayerMemory[];
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
interface Facts extends Pick<ModelCost, "type" | "parameters" | "layers"> {
  readonly active: number;
  readonly storedBytes?: number;
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
 * `describeModel` of a model's files: of a folder config.json, of a GGUF file the header, which says the formats of the weights
 * too. Of URLs, only these ranges are read. GGUF files of any architecture are described.
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
    if (!isGgufSource(where, source)) {
      const noGguf = async () => ({ metadata: new Map() });
      const found = await readTexts(where, source, [CONFIG], noGguf, signal, store);
      const config = (found as ReadonlyMap<string, string>).get(CONFIG);
      if (config !== undefined) return costOf(readConfigFacts(where, config), given);
      throw new HeadwiseError("BAD_FILE", `${where}: source expected ${CONFIG} or a GGUF file, got neither`);
    }
    files = await openModelFiles(where, source, openGgufParts, signal, store);
    return costOf(await readGgufFileFacts(where, files, given.seqLen), given);
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    throw error;
  } finally {
    await files?.close();
  }
}

function readOptions<T extends DescribeOptions>(where: string, options: T, names: readonly string[]): T {
  const given = readFields(where, "options", options, names);
  if (given.seqLen !== undefined) expectInt(where, "options.seqLen", given.seqLen);
  readFormats(where, given.weights);
  return given;
}

/** The facts of a config.json, by the rules of its type. */
function readConfigFacts(where: string, config: string | object): Facts {
  const json = parseJson(where, "config", config) as object;
  const whole = fieldsOf("config.json", json, where);
  const isKnown = (type: unknown) =>
    typeof type === "string" && (Object.hasOwn(FAMILIES, type) || Object.hasOwn(OTHER_MODELS, type));
  const file = isKnown(whole.raw("model_type")) ? whole : (whole.fields("text_config") ?? whole);
  const type = file.raw("model_type");
  if (!isKnown(type)) {
    const names = [...Object.keys(FAMILIES), ...Object.keys(OTHER_MODELS)];
    const reason = reasonAgainst(UNSUPPORTED_MODELS, type);
    const why = reason === undefined ? "" : `, which has ${reason}`;
    throw file.refusal("model_type", `one whose costs are known (nearest: ${nearestNames(type, names)})`, type, why);
  }
  return Object.hasOwn(FAMILIES, type as string)
    ? factsOfDecoder(where, resolveHead(readDecoder(where, json)), file)
    : factsOfParts(file, type as string);
}

/** Of a decoder that this package runs. */
function factsOfDecoder(where: string, decoder: Decoder, file: Fields): Facts {
  const { spec } = decoder;
  const { parameters, active } = countDecoder(decoder, file);
  return {
    ...{ type: spec.type, parameters, active, layers: memoryOfSpec(spec), length: spec.maxSeqLen },
    plan: ({ weights, ...sizes }) => planSpec(where, spec, uniformFormats(spec, readFormats(where, weights)), sizes),
    weights: (format) =>
      planSpec(where, spec, uniformFormats(spec, readFormats(where, format)), { sessions: 0, maxSeqLen: 1 }).weights,
  };
}

/** Of a model that it does not run. */
function factsOfParts(file: Fields, type: string): Facts {
  const parts: ModelParts = (OTHER_MODELS[type] as (file: Fields) => ModelParts)(file);
  const sum = (of: (layer: ModelParts["layers"][number]) => number) =>
    parts.layers.reduce((all, layer) => all + of(layer), 0);
  const mixers = sum(({ mixers }) => mixers.reduce((all, mixer) => all + mixer.parameters, 0));
  const parameters = parts.embed * (parts.tied ? 1 : 2) + parts.rest + mixers + sum(({ rest }) => rest);
  const length = file.raw("max_position_embeddings") === undefined ? undefined : file.count("max_position_embeddings");
  const refusal = reasonAgainst(UNSUPPORTED_MODELS, type) ?? "layers that this package does not run";
  const active = parameters - sum(({ idle = 0 }) => idle);
  return { type, parameters, active, layers: memoryOfParts(parts), length, refusal };
}

/** Of a GGUF file. */
async function readGgufFileFacts(where: string, files: ModelFiles, seqLen: number | undefined): Promise<Facts> {
  const file = files.description as Exclude<ModelFiles["description"], string>;
  const facts = readGgufFacts(where, file);
  if (!Object.hasOwn(DECODERS, facts.type)) {
    const refusal = `the architecture ${describe(facts.type)}, which this package does not run`;
    return { ...facts, refusal };
  }
  const decoder = await readGgufDecoder(where, file, seqLen);
  const { spec } = decoder;
  return {
    ...facts,
    layers: memoryOfSpec(spec),
    plan: (sizes) => planDecoderFiles(where, decoder, files, sizes, true),
    weights: (format) =>
      planSpec(where, spec, uniformFormats(spec, readFormats(where, format)), { sessions: 0, maxSeqLen: 1 }).weights,
  };
}

function costOf(facts: Facts, { seqLen: given, ...sizes }: DescribeOptions): ModelCost {
  const { type, parameters, active, layers, storedBytes, plan, refusal } = facts;
  const seqLen = given ?? Math.min(facts.length ?? SESSION_LENGTH, SESSION_LENGTH);
  const { cached, state } = countMemory(layers, seqLen);
  const panel = (format: WeightFormat) => panelBytes(format, BLOCK) + sumBytes(format, BLOCK);
  const weights = facts.weights ?? ((format) => Math.ceil((parameters * panel(format)) / (PANEL * BLOCK)));
  return {
    ...{ type, parameters, activeParameters: active, storedBytes, layers, seqLen },
    weightBytes: Object.fromEntries(FORMATS.map((format) => [format, weights(format)])) as ModelCost["weightBytes"],
    tokenBytes: 2 * countMemory(layers, 1).cached,
    ...{ cacheBytes: 2 * cached, stateBytes: 4 * state },
    memory: plan?.({ ...sizes, maxSeqLen: seqLen }),
    refusal,
  };
}
