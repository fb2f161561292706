// Layers whose heads are shared among workers: started, their caches, and calls on them.

import { AUTO_MOST, endWorker, makeWorkers, type ThreadHost, type ThreadWorker } from "../../base/platform/workers.ts";
import { createFloats, orRefuse } from "../../base/tensor/tensor.ts";
import {
  expectFlag,
  expectFunction,
  expectInt,
  expectSignal,
  type Global,
  readFields,
} from "../../base/util/arguments.ts";
import { HeadwiseError, tagOf } from "../../base/util/errors.ts";
import { expectAlive, expectMade, type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { reasonOf } from "../../base/util/strings.ts";
import { type AttentionConfig, type CheckedConfig, checkConfig } from "../../layers/attention/config.ts";
import {
  type AttentionWeights,
  type CheckedWeights,
  checkWeightOptions,
  checkWeights,
  expectFormatsLoaded,
  WEIGHT_OPTIONS,
  type WeightOptions,
} from "../../layers/attention/weights.ts";
import {
  ATTEND_OPTIONS,
  type AttendOptions,
  arraysOf,
  checkCall,
  clearPadding,
  expectKeptArrays,
  expectOwnCache,
  readCall,
} from "../../layers/pass/call.ts";
import { type CacheOptions, checkCacheOptions, checkTruncatable } from "../../layers/state/kv-cache.ts";
import {
  type Build,
  type Builds,
  type LoadOptions,
  type Modules,
  type QuantizedKernels,
  startChosen,
} from "../../wasm/modules.ts";
import { arraysIn, cutConfig, cutOptions, cutWeights, lengthOf, outputsOf, type Share, sharesOf } from "./partition.ts";
import { createShardPool, type ShardPool } from "./pool.ts";
import { type AttendRequest, failureOf, namedError, type StartRequest } from "./shard.ts";

/** One attention layer whose heads are divided among workers. Each worker has memory of its own. */
export interface ShardedAttention extends Releasable, Handle {
  /** The configuration with every default filled in. */
  readonly config: CheckedConfig;
  /** The build that runs. */
  readonly build: Build;
  /** Why this build runs, in words. */
  readonly reason: string;
  /** The shards of the layer. */
  readonly shards: Shards;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal */
  readonly pool: ShardPool;
  /** @internal */
  readonly shares: readonly Share[];
  /** @internal Arrays for copies of x, one for each shard, of the length of the last x. */
  readonly spares: (Float32Array | undefined)[];
  /** @internal The number of caches created so far. */
  readonly caches: { made: number };
  /** @internal Runs `work` after all earlier work has settled. */
  queue<T>(work: () => Promise<T>): Promise<T>;
}

/** Options of `createShardedAttention`. */
export interface ShardOptions extends WeightOptions {
  /** Shards, 1 to 64, at most one per key-value head. Default "auto": one per processor, up to 8. */
  readonly shards?: number | "auto";
  /** Use the build "simd", which gives the same bits on every engine. Default false: the faster build on this engine. */
  readonly deterministic?: boolean;
  /** Kernels for weights other than float32: `quantized` of `headwise/quantized`, or your own modules. Default none. */
  readonly quantized?: QuantizedKernels;
  /**
   * Makes a worker that runs `headwise/shards-worker` of this version, a new one at each call, for pages whose content
   * security policy forbids workers made from inlined source. Default a worker made from inlined source.
   */
  readonly createWorker?: () => ThreadWorker;
}

const MOST_SHARDS = 64;

/** Milliseconds in which all workers must start and pack their weights. A phone packs a large layer in a second. */
const START_MS = 30_000;

/** `createShardedAttention` for the given builds; `hostFor` finds the workers of the host, or uses the caller's. */
export async function createSharded(
  builds: Builds,
  hostFor: (createWorker: ShardOptions["createWorker"]) => ThreadHost,
  config: AttentionConfig,
  weights: AttentionWeights,
  options: ShardOptions,
  startMs: number = START_MS,
): Promise<ShardedAttention> {
  const where = "createShardedAttention";
  const checked = checkConfig(where, config);
  const read = readFields(where, "options", options, OPTIONS);
  const { requested, choice, createWorker } = checkOptions(where, read);
  const quantized = choice.quantized !== undefined;
  const given = checkWeights(where, checked, weights, checkWeightOptions(where, "options.", read), quantized);
  expectFormatsLoaded(where, quantized, given.formats, `${where}(config, weights, `);
  const cut = cutterOf(where, checked, given);
  const { instance, reason } = await startChosen(builds, choice).catch((cause) => {
    throw namedError(where, failureOf(cause), { cause });
  });
  const { modules, relaxed } = instance;
  const host = hostFor(createWorker);
  try {
    const cutShares = (shares: readonly Share[]) => cut(modules, shares);
    const started = await startShards(where, checked, requested, host, startMs, cutShares);
    return makeSharded(checked, relaxed ? "relaxed" : "simd", reason, started);
  } finally {
    host.close?.();
  }
}

/** A function of its own: variables that its inner functions share live as long as the handle, so the weights are none. */
function makeSharded(
  config: CheckedConfig,
  build: Build,
  reason: string,
  { pool, shares, shards }: StartedShards,
): ShardedAttention {
  const spares: (Float32Array | undefined)[] = [];
  let before: Promise<void> = Promise.resolve();
  const settled = () => {};
  const free = () => {
    spares.length = 0;
    pool.end((caller) => new HeadwiseError("RELEASED", `${caller}: attention was released`));
  };
  const parts = {
    config,
    build,
    reason,
    shards,
    pool,
    shares,
    spares,
    caches: { made: 0 },
    queue<T>(work: () => Promise<T>) {
      const done = before.then(work);
      // Without the result, which would live as long as the attention.
      before = done.then(settled, settled);
      return done;
    },
  };
  const internal = ["pool", "shares", "spares", "caches"] as const;
  return makeHandle<ShardedAttention>("ShardedAttention", "createShardedAttention", parts, internal, free);
}

const OPTIONS = ["shards", "deterministic", "quantized", "createWorker", ...WEIGHT_OPTIONS] as const;

function checkOptions(
  where: string,
  { shards: requested = "auto", createWorker, deterministic, quantized }: ShardOptions,
): { requested: number | "auto"; choice: LoadOptions; createWorker: ShardOptions["createWorker"] } {
  if (requested !== "auto") expectInt(where, "shards", requested, 1, MOST_SHARDS);
  if (createWorker !== undefined) expectFunction(where, "createWorker", createWorker);
  const choice = { deterministic: expectFlag(where, "deterministic", deterministic), quantized };
  return { requested, choice, createWorker };
}

/** Options of `attendSharded`: those of `attend` with a sharded cache, and a signal. */
export interface AttendShardedOptions extends Omit<AttendOptions, "cache" | "path"> {
  /** KV cache with the keys and values of earlier tokens. Those of this call are appended. Default none. */
  readonly cache?: ShardedCache;
  /** Aborts the call: it rejects with the signal's reason at once. The next call waits until the workers are free. */
  readonly signal?: Global<"AbortSignal">;
}

/** Fields of AttendShardedOptions. */
const SHARDED_OPTIONS = /* @__PURE__ */ (() =>
  ["signal", ...ATTEND_OPTIONS.filter((name) => name !== "path")] as const)();

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
  const read = readCall(where, x, options, SHARDED_OPTIONS);
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
    const replies = await pool.request(where, requests, ({ x, y }, i) => {
      return isFloats(x, rows * config.dModel) && isFloats(y, rows * lengthOf((shares[i] as Share).columns));
    });
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

// Starts the shards of a layer: how many, where they run, and what each gets.

/** The shards of a layer. */
export interface Shards {
  /** The option `shards` of `createShardedAttention`, or its default. */
  readonly requested: number | "auto";
  /** How many shards there are. */
  readonly used: number;
  /** Why this many, in words. */
  readonly reason: string;
}

/** Shards that hold their weights. */
interface StartedShards {
  readonly shards: Shards;
  readonly pool: ShardPool;
  readonly shares: readonly Share[];
}

/** Cuts a layer into the first requests of its shards. */
type Cutter = (modules: Modules, shares: readonly Share[]) => StartRequest[];

/** The cutter of a checked layer. It throws if an array of the weights has been detached or resized since. */
export function cutterOf(where: string, config: CheckedConfig, weights: CheckedWeights): Cutter {
  const sizes = () => arraysIn(weights).map(({ byteLength }) => byteLength);
  const before = sizes();
  return (modules, shares) => {
    if (sizes().some((size, i) => size !== before[i]))
      throw new RangeError(
        `${where}: weights expected to keep their arrays until the promise settles, got one that was detached or resized`,
      );
    const peers = connect(shares.length);
    return orRefuse(where, "a copy of the weights", () =>
      shares.map((share, i) => ({
        kind: "start",
        where,
        modules,
        config: cutConfig(config, share),
        ...cutWeights(config, weights, share),
        columns: lengthOf(share.columns),
        outputs: shares.map((one) => outputsOf(config, one)),
        peers: peers[i] as (MessagePort | undefined)[],
      })),
    );
  };
}

/** Starts workers of the host, or one shard on the calling thread if there are none or they do not start. */
async function startShards(
  where: string,
  config: CheckedConfig,
  requested: number | "auto",
  host: ThreadHost,
  startMs: number,
  cut: (shares: readonly Share[]) => StartRequest[],
): Promise<StartedShards> {
  const start = async (reason: string, workers?: readonly ThreadWorker[]): Promise<StartedShards> => {
    const pool = createShardPool(workers);
    try {
      const shares = sharesOf(config, workers?.length ?? 1);
      await within(startMs, pool.request(where, cut(shares)));
      return { shards: { requested, used: shares.length, reason }, pool, shares };
    } catch (error) {
      pool.end(() => error as Error);
      throw error;
    }
  };
  const startAlone = (why: string) => start(`no worker started (${why}): one shard, on the calling thread`);
  const { count, reason } = planShards(requested, config, host);
  if (!host.createWorker) return start(reason);
  const { workers, failed } = makeWorkers(where, count, host.createWorker);
  if (failed[0] !== undefined) {
    for (const worker of workers) endWorker(worker);
    return startAlone(failed[0]);
  }
  return start(reason, workers).catch((error) => {
    // An error that a worker reported, such as a lack of memory, would occur on this thread, too. If no worker answered,
    // this thread does the work.
    if (error instanceof HeadwiseError && error.code !== "WORKER_LOST") throw error;
    return startAlone(reasonOf(error instanceof HeadwiseError ? error.cause : error));
  });
}

/** The number of shards, and the reason for it. */
function planShards(
  requested: number | "auto",
  { numKvHeads, qkNorm }: CheckedConfig,
  { processors, createWorker }: ThreadHost,
): { readonly count: number; readonly reason: string } {
  if (!createWorker) return { count: 1, reason: "this host has no workers: one shard, on the calling thread" };
  if (requested === 1) return { count: 1, reason: "one shard was asked for" };
  if (qkNorm?.kind === "full") return { count: 1, reason: 'qkNorm of kind "full" takes all heads together' };
  const heads = `a shard has whole key-value heads, and there ${numKvHeads === 1 ? "is 1" : `are ${numKvHeads}`}`;
  if (requested !== "auto" && requested <= numKvHeads) return { count: requested, reason: "as many as were asked for" };
  if (requested !== "auto") return { count: numKvHeads, reason: heads };
  const most = Math.max(1, Math.min(AUTO_MOST, processors, numKvHeads));
  // The shard with the most heads finishes last: the fewest shards with the same maximum of heads.
  const count = Math.ceil(numKvHeads / Math.ceil(numKvHeads / most));
  return { count, reason: `"auto" on ${processors} processors, where ${heads}` };
}

/** A message channel between every two of `count` shards: the ports of each to the others, in their order. */
function connect(count: number): (MessagePort | undefined)[][] {
  const peers = Array.from({ length: count }, () => Array<MessagePort | undefined>(count).fill(undefined));
  for (const [i, mine] of peers.entries())
    for (const [j, theirs] of peers.slice(0, i).entries()) {
      const { port1, port2 } = new MessageChannel();
      mine[j] = port1;
      theirs[i] = port2;
    }
  return peers;
}

/** The result of `work`; rejects if it takes longer than `ms`. */
function within<T>(ms: number, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`it was not ready within ${ms} ms`)), ms);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
