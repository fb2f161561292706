import { CACHE_SHAPE_BYTES, NULL, storeCacheShape } from "./abi.ts";
import { type AttentionRules, type CheckedRules, checkRules } from "./config.ts";
import { expectFlag, expectFloats, expectOneOf, expectRecord } from "./errors.ts";
import type { Kernels } from "./kernels.ts";
import { expectAlive } from "./lifetime.ts";
import { type CheckedMasks, checkMasks, type MaskOptions, type MaskTarget } from "./mask.ts";
import { Layout, pointer } from "./memory.ts";
import { allocatePages, type Pages, pageTable } from "./pages.ts";
import { type Placement, type PlacementOptions, placeQueries } from "./positions.ts";
import {
  attendSegment,
  type CallShape,
  placeSegment,
  readScores,
  SEGMENT_TOKENS,
  type ScoreStage,
  type SegmentPlaces,
  windowSides,
} from "./segment.ts";
import { blockStrides, concatTokens, eachRun, type HeadLayout, type HeadSizes, headShape, headSizes } from "./strided.ts";
import { expectTensor, type Tensor } from "./tensor.ts";

/** What one call of `scaledDotProductAttention` may say. */
export interface SdpaOptions extends AttentionRules, MaskOptions, PlacementOptions {
  /** Order of dimensions of q, k, v, past and the output: "bhsd" [batch, heads, len, dim] (default) or "bshd". */
  readonly layout?: HeadLayout;
  /** [heads]: a logit per head that joins the denominator and has no value. */
  readonly sinkLogits?: Float32Array;
  /** Keys and values of earlier tokens; they stand before k and v, and the queries behind them. */
  readonly past?: { readonly key: Tensor; readonly value: Tensor };
  /** Return the keys and values of past and call together. Default false. */
  readonly present?: boolean;
  /**
   * Return the score matrix at one stage: "raw" scale·q·k, "softcapped", "masked" (ALiBi and bias added, -Infinity where
   * a key is excluded) or "weights". Default none.
   */
  readonly scores?: "raw" | "softcapped" | "masked" | "weights";
  /** Return the log-sum-exp of each row's scores. Default false. */
  readonly lse?: boolean;
}

/** What it returns; the parts that were not asked for are undefined. */
export interface SdpaResult {
  /** [batch, heads, qLen, valueDim], in the order of `layout`. */
  readonly output: Tensor;
  readonly present: { readonly key: Tensor; readonly value: Tensor } | undefined;
  /** [batch, heads, qLen, kvLen]. */
  readonly scores: Tensor | undefined;
  /** [batch, heads, qLen]; -Infinity for a row without a key. */
  readonly lse: Tensor | undefined;
}

const STAGES = ["raw", "softcapped", "masked", "weights"] as const;

/**
 * softmax(scale·q·kᵀ, masked)·v, the core of attention alone. q [batch, heads, qLen, headDim], k [batch, kvHeads, kvLen,
 * headDim], v [batch, kvHeads, kvLen, valueDim]; heads must be a multiple of kvHeads. Masked positions cannot change the
 * output, whatever they hold; a row without a key has zeros. Throws TypeError or RangeError naming the argument.
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
  const call = checkCall("scaledDotProductAttention", kernels, q, k, v, options);
  const { where, sizes, target, layout } = call;
  const { queries, keys, values } = sizes;
  const places = placeCall(call);
  const base = kernels.memory.scratch(where, places.bytes);
  const pageShape = { numKvHeads: keys.heads, headDim: keys.dim, valueDim: values.dim };
  const pages = allocatePages(where, kernels, pageShape, queries.batch, target.kvLen);
  const run: Run = { kernels, call, pages, base, places };
  const output = { ...queries, dim: values.dim };
  const data = new Float32Array(queries.batch * queries.heads * queries.len * values.dim);
  const rows = queries.batch * queries.heads * queries.len;
  const scores = options.scores === undefined ? undefined : new Float32Array(rows * target.kvLen);
  const lse = options.lse ? new Float32Array(rows) : undefined;
  try {
    const pastLen = call.past ? headSizes(call.past.key, layout).len : 0;
    if (call.past) append(run, call.past.key, call.past.value, 0);
    append(run, k, v, pastLen);
    for (let b = 0; b < queries.batch; b++)
      for (let begin = 0; begin < queries.len; begin += SEGMENT_TOKENS)
        attendTokens(run, q, b, begin, Math.min(queries.len, begin + SEGMENT_TOKENS), { output, data, scores, lse });
  } finally {
    kernels.memory.free(pages.at);
  }
  const past = call.past ?? undefined;
  return {
    output: { data, shape: headShape(output, layout) },
    present: call.present
      ? {
          key: past ? concatTokens(past.key, k, layout) : copyOf(k),
          value: past ? concatTokens(past.value, v, layout) : copyOf(v),
        }
      : undefined,
    scores: scores && { data: scores, shape: [queries.batch, queries.heads, queries.len, target.kvLen] },
    lse: lse && { data: lse, shape: [queries.batch, queries.heads, queries.len] },
  };
}

const copyOf = ({ data, shape }: Tensor): Tensor => ({ data: data.slice(), shape: [...shape] });

interface CheckedCall {
  readonly where: string;
  readonly layout: HeadLayout;
  readonly rules: CheckedRules;
  readonly sizes: { readonly queries: HeadSizes; readonly keys: HeadSizes; readonly values: HeadSizes };
  readonly past: SdpaOptions["past"];
  readonly present: boolean;
  readonly sinkLogits: Float32Array | undefined;
  readonly stage: ScoreStage | undefined;
  readonly placements: readonly Placement[];
  readonly target: MaskTarget;
  readonly masks: CheckedMasks;
}

function checkCall(where: string, kernels: Kernels, q: Tensor, k: Tensor, v: Tensor, options: SdpaOptions): CheckedCall {
  expectRecord(where, "kernels", kernels);
  expectAlive(where, "kernels", kernels);
  expectRecord(where, "options", options);
  const layout = expectOneOf(where, "layout", options.layout ?? "bhsd", ["bhsd", "bshd"]);
  const sizesOf = (name: string, tensor: Tensor) => headSizes(expectTensor(where, name, tensor, [4]), layout);
  const queries = sizesOf("q", q);
  const keys = sizesOf("k", k);
  const values = sizesOf("v", v);
  for (const [name, { heads, dim }] of Object.entries({ q: queries, k: keys, v: values }))
    if (heads === 0 || dim === 0) throw new RangeError(`${where}: ${name} expected heads and dim >= 1, got ${heads} and ${dim}`);
  if (queries.heads % keys.heads !== 0)
    throw new RangeError(
      `${where}: q expected a multiple of k's heads (${keys.heads}), got ${queries.heads}: ` +
        `n_heads (${queries.heads}) must be divisible by n_kv_heads (${keys.heads})`,
    );
  expectSizes(where, "k", keys, layout, { ...keys, batch: queries.batch, dim: queries.dim });
  expectSizes(where, "v", values, layout, { ...keys, dim: values.dim });
  const { past } = options;
  let pastLen: number | undefined;
  if (past !== undefined) {
    expectRecord(where, "past", past);
    const pastKeys = sizesOf("past.key", past.key);
    pastLen = pastKeys.len;
    expectSizes(where, "past.key", pastKeys, layout, { ...keys, len: pastLen });
    expectSizes(where, "past.value", sizesOf("past.value", past.value), layout, { ...values, len: pastLen });
  }
  const rules = checkRules(where, options, queries.heads, queries.dim);
  const kvLen = (pastLen ?? 0) + keys.len;
  const { left, right } = rules.window;
  const positional = rules.causal || Number.isFinite(left) || Number.isFinite(right) || rules.slopes !== undefined;
  const target = { batch: queries.batch, numHeads: queries.heads, qLen: queries.len, kvLen };
  const sinkLogits = options.sinkLogits === undefined ? undefined : expectFloats(where, "sinkLogits", options.sinkLogits);
  if (sinkLogits && sinkLogits.length !== queries.heads)
    throw new RangeError(`${where}: sinkLogits expected one a head (${queries.heads}), got ${sinkLogits.length}`);
  expectFlag(where, "lse", options.lse);
  return {
    where,
    layout,
    rules,
    sizes: { queries, keys, values },
    past,
    present: expectFlag(where, "present", options.present),
    sinkLogits,
    stage:
      options.scores === undefined
        ? undefined
        : (STAGES.indexOf(expectOneOf(where, "scores", options.scores, STAGES)) as ScoreStage),
    placements: placeQueries(where, options, { ...target, past: pastLen }, positional),
    target,
    masks: checkMasks(where, options, target),
  };
}

function expectSizes(where: string, name: string, got: HeadSizes, layout: HeadLayout, want: HeadSizes): void {
  const [given, expected] = [headShape(got, layout), headShape(want, layout)];
  if (given.some((length, axis) => length !== expected[axis]))
    throw new RangeError(`${where}: ${name} expected shape [${expected.join(", ")}], got [${given.join(", ")}]`);
}

interface CallPlaces {
  readonly bytes: number;
  readonly q: number;
  readonly k: number;
  readonly v: number;
  readonly out: number;
  readonly slopes: number;
  readonly sinks: number;
  readonly cacheShape: number;
  readonly segment: SegmentPlaces;
}

function placeCall({ sizes, masks, target, stage, past, layout }: CheckedCall): CallPlaces {
  const { queries, keys, values } = sizes;
  const queryTokens = Math.min(queries.len, SEGMENT_TOKENS);
  const longest = Math.max(keys.len, past ? headSizes(past.key, layout).len : 0);
  const keyTokens = Math.min(longest, SEGMENT_TOKENS);
  const dims = { numHeads: queries.heads, headDim: queries.dim, valueDim: values.dim };
  const parts = new Layout();
  const places = {
    q: parts.floats(queryTokens * queries.heads * queries.dim),
    k: parts.floats(keyTokens * keys.heads * keys.dim),
    v: parts.floats(keyTokens * values.heads * values.dim),
    out: parts.floats(queryTokens * queries.heads * values.dim),
    slopes: parts.floats(queries.heads),
    sinks: parts.floats(queries.heads),
    cacheShape: parts.take(CACHE_SHAPE_BYTES),
    segment: placeSegment(parts, dims, masks, target, queryTokens, stage === undefined ? 0 : target.kvLen),
  };
  return { ...places, bytes: parts.bytes };
}

interface Run {
  readonly kernels: Kernels;
  readonly call: CheckedCall;
  readonly pages: Pages;
  readonly base: number;
  readonly places: CallPlaces;
}

/** Copies k and v into the pages, from absolute position `past` on. */
function append({ kernels, call, pages, base, places }: Run, k: Tensor, v: Tensor, past: number): void {
  const { memory, table } = kernels;
  const { layout } = call;
  const keys = headSizes(k, layout);
  const values = headSizes(v, layout);
  const [kAt, vAt] = [pointer.f32(base + places.k), pointer.f32(base + places.v)];
  for (let b = 0; b < keys.batch; b++)
    for (let begin = 0; begin < keys.len; begin += SEGMENT_TOKENS) {
      const end = Math.min(keys.len, begin + SEGMENT_TOKENS);
      const tokens = end - begin;
      copyIn(kernels, kAt, k, keys, layout, b, begin, end);
      copyIn(kernels, vAt, v, values, layout, b, begin, end);
      const kStrides = blockStrides(keys, layout, tokens);
      const vStrides = blockStrides(values, layout, tokens);
      storeCacheShape(memory.view(), base + places.cacheShape, {
        numKvHeads: keys.heads,
        headDim: keys.dim,
        valueDim: values.dim,
        kStride: kStrides.stride,
        kHeadStride: kStrides.headStride,
        vStride: vStrides.stride,
        vHeadStride: vStrides.headStride,
      });
      table.append_f32(pageTable(pages, b), kAt, vAt, pointer.cacheShape(base + places.cacheShape), past + begin, 0, tokens);
    }
}

interface Results {
  readonly output: HeadSizes;
  readonly data: Float32Array;
  readonly scores: Float32Array | undefined;
  readonly lse: Float32Array | undefined;
}

/** Attends with query tokens begin..end of one batch row. */
function attendTokens(run: Run, q: Tensor, batchRow: number, begin: number, end: number, results: Results): void {
  const { kernels, call, pages, base, places } = run;
  const { memory } = kernels;
  const { layout, masks, target, stage } = call;
  const { queries } = call.sizes;
  const tokens = end - begin;
  const { position, kvLen } = call.placements[batchRow] as Placement;
  const shape = callShape(run, tokens);
  const segment = {
    batchRow,
    begin,
    end,
    position: position + begin,
    kvLen,
    q: pointer.f32(base + places.q),
    out: pointer.f32(base + places.out),
    pages: pageTable(pages, batchRow),
  };
  copyIn(kernels, segment.q, q, queries, layout, batchRow, begin, end);
  attendSegment(kernels, base, places.segment, shape, masks, target, segment);
  eachRun(results.output, layout, batchRow, begin, end, (to, from, floats) =>
    results.data.set(memory.f32(segment.out + from * 4, floats), to),
  );
  const { lse, scores } = results;
  for (let h = 0; lse && h < queries.heads; h++) {
    const row = (batchRow * queries.heads + h) * queries.len + begin;
    lse.set(memory.f32(base + places.segment.lse + h * tokens * 4, tokens), row);
  }
  if (scores && stage !== undefined) readScores(kernels, base, places.segment, shape, masks, target, segment, stage, scores);
}

function callShape({ kernels, call, base, places }: Run, tokens: number): CallShape {
  const { rules, layout, sinkLogits } = call;
  const { queries, keys, values } = call.sizes;
  const q = blockStrides(queries, layout, tokens);
  const out = blockStrides({ ...queries, dim: values.dim }, layout, tokens);
  const vector = (at: number, data: Float32Array | undefined) => {
    if (!data) return NULL;
    kernels.memory.f32(base + at, data.length).set(data);
    return pointer.f32(base + at);
  };
  return {
    numHeads: queries.heads,
    numKvHeads: keys.heads,
    headDim: queries.dim,
    valueDim: values.dim,
    qStride: q.stride,
    qHeadStride: q.headStride,
    outStride: out.stride,
    outHeadStride: out.headStride,
    ...windowSides(rules.causal, rules.window),
    scale: rules.scale,
    softcap: rules.softcap,
    slopes: vector(places.slopes, rules.slopes),
    sinks: vector(places.sinks, sinkLogits),
    extraKey: NULL,
    extraValue: NULL,
    zeroKey: 0,
  };
}

function copyIn(
  { memory }: Kernels,
  to: number,
  tensor: Tensor,
  sizes: HeadSizes,
  layout: HeadLayout,
  batchRow: number,
  begin: number,
  end: number,
): void {
  eachRun(sizes, layout, batchRow, begin, end, (from, block, floats) =>
    memory.f32(to + block * 4, floats).set(tensor.data.subarray(from, from + floats)),
  );
}
