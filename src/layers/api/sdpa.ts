import { PAGE, TILE_ROWS } from "../../../assembly/layout.ts";
import { expectShape } from "../../base/tensor/dtypes.ts";
import {
  blockStrides,
  checkTensor,
  createFloats,
  eachRun,
  type HeadLayout,
  type HeadSizes,
  headShape,
  headSizes,
  readTensor,
  type Tensor,
} from "../../base/tensor/tensor.ts";
import {
  expectFlag,
  expectHeads,
  expectInt,
  expectNone,
  expectOneOf,
  MOST_SEQUENCES,
  readFields,
  readList,
  wrongValue,
} from "../../base/util/arguments.ts";
import { expectMade } from "../../base/util/lifetime.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { finish } from "../../base/util/steps.ts";
import type { F32Ptr } from "../../wasm/abi.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { type AttentionRules, type CheckedRules, checkRules, checkSinks } from "../attention/config.ts";
import {
  type CheckedMasks,
  checkMasks,
  type GivenMasks,
  isPositional,
  type MaskOptions,
  type MaskTarget,
  type Placement,
  type PlacementOptions,
  placeQueries,
  readMasks,
  seesLater,
} from "../attention/mask.ts";
import {
  attendSegment,
  type CallShape,
  callShape,
  type Measure,
  placeSegment,
  readScores,
  type ScoreStage,
  segmentNeeds,
  workFloats,
} from "../attention/segment.ts";
import { storeFloats } from "../attention/weights.ts";
import { expectFreeFor, expectKept, expectRoom, type KvCache } from "../state/kv-cache.ts";
import { createPageLayout, type PageLayout } from "../state/pages.ts";
import { agePages, allocatePages, appendRows, type Pages, pageTable, placeRows, storeRows } from "../state/table.ts";

/** Options of `scaledDotProductAttention`. */
export interface SdpaOptions extends AttentionRules, MaskOptions, PlacementOptions {
  /**
   * Order of the dimensions of q, k, v, `past`, the output and `present`: "bhsd" [batch, heads, len, dim] (default) or "bshd"
   * [batch, len, heads, dim]. Tensors of rank 3 have the same order without batch.
   */
  readonly layout?: HeadLayout;
  /** Attention sinks: one logit per head, [heads], that is part of the softmax's denominator and has no value. */
  readonly sinkLogits?: Float32Array;
  /** Keys and values of earlier tokens. They precede k and v, and the queries are at the positions after them. */
  readonly past?: {
    /** [batch, kvHeads, pastLen, headDim], or [kvHeads, pastLen, headDim] where q has rank 3. */
    readonly key: Tensor;
    /** [batch, kvHeads, pastLen, valueDim], or [kvHeads, pastLen, valueDim]. */
    readonly value: Tensor;
  };
  /**
   * Cache of `createKvCache` with the keys and values of earlier tokens, instead of `past`. k and v are appended, and the
   * queries attend as with all that the cache then holds as `past`, k and v. Default none.
   */
  readonly cache?: KvCache;
  /** Return `past` and the new keys and values together, as `present`; not with a cache. Default false. */
  readonly present?: boolean;
  /**
   * Return the scores at one stage: "raw" is scale·q·k, "softcapped" is after the softcap, "masked" is after ALiBi and bias
   * with -Infinity for excluded keys, "weights" is after the softmax. Default none. With a cache that has a window, "masked"
   * and "weights" only.
   */
  readonly scores?: "raw" | "softcapped" | "masked" | "weights";
  /** Return the log-sum-exp of the scores of each row. Default false. */
  readonly lse?: boolean;
}

/**
 * Result of `scaledDotProductAttention`. Parts that were not requested are undefined. Where q, k and v have rank 3, all shapes
 * are without batch. kvLen counts the keys of `past` or of the cache, and those of k.
 */
export interface SdpaResult {
  /** [batch, heads, qLen, valueDim], in the order of `layout`; [heads, qLen, valueDim] for rank 3. */
  readonly output: Tensor;
  /** The keys and values of `past` and of the call, in the order of `layout`. */
  readonly present:
    | {
        /** [batch, kvHeads, kvLen, headDim]; [kvHeads, kvLen, headDim] for rank 3. */
        readonly key: Tensor;
        /** [batch, kvHeads, kvLen, valueDim]; [kvHeads, kvLen, valueDim] for rank 3. */
        readonly value: Tensor;
      }
    | undefined;
  /** [batch, heads, qLen, kvLen], whatever the layout; [heads, qLen, kvLen] for rank 3. */
  readonly scores: Tensor | undefined;
  /** [batch, heads, qLen], whatever the layout; [heads, qLen] for rank 3. -Infinity for a query with no key to attend. */
  readonly lse: Tensor | undefined;
}

const STAGES = ["raw", "softcapped", "masked", "weights"] as const;
type Stage = (typeof STAGES)[number];

/**
 * Attention without projections: softmax(scale·q·kᵀ, masked)·v. The number of query heads must be a multiple of the number of
 * key-value heads. A masked key cannot change the output, even if it is NaN. A query with no key to attend gives zeros.
 * Shapes below are for the layout "bhsd". q, k, v and `past` have all rank 4, or all rank 3: one sequence, without batch.
 * @param q Queries [batch, heads, qLen, headDim] or [heads, qLen, headDim].
 * @param k Keys [batch, kvHeads, kLen, headDim] or [kvHeads, kLen, headDim].
 * @param v Values [batch, kvHeads, kLen, valueDim] or [kvHeads, kLen, valueDim].
 * @throws TypeError or RangeError naming the argument. HeadwiseError `CACHE_FULL`, `OUT_OF_MEMORY`, `RELEASED`, or `IN_USE`
 * while pages are imported to the cache. The cache is then unchanged.
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
  const { call, tensors } = readHeads("scaledDotProductAttention", kernels, [q, k, v], options);
  return runHeads(kernels, call, tensors);
}

type HeadTensors = readonly [q: Tensor, k: Tensor, v: Tensor];

/** Reads and checks the arguments of a call. */
export function readHeads(
  where: string,
  kernels: Kernels,
  [q, k, v]: HeadTensors,
  options: SdpaOptions,
): { call: HeadsCall; tensors: HeadTensors } {
  // All is read before anything is checked, because reading may run code of the caller's.
  const given = readOptions(where, options);
  const tensors = [readTensor(where, "q", q), readTensor(where, "k", k), readTensor(where, "v", v)] as const;
  return { call: checkHeads(where, kernels, ...tensors, given), tensors };
}

/** Runs a call that was checked. */
export function runHeads(kernels: Kernels, call: HeadsCall, [q, k, v]: HeadTensors, measure?: Measure): SdpaResult {
  const present = call.present ? presentOf(call, k, v) : undefined;
  return { ...forwardHeads(kernels, call, q, k, v, measure), present };
}

type GivenOptions = Omit<SdpaOptions, keyof MaskOptions> & GivenMasks;

/** A copy of the options and of what is in them, each read once. */
function readOptions(where: string, options: SdpaOptions): GivenOptions {
  const given = readFields(where, "options", options, OPTIONS);
  const { kvLengths, past, window } = given;
  const pair = past === undefined ? undefined : readFields(where, "past", past, ["key", "value"]);
  const { keep, drop, bias } = readMasks(where, given);
  return {
    ...{ ...given, keep, drop, bias },
    window: window && readFields(where, "window", window, ["left", "right"]),
    kvLengths: kvLengths && (readList(where, "kvLengths", kvLengths, MOST_SEQUENCES) as ArrayLike<number>),
    past: pair && {
      key: readTensor(where, "past.key", pair.key),
      value: readTensor(where, "past.value", pair.value),
    },
  };
}

function presentOf({ where, past, layout }: HeadsCall, k: Tensor, v: Tensor): { key: Tensor; value: Tensor } {
  const joined = (before: Tensor | undefined, now: Tensor): Tensor => {
    if (before) return concatTokens(where, before, now, layout);
    const data = createFloats(where, "present", now.data.length);
    data.set(now.data);
    return { data, shape: [...now.shape] };
  };
  return { key: joined(past?.key, k), value: joined(past?.value, v) };
}

const OPTIONS = [
  ...["causal", "window", "scale", "softcap", "alibi", "keep", "drop", "bias", "align", "kvLengths"],
  ...["layout", "sinkLogits", "past", "cache", "present", "scores", "lse"],
] as const;

/** Checks arguments that were read. */
function checkHeads(
  where: string,
  kernels: Kernels,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  options: GivenOptions,
): HeadsCall {
  expectKernels(where, kernels);
  const { layout: order = "bhsd" } = options;
  const layout = expectOneOf(where, "layout", order, ["bhsd", "bshd"]);
  const sizesOf = (name: string, tensor: Tensor, ranks = [queries.rank]) =>
    headSizes(checkTensor(where, name, tensor, ranks), layout);
  const queries: HeadSizes = sizesOf("q", q, [3, 4]);
  const keys = sizesOf("k", k);
  const values = sizesOf("v", v);
  for (const [name, { heads, dim }] of Object.entries({ q: queries, k: keys, v: values }))
    expectHeads(where, name, heads, dim);
  expectInt(where, "batch of q", queries.batch, 0, MOST_SEQUENCES);
  if (queries.heads % keys.heads !== 0)
    throw wrongValue(where, "q", `a multiple of k's heads (${keys.heads})`, queries.heads);
  expectSizes(where, "k", keys, layout, { ...keys, batch: queries.batch, dim: queries.dim });
  expectSizes(where, "v", values, layout, { ...keys, dim: values.dim });
  const { past, cache } = options;
  const rules = checkRules(where, options, queries.heads, queries.dim);
  let pastLen: number | undefined;
  let stages: readonly Stage[] = STAGES;
  if (cache !== undefined) {
    checkCache(where, kernels, cache, options, { queries, keys, values }, rules, layout);
    pastLen = cache.length;
    // The first two stages are scores of all keys, also of those that the cache has dropped.
    if (cache.pages.retention.left < Infinity) stages = STAGES.slice(2);
  }
  if (past !== undefined) {
    const pastKeys = sizesOf("past.key", past.key);
    pastLen = pastKeys.len;
    expectSizes(where, "past.key", pastKeys, layout, { ...keys, len: pastLen });
    expectSizes(where, "past.value", sizesOf("past.value", past.value), layout, { ...values, len: pastLen });
  }
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
    cache,
    present: expectFlag(where, "present", options.present),
    lse: expectFlag(where, "lse", options.lse),
    sinkLogits,
    stage: options.scores === undefined ? undefined : stageOf(where, options.scores, stages),
    placements: placeQueries(where, options, { ...target, past: pastLen }, isPositional(rules)),
    target,
    masks: checkMasks(where, options, target),
  };
}

/** The number of a stage, one of `stages`. */
function stageOf(where: string, scores: Stage, stages: readonly Stage[]): ScoreStage {
  return STAGES.indexOf(expectOneOf(where, "scores", scores, stages)) as ScoreStage;
}

/** Throws unless the call can append to the cache and attend to what it then holds. */
function checkCache(
  where: string,
  kernels: Kernels,
  cache: KvCache,
  { past, present }: Pick<SdpaOptions, "past" | "present">,
  { queries, keys, values }: HeadsCall["sizes"],
  rules: CheckedRules,
  layout: HeadLayout,
): void {
  expectMade(where, "cache", cache, "createKvCache");
  if (cache.kernels !== kernels)
    throw new RangeError(`${where}: cache expected one of these kernels, got one of others`);
  const { batch, length, pages } = cache;
  const { numKvHeads: heads, headDim, valueDim } = pages.layout;
  const rank = batch > 1 ? 4 : keys.rank;
  expectSizes(where, "k", keys, layout, { rank, batch, heads, len: keys.len, dim: headDim });
  expectSizes(where, "v", values, layout, { ...values, dim: valueDim });
  if (past || present) expectNone(where, "cache", cache, past ? "with past" : "with present");
  const { left } = pages.retention;
  if (rules.window.left > left)
    throw wrongValue(where, "window.left", `at most ${left}, that of the cache`, rules.window.left);
  expectFreeFor(where, cache, keys.len > 0);
  expectRoom(where, cache, "keys", keys.len);
  if (queries.len !== keys.len || seesLater(rules)) expectKept(where, "q", cache, length, length + keys.len);
}

function expectSizes(where: string, name: string, got: HeadSizes, layout: HeadLayout, want: HeadSizes): void {
  expectShape(where, name, headShape(got, layout), headShape(want, layout));
}

// A checked call: keys and values are copied to pages, and queries attend to them.

/** Tokens of a chunk: two tiles of the kernel. */
export const CHUNK_TOKENS: number = 2 * TILE_ROWS;

/** A checked call on queries, keys and values, with past keys and values in tensors or in a cache, or without. */
interface HeadsCall {
  readonly where: string;
  readonly layout: HeadLayout;
  readonly rules: CheckedRules;
  readonly sizes: { readonly queries: HeadSizes; readonly keys: HeadSizes; readonly values: HeadSizes };
  readonly past: { readonly key: Tensor; readonly value: Tensor } | undefined;
  readonly cache: KvCache | undefined;
  readonly present: boolean;
  readonly sinkLogits: Float32Array | undefined;
  readonly stage: ScoreStage | undefined;
  readonly lse: boolean;
  readonly placements: readonly Placement[];
  readonly target: MaskTarget;
  readonly masks: CheckedMasks;
}

/** The results that the call requested. */
type HeadsResult = Omit<SdpaResult, "present">;

/** Copies keys and values into the cache, or into temporary pages that are freed, and attends. */
function forwardHeads(
  kernels: Kernels,
  call: HeadsCall,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  measure?: Measure,
): HeadsResult {
  const { where, sizes, target, layout, cache } = call;
  const { queries, keys, values } = sizes;
  const { rank, batch, heads, len } = queries;
  const shape = { numKvHeads: keys.heads, headDim: keys.dim, valueDim: values.dim };
  const pageLayout = cache?.pages.layout ?? createPageLayout(shape);
  const outSizes = { ...queries, dim: values.dim };
  const tensor = (name: string, shape: number[]): Tensor => {
    const length = shape.reduce((a, b) => a * b, 1);
    return { data: createFloats(where, name, length), shape: shape.slice(4 - rank) };
  };
  const results = {
    output: tensor("output", headShape({ ...outSizes, rank: 4 }, layout)),
    scores: call.stage === undefined ? undefined : tensor("scores", [batch, heads, len, target.kvLen]),
    lse: call.lse ? tensor("lse", [batch, heads, len]) : undefined,
  };
  if (q.data.length === 0 && !cache) return results;
  // Scratch is taken last: once grown it stays so, and nothing may fail after it.
  const pages = cache?.pages ?? allocatePages(where, kernels, pageLayout, batch, target.kvLen);
  try {
    const places = placeCall(call, pageLayout);
    const pass: HeadsPass = {
      kernels,
      call,
      pages,
      base: kernels.memory.scratch(where, places.bytes),
      places,
      measure,
    };
    cache?.begin();
    for (let b = 0; b < batch; b++) runRow(pass, q, k, v, b, outSizes, results);
  } finally {
    if (!cache) kernels.memory.free(pages.at);
  }
  cache?.commit(keys.len);
  return results;
}

/** Appends the keys and values of one batch row and attends to them. */
function runRow(
  pass: HeadsPass,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  batchRow: number,
  outSizes: HeadSizes,
  results: HeadsResult,
): void {
  const { kernels, call, pages } = pass;
  const { past, cache, layout, rules } = call;
  const { queries, keys } = call.sizes;
  const held = cache?.length ?? (past ? headSizes(past.key, layout).len : 0);
  const age = (end: number) => agePages(call.where, kernels, pages, batchRow, Math.floor((end - 1) / PAGE));
  if (pages.ages && queries.len === keys.len && !seesLater(rules)) {
    // Pages age with the queries: each piece lies in one page.
    for (let begin = 0, end = 0; begin < keys.len; begin = end) {
      end = Math.min(keys.len, begin + Math.min(CHUNK_TOKENS, PAGE - ((held + begin) % PAGE)));
      append(pass, k, v, batchRow, held, begin, end);
      age(held + end);
      attendTokens(pass, q, batchRow, begin, end, outSizes, results);
    }
    return;
  }
  if (past)
    for (const [begin, end] of chunksOf(held, CHUNK_TOKENS))
      append(pass, past.key, past.value, batchRow, 0, begin, end);
  for (const [begin, end] of chunksOf(keys.len, CHUNK_TOKENS)) {
    append(pass, k, v, batchRow, held, begin, end);
    age(held + end);
  }
  for (const [begin, end] of chunksOf(queries.len, CHUNK_TOKENS))
    attendTokens(pass, q, batchRow, begin, end, outSizes, results);
}

function placeCall({ sizes, masks, target, stage, past, layout }: HeadsCall, pageLayout: PageLayout) {
  const { queries, keys, values } = sizes;
  const queryTokens = Math.min(queries.len, CHUNK_TOKENS);
  const longest = Math.max(keys.len, past ? headSizes(past.key, layout).len : 0);
  const keyTokens = Math.min(longest, CHUNK_TOKENS);
  const dims = { numHeads: queries.heads };
  const parts = new Layout();
  // The keys of a piece are in their pages before its queries are copied: both use the same memory.
  const [k, v] = [keyTokens * keys.heads * keys.dim, keyTokens * values.heads * values.dim];
  const [q, out] = [queryTokens * queries.heads * queries.dim, queryTokens * queries.heads * values.dim];
  const [first, second] = [parts.floats(Math.max(q, k)), parts.floats(Math.max(out, v))];
  const places = {
    ...{ q: first, k: first, out: second, v: second },
    slopes: parts.floats(queries.heads),
    sinks: parts.floats(queries.heads),
    keyRows: placeRows(parts),
    segment: placeSegment(parts, dims, [
      segmentNeeds(masks, target, queryTokens, stage === undefined ? 0 : target.kvLen, workFloats(pageLayout)),
    ]),
  };
  return { ...places, bytes: parts.bytes };
}

interface HeadsPass {
  readonly kernels: Kernels;
  readonly call: HeadsCall;
  readonly pages: Pages;
  readonly base: number;
  readonly places: ReturnType<typeof placeCall>;
  readonly measure: Measure | undefined;
}

/** Copies tokens begin..end of k and v into the pages of a batch row; token 0 is at absolute position `past`. */
function append(
  { kernels, call, pages, base, places }: HeadsPass,
  k: Tensor,
  v: Tensor,
  batchRow: number,
  past: number,
  begin: number,
  end: number,
): void {
  const { layout } = call;
  const keys = headSizes(k, layout);
  const values = headSizes(v, layout);
  const rows = { k: pointer.f32(base + places.k), v: pointer.f32(base + places.v) };
  const tokens = end - begin;
  copyIn(kernels, rows.k, k, keys, layout, batchRow, begin, end);
  copyIn(kernels, rows.v, v, values, layout, batchRow, begin, end);
  const [kStrides, vStrides] = [blockStrides(keys, layout, tokens), blockStrides(values, layout, tokens)];
  const shape = storeRows(kernels, base + places.keyRows, pages.layout, {
    kStride: kStrides.stride,
    kHeadStride: kStrides.headStride,
    vStride: vStrides.stride,
    vHeadStride: vStrides.headStride,
  });
  appendRows(kernels, pages, batchRow, shape, rows, past + begin, tokens);
}

/** Attends with query tokens begin..end of one batch row. */
function attendTokens(
  pass: HeadsPass,
  q: Tensor,
  batchRow: number,
  begin: number,
  end: number,
  outSizes: HeadSizes,
  { output, scores, lse }: HeadsResult,
): void {
  const { kernels, call, pages, base, places, measure } = pass;
  const { memory } = kernels;
  const { layout, masks, target, stage } = call;
  const { queries } = call.sizes;
  const tokens = end - begin;
  const { position, kvLen } = call.placements[batchRow] as Placement;
  const work = { kernels, base, places: places.segment, call: headsShape(pass, tokens), masks, target };
  const segment = {
    batchRow,
    begin,
    end,
    position: position + begin,
    kvLen,
    q: pointer.f32(base + places.q),
    out: pointer.f32(base + places.out),
    pages: pageTable(pages, batchRow),
    layout: pages.layout,
  };
  copyIn(kernels, segment.q, q, queries, layout, batchRow, begin, end);
  finish(attendSegment(work, segment, Infinity, measure));
  eachRun(outSizes, layout, batchRow, begin, end, (to, from, floats) =>
    output.data.set(memory.f32(segment.out + from * 4, floats), to),
  );
  for (let h = 0; lse && h < queries.heads; h++) {
    const row = (batchRow * queries.heads + h) * queries.len + begin;
    lse.data.set(memory.f32(base + places.segment.lse + h * tokens * 4, tokens), row);
  }
  if (scores && stage !== undefined) readScores(work, segment, stage, scores.data);
}

function headsShape({ kernels, call, pages, base, places }: HeadsPass, tokens: number): CallShape {
  const { rules, layout, sinkLogits } = call;
  const { queries, values } = call.sizes;
  const q = blockStrides(queries, layout, tokens);
  const out = blockStrides({ ...queries, dim: values.dim }, layout, tokens);
  return callShape(
    { numHeads: queries.heads, ...pages.layout },
    rules,
    {
      slopes: storeFloats(kernels, base + places.slopes, rules.slopes),
      sinks: storeFloats(kernels, base + places.sinks, sinkLogits),
    },
    { qStride: q.stride, qHeadStride: q.headStride, outStride: out.stride, outHeadStride: out.headStride },
  );
}

function copyIn(
  { memory }: Kernels,
  to: F32Ptr,
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

/** Both tensors, concatenated along the tokens. */
function concatTokens(where: string, first: Tensor, second: Tensor, layout: HeadLayout): Tensor {
  const a = headSizes(first, layout);
  const b = headSizes(second, layout);
  const sizes = { ...a, len: a.len + b.len };
  const data = createFloats(where, "present", first.data.length + second.data.length);
  const copy = (part: Float32Array, { batch, heads, len, dim }: HeadSizes, begin: number) => {
    for (let row = 0; row < batch; row++) {
      const base = row * heads * len * dim;
      eachRun(sizes, layout, row, begin, begin + len, (to, from, floats) =>
        data.set(part.subarray(base + from, base + from + floats), to),
      );
    }
  };
  copy(first.data, a, 0);
  copy(second.data, b, a.len);
  return { data, shape: headShape(sizes, layout) };
}
