import type { GgufValue } from "../../files/gguf/header.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import { FACTOR_RULE, isFactor, isPositive, POSITIVE_RULE } from "../numbers.ts";

/** A key, and the numbers that mean "none". */
type Unsupported = readonly [key: string, ...none: number[]];

/** The factor on cos and sin, which files of longrope state. */
export const ATTENTION_FACTOR = "rope.scaling.attn_factor";

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
export const OF_LATENTS: readonly Unsupported[] = [
  ["attention.key_length_mla", 0],
  ["attention.kv_lora_rank", 0],
  ["rope.scaling.yarn_log_multiplier", 0],
];

/** Typed access to the keys of an architecture. */
export interface Keys {
  raw(key: string): GgufValue | undefined;
  /** An integer >= 1, from the layer's element if the value is an array; `fallback` if it is absent. */
  count(key: string, fallback?: number): number;
  /** The same, but 0 if it is absent. */
  countOrNone(key: string, fallback?: number): number;
  /** A number that is finite and > 0 in float32; undefined if it is absent or 0. */
  number(key: string): number | undefined;
  /** A factor on rows, scores or logits, or a bound of these; undefined if it is absent or 0. */
  factor(key: string): number | undefined;
  flag(key: string): boolean | undefined;
  fail(key: string, rule: string, got: unknown): never;
  /** Throws unless each of these keys is absent or has a number that means "none". */
  expectNone(unsupported: readonly Unsupported[]): void;
}

/** The keys of the architecture `name` for a layer. `where` names the public function. */
export function keysOf(where: string, metadata: ReadonlyMap<string, GgufValue>, name: string, layer: number): Keys {
  const raw = (key: string) => metadata.get(`${name}.${key}`);
  const orNone = (key: string) => (raw(key) === 0 ? undefined : raw(key));
  const fail = (key: string, rule: string, got: unknown): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: key "${name}.${key}" expected ${rule}, got ${describe(got)}`);
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
      const value = orNone(key);
      return value === undefined || isPositive(value) ? value : fail(key, POSITIVE_RULE, value);
    },
    factor(key) {
      const value = orNone(key);
      return value === undefined || isFactor(value) ? value : fail(key, FACTOR_RULE, value);
    },
    flag(key) {
      const value = raw(key);
      return value === undefined || typeof value === "boolean" ? value : fail(key, "true or false", value);
    },
    expectNone(unsupported) {
      for (const [key, ...none] of unsupported) {
        const value = raw(key);
        if (value !== undefined && !none.includes(Number(value))) fail(key, "absent, since it is unsupported", value);
      }
    },
  };
}
