import { MOST_SEQUENCES } from "../attention/limits.ts";
import { type GivenMasks, readMasks } from "../attention/mask.ts";
import { type CacheOptions, checkTruncatable } from "../cache/kv-cache.ts";
import { type AttendOptions, type CheckedCall, checkCall, expectOptions, expectOwnCache } from "../forward/call.ts";
import { createFloats } from "../tensor/tensor.ts";
import { expectFields, expectFunction, expectInt, expectSignal } from "../util/arguments.ts";
import { HeadwiseError, tagOf } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import { DISPOSE, expectAlive, expectMade, makeHandle, type Releasable } from "../util/lifetime.ts";
import type { ShardedAttention } from "./attention.ts";
import { type CallOptions, cutOptions, lengthOf, type Share } from "./partition.ts";
import type { Fits } from "./pool.ts";
import type { AttendRequest } from "./shard.ts";

/** The KV cache of a sharded layer. The keys and values of a head are in the memory of the head's shard. */
export interface ShardedCache extends Releasable {
  /** Sequences. */
  readonly batch: number;
  /** Tokens per sequence that fit. */
  readonly maxSeqLen: number;
  /** Tokens per sequence that are stored, not counting calls that have not settled. */
  readonly length: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /**
   * Drops the tokens from `length` on. Appending them again gives the same bits.
   * @throws TypeError or RangeError for a `length` above the current one, and in a cache that keeps only what a window needs
   * for one above 0 that is more than `truncatable` tokens shorter than the sequence has been. HeadwiseError `RELEASED`, or
   * `IN_USE` while a call with the cache has not settled.
   */
  truncate(length: number): void;
  /** @internal */
  readonly id: number;
  /** @internal */
  readonly attention: ShardedAttention;
  /** @internal Adds tokens; `leastLength` is the smallest length above 0 that it can be truncated to afterwards. */
  advance(tokens: number, leastLength: number): void;
  /** @internal The number of calls that have not settled. */
  readonly pending: { calls: number };
}

/** Options of `attendSharded`: those of `attend` with a sharded cache, and a signal. */
export interface AttendShardedOptions extends Omit<AttendOptions, "cache"> {
  /** KV cache with the keys and values of earlier tokens. Those of this call are appended. Default none. */
  readonly cache?: ShardedCache;
  /** Aborts the call: it rejects with the signal's reason at once. The next call waits until the workers are free. */
  readonly signal?: Global<"AbortSignal">;
}

/**
 * Allocates a KV cache of float32 in every shard.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED` or `WORKER_LOST`. Nothing is
 * allocated then.
 * @example
 * import { attendSharded, createShardedAttention, createShardedCache } from "headwise/shards";
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const config = { dModel: 4, numHeads: 2, causal: true };
 * const attention = await createShardedAttention(config, { wq: eye, wk: eye, wv: eye, wo: eye }, { shards: 2 });
 * const cache = await createShardedCache(attention, { maxSeqLen: 100 });
 * await attendSharded(attention, new Float32Array(12).fill(1), { cache });
 * console.log(cache.length); // 3
 * attention.release();
 */
export async function createShardedCache(
  attention: ShardedAttention,
  options: Omit<CacheOptions, "format">,
): Promise<ShardedCache> {
  const where = "createShardedCache";
  expectMade(where, "attention", attention, "createShardedAttention");
  if (options === undefined) throw new TypeError(`${where}: options expected { maxSeqLen }, got undefined`);
  expectFields(where, "options", options, ["maxSeqLen", "batch", "truncatable"]);
  const { maxSeqLen, batch = 1, truncatable } = options;
  expectInt(where, "maxSeqLen", maxSeqLen);
  expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  const kept = checkTruncatable(where, truncatable);
  const { pool, shares } = attention;
  const id = attention.made.caches++;
  const forget = () => pool.post({ kind: "forget", cache: id });
  try {
    const request = { kind: "cache", cache: id, options: { maxSeqLen, batch, truncatable } } as const;
    await attention.queue(() =>
      pool.request(
        where,
        shares.map(() => request),
      ),
    );
  } catch (error) {
    forget();
    throw error;
  }
  let length = 0;
  let least = 0;
  let released = false;
  const pending = { calls: 0 };
  const release = () => {
    if (!released) forget();
    released = true;
  };
  const parts: ShardedCache = {
    batch,
    maxSeqLen,
    id,
    pending,
    attention,
    advance(tokens, leastLength) {
      length += tokens;
      least = leastLength;
    },
    get length() {
      return length;
    },
    get released() {
      return released;
    },
    truncate(to) {
      expectAlive("truncate", "cache", cache);
      if (pending.calls > 0)
        throw new HeadwiseError("IN_USE", "truncate: cache expected one that no attendSharded is using");
      expectInt("truncate", "length", to, 0, length);
      if (to > 0 && to < least)
        throw new RangeError(
          `truncate: length expected 0 or at least ${least}, because truncatable is ${kept}, got ${to}`,
        );
      if (to === 0) least = 0;
      length = to;
    },
    release,
    [DISPOSE]: release,
  };
  const cache = makeHandle<ShardedCache>("ShardedCache", where, parts, ["id", "attention", "pending"], release, false);
  return cache;
}

/**
 * `attend` for a sharded layer. Every shard computes its heads, and the result has the bits of `attend`. Calls on one layer
 * run one after the other, so that the next can be made before the last has settled. x and everything in `options` must not
 * change before the promise settles.
 * @param x Input rows [batch, qLen, dModel].
 * @returns Output rows y [batch, qLen, dModel]: `options.out` where it is given, else a new array.
 * @throws The same errors as `attend`, the signal's reason, RangeError if x or an array in `options` is detached or resized
 * before the promise settles, HeadwiseError `RELEASED` if the attention or the cache is released before the end, and
 * `WORKER_LOST` once a worker has ended by itself. The cache and `out` are then unchanged.
 * @example
 * import { attendSharded, createShardedAttention } from "headwise/shards";
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = await createShardedAttention({ dModel: 4, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const y = await attendSharded(attention, Float32Array.of(1, 2, 3, 4));
 * console.log(y.join(" ")); // 1 2 3 4
 * attention.release();
 */
export async function attendSharded(
  attention: ShardedAttention,
  x: Float32Array,
  options: AttendShardedOptions = {},
): Promise<Float32Array> {
  const where = "attendSharded";
  expectMade(where, "attention", attention, "createShardedAttention");
  expectOptions(where, options, ["signal"]);
  const { signal, cache } = options;
  const given = readOptions(where, options);
  if (signal !== undefined) {
    expectSignal(where, signal);
    expectFunction(where, "signal.addEventListener", signal.addEventListener);
  }
  if (cache !== undefined) expectMade(where, "cache", cache, "createShardedCache");
  const { config, pool, shares, spares } = attention;
  const expectWanted = () => {
    signal?.throwIfAborted();
    expectAlive(where, "attention", attention);
    if (cache) expectAlive(where, "cache", cache);
  };
  const arrays = arraysOf(x, given);
  const lengths = arrays.map(elementsOf);
  const work = async () => {
    expectWanted();
    if (cache) expectOwnCache(where, cache.attention === attention);
    let call: CheckedCall;
    try {
      call = checkCall(where, config, cache, x, given);
    } finally {
      // Earlier calls took their time, and lists in the options may have getters, which can release and detach things.
      expectWanted();
      for (const [i, name] of ARRAYS.entries()) expectKept(where, name, arrays[i], lengths[i]);
    }
    const kept = spares.splice(0);
    const requests = shares.map(
      (share, i): AttendRequest => ({
        kind: "attend",
        where,
        x: copyInto(kept[i], x),
        past: call.past,
        cache: cache?.id,
        options: cutOptions(config, given, call, share),
      }),
    );
    const rows = call.batch * call.qLen;
    const y = call.out ?? createFloats(where, "y", rows * config.dModel);
    const fits: Fits = (reply, i) =>
      isFloats(reply.x, rows * config.dModel) && isFloats(reply.y, rows * lengthOf((shares[i] as Share).columns));
    const replies = await pool.request(where, requests, fits);
    for (const [i, reply] of replies.entries()) spares[i] = reply.x;
    expectWanted();
    expectKept(where, "out", given.out, lengths[ARRAYS.indexOf("out")]);
    for (const [i, { y: columns }] of replies.entries())
      joinColumns(y, config.dModel, columns as Float32Array, shares[i] as Share);
    cache?.advance(call.newKeys, replies[0]?.least ?? 0);
    return given.out ?? y;
  };
  if (cache) cache.pending.calls++;
  const done = attention.queue(work).finally(() => {
    if (cache) cache.pending.calls--;
  });
  return signal ? orAborted(done, signal) : done;
}

/** The options of a call, each read once: getters may give something else when they are read again. */
function readOptions(where: string, options: AttendShardedOptions): CallOptions & GivenMasks {
  const { batch, append, keys, values, kvLengths, align, keep, drop, bias, positions, out } = options;
  return { batch, append, keys, values, kvLengths, align, positions, out, ...readMasks(where, { keep, drop, bias }) };
}

/** The names of the typed arrays of a call. */
const ARRAYS = ["x", "keys", "values", "keep", "drop", "bias", "out"] as const;

function arraysOf(x: unknown, { keys, values, keep, drop, bias, out }: CallOptions): readonly unknown[] {
  return [x, keys, values, keep?.data, drop?.data, bias?.data, out];
}

/** The length of a typed array; undefined for other values. */
function elementsOf(array: unknown): number | undefined {
  return ArrayBuffer.isView(array) ? (array as Float32Array).length : undefined;
}

/** Throws unless an array has the length that it had when the call was made: it may have been detached or resized. */
function expectKept(where: string, name: string, array: unknown, length: number | undefined): void {
  const now = elementsOf(array);
  if (now !== length)
    throw new RangeError(
      `${where}: ${name} expected to keep its ${length} elements until the promise settles, got ${now}`,
    );
}

function isFloats(value: unknown, length: number): boolean {
  return tagOf(value) === "Float32Array" && (value as Float32Array).length === length;
}

/** A copy of x, in `spare` if that has the same length. */
function copyInto(spare: Float32Array | undefined, x: Float32Array): Float32Array {
  if (spare?.length !== x.length) return new Float32Array(x);
  spare.set(x);
  return spare;
}

/** Copies a shard's columns to their place in y. */
function joinColumns(y: Float32Array, dModel: number, part: Float32Array, { columns }: Share): void {
  const width = lengthOf(columns);
  for (let from = 0, to = columns.begin; from < part.length; from += width, to += dModel)
    y.set(part.subarray(from, from + width), to);
}

/** The result of `work`; rejects with the signal's reason once it is aborted. */
function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener("abort", abort);
    if (signal.aborted) abort();
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
