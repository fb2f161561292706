// The attention of a layer by the metadata of a GGUF file.

import { hasShape, shapeText } from "../../base/tensor/dtypes.ts";
import { toFloats } from "../../base/tensor/to-floats.ts";
import { expectInt } from "../../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../../base/util/errors.ts";
import { nearestNames } from "../../base/util/strings.ts";
import type { GgufFile } from "../../files/gguf/gguf.ts";
import type { GgufValue } from "../../files/gguf/header.ts";
import { type AttentionConfig, checkConfig } from "../../layers/attention/config.ts";
import type { RopeConfig, RopeScaling } from "../../layers/attention/rope.ts";
import type { AttentionRules, RopeRules } from "../families/attention-rules.ts";
import { FACTOR_RULE, type Facts, isFactor, isPositive, POSITIVE_RULE } from "../families/facts.ts";
import { GGUF_LATENTS, GGUF_LAYERS } from "../families/index.ts";
import { reasonAgainst, UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_RULE } from "../families/unsupported.ts";
import type { NamedShapes } from "../spec/tensors.ts";
import { checkFileConfig } from "./check-config.ts";

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

/** Rules of latent attention, which other layers do not have. */
const OF_LATENTS: readonly Unsupported[] = [
  ["attention.key_length_mla", 0],
  ["attention.kv_lora_rank", 0],
  ["rope.scaling.yarn_log_multiplier", 0],
];

/**
 * The keys of an architecture, without its name. Those that families read have the names of config.json, too. A count is that of
 * the layer where the value is an array; numbers and factors that are 0 count as absent.
 */
export interface Keys extends Facts {
  raw(key: string): GgufValue | undefined;
  /** A count, or 0 if it is absent. */
  countOrNone(key: string, fallback?: number): number;
  fail(key: string, rule: string, got: unknown): never;
  /** Throws unless each of these keys is absent or has a number that means "none". */
  expectNone(unsupported: readonly Unsupported[]): void;
}

/** The keys that have another name in config.json, where families read them. */
const KEYS_OF_FIELDS: Readonly<Record<string, string>> = {
  embedding_multiplier: "embedding_scale",
  logits_scaling: "logit_scale",
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
  const whole = (key: string, least: number, fallback?: number): number => {
    const stated = raw(key);
    const found = typeof stated === "object" ? stated[layer] : (stated ?? fallback);
    const value = typeof found === "bigint" ? Number(found) : found;
    if (typeof value === "number" && Number.isInteger(value) && value >= least && value < 2 ** 31) return value;
    return fail(key, `an integer >= ${least}${typeof stated === "object" ? ` for layer ${layer}` : ""}`, found);
  };
  return {
    raw,
    fail,
    refusal: wrong,
    has: (key) => orNone(key) !== undefined,
    list: (key) => (typeof raw(key) === "object" ? Array.from(raw(key) as Iterable<unknown>) : undefined),
    count: (key, fallback) => whole(key, 1, fallback),
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
export interface RopeFactors {
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

/** Reads the configuration of a layer for the public function `where`. `factors` are those of the file's tensors, if it has any. */
export function readGgufConfig(
  where: string,
  { metadata }: Pick<GgufFile, "metadata">,
  layer: number,
  pairing: RopeConfig["pairing"] | undefined,
  factors: RopeFactors | undefined,
): StatedConfig {
  const name = metadata.get("general.architecture");
  const known = GGUF_LAYERS.get(name);
  const fail = (rule: string, why = ""): never => {
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: key "general.architecture" expected ${rule}, got ${describe(name)}${why}`,
    );
  };
  if (GGUF_LATENTS.has(name))
    return fail("attention that createAttention computes", ", whose latent attention (MLA) readGgufLatentLayer reads");
  const reason = reasonAgainst(UNSUPPORTED_ARCHITECTURES, name);
  if (reason !== undefined) return fail(UNSUPPORTED_RULE, `, which has ${reason}`);
  if (typeof name !== "string" || (known === undefined && pairing === undefined))
    return fail(
      `a supported one${nearestNames(name, [...(GGUF_LAYERS.keys() as Iterable<string>)])}, or options.pairing`,
    );
  const rules: AttentionRules = known ?? { qkNorm: { kind: "per-head" } };
  const keys = keysOf(where, metadata, name, layer);
  keys.expectNone(
    factors?.attentionFactor === undefined ? UNSUPPORTED : UNSUPPORTED.filter(([key]) => key !== ATTENTION_FACTOR),
  );
  keys.expectNone(OF_LATENTS);
  const stated = stateConfig(where, keys, rules, name, layer, pairing ?? pairingOf(rules), factors);
  const check = () => checkConfig(where, stated.config);
  checkFileConfig(where, check, (ours) => KEYS[ours] && `key "${name}.${KEYS[ours]}"`);
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
  const dModel = keys.count("embedding_length");
  const numHeads = headsOf(keys, "attention.head_count", layer);
  const numKvHeads = headsOf(keys, "attention.head_count_kv", layer, numHeads);
  if (numHeads % numKvHeads !== 0) keys.fail("attention.head_count_kv", `a divisor of ${numHeads} heads`, numKvHeads);
  const share = dModel / numHeads;
  const headDim = keys.count("attention.key_length", share);
  const valueDim = keys.count("attention.value_length", share);
  // Layers with a window have no sizes of their own.
  keys.expectNone([
    ["attention.key_length_swa", headDim],
    ["attention.value_length_swa", valueDim],
    ["rope.dimension_count_swa", keys.count("rope.dimension_count", headDim)],
  ]);

  const causal = keys.flag("attention.causal", rules.causal === undefined);
  const width = windowOf(keys, rules, layer);
  if (width !== undefined && !causal)
    keys.fail("attention.sliding_window", "none in a layer that is not causal", width);
  const alibi = hasAlibi(keys, rules, blocks);
  const rotates = !(
    alibi || rules.rotates?.(layer, width !== undefined, windowTokens(keys, rules) > 0, keys) === false
  );
  // In Granite files this states whether heads rotate at all; in others, how the model was trained.
  const switchedOff = name.startsWith("granite") && !keys.flag("rope.scaling.finetuned", true);
  const wide = rules.gguf?.wideScale === blocks;
  const stated = {
    dModel,
    numHeads,
    numKvHeads,
    headDim,
    valueDim,
    causal,
    window: width === undefined ? undefined : { left: width - 1 },
    scale: keys.factor("attention.scale") ?? (wide ? 1 / Math.sqrt(share) : undefined),
    softcap: keys.factor("attn_logit_softcapping") ?? (rules.softcap || undefined),
    alibi: alibi ? "geometric" : undefined,
    rope:
      pairing && rotates && !switchedOff
        ? readRope(keys, rules, pairing, headDim, width !== undefined, factors)
        : undefined,
  };
  const config = Object.fromEntries(Object.entries(stated).filter(([, value]) => value !== undefined));
  return {
    config: config as unknown as StatedConfig["config"],
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
): RopeConfig {
  const { local: own, localUnscaled }: RopeRules = rope || {};
  const local = windowed ? (keys.number("rope.freq_base_swa") ?? own?.theta) : undefined;
  const theta = local ?? keys.number("rope.freq_base") ?? 10_000;
  const dim = keys.count("rope.dimension_count", headDim);
  if (dim > headDim || dim % 2 !== 0)
    keys.fail("rope.dimension_count", `an even integer up to the head's ${headDim}`, dim);
  const isBare = windowed && (localUnscaled || own !== undefined);
  const scaling = isBare ? undefined : readScaling(keys, dim, !gguf?.smoothRamp, factors);
  return { theta, pairing, ...(dim !== headDim && { dim }), ...(scaling && { scaling }) };
}
