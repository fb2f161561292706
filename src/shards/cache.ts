import { type CacheOptions, checkCacheOptions, checkTruncatable } from "../cache/kv-cache.ts";
import { expectInt, readFields } from "../util/arguments.ts";
import { HeadwiseError } from "../util/errors.ts";
import { expectAlive, expectMade, type Handle, makeHandle, type Releasable } from "../util/lifetime.ts";
import type { ShardedAttention } from "./attention.ts";

/** The KV cache of a sharded layer. The keys and values of a head are in the memory of the head's shard. */
export interface ShardedCache extends Releasable, Handle {
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
  const given = readFields(where, "options", options, ["maxSeqLen", "batch", "truncatable"]);
  const { maxSeqLen, batch } = checkCacheOptions(where, attention.config, given);
  const checked = { maxSeqLen, batch, truncatable: checkTruncatable(where, given.truncatable) };
  const { pool, shares } = attention;
  const id = attention.caches.made++;
  const request = { kind: "cache", cache: id, options: checked } as const;
  const requests = shares.map(() => request);
  try {
    await attention.queue(() => pool.request(where, requests));
  } catch (error) {
    pool.post({ kind: "forget", cache: id });
    throw error;
  }
  return makeShardedCache(attention, id, checked);
}

function makeShardedCache(
  attention: ShardedAttention,
  id: number,
  { maxSeqLen, batch, truncatable }: Required<Omit<CacheOptions, "format">>,
): ShardedCache {
  const { pool } = attention;
  let length = 0;
  let least = 0;
  let released = false;
  const pending = { calls: 0 };
  const free = () => {
    released = true;
    pool.post({ kind: "forget", cache: id });
  };
  const parts = {
    batch,
    maxSeqLen,
    id,
    pending,
    attention,
    advance(tokens: number, leastLength: number) {
      length += tokens;
      least = leastLength;
    },
    get length() {
      return length;
    },
    truncate(to: number) {
      // Not of the handle: no function may refer to it, or it could not be collected.
      expectAlive("truncate", "cache", { released });
      if (pending.calls > 0)
        throw new HeadwiseError("IN_USE", "truncate: cache expected one that no attendSharded is using");
      expectInt("truncate", "length", to, 0, length);
      if (to > 0 && to < least)
        throw new RangeError(
          `truncate: length expected 0 or at least ${least}, because truncatable is ${truncatable}, got ${to}`,
        );
      if (to === 0) least = 0;
      length = to;
    },
  };
  const internal = ["id", "attention", "pending"] as const;
  return makeHandle<ShardedCache>("ShardedCache", "createShardedCache", parts, internal, free);
}
