// The options of `configure`, and their checks.

import { CACHE_FORMATS, type CacheFormat } from "../cache/page-layout.ts";
import { WEIGHT_FORMATS, type WeightFormat } from "../linear/formats.ts";
import { expectEven, expectInt, expectOneOf, readFields } from "../util/arguments.ts";
import { PROJECTION_KINDS, type ProjectionKind } from "./choose-attention.ts";
import { expectRoofline, type Roofline } from "./roofline.ts";
import { TARGET_NAMES, type Target } from "./targets.ts";

/** What to configure a decoder for. Whatever is given beyond the first three is not chosen. */
export interface ConfigureOptions {
  /** Parameters, from 10 000 to 10^12. */
  readonly parameterBudget: number;
  /** Tokens of the longest sequence. */
  readonly seqLen: number;
  /** Where it is to run. */
  readonly target: Target;
  /** The speed of a machine, as `measureRoofline` gives it, to predict the model's. Default none: no prediction. */
  readonly roofline?: Roofline | undefined;
  /** Bytes of linear memory for weights, a session and a call. Default those of the target. */
  readonly memory?: number | undefined;
  /** The width of the model, even. */
  readonly dModel?: number | undefined;
  /** Heads. Unless headDim is given too, the nearest number that divides the width is taken, with a warning. */
  readonly numHeads?: number | undefined;
  /** Heads of keys and values. The nearest number that divides the heads is taken, with a warning. */
  readonly numKvHeads?: number | undefined;
  /** Floats in a head, even. */
  readonly headDim?: number | undefined;
  /** Entries of the table of tokens. */
  readonly vocabSize?: number | undefined;
  /** The variant of attention. */
  readonly attention?: ProjectionKind | undefined;
  /** Format of all matrices. */
  readonly weights?: WeightFormat | undefined;
  /** Format of keys and values; latents have those of keys. */
  readonly cache?: CacheFormat | undefined;
}

const SIZES = ["dModel", "numHeads", "numKvHeads", "headDim", "vocabSize"] as const;
const OPTIONS: readonly (keyof ConfigureOptions)[] = [
  ...(["parameterBudget", "seqLen", "target", "roofline", "memory", "attention", "weights", "cache"] as const),
  ...SIZES,
];

/** A copy of the options, each read once and checked. */
export function readConfigureOptions(where: string, options: ConfigureOptions): ConfigureOptions {
  const given = readFields(where, "options", options, OPTIONS);
  const { attention, weights, cache, roofline, memory } = given;
  expectInt(where, "options.parameterBudget", given.parameterBudget, 10_000, 1e12);
  expectInt(where, "options.seqLen", given.seqLen);
  expectOneOf(where, "options.target", given.target, TARGET_NAMES);
  for (const name of SIZES) if (given[name] !== undefined) expectInt(where, `options.${name}`, given[name]);
  // RoPE rotates pairs of components.
  for (const name of ["dModel", "headDim"] as const)
    if (given[name] !== undefined) expectEven(where, `options.${name}`, given[name]);
  if (memory !== undefined) expectInt(where, "options.memory", memory, 1, Number.MAX_SAFE_INTEGER);
  if (attention !== undefined) expectOneOf(where, "options.attention", attention, PROJECTION_KINDS);
  if (weights !== undefined) expectOneOf(where, "options.weights", weights, WEIGHT_FORMATS);
  if (cache !== undefined) expectOneOf(where, "options.cache", cache, CACHE_FORMATS);
  if (roofline !== undefined) expectRoofline(where, roofline);
  return given;
}
