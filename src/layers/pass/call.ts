// The calls of `attend`: their arguments, read once and checked before anything changes.

import {
  type AllFieldsOf,
  expectFlag,
  expectFloats,
  expectInt,
  expectNone,
  MOST_SEQUENCES,
  readFields,
  readList,
  wrongValue,
} from "../../base/util/arguments.ts";
import { expectMade } from "../../base/util/lifetime.ts";
import type { RowSpan } from "../../base/util/rows.ts";
import { expectKernels } from "../../wasm/kernels.ts";
import type { Attention, Cache } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import { isInStep } from "../attention/head-passes.ts";
import {
  checkMasks,
  expectPositions,
  type GivenMasks,
  isPositional,
  type MaskOptions,
  type Placement,
  type PlacementOptions,
  placeQueries,
  readMasks,
  refuseRagged,
} from "../attention/mask.ts";
import type { CallTokens, CheckedCall, MixerCall, MixerLayer, Passes } from "../mixer/mixer.ts";
import { expectFreeFor, expectKept, expectRoom } from "../state/kv-cache.ts";

/** Options of one call of `attend`. */
export interface AttendOptions extends MaskOptions, PlacementOptions {
  /** Sequences in x, 1 to 2^20. Default that of the cache, or 1. */
  readonly batch?: number;
  /** KV cache with the keys and values of earlier tokens. Those of this call are appended. Default none. */
  readonly cache?: Cache;
  /**
   * false: append nothing, and attend only to what the cache holds, as cross-attention over keys that were cached once. A
   * layer with RoPE then needs `positions`, and one that is causal or has a window or ALiBi needs `align`. Default true.
   */
  readonly append?: boolean;
  /** Cross-attention: rows that keys are projected from, [batch, kvLen, kdim]. Default x, which needs kdim = dModel. */
  readonly keys?: Float32Array;
  /** Rows that values are projected from, [batch, kvLen, vdim]. Default `keys`, which needs vdim = kdim. */
  readonly values?: Float32Array;
  /** RoPE positions of x, [qLen] or [batch, qLen]: integers >= 0. Default past, past + 1, …; with `keys` 0, 1, … */
  readonly positions?: ArrayLike<number>;
  /**
   * A layer of latent attention only: "absorbed" multiplies queries with the latents themselves, "expanded" computes keys and
   * values of all heads from them first, which is faster for many queries. Each has bits of its own. Default "absorbed".
   */
  readonly path?: "absorbed" | "expanded";
  /** Array to write y to, of the length of x: x itself, or one that does not overlap x. Default a new array. */
  readonly out?: Float32Array;
}

/** Fields of AttendOptions. */
export const ATTEND_OPTIONS = [
  "batch",
  "cache",
  "append",
  "keys",
  "values",
  "kvLengths",
  "align",
  "keep",
  "drop",
  "bias",
  "positions",
  "out",
  "path",
] as const;

/** `count` tokens of a sequence behind `past` others, without masks. */
export function tokensBehind(
  where: string,
  { numHeads }: Pick<CheckedConfig, "numHeads">,
  past: number,
  count: number,
): CallTokens {
  const kvLen = past + count;
  const rows = [[0, count]] as const;
  const positions = Int32Array.from({ length: count }, (_, i) => past + i);
  const target = { batch: 1, numHeads, qLen: count, kvLen };
  return {
    ...{ where, batch: 1, qLen: count, newKeys: count, past, rows, keyRows: rows, target },
    ...{ positions, keyPositions: positions },
    placements: [{ position: past, kvLen }],
    masks: checkMasks(where, {}, target),
  };
}

/** A checked call, the cache that it changes, and the array that was given as `out`, of which the checked one is a view. */
export interface AttendCall extends MixerCall {
  readonly cache: Cache | undefined;
  readonly given: Float32Array | undefined;
}

/** What the checks of a call need to know of a cache, which may be in another thread. */
interface CacheFacts {
  readonly batch: number;
  readonly maxSeqLen: number;
  readonly length: number;
}

/** The options besides the cache. */
export type CallOptions = Omit<AttendOptions, "cache">;

/** Checks a call on a layer in this thread: its handles and all its options. Nothing has changed if it throws. */
export function checkAttend(where: string, attention: Attention, x: Float32Array, options: AttendOptions): AttendCall {
  return checkGiven(where, attention, readCall(where, x, options, ATTEND_OPTIONS));
}

/** `checkAttend` of arguments that were read before. */
export function checkGiven(where: string, attention: Attention, given: GivenCall<AttendOptions>): AttendCall {
  expectAttention(where, attention);
  return checkPass(where, attention, attention.passes, given);
}

/** `checkGiven` for a layer that was checked, and that these passes run. */
export function checkPass(
  where: string,
  attention: MixerLayer,
  passes: Passes,
  { x, options, out }: GivenCall<AttendOptions>,
): AttendCall {
  const { cache } = options;
  if (cache !== undefined) {
    expectMade(where, "cache", cache, "createCache");
    expectOwnCache(where, cache.attention === attention);
  }
  const expectFree = (append: boolean) => cache && expectFreeFor(where, cache, append);
  const { config } = attention;
  const { path } = options;
  passes.check(where, options);
  const call = { ...checkCall(where, config, cache, x, options, expectFree), cache, given: out, path };
  if (cache?.pages.ages && !isInStep(config, call))
    for (const { position } of call.placements) expectKept(where, "x", cache, position, call.target.kvLen);
  return call;
}

/** Throws unless the cache of a call belongs to its layer. */
export function expectOwnCache(where: string, own: boolean): void {
  if (!own) throw new RangeError(`${where}: cache expected one made for this attention, got one of another`);
}

/**
 * Checks a call, whose arguments `readCall` gave, against the layer's configuration and what its cache holds, and computes
 * its sizes. `expectFree` throws if other calls on the cache are in conflict with it.
 */
export function checkCall(
  where: string,
  config: CheckedConfig,
  cache: CacheFacts | undefined,
  x: Float32Array,
  options: CallOptions & GivenMasks,
  expectFree: (append: boolean) => void = () => {},
): CheckedCall {
  const { batch = cache ? cache.batch : 1 } = options;
  expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  if (cache && cache.batch !== batch) throw wrongValue(where, "batch", `that of the cache (${cache.batch})`, batch);
  const qLen = countRows(where, "x", x, batch, "dModel", config.dModel);

  const append = options.append === undefined ? true : expectFlag(where, "append", options.append);
  if (!cache && options.append === false)
    throw new RangeError(`${where}: append expected true without a cache, got false`);
  expectFree(append);
  const { keys, values, newKeys } = checkKeys(where, config, x, options, batch, append);
  const cross = options.keys !== undefined || !append;
  const past = cache?.length ?? 0;
  const kvLen = past + newKeys;
  if (cache) expectRoom(where, cache, cross ? "keys" : "qLen", newKeys);

  if (cache && !cross && options.kvLengths !== undefined) refuseRagged(where, options.kvLengths, batch, kvLen);
  const sizes = { batch, qLen, kvLen, past: cache && !cross ? past : undefined };
  const placements = placeQueries(where, options, sizes, isPositional(config));
  if (!config.rope) expectNone(where, "positions", options.positions, "without config.rope");
  if (!append && config.rope && options.positions === undefined)
    throw new RangeError(`${where}: positions expected with rope and append: false, got undefined`);
  const { numHeads } = config;
  const target = { batch, numHeads, qLen, kvLen };
  const positions = config.rope
    ? expectPositions(where, options.positions, batch, qLen, cross ? 0 : past)
    : new Int32Array(0);
  const ragged = options.kvLengths !== undefined && !cross && !cache;
  const rows = ragged ? realRows(placements, qLen) : [[0, batch * qLen] as const];
  const out = options.out === undefined ? undefined : expectFloats(where, "out", options.out);
  if (out) expectOut(where, out, x.length, readsOf(x, options), true);
  return {
    where,
    batch,
    qLen,
    newKeys,
    past,
    x,
    keys,
    values,
    placements,
    rows,
    keyRows: cross ? [[0, batch * newKeys]] : rows,
    positions,
    keyPositions: cross && config.rope ? expectPositions(where, undefined, batch, newKeys, past) : positions,
    target,
    masks: checkMasks(where, options, target),
    out,
  };
}

/** The rows that are no padding, which lies behind a length: queries and keys in one, unless `align` moves queries against keys. */
function realRows(placements: readonly Placement[], qLen: number): RowSpan[] {
  return placements.map(({ position, kvLen }, b) => [b * qLen, b * qLen + (position === 0 ? kvLen : qLen)]);
}

/** Fills the rows of `y`, of `width` floats, that are padding with zeros. */
export function clearPadding({ batch, qLen, rows }: CallTokens, y: Float32Array, width: number): void {
  for (const [i, [, end]] of rows.entries()) y.fill(0, end * width, (rows[i + 1]?.[0] ?? batch * qLen) * width);
}

/** The rows that keys and values are projected from, and their number in each sequence: 0 without `append`. */
function checkKeys(
  where: string,
  { dModel, kdim, vdim }: CheckedConfig,
  x: Float32Array,
  options: CallOptions,
  batch: number,
  append: boolean,
): Pick<CheckedCall, "keys" | "values" | "newKeys"> {
  if (options.keys === undefined) expectNone(where, "values", options.values, "without keys");
  if (!append) expectNone(where, "keys", options.keys, "with append: false");
  const { keys = x } = options;
  const { values = keys } = options;
  if (!append) return { keys, values, newKeys: 0 };
  if (options.keys === undefined && kdim !== dModel)
    throw new RangeError(`${where}: keys expected because kdim (${kdim}) is not dModel (${dModel}), got undefined`);
  if (options.values === undefined && vdim !== kdim)
    throw new RangeError(`${where}: values expected because vdim (${vdim}) is not kdim (${kdim}), got undefined`);
  const newKeys = countRows(where, "keys", keys, batch, "kdim", kdim);
  const newValues = countRows(where, "values", values, batch, "vdim", vdim);
  if (newValues !== newKeys) throw wrongValue(where, "values", `as many rows as keys (${newKeys})`, newValues);
  return { keys, values, newKeys };
}

/** Throws unless `attention` came from createAttention and neither it nor its kernels were released. */
export function expectAttention(where: string, attention: Pick<Attention, "kernels" | "released">): void {
  expectMade(where, "attention", attention, "createAttention", "createLatentAttention");
  expectKernels(where, attention.kernels, "attention.kernels");
}

/** Adds what the calls appended to the length of their caches: the last step of a call. */
export function commit(calls: readonly AttendCall[]): void {
  for (const { cache, newKeys } of calls) cache?.commit(newKeys);
}

/** The options of a call that are arrays or lists. */
interface CallArrays extends MaskOptions {
  readonly keys?: Float32Array;
  readonly values?: Float32Array;
  readonly positions?: ArrayLike<number>;
  readonly kvLengths?: ArrayLike<number>;
  readonly out?: Float32Array;
}

/** A call whose options, arrays and lists are plain: reading them runs no code of the caller's. */
export interface GivenCall<Options extends CallArrays> {
  readonly x: Float32Array;
  readonly options: Options & GivenMasks;
  /** The array that was given as `out`, of which that of the options is a view. */
  readonly out: Float32Array | undefined;
}

/**
 * Reads the arguments of a call, each once, and throws if `options` has other fields than `known`; x may be a field of the
 * options. It is the only step that may run code of the caller's (getters, Proxies), which may release, detach or shrink what
 * was read before: checks follow.
 */
export function readCall<Options extends CallArrays & { readonly x?: Float32Array }, const Name extends string>(
  where: string,
  ownX: Float32Array | undefined,
  options: Options,
  known: readonly Name[] & AllFieldsOf<Options, Name>,
): GivenCall<Options> {
  const given = readFields(where, "options", options, known);
  const { x = ownX } = given;
  const floats = expectFloats(where, "x", x);
  const { keys, values, positions, kvLengths, out } = given;
  const read: { -readonly [Name in keyof CallArrays]: CallArrays[Name] } = given;
  // What was the same array stays the same.
  if (keys !== undefined) read.keys = keys === x ? floats : expectFloats(where, "keys", keys);
  if (values !== undefined) read.values = values === keys ? read.keys : expectFloats(where, "values", values);
  if (out !== undefined) read.out = expectFloats(where, "out", out);
  // There are no more positions than rows of x.
  if (positions !== undefined) read.positions = readNumbers(where, "positions", positions, floats.length);
  if (kvLengths !== undefined) read.kvLengths = readNumbers(where, "kvLengths", kvLengths, MOST_SEQUENCES);
  if (given.keep !== undefined || given.drop !== undefined || given.bias !== undefined)
    Object.assign(read, readMasks(where, given));
  return { x: floats, options: given as Options & GivenMasks, out };
}

const readNumbers = readList as typeof readList<number>;

/** The arrays of a call, by name. */
export function arraysOf({ x, options }: GivenCall<CallArrays>): Record<string, ArrayLike<unknown> | undefined> {
  const { keys, values, out } = options;
  return { ...readsOf(x, options), keys, values, out };
}

/**
 * A function that throws if one of the arrays has been detached or resized since, during an asynchronous call: what is
 * computed from it would be wrong.
 */
export function expectKeptArrays(
  where: string,
  arrays: Readonly<Record<string, ArrayLike<unknown> | undefined>>,
): () => void {
  const lengths = Object.entries(arrays).map(([name, array]) => [name, array, array?.length] as const);
  return () => {
    for (const [name, array, length] of lengths)
      if (array?.length !== length)
        throw new RangeError(
          `${where}: ${name} expected to keep its ${length} elements until the promise settles, got ${array?.length}`,
        );
  };
}

// The arrays of a call: how many rows they hold, and that `out` shares no memory with what is read.

/** The number of rows in each sequence of `data`, [batch, rows, width]. Throws unless it is an integer. */
export function countRows(
  where: string,
  name: string,
  data: unknown,
  batch: number,
  dim: string,
  width: number,
): number {
  const { length } = expectFloats(where, name, data);
  const rows = length / (batch * width);
  if (Number.isInteger(rows)) return rows;
  const rule = batch === 1 ? `${dim} (${width})` : `batch (${batch}) x ${dim} (${width})`;
  throw wrongValue(where, name, `a multiple of ${rule} floats`, length);
}

/** The arrays that a call reads while it writes `out`, by name. */
function readsOf(x: Float32Array, { keep, drop, bias }: GivenMasks): Record<string, ArrayLike<unknown> | undefined> {
  return { x, keep: keep?.data, drop: drop?.data, bias: bias?.data };
}

/**
 * Throws unless `out` has `length` floats and shares no memory with what the call reads, because rows of y are written before
 * later rows are read. It may be x itself if `inPlace`.
 */
export function expectOut(
  where: string,
  out: Float32Array,
  length: number,
  reads: Record<string, ArrayLike<unknown> | undefined>,
  inPlace: boolean,
): void {
  if (out.length !== length) throw wrongValue(where, "out", `${length} floats`, out.length);
  for (const [name, data] of Object.entries(reads)) {
    const mayBeSame = inPlace && name === "x";
    if (mayBeSame ? isApart(out, data as Float32Array) : !overlaps(out, data)) continue;
    throw new RangeError(
      `${where}: out expected ${mayBeSame ? "x itself or " : ""}memory apart from ${name}, got one that overlaps it`,
    );
  }
}

/** Whether `out` begins where x does, or shares no byte with it. */
export function isApart(out: Float32Array, x: Float32Array): boolean {
  return !overlaps(out, x) || x.byteOffset === out.byteOffset;
}

/** Whether two arrays share a byte. */
function overlaps(a: Float32Array, b: unknown): boolean {
  return (
    ArrayBuffer.isView(b) &&
    a.buffer === b.buffer &&
    a.byteOffset < b.byteOffset + b.byteLength &&
    b.byteOffset < a.byteOffset + a.byteLength
  );
}
