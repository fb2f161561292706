// The configuration of a layer of attention, and its checks.

import {
  expectEach,
  expectFlag,
  expectFloat32,
  expectFloats,
  expectInt,
  expectOneOf,
  MOST_HEADS,
  readFields,
  wrongValue,
} from "../../base/util/arguments.ts";
import { freezeDeep } from "../../base/util/lifetime.ts";
import { pow } from "../../base/util/math.ts";
import { checkRope, type RopeConfig, type RopeWithDim } from "./rope.ts";

/**
 * Sliding window: which keys a query may attend, counted from the key at its own position. Files count that key too: a
 * `sliding_window` of 4096 is `{ left: 4095 }`.
 */
export interface Window {
  /** How many earlier keys, besides its own: `sliding_window` - 1. Default unbounded. */
  readonly left?: number;
  /** How many later keys, besides its own. Default unbounded. */
  readonly right?: number;
}

/** RMS norm of queries and keys, after the projection and before RoPE. The gains are `qNorm` and `kNorm` of the weights. */
export interface QkNormConfig {
  /**
   * "per-head" normalises each head by itself, with gains [headDim]. "full" normalises all heads of a token at once, with
   * gains [numHeads·headDim] for queries and [numKvHeads·headDim] for keys.
   */
  readonly kind: "per-head" | "full";
  /** Added to the mean square. Default 1e-6. */
  readonly eps?: number;
  /** Multiply by 1 + gain instead of by the gain, as Gemma does. Default false. */
  readonly onePlus?: boolean;
}

/**
 * The shapes and rules of one attention layer.
 * @example
 * import { type AttentionConfig } from "headwise";
 * const config: AttentionConfig = { dModel: 2048, numHeads: 32, numKvHeads: 8, causal: true };
 * console.log(config.numHeads / config.numKvHeads!); // 4
 */
export interface AttentionConfig {
  /**
   * The width of the model: floats of a token's embedding, hence of a row of x and of a row of y. Files call it `hidden_size`,
   * `n_embd` or `d_model`.
   */
  readonly dModel: number;
  /** Query heads, 1 to 65 536. */
  readonly numHeads: number;
  /** Key-value heads, a divisor of numHeads. Default numHeads (MHA); 1 is MQA, and anything between is GQA. */
  readonly numKvHeads?: number;
  /** Floats in a query or key head. Default dModel / numHeads. */
  readonly headDim?: number;
  /** Floats in a value head. Default headDim. */
  readonly valueDim?: number;
  /** Floats in a row that keys are projected from. Default dModel; others are for cross-attention. */
  readonly kdim?: number;
  /** Floats in a row that values are projected from. Default dModel. */
  readonly vdim?: number;
  /** A query at position p attends keys at positions up to p only. Default false. */
  readonly causal?: boolean;
  /** Sliding window. Default unbounded on both sides. */
  readonly window?: Window;
  /** Factor on q·k, from -1e38 to 1e38 and not 0. Default 1/√headDim. */
  readonly scale?: number;
  /** A score becomes softcap·tanh(score / softcap), for a softcap from 0 to 1e38. Default 0: no softcap. */
  readonly softcap?: number;
  /**
   * ALiBi: adds -slope·|query position - key position| to the score. "geometric" takes the slopes of `alibiSlopes`; an array
   * [numHeads] gives one slope per head, from -1e38 to 1e38. Default none.
   */
  readonly alibi?: "geometric" | Float32Array;
  /** Rotary position embedding. Default none. */
  readonly rope?: RopeConfig;
  /** RMS norm of queries and keys. Default none. */
  readonly qkNorm?: QkNormConfig;
  /** Add a key of zeros with a value of zeros that every query may attend, as PyTorch's add_zero_attn. Default false. */
  readonly addZeroAttn?: boolean;
}

/** The orders of rows that `fused` of a result of `fromHfConfig` names; `readAttentionWeights` needs it, and nothing else. */
export const FUSED_ORDERS = ["qkv", "grouped"] as const;

/** Every field of AttentionConfig, and `fused`, so that results of `fromHfConfig` are configurations. */
export const CONFIG_FIELDS = [
  "dModel",
  "numHeads",
  "numKvHeads",
  "headDim",
  "valueDim",
  "kdim",
  "vdim",
  "causal",
  "window",
  "scale",
  "softcap",
  "alibi",
  "rope",
  "qkNorm",
  "addZeroAttn",
  "fused",
] as const;

/** An AttentionConfig after its checks, with every default filled in. */
export interface CheckedConfig {
  /** Floats in a row of x and in a row of y. */
  readonly dModel: number;
  /** Query heads. */
  readonly numHeads: number;
  /** Key-value heads. */
  readonly numKvHeads: number;
  /** Floats in a query or key head. */
  readonly headDim: number;
  /** Floats in a value head. */
  readonly valueDim: number;
  /** Floats in a row that keys are projected from. */
  readonly kdim: number;
  /** Floats in a row that values are projected from. */
  readonly vdim: number;
  /** Whether a query at position p attends keys at positions up to p only. */
  readonly causal: boolean;
  /** Sliding window; Infinity where a side is unbounded. */
  readonly window: {
    /** How many earlier keys, besides its own. */
    readonly left: number;
    /** How many later keys, besides its own. */
    readonly right: number;
  };
  /** Factor on q·k. */
  readonly scale: number;
  /** Bound of the softcap; 0 where there is none. */
  readonly softcap: number;
  /** ALiBi slopes [numHeads], if there are any. */
  readonly slopes: Float32Array | undefined;
  /** Rotary position embedding, if there is one. */
  readonly rope: RopeWithDim | undefined;
  /** RMS norm of queries and keys, if there is one. */
  readonly qkNorm: Required<QkNormConfig> | undefined;
  /** Whether there is a key of zeros with a value of zeros. */
  readonly addZeroAttn: boolean;
}

const UNBOUNDED = Infinity;

/** Fills in the defaults and checks every rule. The result is frozen, and holds no array of the caller's. */
export function checkConfig(where: string, given: AttentionConfig & { readonly fused?: unknown }): CheckedConfig {
  const config = readFields(where, "config", given, CONFIG_FIELDS);
  if (config.fused !== undefined) expectOneOf(where, "fused", config.fused, FUSED_ORDERS);
  const dModel = expectInt(where, "dModel", config.dModel);
  const numHeads = expectInt(where, "numHeads", config.numHeads, 1, MOST_HEADS);
  const sizeOr = (name: "numKvHeads" | "headDim" | "valueDim" | "kdim" | "vdim", otherwise: number) =>
    expectInt(where, name, config[name] === undefined ? otherwise : config[name]);
  const numKvHeads = sizeOr("numKvHeads", numHeads);
  if (numHeads % numKvHeads !== 0)
    throw wrongValue(where, "numHeads", `a multiple of numKvHeads (${numKvHeads})`, numHeads);
  if (config.headDim === undefined && dModel % numHeads !== 0)
    throw new RangeError(
      `${where}: d_model (${dModel}) must be divisible by n_heads (${numHeads}) unless headDim is given`,
    );
  const headDim = sizeOr("headDim", dModel / numHeads);
  return freezeDeep({
    dModel,
    numHeads,
    numKvHeads,
    headDim,
    valueDim: sizeOr("valueDim", headDim),
    kdim: sizeOr("kdim", dModel),
    vdim: sizeOr("vdim", dModel),
    rope: config.rope === undefined ? undefined : checkRope(where, config.rope, headDim),
    qkNorm: config.qkNorm === undefined ? undefined : checkQkNorm(where, config.qkNorm),
    addZeroAttn: expectFlag(where, "addZeroAttn", config.addZeroAttn),
    ...checkRules(where, config, numHeads, headDim),
  });
}

/** The rules of a configuration that do not depend on projections: `scaledDotProductAttention` takes them too. */
export type AttentionRules = Pick<AttentionConfig, "causal" | "window" | "scale" | "softcap" | "alibi">;
export type CheckedRules = Pick<CheckedConfig, "causal" | "window" | "scale" | "softcap" | "slopes">;

export function checkRules(
  where: string,
  { causal, window, alibi, scale: given, softcap: cap = 0 }: AttentionRules,
  numHeads: number,
  headDim: number,
): CheckedRules {
  const scale = given === undefined ? 1 / Math.sqrt(headDim) : given;
  expectScoreFactor(where, "scale", scale);
  // -0 means off, too.
  const capped = cap !== 0;
  const softcap = capped ? expectScoreFactor(where, "softcap", cap, true) : 0;
  // With a softcap, queries are multiplied by this.
  if (capped) expectFloat32(where, "scale / softcap", Math.fround(scale) / Math.fround(softcap));
  return {
    causal: expectFlag(where, "causal", causal),
    window: checkWindow(where, window),
    scale,
    softcap,
    slopes: alibi === undefined ? undefined : checkSlopes(where, alibi, numHeads),
  };
}

function expectScoreFactor(where: string, name: string, value: unknown, positive = false): number {
  const factor = expectFloat32(where, name, value, positive);
  if (isScore(factor)) return factor;
  throw wrongValue(where, name, `${positive ? "at most" : "a number from -1e38 to"} 1e38`, factor);
}

function checkWindow(where: string, window: Window | undefined): CheckedConfig["window"] {
  if (window === undefined) return { left: UNBOUNDED, right: UNBOUNDED };
  const { left, right } = readFields(where, "window", window, ["left", "right"]);
  return {
    left: left === undefined ? UNBOUNDED : expectInt(where, "window.left", left, 0),
    right: right === undefined ? UNBOUNDED : expectInt(where, "window.right", right, 0),
  };
}

function checkQkNorm(where: string, norm: QkNormConfig): Required<QkNormConfig> {
  const { kind, eps = 1e-6, onePlus } = readFields(where, "qkNorm", norm, ["kind", "eps", "onePlus"]);
  return {
    kind: expectOneOf(where, "qkNorm.kind", kind, ["per-head", "full"]),
    eps: expectFloat32(where, "qkNorm.eps", eps, true),
    onePlus: expectFlag(where, "qkNorm.onePlus", onePlus),
  };
}

/**
 * Throws unless `value` is [numHeads] logits that a softmax can hold; -Infinity means no sink for that head. Returns
 * it.
 */
export function checkSinks(where: string, name: string, value: unknown, numHeads: number): Float32Array {
  const sinks = expectFloats(where, name, value);
  expectEach(where, name, sinks, numHeads, "one per head");
  const odd = sinks.find((sink) => !isScore(sink) && sink !== -Infinity);
  if (odd !== undefined) throw wrongValue(where, name, "logits from -1e38 to 1e38 or -Infinity", odd);
  return sinks;
}

/**
 * The published ALiBi slopes (Press et al. 2022). For n heads, n a power of two, head h has the slope 2^(-8·(h + 1)/n). For
 * other counts, the largest power of two below gives the first slopes, and every second slope of twice that power the rest.
 * @returns One slope per head, [numHeads].
 * @throws TypeError or RangeError unless numHeads is an integer from 1 to 65 536.
 * @example
 * import { alibiSlopes } from "headwise";
 * console.log(alibiSlopes(4).join(" ")); // 0.25 0.0625 0.015625 0.00390625
 */
export function alibiSlopes(numHeads: number): Float32Array {
  expectInt("alibiSlopes", "numHeads", numHeads, 1, MOST_HEADS);
  const whole = 2 ** (31 - Math.clz32(numHeads));
  const slope = (step: number, heads: number) => pow(2, (-8 * step) / heads);
  return Float32Array.from({ length: numHeads }, (_, head) =>
    head < whole ? slope(head + 1, whole) : slope(2 * (head - whole) + 1, 2 * whole),
  );
}

/** The slopes [numHeads] of the option `alibi`. */
function checkSlopes(where: string, alibi: "geometric" | Float32Array, numHeads: number): Float32Array {
  if (typeof alibi === "string") {
    expectOneOf(where, "alibi", alibi, ["geometric"]);
    return alibiSlopes(numHeads);
  }
  const slopes = expectFloats(where, "alibi", alibi);
  expectEach(where, "alibi", slopes, numHeads, "one slope per head");
  const odd = slopes.find((slope) => !isScore(slope));
  if (odd !== undefined) throw wrongValue(where, "alibi", "slopes from -1e38 to 1e38", odd);
  return slopes.slice();
}

/**
 * Factors and limits of scores must be below this: the kernels hold scores in units of ln 2, which makes them larger by
 * half, and the largest float32 is 3.4e38.
 */
const MOST_SCORE = 1e38;

/** Whether a factor, limit or logit is within MOST_SCORE. */
function isScore(value: number): boolean {
  return Math.abs(value) <= MOST_SCORE;
}
