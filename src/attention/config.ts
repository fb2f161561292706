import {
  describe,
  expectFields,
  expectFlag,
  expectFloat32,
  expectFloats,
  expectInt,
  expectOneOf,
} from "../util/errors.ts";
import { pow } from "../util/math.ts";
import { checkRope, type RopeConfig, type RopeWithDim } from "./rope.ts";

/** Which positions a query sees besides its own: `left` earlier and `right` later keys; undefined = unbounded. */
export interface Window {
  readonly left?: number;
  readonly right?: number;
}

/** RMS norm of queries and keys after the projection and before RoPE. The gains are `weights.qNorm` and `kNorm`. */
export interface QkNormConfig {
  /** "per-head": gain [headDim], each head by itself. "full": gain [numHeads·headDim], all heads of a token at once. */
  readonly kind: "per-head" | "full";
  /** Added to the mean square; default 1e-6. */
  readonly eps?: number;
  /** The stored gain is w of (1 + w), as in Gemma. */
  readonly onePlus?: boolean;
}

/**
 * The shape and the rules of one attention layer.
 * @example
 * import { type AttentionConfig } from "headwise";
 * const config: AttentionConfig = { dModel: 2048, numHeads: 32, numKvHeads: 8, causal: true };
 * console.log(config.numHeads / config.numKvHeads!); // 4
 */
export interface AttentionConfig {
  /** Floats of one input row, and of one output row unless `wo` says otherwise. */
  readonly dModel: number;
  /** Up to 65 536. */
  readonly numHeads: number;
  /** Heads of keys and values; must divide numHeads. Default numHeads (MHA); 1 is MQA. */
  readonly numKvHeads?: number;
  /** Floats of a query or key head. Default dModel / numHeads. */
  readonly headDim?: number;
  /** Floats of a value head. Default headDim. */
  readonly valueDim?: number;
  /** Floats of one row that keys (values) are projected from, in cross-attention. Default dModel. */
  readonly kdim?: number;
  readonly vdim?: number;
  /** Query at position p sees keys at positions <= p. Default false. */
  readonly causal?: boolean;
  readonly window?: Window;
  /** Multiplies q·k: other than 0, from -1e38 to 1e38. Default 1/√headDim. */
  readonly scale?: number;
  /** Scores become softcap·tanh(score / softcap), for a softcap up to 1e38. Default 0 = off. */
  readonly softcap?: number;
  /**
   * ALiBi: adds -slope·|query position - key position| to the score. "geometric" gives the published slopes for any
   * head count; an array gives one slope a head, from -1e38 to 1e38.
   */
  readonly alibi?: "geometric" | Float32Array;
  readonly rope?: RopeConfig;
  readonly qkNorm?: QkNormConfig;
  /** One more key and value of zeros that every query may attend, as in PyTorch's add_zero_attn. */
  readonly addZeroAttn?: boolean;
}

/** Every field of AttentionConfig, and `fused`, which `fromHfConfig` adds for `readAttentionWeights`. */
export const CONFIG_FIELDS: readonly (keyof AttentionConfig | "fused")[] = [
  ...(["dModel", "numHeads", "numKvHeads", "headDim", "valueDim", "kdim", "vdim", "causal", "window"] as const),
  ...(["scale", "softcap", "alibi", "rope", "qkNorm", "addZeroAttn", "fused"] as const),
];

/** An AttentionConfig with every default filled in and every rule checked. Unbounded window sides are Infinity. */
export interface CheckedConfig {
  readonly dModel: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly kdim: number;
  readonly vdim: number;
  readonly causal: boolean;
  readonly window: { readonly left: number; readonly right: number };
  readonly scale: number;
  /** 0 = off. */
  readonly softcap: number;
  /** [numHeads], or undefined. */
  readonly slopes: Float32Array | undefined;
  readonly rope: RopeWithDim | undefined;
  readonly qkNorm: Required<QkNormConfig> | undefined;
  readonly addZeroAttn: boolean;
}

/**
 * The most heads of a layer or a rank-4 tensor: more than any model has, and so few that a wrong number cannot keep the
 * host busy.
 */
export const MOST_HEADS: number = 2 ** 16;

/** Throws unless a tensor has 1 to MOST_HEADS heads, and these have components. */
export function expectHeads(where: string, name: string, heads: number, dim: number): void {
  if (heads >= 1 && heads <= MOST_HEADS && dim >= 1) return;
  throw new RangeError(`${where}: ${name} expected 1 to ${MOST_HEADS} heads and dim >= 1, got ${heads} and ${dim}`);
}

const UNBOUNDED = Number.POSITIVE_INFINITY;

/** Fills in the defaults and checks every rule. */
export function checkConfig(where: string, config: AttentionConfig): CheckedConfig {
  expectFields(where, "config", config, CONFIG_FIELDS);
  const dModel = expectInt(where, "dModel", config.dModel);
  const numHeads = expectInt(where, "numHeads", config.numHeads, 1, MOST_HEADS);
  const or = (value: number | undefined, otherwise: number) => (value === undefined ? otherwise : value);
  const numKvHeads = expectInt(where, "numKvHeads", or(config.numKvHeads, numHeads));
  if (numHeads % numKvHeads !== 0)
    throw new RangeError(
      `${where}: numHeads expected a multiple of numKvHeads (${numKvHeads}), got ${numHeads}: ` +
        `n_heads (${numHeads}) must be divisible by n_kv_heads (${numKvHeads})`,
    );
  if (config.headDim === undefined && dModel % numHeads !== 0)
    throw new RangeError(
      `${where}: d_model (${dModel}) must be divisible by n_heads (${numHeads}): ` +
        "d_model must be divisible by num_heads unless headDim is given",
    );
  const headDim = expectInt(where, "headDim", or(config.headDim, dModel / numHeads));
  return {
    dModel,
    numHeads,
    numKvHeads,
    headDim,
    valueDim: expectInt(where, "valueDim", or(config.valueDim, headDim)),
    kdim: expectInt(where, "kdim", or(config.kdim, dModel)),
    vdim: expectInt(where, "vdim", or(config.vdim, dModel)),
    rope: config.rope === undefined ? undefined : checkRope(where, config.rope, headDim),
    qkNorm: config.qkNorm === undefined ? undefined : checkQkNorm(where, config.qkNorm),
    addZeroAttn: expectFlag(where, "addZeroAttn", config.addZeroAttn),
    ...checkRules(where, config, numHeads, headDim),
  };
}

/** The part of a configuration that holds without projections, for scaledDotProductAttention too. */
export type AttentionRules = Pick<AttentionConfig, "causal" | "window" | "scale" | "softcap" | "alibi">;
export type CheckedRules = Pick<CheckedConfig, "causal" | "window" | "scale" | "softcap" | "slopes">;

export function checkRules(where: string, rules: AttentionRules, numHeads: number, headDim: number): CheckedRules {
  const { scale = 1 / Math.sqrt(headDim) } = rules;
  expectScoreFactor(where, "scale", scale);
  // -0 means off, too.
  const capped = rules.softcap !== undefined && rules.softcap !== 0;
  const softcap = capped ? expectScoreFactor(where, "softcap", rules.softcap, true) : 0;
  // With a softcap, queries are multiplied by this.
  if (capped) expectFloat32(where, "scale / softcap", Math.fround(scale) / Math.fround(softcap));
  return {
    causal: expectFlag(where, "causal", rules.causal),
    window: checkWindow(where, rules.window),
    scale,
    softcap,
    slopes: rules.alibi === undefined ? undefined : checkSlopes(where, rules.alibi, numHeads),
  };
}

/**
 * Factors and limits of scores must be below this: the kernels hold scores in units of ln 2, which makes them larger by
 * half, and the largest float32 is 3.4e38.
 */
const MOST_SCORE = 1e38;

function isScore(value: number): boolean {
  return Math.abs(value) <= MOST_SCORE;
}

function expectScoreFactor(where: string, name: string, value: unknown, positive = false): number {
  const factor = expectFloat32(where, name, value, positive);
  if (isScore(factor)) return factor;
  throw new RangeError(
    `${where}: ${name} expected ${positive ? "at most" : "a number from -1e38 to"} 1e38, got ${factor}`,
  );
}

function checkWindow(where: string, window: Window | undefined): CheckedConfig["window"] {
  if (window === undefined) return { left: UNBOUNDED, right: UNBOUNDED };
  expectFields(where, "window", window, ["left", "right"]);
  return {
    left: window.left === undefined ? UNBOUNDED : expectInt(where, "window.left", window.left, 0),
    right: window.right === undefined ? UNBOUNDED : expectInt(where, "window.right", window.right, 0),
  };
}

function checkQkNorm(where: string, norm: QkNormConfig): Required<QkNormConfig> {
  expectFields(where, "qkNorm", norm, ["kind", "eps", "onePlus"]);
  const { eps = 1e-6 } = norm;
  return {
    kind: expectOneOf(where, "qkNorm.kind", norm.kind, ["per-head", "full"]),
    eps: expectFloat32(where, "qkNorm.eps", eps, true),
    onePlus: expectFlag(where, "qkNorm.onePlus", norm.onePlus),
  };
}

function checkSlopes(where: string, alibi: "geometric" | Float32Array, numHeads: number): Float32Array {
  if (typeof alibi === "string") {
    expectOneOf(where, "alibi", alibi, ["geometric"]);
    return alibiSlopes(numHeads);
  }
  const slopes = expectFloats(where, "alibi", alibi);
  if (slopes.length !== numHeads)
    throw new RangeError(`${where}: alibi expected one slope a head (${numHeads}), got ${slopes.length}`);
  const odd = slopes.find((slope) => !isScore(slope));
  if (odd !== undefined)
    throw new RangeError(`${where}: alibi expected slopes from -1e38 to 1e38, got ${describe(odd)}`);
  return slopes.slice();
}

/**
 * Throws unless `value` is [numHeads] logits that a softmax can hold; -Infinity means no sink for that head. Returns
 * it.
 */
export function checkSinks(where: string, name: string, value: unknown, numHeads: number): Float32Array {
  const sinks = expectFloats(where, name, value);
  if (sinks.length !== numHeads)
    throw new RangeError(`${where}: ${name} expected one a head (${numHeads}), got ${sinks.length}`);
  const odd = sinks.find((sink) => !isScore(sink) && sink !== Number.NEGATIVE_INFINITY);
  if (odd !== undefined)
    throw new RangeError(`${where}: ${name} expected logits from -1e38 to 1e38 or -Infinity, got ${describe(odd)}`);
  return sinks;
}

/**
 * The published ALiBi slopes [numHeads]: 2^(-8·(h+1)/n) for a power of two n; otherwise those of the largest power of
 * two below, followed by every other slope of twice that (Press et al. 2022).
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
