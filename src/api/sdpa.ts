import { type AttentionRules, checkRules, checkSinks } from "../attention/config.ts";
import { expectHeads, MOST_SEQUENCES } from "../attention/limits.ts";
import { checkMasks, type MaskOptions, readMasks } from "../attention/mask.ts";
import { isPositional, type PlacementOptions, placeQueries } from "../attention/positions.ts";
import type { ScoreStage } from "../forward/attend-segment.ts";
import { forwardHeads, type HeadsCall } from "../forward/sdpa.ts";
import { concatTokens, type HeadLayout, type HeadSizes, headShape, headSizes } from "../tensor/head-layout.ts";
import { expectTensor, readTensor, type Tensor } from "../tensor/tensor.ts";
import { expectFields, expectFlag, expectInt, expectOneOf, readFields, readList } from "../util/errors.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";

/** Options of `scaledDotProductAttention`. */
export interface SdpaOptions extends AttentionRules, MaskOptions, PlacementOptions {
  /** Order of the dimensions of q, k, v, `past` and the output: "bhsd" [batch, heads, len, dim] (default) or "bshd". */
  readonly layout?: HeadLayout;
  /** Attention sinks: one logit per head, [heads], that is part of the softmax's denominator and has no value. */
  readonly sinkLogits?: Float32Array;
  /** Keys and values of earlier tokens. They precede k and v, and the queries are at the positions after them. */
  readonly past?: {
    /** [batch, kvHeads, pastLen, headDim]. */
    readonly key: Tensor;
    /** [batch, kvHeads, pastLen, valueDim]. */
    readonly value: Tensor;
  };
  /** Return `past` and the new keys and values together, as `present`. Default false. */
  readonly present?: boolean;
  /**
   * Return the scores at one stage: "raw" is scale·q·k, "softcapped" is after the softcap, "masked" is after ALiBi and bias
   * with -Infinity for excluded keys, "weights" is after the softmax. Default none.
   */
  readonly scores?: "raw" | "softcapped" | "masked" | "weights";
  /** Return the log-sum-exp of the scores of each row. Default false. */
  readonly lse?: boolean;
}

/** Result of `scaledDotProductAttention`. Parts that were not requested are undefined. */
export interface SdpaResult {
  /** [batch, heads, qLen, valueDim], in the order of `layout`. */
  readonly output: Tensor;
  /** The keys and values of `past` and of the call, in the order of `layout`. */
  readonly present:
    | {
        /** [batch, kvHeads, kvLen, headDim]. */
        readonly key: Tensor;
        /** [batch, kvHeads, kvLen, valueDim]. */
        readonly value: Tensor;
      }
    | undefined;
  /** [batch, heads, qLen, kvLen], whatever the layout. */
  readonly scores: Tensor | undefined;
  /** [batch, heads, qLen], whatever the layout; -Infinity for a query with no key to attend. */
  readonly lse: Tensor | undefined;
}

const STAGES = ["raw", "softcapped", "masked", "weights"] as const;

/**
 * Attention without projections and without a cache: softmax(scale·q·kᵀ, masked)·v. The number of query heads must be a
 * multiple of the number of key-value heads. A masked key cannot change the output, even if it is NaN. A query with no key
 * to attend gives zeros. Shapes below are for the layout "bhsd".
 * @param q Queries [batch, heads, qLen, headDim].
 * @param k Keys [batch, kvHeads, kvLen, headDim].
 * @param v Values [batch, kvHeads, kvLen, valueDim].
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { loadKernels, scaledDotProductAttention } from "headwise";
 * const kernels = await loadKernels();
 * const q = { data: Float32Array.of(1, 0, 0, 1), shape: [1, 1, 2, 2] };
 * const { output, scores } = scaledDotProductAttention(kernels, q, q, q, { causal: true, scores: "weights" });
 * console.log(output.data[0], scores?.data[0]); // 1 1: the first query sees only itself
 * kernels.release();
 */
export function scaledDotProductAttention(
  kernels: Kernels,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  options: SdpaOptions = {},
): SdpaResult {
  const where = "scaledDotProductAttention";
  // All is read before anything is checked, because reading may run code of the caller's.
  const given = readOptions(where, options);
  const [queries, keys, values] = [readTensor(where, "q", q), readTensor(where, "k", k), readTensor(where, "v", v)];
  const call = checkCall(where, kernels, queries, keys, values, given);
  const present = call.present ? presentOf(call, keys, values) : undefined;
  return { ...forwardHeads(kernels, call, queries, keys, values), present };
}

/** A copy of the options and of what is in them, each read once. */
function readOptions(where: string, options: SdpaOptions): SdpaOptions {
  const given = readFields(where, "options", options, OPTIONS);
  const { kvLengths, past, window } = given;
  const pair = past && readFields(where, "past", past, ["key", "value"]);
  return {
    ...given,
    ...readMasks(where, given),
    window: window && readFields(where, "window", window, ["left", "right"]),
    kvLengths: kvLengths && (readList(where, "kvLengths", kvLengths, MOST_SEQUENCES) as ArrayLike<number>),
    past: pair && {
      key: readTensor(where, "past.key", pair.key),
      value: readTensor(where, "past.value", pair.value),
    },
  };
}

function presentOf({ past, layout }: HeadsCall, k: Tensor, v: Tensor): { key: Tensor; value: Tensor } {
  if (past) return { key: concatTokens(past.key, k, layout), value: concatTokens(past.value, v, layout) };
  return { key: copyOf(k), value: copyOf(v) };
}

const copyOf = ({ data, shape }: Tensor): Tensor => ({ data: data.slice(), shape: [...shape] });

const OPTIONS = [
  ...["causal", "window", "scale", "softcap", "alibi", "keep", "drop", "bias", "align", "kvLengths"],
  ...["layout", "sinkLogits", "past", "present", "scores", "lse"],
];

function checkCall(where: string, kernels: Kernels, q: Tensor, k: Tensor, v: Tensor, options: SdpaOptions): HeadsCall {
  expectKernels(where, kernels);
  expectFields(where, "options", options, OPTIONS);
  const { layout: order = "bhsd" } = options;
  const layout = expectOneOf(where, "layout", order, ["bhsd", "bshd"]);
  const sizesOf = (name: string, tensor: Tensor) => headSizes(expectTensor(where, name, tensor, [4]), layout);
  const queries = sizesOf("q", q);
  const keys = sizesOf("k", k);
  const values = sizesOf("v", v);
  for (const [name, { heads, dim }] of Object.entries({ q: queries, k: keys, v: values }))
    expectHeads(where, name, heads, dim);
  expectInt(where, "batch of q", queries.batch, 0, MOST_SEQUENCES);
  if (queries.heads % keys.heads !== 0)
    throw new RangeError(`${where}: q expected a multiple of k's heads (${keys.heads}), got ${queries.heads}`);
  expectSizes(where, "k", keys, layout, { ...keys, batch: queries.batch, dim: queries.dim });
  expectSizes(where, "v", values, layout, { ...keys, dim: values.dim });
  const { past } = options;
  let pastLen: number | undefined;
  if (past !== undefined) {
    expectFields(where, "past", past, ["key", "value"]);
    const pastKeys = sizesOf("past.key", past.key);
    pastLen = pastKeys.len;
    expectSizes(where, "past.key", pastKeys, layout, { ...keys, len: pastLen });
    expectSizes(where, "past.value", sizesOf("past.value", past.value), layout, { ...values, len: pastLen });
  }
  const rules = checkRules(where, options, queries.heads, queries.dim);
  const kvLen = (pastLen ?? 0) + keys.len;
  const target = { batch: queries.batch, numHeads: queries.heads, qLen: queries.len, kvLen };
  const sinkLogits =
    options.sinkLogits === undefined ? undefined : checkSinks(where, "sinkLogits", options.sinkLogits, queries.heads);
  return {
    where,
    layout,
    rules,
    sizes: { queries, keys, values },
    past,
    present: expectFlag(where, "present", options.present),
    lse: expectFlag(where, "lse", options.lse),
    sinkLogits,
    stage:
      options.scores === undefined
        ? undefined
        : (STAGES.indexOf(expectOneOf(where, "scores", options.scores, STAGES)) as ScoreStage),
    placements: placeQueries(where, options, { ...target, past: pastLen }, isPositional(rules)),
    target,
    masks: checkMasks(where, options, target),
  };
}

function expectSizes(where: string, name: string, got: HeadSizes, layout: HeadLayout, want: HeadSizes): void {
  const [given, expected] = [headShape(got, layout), headShape(want, layout)];
  if (given.some((length, axis) => length !== expected[axis]))
    throw new RangeError(`${where}: ${name} expected shape [${expected.join(", ")}], got [${given.join(", ")}]`);
}
