import type { AttentionConfig } from "../../attention/config.ts";
import type { RopeConfig } from "../../attention/rope.ts";
import type { RopeScaling } from "../../attention/rope-frequencies.ts";
import type { GgufFile } from "../../files/gguf/gguf.ts";
import type { GgufValue } from "../../files/gguf/header.ts";
import { expectInt } from "../../util/arguments.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import { nearestNames } from "../../util/near-name.ts";
import { checkFileConfig } from "../check-config.ts";
import { reasonAgainst, UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_RULE } from "../unsupported.ts";
import { ARCHITECTURES, type Architecture } from "./architectures.ts";

const WHERE = "readGgufLayer";

/** Unsupported rules that change the result: the key, and the numbers that mean "none". */
const UNSUPPORTED: readonly (readonly [key: string, ...none: number[]])[] = [
  ["attention.clamp_kqv", 0],
  ["attention.indexer.head_count", 0],
  ["attention.key_length_mla", 0],
  ["attention.kv_lora_rank", 0],
  ["attention.key_length_swa"],
  ["attention.value_length_swa"],
  ["attention.output_scale", 0, 1],
  ["attention.shared_kv_layers", 0],
  ["attention.temperature_length", 0],
  ["attention.temperature_scale", 0],
  ["full_attention_interval", 0, 1],
  ["rope.dimension_count_swa"],
  ["rope.dimension_sections"],
  ["rope.scaling.alpha", 0],
  // Programs disagree on whether this includes yarn's own factor.
  ["rope.scaling.attn_factor", 1],
  ["rope.scaling.yarn_attn_factor", 1],
  ["rope.scaling.yarn_ext_factor", 1, -1],
  ["rope.scaling.yarn_log_multiplier", 0],
  ["ssm.state_size", 0],
];

/** A configuration as a file states it, and what it may still take from tensors. */
interface StatedConfig {
  readonly config: AttentionConfig & Required<Pick<AttentionConfig, "numKvHeads" | "headDim" | "valueDim">>;
  /** Epsilon of the norms of queries and keys. Throws, naming the tensor, if they are not RMS norms. */
  readonly normEps: (tensor: string) => number;
}

/** Reads the configuration of a layer. `factors` are those of the file's rope_freqs, if it has them. */
export function readGgufConfig(
  { metadata }: GgufFile,
  layer: number,
  pairing: RopeConfig["pairing"] | undefined,
  factors: Float32Array | undefined,
): StatedConfig {
  const name = metadata.get("general.architecture");
  const known = typeof name === "string" && Object.hasOwn(ARCHITECTURES, name) ? ARCHITECTURES[name] : undefined;
  const fail = (rule: string, why = ""): never => {
    throw new HeadwiseError(
      "BAD_FILE",
      `${WHERE}: key "general.architecture" expected ${rule}, got ${describe(name)}${why}`,
    );
  };
  const reason = reasonAgainst(UNSUPPORTED_ARCHITECTURES, name);
  if (reason !== undefined) return fail(UNSUPPORTED_RULE, `, which has ${reason}`);
  if (typeof name !== "string" || (known === undefined && pairing === undefined))
    return fail(`a supported one (nearest: ${nearestNames(name, Object.keys(ARCHITECTURES))}), or options.pairing`);
  const architecture: Architecture = { ...(known ?? { rmsNorm: true }), ...(pairing && { pairing }) };
  const keys = keysOf(metadata, name, layer);
  for (const [key, ...none] of UNSUPPORTED) {
    const value = keys.raw(key);
    if (value !== undefined && !none.includes(Number(value))) keys.fail(key, "absent, since it is unsupported", value);
  }
  const stated = stateConfig(keys, architecture, name, layer, factors);
  checkFileConfig(WHERE, stated.config, (ours) => KEYS[ours] && `key "${name}.${KEYS[ours]}"`);
  return stated;
}

/** Our names of fields, and the keys that they come from. */
const KEYS: Readonly<Record<string, string>> = {
  "rope.scaling.betaFast": "rope.scaling.yarn_beta_fast",
  "rope.scaling.betaSlow": "rope.scaling.yarn_beta_slow",
  "rope.scaling.factor": "rope.scaling.factor",
  "rope.theta": "rope.freq_base",
  numHeads: "attention.head_count",
  scale: "attention.scale",
  softcap: "attn_logit_softcapping",
};

/** Typed access to the keys of an architecture. */
interface Keys {
  raw(key: string): GgufValue | undefined;
  /** An integer >= 1, from the layer's element if the value is an array; `fallback` if it is absent. */
  count(key: string, fallback?: number): number;
  /** The same, but 0 if it is absent. */
  countOrNone(key: string, fallback?: number): number;
  /** A finite number > 0; undefined if it is absent or 0. */
  number(key: string): number | undefined;
  flag(key: string): boolean | undefined;
  fail(key: string, rule: string, got: unknown): never;
}

function keysOf(metadata: ReadonlyMap<string, GgufValue>, name: string, layer: number): Keys {
  const raw = (key: string) => metadata.get(`${name}.${key}`);
  const fail = (key: string, rule: string, got: unknown): never => {
    throw new HeadwiseError("BAD_FILE", `${WHERE}: key "${name}.${key}" expected ${rule}, got ${describe(got)}`);
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
    count: (key, fallback) => whole(key, 1, fallback),
    countOrNone: (key, fallback = 0) => whole(key, 0, fallback),
    number(key) {
      const value = raw(key);
      if (value === undefined || value === 0) return undefined;
      return typeof value === "number" && value > 0 && value < Infinity
        ? value
        : fail(key, "a finite number > 0", value);
    },
    flag(key) {
      const value = raw(key);
      return value === undefined || typeof value === "boolean" ? value : fail(key, "true or false", value);
    },
  };
}

function stateConfig(
  keys: Keys,
  architecture: Architecture,
  name: string,
  layer: number,
  factors: Float32Array | undefined,
): StatedConfig {
  const blocks = keys.count("block_count");
  expectInt(WHERE, "layer", layer, 0, blocks - 1);
  const dModel = keys.count("embedding_length");
  const numHeads = headsOf(keys, "attention.head_count", layer);
  const numKvHeads = headsOf(keys, "attention.head_count_kv", layer, numHeads);
  if (numHeads % numKvHeads !== 0) keys.fail("attention.head_count_kv", `a divisor of ${numHeads} heads`, numKvHeads);
  const share = dModel / numHeads;
  const headDim = keys.count("attention.key_length", share);
  const valueDim = keys.count("attention.value_length", share);

  const causal = keys.flag("attention.causal") ?? architecture.causal ?? true;
  const width = windowOf(keys, architecture, layer);
  if (width !== undefined && !causal)
    keys.fail("attention.sliding_window", "none in a layer that is not causal", width);
  const alibi = hasAlibi(keys, architecture, blocks);
  const rotates = !(
    alibi || architecture.rotates?.(layer, width !== undefined, windowTokens(keys, architecture) > 0) === false
  );
  // In Granite files this states whether heads rotate at all; in others, how the model was trained.
  const switchedOff = name.startsWith("granite") && keys.flag("rope.scaling.finetuned") === false;
  const wide = architecture.wideScale === blocks;
  const stated = {
    dModel,
    numHeads,
    numKvHeads,
    headDim,
    valueDim,
    causal,
    window: width === undefined ? undefined : { left: width - 1 },
    scale: keys.number("attention.scale") ?? (wide ? 1 / Math.sqrt(share) : undefined),
    softcap: keys.number("attn_logit_softcapping") ?? architecture.softcap,
    alibi: alibi ? "geometric" : undefined,
    rope: rotates && !switchedOff ? readRope(keys, architecture, headDim, width !== undefined, factors) : undefined,
  };
  const config = Object.fromEntries(Object.entries(stated).filter(([, value]) => value !== undefined));
  return {
    config: config as unknown as StatedConfig["config"],
    normEps(tensor) {
      if (!architecture.rmsNorm)
        throw new HeadwiseError(
          "BAD_FILE",
          `${WHERE}: tensor ${describe(tensor)} expected to be absent, since the norm of ${name} is unsupported, got it`,
        );
      const key = "attention.layer_norm_rms_epsilon";
      return keys.number(key) ?? keys.fail(key, "a finite number > 0", keys.raw(key));
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
function windowTokens(keys: Keys, { window, windowLayers }: Architecture): number {
  if (windowLayers !== undefined && windowLayers !== keys.count("block_count")) return 0;
  return keys.countOrNone("attention.sliding_window", window);
}

/** Tokens of the layer's window, including the query's own; undefined without a window. */
function windowOf(keys: Keys, architecture: Architecture, layer: number): number | undefined {
  const width = windowTokens(keys, architecture);
  const { period } = architecture;
  if (width === 0) return undefined;
  const key = "attention.sliding_window_pattern";
  const pattern = keys.raw(key);
  if (typeof pattern === "object") return keys.countOrNone(key) > 0 ? width : undefined;
  const every = pattern === undefined ? (period ?? 0) : keys.countOrNone(key);
  return every === 0 || layer % every < every - 1 ? width : undefined;
}

function hasAlibi(keys: Keys, { alibi, alibiLayers }: Architecture, blocks: number): boolean {
  const key = "attention.max_alibi_bias";
  const most = keys.number(key);
  if (most !== undefined && most !== 8) keys.fail(key, "0 or 8, that of the published slopes", most);
  return most === 8 || alibi === true || alibiLayers === blocks;
}

function readRope(
  keys: Keys,
  architecture: Architecture,
  headDim: number,
  windowed: boolean,
  factors: Float32Array | undefined,
): RopeConfig | undefined {
  const { pairing, localTheta, localUnscaled, smoothRamp } = architecture;
  if (pairing === undefined) return undefined;
  const local = windowed ? (keys.number("rope.freq_base_swa") ?? localTheta) : undefined;
  const theta = local ?? keys.number("rope.freq_base") ?? 10_000;
  const dim = keys.count("rope.dimension_count", headDim);
  if (dim > headDim || dim % 2 !== 0)
    keys.fail("rope.dimension_count", `an even integer up to the head's ${headDim}`, dim);
  const scaling = windowed && localUnscaled ? undefined : readScaling(keys, dim, smoothRamp !== true, factors);
  return { theta, pairing, ...(dim !== headDim && { dim }), ...(scaling && { scaling }) };
}

function readScaling(
  keys: Keys,
  dim: number,
  truncate: boolean,
  factors: Float32Array | undefined,
): RopeScaling | undefined {
  const kind = keys.raw("rope.scaling.type") ?? "linear";
  if (kind !== "linear" && kind !== "none" && kind !== "yarn")
    keys.fail("rope.scaling.type", '"none", "linear" or "yarn", since others are unsupported', kind);
  const factor = keys.number("rope.scaling.factor") ?? keys.number("rope.scale_linear") ?? 1;
  const scaled = kind !== "none" && factor !== 1;
  if (factors !== undefined) {
    if (scaled) keys.fail("rope.scaling.factor", "1 beside a tensor of factors", factor);
    if (factors.length !== dim / 2)
      keys.fail("rope.dimension_count", `two for each of the ${factors.length} factors`, dim);
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
