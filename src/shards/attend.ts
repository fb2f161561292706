import { type AttendOptions, CALL_OPTIONS, checkCall, clearPadding, expectOwnCache } from "../forward/call.ts";
import { arraysOf, expectKeptArrays, readCall } from "../forward/given-call.ts";
import { createFloats, orRefuse } from "../tensor/tensor.ts";
import { expectFunction, expectSignal } from "../util/arguments.ts";
import { tagOf } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import { expectAlive, expectMade } from "../util/lifetime.ts";
import type { ShardedAttention } from "./attention.ts";
import type { ShardedCache } from "./cache.ts";
import type { AttendRequest } from "./messages.ts";
import { cutOptions, lengthOf, type Share } from "./partition.ts";
import type { Fits } from "./pool.ts";

/** Options of `attendSharded`: those of `attend` with a sharded cache, and a signal. */
export interface AttendShardedOptions extends Omit<AttendOptions, "cache" | "path"> {
  /** KV cache with the keys and values of earlier tokens. Those of this call are appended. Default none. */
  readonly cache?: ShardedCache;
  /** Aborts the call: it rejects with the signal's reason at once. The next call waits until the workers are free. */
  readonly signal?: Global<"AbortSignal">;
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
  const read = readCall(where, x, options, ["signal", ...CALL_OPTIONS]);
  const { signal, cache, ...given } = read.options;
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
  const expectKept = expectKeptArrays(where, arraysOf(read));
  const expectOutKept = expectKeptArrays(where, { out: given.out });
  const work = async () => {
    // Earlier calls took their time.
    expectWanted();
    expectKept();
    if (cache) expectOwnCache(where, cache.attention === attention);
    const call = checkCall(where, config, cache, read.x, given);
    const rows = call.batch * call.qLen;
    const y = call.out ?? createFloats(where, "y", rows * config.dModel);
    const kept = spares.splice(0);
    const requests = orRefuse(where, "a copy of x and the options for each shard", () =>
      shares.map(
        (share, i): AttendRequest => ({
          kind: "attend",
          where,
          x: copyInto(kept[i], call.x),
          past: call.past,
          cache: cache?.id,
          options: cutOptions(config, given, call, share),
        }),
      ),
    );
    const fits: Fits = (reply, i) =>
      isFloats(reply.x, rows * config.dModel) && isFloats(reply.y, rows * lengthOf((shares[i] as Share).columns));
    const replies = await pool.request(where, requests, fits);
    for (const [i, reply] of replies.entries()) spares[i] = reply.x;
    expectWanted();
    expectOutKept();
    for (const [i, { y: columns }] of replies.entries())
      joinColumns(y, config.dModel, columns as Float32Array, shares[i] as Share);
    clearPadding(call, y, config.dModel);
    cache?.advance(call.newKeys, replies[0]?.least ?? 0);
    return read.out ?? y;
  };
  if (cache) cache.pending.calls++;
  const done = attention.queue(work).finally(() => {
    if (cache) cache.pending.calls--;
  });
  return signal ? orAborted(done, signal) : done;
}

function isFloats(value: unknown, length: number): boolean {
  return tagOf(value) === "Float32Array" && (value as Float32Array).length === length;
}

/** A copy of x, in `spare` if that has the same length. */
function copyInto(spare: Float32Array | undefined, x: Float32Array): Float32Array {
  if (spare?.length !== x.length) return x.slice();
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
