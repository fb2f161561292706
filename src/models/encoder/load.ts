// Loads encoders and models with two halves: opens their files, plans and packs them.

import { PAGE } from "../../../assembly/layout.ts";
import { type StoredTensor, toFloats } from "../../base/tensor/dtypes.ts";
import { expectInt, readFields, readOptions } from "../../base/util/arguments.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { parseJson } from "../../base/util/strings.ts";
import {
  type ModelFiles,
  type ModelSource,
  type OpenGguf,
  openModelFiles,
  readTexts,
} from "../../files/model-files.ts";
import type { WeightFormat } from "../../layers/linear/formats.ts";
import { createPageLayout } from "../../layers/state/pages.ts";
import { pagesBytes } from "../../layers/state/table.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import { aligned, type MemoryPlan } from "../../wasm/memory.ts";
import { type FormatOf, type LoadedModel, packRelative } from "../blocks/model.ts";
import { type Fields, fieldsOf, GENERATION } from "../families/facts.ts";
import { DECODERS, ENCODERS, GGUF_ENCODERS, HALVES } from "../families/index.ts";
import { type LoadModelOptions, loadWith } from "../load/load-model.ts";
import type { EncoderParts } from "../load/pack-weights.ts";
import { type ModelFormats, type PlanKind, planSpec, readFormats, uniformFormats } from "../load/plan-model.ts";
import { checkHeads } from "../mixers/heads.ts";
import type { GgufReader } from "../spec/read-gguf.ts";
import { readDecoder } from "../spec/read-spec.ts";
import {
  type HeadsSpec,
  type MixerSpec,
  type ModelSpec,
  mostTokens,
  positionsOf,
  type TokenRules,
} from "../spec/spec.ts";
import { type Decoder, resolveHead } from "../spec/tensors.ts";
import { bytesBehind, MOST_TOGETHER, readsInOrder } from "./pass.ts";

// The files of encoders and of models with two halves. Some encoders were written by programs that name the gains and biases of
// norms differently; models with two halves are not read of GGUF.

const newName = (name: string) => name.replace(/\.gamma$/, ".weight").replace(/\.beta$/, ".bias");

const refuseGguf: OpenGguf = async (where) => {
  const rule = "config.json and safetensors";
  throw new HeadwiseError(
    "BAD_FILE",
    `${where}: source expected ${rule}, got a GGUF file, or bytes without config.json`,
  );
};

/** `openModelFiles` for safetensors alone. */
const openSafetensorsFiles: typeof openModelFiles = (where, source, _openGguf, ...rest) =>
  openModelFiles(where, source, refuseGguf, ...rest);

/** `openModelFiles` with today's names of tensors. */
async function openEncoderFiles(...given: Parameters<typeof openModelFiles>): Promise<ModelFiles> {
  const folder = await openModelFiles(...given);
  const { file, tensors } = folder;
  const oldNames = new Map(Array.from(tensors.keys(), (name) => [newName(name), name]));
  const oldName = (name: string) => oldNames.get(name) as string;
  return {
    ...folder,
    tensors: new Map(Array.from(tensors, ([name, entry]) => [newName(name), entry])),
    file: {
      readRows: (name, ...rows) => file.readRows(oldName(name), ...rows),
      async readAll(names, ...rest) {
        const wanted = Array.from(names);
        const found = await file.readAll(wanted.map(oldName), ...rest);
        return new Map(wanted.map((name) => [name, found.get(oldName(name)) as StoredTensor]));
      },
    },
  };
}

/** What encoders, and models with two halves, have besides what decoders have. */
const encoders: EncoderParts = {
  packRelative,
  // As a projection of three neighbouring frames.
  turn(tensor) {
    const [outputs, channels] = tensor.shape as [number, number];
    const from = toFloats(tensor);
    const turned = new Float32Array(from.length);
    for (let i = 0; i < from.length; i++) {
      const [row, channel, frame] = [Math.floor(i / (3 * channels)), Math.floor(i / 3) % channels, i % 3];
      turned[(row * 3 + frame) * channels + channel] = from[i] as number;
    }
    return { ...tensor, dtype: "F32", shape: [outputs, 3 * channels], bytes: new Uint8Array(turned.buffer) };
  },
};

// The memory of encoders and of models with two halves, from what was read of their files before their tensors.

/** Tokens of the longest text that is planned for by default. */
const MOST_TOKENS = 512;

/** `MOST_TOKENS`, or those that the model has positions for. */
const plannedTokens = ({ maxSeqLen = MOST_TOKENS }: ModelSpec): number => Math.min(maxSeqLen, MOST_TOKENS);

/** Bytes of the weights of an encoder, and of calls on texts of up to `tokens` tokens, of which at most `texts` run together. */
function planTexts(where: string, spec: ModelSpec, formatOf: FormatOf, tokens: number, texts?: number): MemoryPlan {
  const planFor = (maxSeqLen: number) => planSpec(where, spec, formatOf, { rows: CHUNK_ROWS, outputs: 0, maxSeqLen });
  const { weights, scratch } = planFor(1);
  // Sessions of texts that run together, or of one that is alone.
  const sessions = () => Math.max(MOST_TOGETHER * planFor(2 * PAGE).sessions, planFor(tokens).sessions);
  const behind = readsInOrder(spec) ? sessions() : bytesBehind(where, spec, tokens, texts);
  const all = { weights, scratch: aligned(scratch) + behind };
  return { ...all, total: all.weights + all.scratch };
}

/** An encoder and its calls. */
const planEncoderFit: PlanKind =
  (where, encoder) =>
  ({ weights: formatsOf }) => {
    const tokens = plannedTokens(encoder.spec);
    const { weights, scratch, total } = planTexts(where, encoder.spec, formatsOf(encoder), tokens);
    return { total, text: `${weights} of weights, ${scratch} of calls on texts of ${tokens} tokens` };
  };

/** Both halves, a run of the encoder, and a session of the decoder with the keys of a source. */
const planHalvesFit: PlanKind =
  (where, decoder) =>
  ({ weights: formatsOf, maxSeqLen }) => {
    const { spec } = decoder;
    const encoder = decoder.encoder as NonNullable<typeof decoder.encoder>;
    const first = encoder.spec;
    // Where distances take the place of positions, sources may be as long as the decoder's sequences.
    const source = first.embed.positions ? positionsOf(first.embed) : maxSeqLen;
    const reads = planTexts(where, first, formatsOf(encoder), source, 1);
    const writes = planSpec(where, spec, formatsOf(decoder), { maxSeqLen, rows: Math.min(CHUNK_ROWS, maxSeqLen) });
    const keys = spec.blocks.reduce(
      (sum, { cross }) => sum + pagesBytes(pageLayoutOf(where, cross as HeadsSpec), 1, source),
      0,
    );
    const weights = reads.weights + writes.weights;
    const [sessions, scratch] = [writes.sessions + keys, reads.scratch + writes.scratch];
    const session = `${sessions} of a session of ${maxSeqLen} tokens with a source of ${source}`;
    return { total: weights + sessions + scratch, text: `${weights} of weights, ${session}, ${scratch} of calls` };
  };

/** The pages of a mixer that encodes. */
const pageLayoutOf = (where: string, mixer: MixerSpec) =>
  createPageLayout(checkHeads(where, (mixer as HeadsSpec).config));

/** A whole encoder: its weights, packed in linear memory until `release()`. */
export interface Encoder extends LoadedModel<"Encoder"> {
  /** Tokens of the longest text: those that the model has positions for, else what config.json says. */
  readonly maxSeqLen: number | undefined;
}

/** Options of `loadEncoder`. */
export interface LoadEncoderOptions
  extends Pick<LoadModelOptions, "weights" | "activations" | "gguf" | "onProgress" | "signal" | "store" | "integrity"> {
  /**
   * Bytes of linear memory that the model and calls on texts of 512 tokens, or as many as it has positions for, may take together:
   * the `total` of `planEncoder`, with a head for masked tokens where the file has one. If they take more, nothing is read of the
   * weights, and the error says what would fit. Default none.
   */
  readonly maxBytes?: number | undefined;
}

const ENCODER_OPTIONS = [
  "weights",
  "maxBytes",
  "activations",
  "gguf",
  "onProgress",
  "signal",
  "store",
  "integrity",
] as const;

/**
 * Loads a whole encoder: BERT and its relatives, DeBERTa, ModernBERT, MPNet, Nomic BERT, GTE, EmbeddingGemma and others, and the
 * decoders of `loadModel`, of which some were trained to give vectors. Like `loadModel`, it reads config.json and the tensors of
 * safetensors files one after the other, and packs each as it comes; with the option `gguf` also GGUF files of BERT, Nomic BERT
 * and those decoders. Not read are poolers and heads for other tasks than masked tokens.
 * @param source A folder or a GGUF file, by path (on hosts with a file system) or URL; files; bytes of a GGUF; or what opens files.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, `NO_GGUF`, or the signal's reason. All memory is freed then.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadEncoder } from "headwise/models";
 * import { models } from "headwise/models";
 * import { writeSafetensors } from "headwise/weights";
 * const tensor = (...shape: number[]) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)).fill(0.1), shape });
 * const bytes = writeSafetensors({
 *   "embeddings.word_embeddings.weight": tensor(32, 8), "embeddings.position_embeddings.weight": tensor(16, 8),
 *   ...Object.fromEntries(["embeddings.LayerNorm", "transformer.layer.0.sa_layer_norm", "transformer.layer.0.output_layer_norm"]
 *     .map((name) => [`${name}.weight`, tensor(8)])),
 *   ...Object.fromEntries(["q", "k", "v", "out"].map((name) => [`transformer.layer.0.attention.${name}_lin.weight`, tensor(8, 8)])),
 *   "transformer.layer.0.ffn.lin1.weight": tensor(16, 8), "transformer.layer.0.ffn.lin2.weight": tensor(8, 16),
 * });
 * const config = { model_type: "distilbert", dim: 8, hidden_dim: 16, n_heads: 2, n_layers: 1, vocab_size: 32,
 *   max_position_embeddings: 16 };
 * const files = new Map([["config.json", new TextEncoder().encode(JSON.stringify(config))], ["model.safetensors", bytes]]);
 * const kernels = await loadKernels({ models });
 * using model = await loadEncoder(kernels, (name) => files.get(name));
 * console.log(model.type, model.layers, model.maxSeqLen); // distilbert 1 16
 */
export async function loadEncoder(
  kernels: Kernels,
  source: ModelSource,
  options: LoadEncoderOptions = {},
): Promise<Encoder> {
  const where = "loadEncoder";
  expectKernels(where, kernels);
  const given = readOptions(where, options, ENCODER_OPTIONS);
  const kind = { read: readFiles, open: openEncoderFiles, encoders, headless: true, plan: planEncoderFit } as const;
  return loadWith(where, kernels, source, given, kind) as Promise<Encoder>;
}

async function readFiles(
  where: string,
  { description, tensors }: ModelFiles,
  _maxSeqLen: number | undefined,
  gguf: GgufReader | undefined,
): Promise<Decoder> {
  if (typeof description === "string") return resolveHead(readEncoder(where, description), tensors);
  const found = await (gguf as GgufReader).read(where, description, undefined, GGUF_ENCODERS);
  return asEncoder(where, found, 'key "general.architecture"');
}

/** Reads config.json of an encoder. */
export function readEncoder(where: string, config: string | object): Decoder {
  const found = readDecoder(where, config, undefined, new Map([...DECODERS, ...ENCODERS]));
  return asEncoder(where, found, "model_type");
}

/** Tensors of heads for classes or scores. */
const SCORES = "^(score|classifier)\\.";

/** A model whose sequences are run as a whole. `field` is where its file states the type. */
function asEncoder(where: string, { spec, family, ...rest }: Decoder, field: string): Decoder {
  if (spec.streams) {
    const rule = "one without several rows of a token";
    throw new HeadwiseError("BAD_FILE", `${where}: ${field} expected ${rule}, got ${describe(spec.type)}`);
  }
  const most = Math.min(spec.maxSeqLen ?? Infinity, mostTokens(spec));
  // Without a head for masked tokens, none is needed.
  const head = { ...spec.head, tied: spec.head.transform ? spec.head.tied : true };
  // Decoders may have a head for classes or scores.
  const ignoredTensors = new RegExp([family.ignoredTensors?.source, SCORES].filter(Boolean).join("|"));
  const own = { ...spec, head, maxSeqLen: Number.isFinite(most) ? most : undefined };
  return { ...rest, spec: own, family: { ...family, ignoredTensors } };
}

/**
 * A model with two halves: an encoder reads a source at once, and a decoder, which attends to it, writes tokens. Packed in linear
 * memory until `release()`.
 */
export interface Seq2Seq extends LoadedModel<"Seq2Seq"> {
  /** Layers of the decoder. */
  readonly layers: number;
}

/** Options of `loadSeq2Seq`. */
export interface LoadSeq2SeqOptions
  extends Pick<
    LoadModelOptions,
    "weights" | "maxSeqLen" | "activations" | "onProgress" | "signal" | "store" | "integrity"
  > {
  /**
   * Bytes of linear memory that the model, a run of its encoder, one session of `maxSeqLen` tokens and its calls may take together,
   * for a source of all positions of the encoder (or, without a table of positions, of `maxSeqLen` tokens). If they take more,
   * nothing is read of the weights, and the error says what would fit. Default none.
   */
  readonly maxBytes?: number | undefined;
}

const SEQ2SEQ_OPTIONS = [
  "weights",
  "maxSeqLen",
  "maxBytes",
  "activations",
  "onProgress",
  "signal",
  "store",
  "integrity",
] as const;

/**
 * Loads a model with two halves: T5, BART, Whisper. Like `loadModel`, it reads config.json and the tensors of safetensors files
 * one after the other, and packs each as it comes. Both halves share one table of tokens. Of Whisper it reads which tokens are
 * suppressed, always or at the beginning, and which are forced, of generation_config.json or else config.json: `generate` follows
 * that.
 * @param source The path of a folder (on hosts with a file system) or its URL; the files; or a function that opens a file by name.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, or the signal's reason. All memory is freed then.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadSeq2Seq } from "headwise/models";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const failure = await loadSeq2Seq(kernels, "model").catch(({ message }) => message); // a decoder of this repository
 * console.log(failure.split(", ").at(-1)); // which loadModel reads
 * kernels.release();
 */
export async function loadSeq2Seq(
  kernels: Kernels,
  source: ModelSource,
  options: LoadSeq2SeqOptions = {},
): Promise<Seq2Seq> {
  const where = "loadSeq2Seq";
  const given = readOptions(where, options, SEQ2SEQ_OPTIONS);
  return loadWith(where, kernels, source, given, {
    read: async (where, files, maxSeqLen) => {
      const found = readHalves(where, files, maxSeqLen);
      if (found.spec.type !== "whisper") return found;
      const { signal, store, integrity } = given;
      const others = await readTexts(where, source, [GENERATION], readNoGguf, signal, store, integrity);
      const generation = (others as ReadonlyMap<string, string>).get(GENERATION);
      const [name, text] = generation ? [GENERATION, generation] : ["config.json", files.description as string];
      const tokenRules = readTokenRules(where, name, text, found.spec.vocabSize);
      return { ...found, spec: { ...found.spec, tokenRules } };
    },
    open: openSafetensorsFiles,
    encoders,
    plan: planHalvesFit,
  }) as Promise<Seq2Seq>;
}

/** `openSafetensorsFiles` has refused GGUF. */
const readNoGguf = async () => ({ metadata: new Map() });

function readHalves(where: string, files: ModelFiles, maxSeqLen?: number): Decoder {
  return resolveHead(readSeq2Seq(where, files.description as string, maxSeqLen), files.tensors);
}

/** Reads config.json of a model with two halves. */
export function readSeq2Seq(where: string, config: string | object, maxSeqLen?: number): Decoder {
  return readDecoder(where, config, maxSeqLen, HALVES);
}

/** What to plan an encoder's memory for. */
export interface EncoderPlanSizes {
  /** Formats of the weights, as `loadEncoder` takes them; parts without one are float32. Default "f32". */
  readonly weights?: WeightFormat | ModelFormats | undefined;
  /** Tokens of the longest text. Default those that the model has positions for, at most 512. */
  readonly tokens?: number | undefined;
}

/**
 * What `planEncoder` gives: weights without a head for masked tokens, which takes those of a matrix [dModel, dModel] more, and scratch
 * for any number of texts, to which `maskedLogits` adds that of its logits.
 */
export type EncoderPlan = MemoryPlan;

/**
 * The memory that an encoder and its calls will take, computed from config.json before anything is loaded.
 * @param config The text of config.json, or the object it parses to.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a model that `loadEncoder` would refuse.
 * @example
 * import { planEncoder } from "headwise/models";
 * const miniLM = { model_type: "bert", hidden_size: 384, num_hidden_layers: 6, num_attention_heads: 12, intermediate_size: 1536,
 *   vocab_size: 30522, max_position_embeddings: 512 };
 * const { weights, scratch } = planEncoder(miniLM, { weights: "q8", tokens: 256 });
 * console.log(Math.round(weights / 1e6), Math.round(scratch / 1e6)); // 28 11
 */
export function planEncoder(config: string | object, sizes: EncoderPlanSizes = {}): EncoderPlan {
  const where = "planEncoder";
  const given = readFields(where, "sizes", sizes, ["weights", "tokens"]);
  const formats = readFormats(where, given.weights);
  const whole = readEncoder(where, config).spec;
  const { transform: _, ...head } = whole.head;
  const spec = { ...whole, head };
  const { tokens = plannedTokens(spec) } = given;
  expectInt(where, "tokens", tokens, 1, spec.maxSeqLen ?? Number.MAX_SAFE_INTEGER);
  return planTexts(where, spec, uniformFormats(formats), tokens);
}

// Tokens that the files of Whisper leave out or ask for, as transformers applies them: suppress_tokens, begin_suppress_tokens and
// forced_decoder_ids of generation_config.json, or without that file of config.json.

/** Reads the rules of a model with `vocabSize` tokens from the text of a file of this name; undefined for one without any. */
function readTokenRules(where: string, name: string, json: string, vocabSize: number): TokenRules | undefined {
  const file = fieldsOf("JSON", parseJson(where, name, json), `${where}: ${name}`);
  const always = readList(file, "suppress_tokens");
  const atBegin = readList(file, "begin_suppress_tokens");
  const forced = readForced(file, vocabSize);
  if (always.length + atBegin.length + forced.size === 0) return undefined;
  const forcedEnd = Math.max(-1, ...forced.keys()) + 1;
  return (read) => {
    // The first token that is neither read nor forced. Where a session has tokens already, positions are beyond `read`: it goes on.
    const begin = Math.max(read, forcedEnd);
    return ([ids = []], { data: logits }) => {
      const position = ids.length;
      for (const id of position === begin ? [...always, ...atBegin] : always)
        if (id < logits.length) logits[id] = -Infinity;
      const id = forced.get(position);
      if (id !== undefined) logits.fill(-Infinity)[id] = 0;
    };
  };
}

const isId = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0;

/** Ids; those outside the vocabulary have no effect. */
function readList(file: Fields, name: string): readonly number[] {
  const list = file.list(name) ?? [];
  const wrong = list.find((id) => !isId(id));
  if (wrong === undefined && list.every(isId)) return list;
  throw file.refusal(name, "a list of token ids", wrong);
}

/** Ids by the positions that they are forced at: pairs, of which an id may be null for a position that is free. */
function readForced(file: Fields, vocabSize: number): ReadonlyMap<number, number> {
  const forced = new Map<number, number>();
  for (const pair of file.list("forced_decoder_ids") ?? []) {
    const [position, id, ...more] = Array.isArray(pair) ? (pair as unknown[]) : [];
    const isFree = id === null || id === undefined;
    if (!isId(position) || more.length > 0 || !(isFree || (isId(id) && id < vocabSize)))
      throw file.refusal(
        "forced_decoder_ids",
        `pairs of a position and an id below ${vocabSize}`,
        Array.isArray(pair) ? `[${pair.join(", ")}]` : pair,
      );
    if (!isFree) forced.set(position, id as number);
  }
  return forced;
}
