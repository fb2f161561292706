// `attend` and its relatives: in one step, in slices, and for many calls.

import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import {
  expectFlag,
  expectInt,
  expectNone,
  expectRecord,
  MOST_SEQUENCES,
  readFields,
  wrongType,
} from "../../base/util/arguments.ts";
import { expectAlive } from "../../base/util/lifetime.ts";
import { finish } from "../../base/util/steps.ts";
import { aligned, type MemoryPlan } from "../../wasm/memory.ts";
import type { Attention, Cache } from "../attention/attention.ts";
import { type AttentionConfig, checkConfig } from "../attention/config.ts";
import { isSelf, placePass } from "../attention/head-passes.ts";
import { chunkRows } from "../attention/heads.ts";
import { retentionOf } from "../attention/kv-state.ts";
import { checkMasks, type MaskOptions, readMasks } from "../attention/mask.ts";
import { scoreColumns, segmentNeeds, workFloats } from "../attention/segment.ts";
import { checkWeightOptions, layerLayout, PROJECTIONS, type WeightOptions } from "../attention/weights.ts";
import { eachOf } from "../linear/formats.ts";
import type { CallTokens, NextToken } from "../mixer/mixer.ts";
import {
  ATTEND_OPTIONS,
  type AttendCall,
  type AttendOptions,
  arraysOf,
  checkGiven,
  commit,
  expectAttention,
  expectKeptArrays,
  type GivenCall,
  isApart,
  readCall,
  tokensBehind,
} from "../pass/call.ts";
import { checkSlices, forward, runSlices, SLICE_OPTIONS, type SliceOptions, stepFlopsOf } from "../pass/forward.ts";
import type { CacheOptions } from "../state/kv-cache.ts";
import { checkCacheFormat, createPageLayout } from "../state/pages.ts";
import { pagesBytes } from "../state/table.ts";

/**
 * Runs one attention layer: projects x to queries, keys and values, attends, and applies the output projection. With a
 * cache, the new keys and values are appended first, and x attends to all that the cache then holds.
 *
 * A token's output has the same bits in one prefill, in chunks, token by token and in any batch. A masked key cannot change
 * the output, even if it is NaN. A query with no key to attend gives zeros before the output projection.
 * @param x Input rows [batch, qLen, dModel].
 * @returns Output rows y [batch, qLen, dModel]: `options.out` where it is given, else a new array.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `CACHE_FULL`, `OUT_OF_MEMORY`, `RELEASED`, `IN_USE` where
 * an unfinished `attendAsync` or `importPages` excludes this use of the cache, and with threads `WORKER_LOST` or
 * `KERNEL_FAILED`. The cache is then unchanged.
 * @example
 * import { attend, createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const cache = createCache(attention, { maxSeqLen: 16 });
 * attend(attention, Float32Array.of(1, 0, 0, 0, 0, 1, 0, 0), { cache }); // prefill: two tokens
 * attend(attention, Float32Array.of(0, 0, 1, 0), { cache }); // decode: one more
 * console.log(cache.length); // 3
 * kernels.release();
 */
export function attend(attention: Attention, x: Float32Array, options: AttendOptions = {}): Float32Array {
  const given = readCall("attend", x, options, ATTEND_OPTIONS);
  const next = attendNext("attend", attention, given);
  if (next) return next;
  const call = checkGiven("attend", attention, given);
  const { ys } = finish(forward(attention, attention.passes, [call], { where: call.where }));
  commit([call]);
  prepareNext(attention, call);
  return call.given ?? (ys[0] as Float32Array);
}

/**
 * `attend`, which also returns the attention maps: the softmax weights that each query gives each key. y has the bits of
 * `attend`.
 * @param x Input rows [batch, qLen, dModel].
 * @throws The same errors as `attend`; the cache is then unchanged.
 * @example
 * import { attendWithMaps, createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const { maps } = attendWithMaps(attention, new Float32Array(12).fill(1));
 * console.log(maps.shape, maps.data[0]); // [ 2, 3, 3 ] 1: the first token sees only itself
 * kernels.release();
 */
export function attendWithMaps(
  attention: Attention,
  x: Float32Array,
  options: AttendOptions = {},
): {
  /** Output rows [batch, qLen, dModel]. */
  y: Float32Array;
  /**
   * Weights [numHeads, qLen, columns]; [batch, numHeads, qLen, columns] where `options.batch` is given or the cache has more
   * than one sequence. The columns are the kvLen keys, with weight 0 for those that a cache with a window has dropped, then
   * one for `biasK` and one for `addZeroAttn`, where the layer has them.
   */
  maps: Tensor;
} {
  const given = readCall("attendWithMaps", x, options, ATTEND_OPTIONS);
  const call = checkGiven("attendWithMaps", attention, given);
  const { ys, maps } = finish(forward(attention, attention.passes, [call], { where: call.where, maps: true }));
  commit([call]);
  const { numHeads } = attention.config;
  const columns = maps.length / (call.batch * numHeads * call.qLen || 1);
  const shape = [numHeads, call.qLen, columns];
  const single = given.options.batch === undefined && call.batch === 1;
  return {
    y: call.given ?? (ys[0] as Float32Array),
    maps: { data: maps, shape: single ? shape : [call.batch, ...shape] },
  };
}

/** Options of `attendAsync`: those of `attend`, and how the call is sliced. */
export type AttendAsyncOptions = AttendOptions & SliceOptions;

/**
 * `attend` in time slices. It yields to the event loop between slices, so that pages stay responsive and servers answer
 * other requests. The result has the bits of `attend`.
 *
 * x and everything in `options` must not change before the promise settles, nor may their arrays be detached or resized.
 * Until then the cache is in use, and other calls that would disturb this one throw `IN_USE`: nothing may truncate the cache,
 * and nothing else may append to it while this call appends. If its tokens change format as they age (see
 * `CacheOptions.format`) or are dropped behind a window (see `CacheOptions.truncatable`), nothing else may read or attend to
 * it while this call appends, and nothing may append to it while this call only reads.
 * @param x Input rows [batch, qLen, dModel].
 * @returns Output rows y [batch, qLen, dModel]: `options.out` where it is given, else a new array.
 * @throws The same errors as `attend`, the signal's reason, whatever `onProgress` throws, RangeError if x or an array in
 * `options` is detached or resized before the end, and HeadwiseError `RELEASED` if the attention, its kernels or the cache are
 * released before. The cache and `out` are then unchanged.
 * @example
 * import { attendAsync, createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const stop = new AbortController();
 * const y = await attendAsync(attention, new Float32Array(400), { signal: stop.signal });
 * console.log(y.length); // 400
 * kernels.release();
 */
export async function attendAsync(
  attention: Attention,
  x: Float32Array,
  options: AttendAsyncOptions = {},
): Promise<Float32Array> {
  const where = "attendAsync";
  const read = readCall(where, x, options, [...SLICE_OPTIONS, ...ATTEND_OPTIONS]);
  const slices = checkSlices(where, read.options);
  const checked = checkGiven(where, attention, read);
  const expectKept = expectKeptArrays(where, arraysOf(read));
  const { cache, out } = checked;
  // `out` is written last, when nothing can abort the call any more.
  const call = { ...checked, out: undefined };
  const stepFlops = stepFlopsOf(attention.kernels);
  const all = attention.passes.flops(attention, call, stepFlops);
  const expectActive = () => {
    slices.signal?.throwIfAborted();
    expectAttention(where, attention);
    if (cache) expectAlive(where, "cache", cache);
    expectKept();
  };
  const hold = cache && (call.newKeys > 0 ? "appending" : "reading");
  if (hold) cache.holds[hold]++;
  const steps = forward(attention, attention.passes, [call], { where, stepFlops, ownScratch: true });
  try {
    const { ys } = await runSlices(steps, all, slices, expectActive);
    expectActive();
    const y = ys[0] as Float32Array;
    out?.set(y);
    commit([call]);
    return checked.given ?? y;
  } finally {
    if (hold) cache.holds[hold]--;
    cache?.begin();
  }
}

/** One of the calls that `attendMany` runs together: x, and the options of `attend`. */
export interface AttendManyCall extends AttendOptions {
  /** Input rows [batch, qLen, dModel]. */
  readonly x: Float32Array;
}

/**
 * Runs several calls of `attend` together, each with its own cache and its own qLen. The rows of all calls share each
 * projection, so that every weight is read once. Every y has the bits that `attend` gives for that call alone.
 *
 * Two calls must not append to the same cache. If the tokens of a cache change format as they age, or are dropped behind a
 * window, no call may read it while another one appends to it. No `out` may overlap an array that another call reads or writes.
 * @returns One y [batch, qLen, dModel] per call, in order.
 * @throws The same errors as `attend`, with the index of the call in the message. All caches are then unchanged.
 * @example
 * import { attendMany, createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const [first, second] = [16, 64].map((maxSeqLen) => createCache(attention, { maxSeqLen }));
 * const ys = attendMany(attention, [
 *   { x: new Float32Array(12).fill(1), cache: first }, // three tokens of one conversation
 *   { x: Float32Array.of(0, 1, 0, 0), cache: second }, // one of another
 * ]);
 * console.log(ys.map((y) => y.length), first?.length, second?.length); // [ 12, 4 ] 3 1
 * kernels.release();
 */
export function attendMany(attention: Attention, calls: readonly AttendManyCall[]): Float32Array[] {
  const where = "attendMany";
  expectAttention(where, attention);
  if (!Array.isArray(calls)) throw wrongType(where, "calls", "an array", calls);
  // All calls are read before any is checked, because reading may run code of the caller's.
  const { length } = calls;
  const given: GivenCall<AttendOptions>[] = [];
  for (let i = 0; i < length; i++) {
    const call: AttendManyCall = calls[i];
    expectRecord(where, `calls[${i}]`, call);
    given.push(readCall(`${where}, call ${i}`, undefined, call, ["x", ...ATTEND_OPTIONS]));
  }
  const checked = given.map((each, i) => checkGiven(`${where}, call ${i}`, attention, each));
  expectOwnCaches(where, checked);
  expectApart(where, given);
  if (checked.length === 0) return [];
  const { ys } = finish(forward(attention, attention.passes, checked, { where }));
  commit(checked);
  return ys.map((y, i) => checked[i]?.given ?? y);
}

function expectOwnCaches(where: string, calls: readonly AttendCall[]): void {
  const owners = new Map<unknown, number>();
  for (const [i, { cache, newKeys }] of calls.entries()) {
    // Where pages age, a call that appends changes pages that others read.
    if (!cache || (newKeys === 0 && !cache.pages.ages)) continue;
    const other = owners.get(cache);
    if (other !== undefined && newKeys + (calls[other] as AttendCall).newKeys > 0)
      throw new RangeError(`${where}, call ${i}: cache expected one of its own, got that of call ${other}`);
    owners.set(cache, i);
  }
}

/** The bytes of an array that a call reads or, as its `out`, writes. */
interface Range {
  readonly name: string;
  readonly call: number;
  readonly begin: number;
  readonly end: number;
}

/** Throws if one call would write what another one reads or writes. */
function expectApart(where: string, calls: readonly GivenCall<AttendOptions>[]): void {
  if (calls.every(({ out }) => out === undefined)) return;
  const buffers = new Map<unknown, Range[]>();
  for (const [call, given] of calls.entries()) {
    for (const [name, data] of Object.entries(arraysOf(given))) {
      if (!ArrayBuffer.isView(data)) continue;
      const ranges = buffers.get(data.buffer) ?? [];
      buffers.set(data.buffer, ranges);
      ranges.push({ name, call, begin: data.byteOffset, end: data.byteOffset + data.byteLength });
    }
  }
  for (const ranges of buffers.values()) {
    const [out, other] = clashOf(ranges) ?? [];
    if (!out || !other) continue;
    throw new RangeError(
      `${where}, call ${out.call}: out expected memory apart from ${other.name} of call ${other.call}, got one that overlaps it`,
    );
  }
}

/** An `out` and what it overlaps of another call, if there is such a pair. */
function clashOf(ranges: Range[]): readonly [out: Range, other: Range] | undefined {
  ranges.sort((a, b) => a.begin - b.begin);
  let open: Range[] = [];
  for (const range of ranges) {
    open = open.filter(({ end }) => end > range.begin);
    for (const other of open) {
      if (other.call === range.call || range.end === range.begin) continue;
      if (range.name === "out") return [range, other];
      if (other.name === "out") return [other, range];
    }
    open.push(range);
  }
  return undefined;
}

// The next token of a cache: what does not change between tokens is checked and planned once.

/** A planned token, and those facts of tokens that are the same for the first one of a sequence. */
interface PlannedToken {
  readonly plan: NextToken;
  readonly tokens: CallTokens;
}

const NEXT = new WeakMap<Cache, PlannedToken>();

/** Prepares the tokens that follow a call, if it was one: of one sequence, whose keys come from x. */
function prepareNext(attention: Attention, call: AttendCall): void {
  const { cache, where } = call;
  if (!cache || call.batch * call.qLen !== 1 || !isSelf(call)) return;
  const plan = attention.passes.next?.(attention, cache.pages);
  if (plan) NEXT.set(cache, { plan, tokens: tokensBehind(where, attention.config, 0, 1) });
}

/**
 * The next token of a cache for which it is prepared. Returns undefined if the call is another one or breaks a rule, and then
 * nothing has changed.
 */
function attendNext(
  where: string,
  attention: Attention,
  { x, options, out: given }: GivenCall<AttendOptions>,
): Float32Array | undefined {
  const { cache, out } = options;
  const next = cache && NEXT.get(cache);
  if (!next || cache?.attention !== attention) return undefined;
  const { kernels, config } = attention;
  const { length: past, pages } = cache;
  const { plan, tokens } = next;
  if (
    // `options` is a copy, in which only fields that are not undefined exist.
    Object.keys(options).length > (out ? 2 : 1) ||
    kernels.released ||
    attention.released ||
    cache.released ||
    cache.holds.appending > 0 ||
    x.length !== config.dModel ||
    past >= cache.maxSeqLen ||
    (out && (out.length !== plan.width || !isApart(out, x)))
  )
    return undefined;

  const y = out ?? createFloats(where, "y", plan.width);
  const base = kernels.memory.scratch(where, plan.bytes);
  const placements = [{ position: past, kvLen: past + 1 }];
  const of = { tokens: { ...tokens, past, placements, positions: Int32Array.of(past) }, pages, inStep: false };
  plan.run(base, of, x, y);
  cache.commit(1);
  return given ?? y;
}

// The memory of a layer, before it is made.

/** The largest call to plan memory for. */
export interface PlanSizes extends MaskOptions {
  /** Sequences. Default 1. */
  readonly batch?: number;
  /** Tokens of the longest call. Default 1, a decode step. */
  readonly qLen?: number;
  /** Tokens per sequence in the cache. Without it, there is no cache: every call allocates pages and frees them. */
  readonly maxSeqLen?: number;
  /** Format of the cache, as `createCache` takes it. Default "f32". */
  readonly format?: CacheOptions["format"];
  /** How far back `truncate` goes in a cache with a window, as `createCache` takes it. Default 128. */
  readonly truncatable?: number;
  /** Cross-attention: rows that keys are projected from. Default qLen. */
  readonly keyLen?: number;
  /** Plan for `attendWithMaps` instead of `attend`. Default false. */
  readonly maps?: boolean;
  /** The weights include `biasK` and `biasV`, which add a column to the maps. Default false. */
  readonly extraKey?: boolean;
  /** Formats of the weights, as `createAttention` takes them. Default "f32". */
  readonly weights?: WeightOptions["weights"];
}

const SIZES = [
  ...["batch", "qLen", "maxSeqLen", "format", "truncatable", "keyLen", "maps", "extraKey", "weights"],
  ...["keep", "drop", "bias"],
] as const;

/** What `plan` gives. */
export type Plan = MemoryPlan<"cache">;

/**
 * The memory that a layer, its cache and a call will take, computed before anything is allocated.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { plan } from "headwise";
 * const { weights, cache } = plan({ dModel: 512, numHeads: 8, numKvHeads: 1 }, { maxSeqLen: 2048 });
 * console.log(weights, cache); // 2364544 1048640: 2048 tokens x 2 x 64 floats, and 64 bytes of page table
 */
export function plan(config: AttentionConfig, sizes: PlanSizes = {}): Plan {
  const where = "plan";
  const checked = checkConfig(where, config);
  const given = readFields(where, "sizes", sizes, SIZES);
  const { batch = 1, qLen = 1 } = given;
  const { keyLen = qLen } = given;
  expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  expectInt(where, "qLen", qLen);
  expectInt(where, "keyLen", keyLen);
  const maps = expectFlag(where, "maps", given.maps);
  const extraKey = expectFlag(where, "extraKey", given.extraKey);
  const cached = given.maxSeqLen === undefined ? undefined : expectInt(where, "maxSeqLen", given.maxSeqLen, keyLen);
  const kvLen = cached ?? keyLen;
  for (const name of ["format", "truncatable"] as const)
    if (!cached) expectNone(where, name, given[name], "without maxSeqLen");
  const pages = createPageLayout(checked, checkCacheFormat(where, "format", given.format, checked));
  const retention = retentionOf(where, checked, given.truncatable);
  const target = { batch, numHeads: checked.numHeads, qLen, kvLen };
  const masks = checkMasks(where, readMasks(where, given), target);
  const columns = maps ? scoreColumns(kvLen, extraKey, checked.addZeroAttn) : 0;
  const chosen = checkWeightOptions(where, "", given).formats;
  const formats = eachOf(PROJECTIONS, (name) => chosen[name] ?? "f32");
  const rows = chunkRows(checked, batch * Math.max(qLen, keyLen));
  const needs = segmentNeeds(masks, target, Math.min(rows, qLen), columns, workFloats(pages));
  const { bytes } = placePass(checked, formats, rows, [needs]);
  const weights = aligned(layerLayout(checked, formats).bytes);
  const cache = pagesBytes(pages, batch, kvLen, cached === undefined ? undefined : retention);
  return { weights, cache, scratch: bytes, total: weights + cache + bytes };
}
