// Layers of attention of GGUF files: their configuration by the metadata, their tensors and weights.

import { hasShape, type StoredTensor, shapeText, toFloats } from "../../base/tensor/dtypes.ts";
import { expectFields, expectInt, expectOneOf, LARGEST_INT } from "../../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../../base/util/errors.ts";
import { nearestNames } from "../../base/util/strings.ts";
import type { GgufFile, GgufValue } from "../../files/gguf.ts";
import { type AttentionConfig, checkConfig, type QkNormConfig } from "../../layers/attention/config.ts";
import { PAIRINGS, type RopeConfig, type RopeScaling } from "../../layers/attention/rope.ts";
import type { AttentionWeights } from "../../layers/attention/weights.ts";
import type { AttentionRules, RopeRules } from "../families/attention-rules.ts";
import {
  checkFileConfig,
  FACTOR_RULE,
  type Facts,
  isFactor,
  isPositive,
  POSITIVE_RULE,
  present,
} from "../families/facts.ts";
import { GGUF_LATENTS, GGUF_LAYERS } from "../families/index.ts";
import { reasonAgainst, UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_RULE } from "../families/unsupported.ts";
import type { HeadsMore } from "../spec/spec.ts";

/** AttentionWeights with matrices as the file gives them: Q8_0 and Q4_0 in their encoding, other blocks as F32. */
export type GgufWeights = AttentionWeights<StoredTensor>;

/** An attention layer of a GGUF file, ready for `createAttention`. */
export interface GgufLayer {
  /** Shapes and rules of the layer. */
  readonly config: AttentionConfig;
  /** Weights of the layer. */
  readonly weights: GgufWeights;
}

/** Options of `readGgufLayer`. */
export interface GgufLayerOptions {
  /** RoPE pairing for an architecture that is not known, or instead of the known one. */
  readonly pairing?: RopeConfig["pairing"];
}

const WHERE = "readGgufLayer";

/**
 * Reads one attention layer of a GGUF file. The configuration comes from the metadata and from what is known of the
 * architecture. Vectors become float32, matrices are as `openGguf` gives them. Only the bytes of this layer are read.
 *
 * The architecture determines the RoPE pairing: "interleaved" for Llama and its relatives, whose rows were permuted when the
 * file was made, "half" for Qwen, Gemma, Phi and others. A sliding window applies to the layers that the metadata or the
 * architecture name, and to all layers if neither names any.
 * @param layer Index of the layer, from 0.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for an unknown architecture, unless
 * `options.pairing` is given (all other rules then come from the metadata alone); for rules that are not supported; for a
 * missing tensor, a shape that contradicts the metadata, and attention tensors that are not understood.
 * @example
 * import { open } from "node:fs/promises";
 * import { fileSource, type GgufLayer, openGguf, readGgufLayer } from "headwise/weights";
 * async function readLayer(path: string, layer: number): Promise<GgufLayer> {
 *   await using handle = await open(path);
 *   return readGgufLayer(await openGguf(await fileSource(handle)), layer);
 * }
 * console.log(typeof readLayer); // function: readLayer("Llama-3.2-1B-Q8_0.gguf", 15) reads 11 MB of 1.3 GB
 */
export async function readGgufLayer(file: GgufFile, layer: number, options: GgufLayerOptions = {}): Promise<GgufLayer> {
  expectFile(WHERE, file);
  expectInt(WHERE, "layer", layer, 0);
  expectFields(WHERE, "options", options, ["pairing"]);
  const { pairing } = options;
  if (pairing !== undefined) expectOneOf(WHERE, "options.pairing", pairing, PAIRINGS);
  expectNoLongrope(WHERE, file);
  const { config, required, optional } = readHeads(WHERE, file, layer, pairing, await readRopeFactors(WHERE, file));
  const names = expectTensors(WHERE, file, layerPrefix(layer), required, optional);
  return { config, weights: headWeights(WHERE, await file.readAll(names, WHERE), layerPrefix(layer)) };
}

/** What the names of the tensors of a layer's attention begin with. */
export const layerPrefix = (layer: number): string => `blk.${layer}.attn_`;

/** The configuration of a layer, from the metadata and what tensors there are, and the tensors that it has then. */
export function readHeads(
  where: string,
  file: Pick<GgufFile, "metadata" | "tensors">,
  layer: number,
  pairing: RopeConfig["pairing"] | undefined,
  factors: RopeFactors | undefined,
  whole?: AttentionRules,
  more: Pick<HeadsMore, "keysOf" | "valuesAreKeys"> = {},
): { readonly config: AttentionConfig } & AttentionShapes {
  const stated = readGgufConfig(where, file, layer, pairing, factors, whole);
  const prefix = layerPrefix(layer);
  const has = (part: string) => file.tensors.has(prefix + part);
  const { numHeads, dModel, numKvHeads, headDim, valueDim } = stated.config;
  const [q, k, v] = [numHeads * headDim, numKvHeads * headDim, numKvHeads * valueDim];
  const isOwn = more.keysOf === undefined;
  if (isOwn && has("q_norm.weight") !== has("k_norm.weight"))
    throw refusal(where, `${prefix}q_norm.weight`, `beside "${prefix}k_norm.weight", both or neither`, "one of them");
  // With one query head, both kinds are the same.
  const isFull = ![undefined, headDim].includes(file.tensors.get(`${prefix}q_norm.weight`)?.shape.at(-1));
  const kind: QkNormConfig["kind"] = isFull ? "full" : "per-head";
  const qkNorm = has("q_norm.weight") ? { kind, eps: stated.normEps(`${prefix}q_norm.weight`) } : undefined;
  const fused = has("qkv.weight");
  const projections: NamedShapes = fused
    ? [["qkv.weight", [q + k + v, dModel]]]
    : Object.entries({
        "q.weight": [q, dModel],
        ...(isOwn && { "k.weight": [k, dModel] }),
        ...(isOwn && !more.valuesAreKeys && { "v.weight": [v, dModel] }),
      });
  return {
    config: { ...stated.config, ...(qkNorm && { qkNorm }) },
    required: [...projections, ["output.weight", [dModel, numHeads * valueDim]]],
    optional: Object.entries({
      ...(fused ? { "qkv.bias": [q + k + v] } : { "q.bias": [q], "k.bias": [k], "v.bias": [v] }),
      "output.bias": [dModel],
      "q_norm.weight": [isFull ? q : headDim],
      ...(isOwn && { "k_norm.weight": [isFull ? k : headDim] }),
      "sinks.weight": [numHeads],
      sinks: [numHeads],
    }),
  };
}

/** The tensors of a layer as weights: matrices as they are stored. */
export function headWeights(where: string, tensors: ReadonlyMap<string, StoredTensor>, prefix: string): GgufWeights {
  const matrix = (part: string) => tensors.get(`${prefix}${part}.weight`);
  // Vectors are copied, because the bytes around them belong to other tensors.
  const vector = (part: string) => {
    const tensor = tensors.get(prefix + part);
    return tensor && toFloats(tensor, where).slice();
  };
  return present({
    wq: matrix("q"),
    wk: matrix("k"),
    wv: matrix("v"),
    wqkv: matrix("qkv"),
    wo: matrix("output"),
    bq: vector("q.bias"),
    bk: vector("k.bias"),
    bv: vector("v.bias"),
    bqkv: vector("qkv.bias"),
    bo: vector("output.bias"),
    qNorm: vector("q_norm.weight"),
    kNorm: vector("k_norm.weight"),
    sinkLogits: vector("sinks.weight") ?? vector("sinks"),
  }) as GgufWeights;
}

// The attention of a layer by the metadata.

/** A key, and the numbers that mean "none". */
type Unsupported = readonly [key: string, ...none: number[]];

/** The factor on cos and sin, which files of longrope state. */
const ATTENTION_FACTOR = "rope.scaling.attn_factor";

/** Rules that change the result and that no reader supports. */
export const UNSUPPORTED: readonly Unsupported[] = [
  ["attention.clamp_kqv", 0],
  ["attention.indexer.head_count", 0],
  ["attention.output_scale", 0, 1],
  ["attention.shared_kv_layers", 0],
  ["attention.temperature_length", 0],
  ["attention.temperature_scale", 0],
  ["full_attention_interval", 0, 1],
  ["rope.dimension_sections"],
  ["rope.scaling.alpha", 0],
  // Programs disagree on whether this includes yarn's own factor.
  [ATTENTION_FACTOR, 1],
  ["rope.scaling.yarn_attn_factor", 1],
  ["rope.scaling.yarn_ext_factor", 1, -1],
  ["ssm.state_size", 0],
];

/** The logarithm's factor in the growth of scores with yarn. */
const LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier";

/** Rules of latent attention, which other layers do not have. */
const OF_LATENTS: readonly Unsupported[] = [
  ["attention.key_length_mla", 0],
  ["attention.kv_lora_rank", 0],
  [LOG_MULTIPLIER, 0],
];

/**
 * The keys of an architecture, without its name. Those that families read have the names of config.json, too. A count is that of
 * the layer where the value is an array; numbers and factors that are 0 count as absent.
 */
export interface Keys extends Facts {
  raw(key: string): GgufValue | undefined;
  fail(key: string, rule: string, got: unknown): never;
  /** Throws unless each of these keys is absent or has a number that means "none". */
  expectNone(unsupported: readonly Unsupported[]): void;
}

/** The keys that have another name in config.json, where families read them. */
const KEYS_OF_FIELDS: Readonly<Record<string, string>> = {
  clip_qkv: "attention.clamp_kqv",
  ...{ hidden_size_per_layer_input: "embedding_length_per_layer_input", num_hidden_layers: "block_count" },
  ...{ num_kv_shared_layers: "attention.shared_kv_layers", rms_norm_eps: "attention.layer_norm_rms_epsilon" },
  ...{ embedding_multiplier: "embedding_scale", logits_scaling: "logit_scale" },
};

/** The keys of the architecture `name` for a layer. `where` names the public function. */
export function keysOf(where: string, metadata: ReadonlyMap<string, GgufValue>, name: string, layer: number): Keys {
  const nameOf = (key: string) => `${name}.${KEYS_OF_FIELDS[key] ?? key}`;
  const raw = (key: string) => metadata.get(nameOf(key));
  const orNone = (key: string) => (raw(key) === 0 ? undefined : raw(key));
  const wrong: Keys["refusal"] = (key, rule, got, why = "") =>
    new HeadwiseError("BAD_FILE", `${where}: key "${nameOf(key)}" expected ${rule}, got ${describe(got)}${why}`);
  const fail: Keys["fail"] = (key, rule, got) => {
    throw wrong(key, rule, got);
  };
  const whole = (key: string, least: number, fallback?: number, most = LARGEST_INT): number => {
    const stated = raw(key);
    const found = typeof stated === "object" ? stated[layer] : (stated ?? fallback);
    const value = typeof found === "bigint" ? Number(found) : found;
    if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most) return value;
    const rule = most === LARGEST_INT ? `an integer >= ${least}` : `an integer from ${least} to ${most}`;
    return fail(key, `${rule}${typeof stated === "object" ? ` for layer ${layer}` : ""}`, found);
  };
  return {
    layer,
    raw,
    fail,
    refusal: wrong,
    has: (key) => orNone(key) !== undefined,
    ofLayer: (key) => {
      // Some are not of the architecture.
      const stated = raw(key) ?? metadata.get(key);
      return typeof stated === "object" ? stated[layer] : stated;
    },
    list: (key) => (typeof raw(key) === "object" ? Array.from(raw(key) as Iterable<unknown>) : undefined),
    count: (key, fallback, most) => whole(key, 1, fallback, most),
    countOrNone: (key, fallback = 0) => whole(key, 0, fallback),
    number(key) {
      const value = orNone(key);
      return value === undefined || isPositive(value) ? value : fail(key, POSITIVE_RULE, value);
    },
    factor(key) {
      const value = orNone(key);
      return value === undefined || isFactor(value) ? value : fail(key, FACTOR_RULE, value);
    },
    flag(key, fallback) {
      const value = raw(key) ?? fallback;
      return typeof value === "boolean" ? value : fail(key, "true or false", value);
    },
    expectNone(unsupported) {
      for (const [key, ...none] of unsupported) {
        const value = raw(key);
        if (value !== undefined && !none.includes(Number(value))) fail(key, "absent, since it is unsupported", value);
      }
    },
  };
}

/**
 * The scaling that the metadata states. `dim` components rotate, `truncate` is that of yarn, and `given` are the factors
 * of the file's tensors, if it has any.
 */
export function readScaling(
  keys: Keys,
  dim: number,
  truncate: boolean,
  given: RopeFactors | undefined,
): RopeScaling | undefined {
  const kind = keys.raw("rope.scaling.type") ?? "linear";
  const isKnown =
    kind === "linear" || kind === "none" || kind === "yarn" || (kind === "longrope" && given !== undefined);
  if (!isKnown) keys.fail("rope.scaling.type", '"none", "linear" or "yarn", since others are unsupported', kind);
  const factor = keys.number("rope.scaling.factor") ?? keys.number("rope.scale_linear") ?? 1;
  const scaled = (kind === "linear" || kind === "yarn") && factor !== 1;
  if (given !== undefined) {
    const { factors, attentionFactor } = given;
    if (scaled) keys.fail("rope.scaling.factor", "1 beside a tensor of factors", factor);
    if (factors.length !== dim / 2)
      keys.fail("rope.dimension_count", `two for each of the ${factors.length} factors`, dim);
    if (attentionFactor !== undefined) return { kind: "factors", factors, attentionFactor };
    return factors.every((each) => each === 1) ? undefined : { kind: "factors", factors };
  }
  if (!scaled) return undefined;
  if (kind === "linear") return { kind, factor };
  const originalMaxSeqLen = keys.count("rope.scaling.original_context_length", keys.count("context_length"));
  const betaFast = keys.number("rope.scaling.yarn_beta_fast");
  const betaSlow = keys.number("rope.scaling.yarn_beta_slow");
  return {
    kind: "yarn",
    factor,
    originalMaxSeqLen,
    ...(betaFast !== undefined && { betaFast }),
    ...(betaSlow !== undefined && { betaSlow }),
    ...(truncate ? {} : { truncate }),
  };
}

/** Tensors with a layer's `attn_` prefix that are not part of attention: norms around it, and unused tables. */
const OUTSIDE = /^(norm|norm_2|output_norm|rot_embd)\./;

/** The tensor of divisors of RoPE frequencies, and those of longrope. */
export const FACTORS = "rope_freqs.weight";
const LONG_FACTORS = "rope_factors_long.weight";
const SHORT_FACTORS = "rope_factors_short.weight";

/** Throws unless `file` is one that openGguf gave. */
export function expectFile(where: string, file: GgufFile): void {
  const isMap = (value: unknown) => tagOf(value) === "Map";
  const { metadata, tensors, read, readAll } = Object(file) as Partial<GgufFile>;
  if (isMap(metadata) && isMap(tensors) && typeof read === "function" && typeof readAll === "function") return;
  throw new TypeError(
    `${where}: file expected metadata, tensors, read and readAll, as openGguf gives them, got ${describe(file)}`,
  );
}

/** What is wrong with a tensor. */
export function refusal(where: string, name: string, rule: string, got: string): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(name)} expected ${rule}, got ${got}`);
}

/** Throws if the file has the tensors of longrope, whose choice depends on a session that a layer does not know. */
export function expectNoLongrope(where: string, { tensors }: GgufFile): void {
  for (const name of [LONG_FACTORS, SHORT_FACTORS])
    if (tensors.has(name)) throw refusal(where, name, "to be absent, since longrope is unsupported", "it");
}

/** Names of tensors below a prefix, with their shapes. */
export type NamedShapes = readonly (readonly [name: string, shape: readonly number[]])[];

/** The tensors of a layer's attention, by the name after its prefix: those it must have, and those it may have. */
export interface AttentionShapes {
  readonly required: NamedShapes;
  readonly optional: NamedShapes;
}

/** The full names of the attention tensors below `prefix`. Throws unless they are those of the layer, of these shapes. */
export function expectTensors(
  where: string,
  file: Pick<GgufFile, "metadata" | "tensors">,
  prefix: string,
  required: NamedShapes,
  optional: NamedShapes = [],
): readonly string[] {
  const names = attentionNames(file, prefix);
  const files = Number(file.metadata.get("split.count") ?? 1);
  const none = files > 1 ? `no such tensor in this one of ${files} files` : "no such tensor";
  for (const [part, shape] of [...required, ...optional.filter(([part]) => file.tensors.has(prefix + part))]) {
    const found = file.tensors.get(prefix + part)?.shape;
    if (!hasShape(found, shape))
      throw refusal(where, prefix + part, `shape ${shapeText(shape)}`, found ? shapeText(found) : none);
  }
  const known = [...required, ...optional].map(([part]) => prefix + part);
  const unread = names.find((name) => !known.includes(name));
  if (unread !== undefined)
    throw refusal(where, unread, "to be absent, since the layer would be read without it", "it");
  return names;
}

/** The names of the tensors below `prefix` that belong to attention. */
function attentionNames({ tensors }: Pick<GgufFile, "tensors">, prefix: string): readonly string[] {
  return [...tensors.keys()].filter((name) => name.startsWith(prefix) && !OUTSIDE.test(name.slice(prefix.length)));
}

// The tensors of a GGUF file that divide the frequencies of RoPE.

/** Divisors of the frequencies, one for each pair, and in longrope the factor on cos and sin. */
interface RopeFactors {
  readonly factors: Float32Array;
  readonly attentionFactor?: number;
}

const MOST_FACTORS = 2 ** 15;

/** Those of all layers (Llama 3); undefined if the file has none. */
export async function readRopeFactors(
  where: string,
  file: Pick<GgufFile, "tensors" | "read">,
): Promise<RopeFactors | undefined> {
  return file.tensors.has(FACTORS) ? { factors: await readFactors(where, file, FACTORS) } : undefined;
}

/**
 * Those of longrope (Phi-3): the long ones if a sequence of `maxSeqLen` tokens is longer than the model was trained with; undefined
 * if the file has none.
 */
export async function readLongFactors(
  where: string,
  file: Pick<GgufFile, "metadata" | "tensors" | "read">,
  architecture: string,
  maxSeqLen: number,
): Promise<RopeFactors | undefined> {
  const { tensors, metadata } = file;
  if (!tensors.has(LONG_FACTORS) && !tensors.has(SHORT_FACTORS)) return undefined;
  for (const name of [LONG_FACTORS, SHORT_FACTORS])
    if (!tensors.has(name)) throw refusal(where, name, "in a file with the other factors of longrope", "none");
  const keys = keysOf(where, metadata, architecture, 0);
  const trained = keys.count("rope.scaling.original_context_length", keys.count("context_length"));
  const factors = await readFactors(where, file, maxSeqLen > trained ? LONG_FACTORS : SHORT_FACTORS);
  return { factors, attentionFactor: keys.factor(ATTENTION_FACTOR) ?? 1 };
}

async function readFactors(
  where: string,
  file: Pick<GgufFile, "tensors" | "read">,
  name: string,
): Promise<Float32Array> {
  const { shape = [] } = file.tensors.get(name) ?? {};
  if (shape.length !== 1 || (shape[0] as number) > MOST_FACTORS)
    throw refusal(where, name, `one dimension of at most ${MOST_FACTORS}`, shapeText(shape));
  const factors = toFloats(await file.read(name, where), where).slice();
  const odd = factors.find((factor) => !(factor >= 1 && factor < Infinity));
  if (odd !== undefined) throw refusal(where, name, "finite factors >= 1", String(odd));
  return factors;
}

/** A configuration as a file states it, and what it may still take from tensors. */
interface StatedConfig {
  readonly config: AttentionConfig & Required<Pick<AttentionConfig, "numKvHeads" | "headDim" | "valueDim">>;
  /** Epsilon of the norms of queries and keys. Throws, naming the tensor, if they are not RMS norms. */
  readonly normEps: (tensor: string) => number;
}

/**
 * Reads the configuration of a layer for the public function `where`. `factors` are those of the file's tensors, if it has any, and
 * `whole` the rules of a whole decoder's layers, which may have what single ones do not.
 */
function readGgufConfig(
  where: string,
  { metadata }: Pick<GgufFile, "metadata">,
  layer: number,
  pairing: RopeConfig["pairing"] | undefined,
  factors: RopeFactors | undefined,
  whole?: AttentionRules,
): StatedConfig {
  const name = metadata.get("general.architecture");
  const known = whole ?? GGUF_LAYERS.get(name);
  const fail = (rule: string, why = ""): never => {
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: key "general.architecture" expected ${rule}, got ${describe(name)}${why}`,
    );
  };
  if (!whole && GGUF_LATENTS.has(name))
    return fail("attention that createAttention computes", ", whose latent attention (MLA) readGgufLatentLayer reads");
  const reason = reasonAgainst(name, UNSUPPORTED_ARCHITECTURES);
  if (!whole && reason !== undefined) return fail(UNSUPPORTED_RULE, `, which has ${reason}`);
  if (typeof name !== "string" || (known === undefined && pairing === undefined))
    return fail(
      `a supported one${nearestNames(name, [...(GGUF_LAYERS.keys() as Iterable<string>)])}, or options.pairing`,
    );
  const rules: AttentionRules = known ?? { qkNorm: { kind: "per-head" } };
  const keys = keysOf(where, metadata, name, layer);
  const understood = whole?.gguf?.wholeKeys?.split(" ") ?? [];
  if (factors?.attentionFactor !== undefined) understood.push(ATTENTION_FACTOR);
  keys.expectNone([...UNSUPPORTED, ...OF_LATENTS].filter(([key]) => !understood.includes(key)));
  const stated = stateConfig(where, keys, rules, name, layer, pairing ?? pairingOf(rules), factors);
  const nameOf = (ours: string) => KEYS[ours] && `key "${name}.${KEYS[ours]}"`;
  checkFileConfig(where, () => checkConfig(where, stated.config), nameOf);
  return stated;
}

/** Our names of fields, and the keys that they come from. */
export const KEYS: Readonly<Record<string, string>> = {
  "rope.scaling.betaFast": "rope.scaling.yarn_beta_fast",
  "rope.scaling.betaSlow": "rope.scaling.yarn_beta_slow",
  "rope.scaling.factor": "rope.scaling.factor",
  "rope.theta": "rope.freq_base",
  numHeads: "attention.head_count",
  ropeDim: "rope.dimension_count",
};

function stateConfig(
  where: string,
  keys: Keys,
  rules: AttentionRules,
  name: string,
  layer: number,
  pairing: RopeConfig["pairing"] | undefined,
  factors: RopeFactors | undefined,
): StatedConfig {
  const blocks = keys.count("block_count");
  expectInt(where, "layer", layer, 0, blocks - 1);
  const width = windowOf(keys, rules, layer);
  const ending = width !== undefined && rules.gguf?.windowSizes ? "_swa" : "";
  const sizes = readSizes(keys, layer, ending, rules.gguf?.windowSizes);
  const { numHeads, dModel, headDim } = sizes;
  const causal = keys.flag("attention.causal", rules.causal === undefined);
  const { bothSides } = rules.window ?? {};
  if (width !== undefined && !causal && !bothSides)
    keys.fail("attention.sliding_window", "none in a layer that is not causal", width);
  const left = width === undefined ? undefined : bothSides ? Math.floor(width / 2) : width - 1;
  const alibi = hasAlibi(keys, rules, blocks);
  const still = rules.rotates?.(layer, width !== undefined, windowTokens(keys, rules) > 0, keys) === false;
  // In Granite files this states whether heads rotate at all; in others, how the model was trained.
  const switchedOff = name.startsWith("granite") && !keys.flag("rope.scaling.finetuned", true);
  const wide = rules.gguf?.wideScale === blocks;
  const config = present({
    ...sizes,
    causal,
    window: left === undefined ? undefined : { left, ...(bothSides && { right: left }) },
    scale: keys.factor("attention.scale") ?? rules.gguf?.scale ?? (wide ? 1 / Math.sqrt(dModel / numHeads) : undefined),
    softcap: keys.factor("attn_logit_softcapping") ?? (rules.softcap || undefined),
    alibi: alibi ? "geometric" : undefined,
    rope:
      pairing && !(alibi || still || switchedOff)
        ? readRope(keys, rules, pairing, headDim, width !== undefined, factors, ending)
        : undefined,
  }) as StatedConfig["config"];
  return {
    config,
    normEps(tensor) {
      if (!rules.qkNorm)
        throw new HeadwiseError(
          "BAD_FILE",
          `${where}: tensor ${describe(tensor)} expected to be absent, since the norm of ${name} is unsupported, got it`,
        );
      const key = "attention.layer_norm_rms_epsilon";
      return keys.number(key) ?? keys.fail(key, POSITIVE_RULE, keys.raw(key));
    },
  };
}

const [KEY, VALUE, ROTATED] = ["attention.key_length", "attention.value_length", "rope.dimension_count"] as const;

/** The sizes of a layer: of keys with this ending, if those of layers with a window have one. */
function readSizes(keys: Keys, layer: number, ending: string, windowSizes = false) {
  const dModel = keys.count("embedding_length");
  const numHeads = headsOf(keys, "attention.head_count", layer);
  const numKvHeads = headsOf(keys, "attention.head_count_kv", layer, numHeads);
  if (numHeads % numKvHeads !== 0) keys.fail("attention.head_count_kv", `a divisor of ${numHeads} heads`, numKvHeads);
  const share = dModel / numHeads;
  const headDim = keys.count(`${KEY}${ending}`, share);
  const valueDim = keys.count(`${VALUE}${ending}`, share);
  // Elsewhere, layers with a window have no sizes of their own.
  for (const key of windowSizes ? [] : [KEY, VALUE, ROTATED])
    keys.expectNone([[`${key}_swa`, keys.count(key, key === VALUE ? valueDim : headDim)]]);
  return { dModel, numHeads, numKvHeads, headDim, valueDim };
}

/** Heads of the layer. In hybrid models, layers that are not attention have none. */
function headsOf(keys: Keys, key: string, layer: number, fallback?: number): number {
  const list = keys.raw(key);
  if (typeof list === "object" && Number(list[layer]) === 0)
    keys.fail(key, `heads in layer ${layer}, since layers without attention are unsupported`, 0);
  return keys.count(key, fallback);
}

/** Tokens of the model's window, 0 if it has none. */
function windowTokens(keys: Keys, { window, gguf = {} }: AttentionRules): number {
  const { windowLayers, assumesWindow } = gguf;
  if (windowLayers !== undefined && windowLayers !== keys.count("block_count")) return 0;
  return keys.countOrNone("attention.sliding_window", assumesWindow && window?.tokens);
}

/** Tokens of the layer's window, including the query's own; undefined without a window. */
function windowOf(keys: Keys, rules: AttentionRules, layer: number): number | undefined {
  const width = windowTokens(keys, rules);
  if (width === 0) return undefined;
  const key = "attention.sliding_window_pattern";
  const pattern = keys.raw(key);
  if (typeof pattern === "object") return keys.countOrNone(key) > 0 ? width : undefined;
  const every = pattern === undefined ? (rules.window?.period ?? 0) : keys.countOrNone(key);
  return every === 0 || layer % every < every - 1 ? width : undefined;
}

function hasAlibi(keys: Keys, { alibi, gguf }: AttentionRules, blocks: number): boolean {
  const key = "attention.max_alibi_bias";
  const most = keys.number(key);
  if (most !== undefined && most !== 8) keys.fail(key, "0 or 8, that of the published slopes", most);
  return most === 8 || alibi === true || gguf?.alibiLayers === blocks;
}

/** How the file's rows of queries and keys are paired by RoPE; undefined without RoPE. */
export function pairingOf({ rope = {}, gguf }: AttentionRules): RopeConfig["pairing"] | undefined {
  if (rope === false) return undefined;
  return gguf?.permuted ? "interleaved" : (rope.pairing ?? "half");
}

function readRope(
  keys: Keys,
  { rope, gguf }: AttentionRules,
  pairing: RopeConfig["pairing"],
  headDim: number,
  windowed: boolean,
  factors: RopeFactors | undefined,
  ending: string,
): RopeConfig {
  const { local: own, localUnscaled }: RopeRules = rope || {};
  const local = windowed ? (keys.number("rope.freq_base_swa") ?? own?.theta) : undefined;
  const theta = local ?? keys.number("rope.freq_base") ?? 10_000;
  const dim = keys.count(`${ROTATED}${ending}`, headDim);
  if (dim > headDim || dim % 2 !== 0)
    keys.fail(`${ROTATED}${ending}`, `an even integer up to the head's ${headDim}`, dim);
  const isBare = windowed && (localUnscaled || own !== undefined);
  const scaling = isBare ? undefined : readScaling(keys, dim, !gguf?.smoothRamp, factors);
  const multiplier = keys.factor(LOG_MULTIPLIER);
  if (multiplier !== undefined && scaling?.kind === "yarn") {
    if (multiplier !== 1) keys.fail(LOG_MULTIPLIER, "1, since others are unsupported", multiplier);
    // Both factors of yarn are the same then, and cancel.
    return { theta, pairing, ...(dim !== headDim && { dim }), scaling: { ...scaling, attentionFactor: 1 } };
  }
  return { theta, pairing, ...(dim !== headDim && { dim }), ...(scaling && { scaling }) };
}
