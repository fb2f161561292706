import { type CheckedWeights, checkWeights } from "../attention/check-weights.ts";
import { type AttentionConfig, type CheckedConfig, checkConfig } from "../attention/config.ts";
import {
  checkWeightOptions,
  expectFormatsLoaded,
  WEIGHT_OPTIONS,
  type WeightOptions,
} from "../attention/weight-options.ts";
import type { AttentionWeights } from "../attention/weights.ts";
import { AUTO_MOST, endWorker, makeWorkers, type ThreadHost, type ThreadWorker } from "../platform/workers.ts";
import { expectFields, expectFlag, expectFunction, expectInt, HeadwiseError } from "../util/errors.ts";
import { DISPOSE, makeHandle, type Releasable } from "../util/lifetime.ts";
import { reasonOf } from "../util/reason.ts";
import type { Modules } from "../wasm/instantiate.ts";
import { type Build, type Builds, type Choice, type QuantizedKernels, startChosen } from "../wasm/select-build.ts";
import { failureOf, namedError } from "./failure.ts";
import { arraysIn, cutConfig, cutWeights, lengthOf, outputsOf, type Share, sharesOf } from "./partition.ts";
import { createShardPool, type ShardPool } from "./pool.ts";
import type { StartRequest } from "./shard.ts";

/** The shards of a layer. */
export interface Shards {
  /** The option `shards` of `createShardedAttention`, or its default. */
  readonly requested: number | "auto";
  /** How many shards there are. */
  readonly used: number;
  /** Why this many, in words. */
  readonly reason: string;
}

/** One attention layer whose heads are divided among workers. Each worker has memory of its own. */
export interface ShardedAttention extends Releasable {
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
  readonly made: { caches: number };
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
  const { requested, choice, createWorker } = checkOptions(where, options);
  const quantized = choice.quantized !== undefined;
  const given = checkWeights(where, checked, weights, checkWeightOptions(where, "options.", options), quantized);
  expectFormatsLoaded(where, quantized, given.formats, `${where}(config, weights, `);
  const sizes = sizesIn(given);
  const { instance, reason } = await startChosen(builds, choice).catch((cause) => {
    throw namedError(where, failureOf(cause), { cause });
  });
  const prepare = (count: number) => {
    if (sizesIn(given).some((size, i) => size !== sizes[i]))
      throw new RangeError(
        `${where}: weights expected to keep their arrays until the promise settles, got one that was detached or resized`,
      );
    const shares = sharesOf(checked, count);
    return { shares, requests: startRequests(where, instance.modules, checked, given, shares) };
  };
  const start = async ({ shares, requests }: ReturnType<typeof prepare>, workers?: readonly ThreadWorker[]) => {
    const pool = createShardPool(workers);
    try {
      await within(startMs, pool.request(where, requests));
      return { shares, pool };
    } catch (error) {
      pool.end(() => error as Error);
      throw error;
    }
  };

  const host = hostFor(createWorker);
  const plan = planShards(requested, checked, host);
  let shards: Shards = { requested, used: plan.count, reason: plan.reason };
  const startAlone = (why: string) => {
    shards = { requested, used: 1, reason: `no worker started (${why}): one shard, on the calling thread` };
    return start(prepare(1));
  };
  const startWorkers = async (createWorker: () => ThreadWorker) => {
    const { workers, failed } = makeWorkers(where, plan.count, createWorker);
    let prepared: ReturnType<typeof prepare> | undefined;
    try {
      if (failed[0] !== undefined) return startAlone(failed[0]);
      prepared = prepare(workers.length);
    } finally {
      if (!prepared) for (const worker of workers) endWorker(worker);
    }
    return start(prepared, workers).catch((error) => {
      // An error that a worker reported, such as a lack of memory, would occur on this thread, too. If no worker
      // answered, this thread does the work.
      if (error instanceof HeadwiseError && error.code !== "WORKER_LOST") throw error;
      return startAlone(reasonOf(error instanceof HeadwiseError ? error.cause : error));
    });
  };
  let started: Awaited<ReturnType<typeof start>>;
  try {
    started = host.createWorker ? await startWorkers(host.createWorker) : await start(prepare(1));
  } finally {
    host.close?.();
  }
  const { pool, shares } = started;
  let released = false;
  let before: Promise<unknown> = Promise.resolve();
  const release = () => {
    released = true;
    pool.end((caller) => new HeadwiseError("RELEASED", `${caller}: attention was released`));
  };
  const parts: ShardedAttention = {
    config: checked,
    build: instance.relaxed ? "relaxed" : "simd",
    reason,
    shards,
    pool,
    shares,
    spares: [],
    made: { caches: 0 },
    queue(work) {
      const done = before.then(work);
      before = done.catch(() => {});
      return done;
    },
    get released() {
      return released;
    },
    release,
    [DISPOSE]: release,
  };
  return makeHandle<ShardedAttention>("ShardedAttention", where, parts, ["pool", "shares", "spares", "made"]);
}

/** The bytes of each array in the weights; 0 where it was detached. */
const sizesIn = (weights: CheckedWeights): number[] => arraysIn(weights).map(({ byteLength }) => byteLength);

function checkOptions(
  where: string,
  options: ShardOptions,
): { requested: number | "auto"; choice: Choice; createWorker: ShardOptions["createWorker"] } {
  expectFields(where, "options", options, ["shards", "deterministic", "quantized", "createWorker", ...WEIGHT_OPTIONS]);
  const { shards: requested = "auto", createWorker } = options;
  if (requested !== "auto") expectInt(where, "shards", requested, 1, MOST_SHARDS);
  if (createWorker !== undefined) expectFunction(where, "createWorker", createWorker);
  return {
    requested,
    choice: {
      deterministic: expectFlag(where, "deterministic", options.deterministic),
      quantized: options.quantized,
    },
    createWorker,
  };
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

/** The first request of each shard. Every two shards have a message channel of their own. */
function startRequests(
  where: string,
  modules: Modules,
  config: CheckedConfig,
  weights: CheckedWeights,
  shares: readonly Share[],
): StartRequest[] {
  const peers: (MessagePort | undefined)[][] = shares.map(() => shares.map(() => undefined));
  for (const [i, mine] of peers.entries())
    for (const [j, theirs] of peers.slice(0, i).entries()) {
      const { port1, port2 } = new MessageChannel();
      mine[j] = port1;
      theirs[i] = port2;
    }
  return shares.map((share, i) => ({
    kind: "start",
    where,
    modules,
    config: cutConfig(config, share),
    ...cutWeights(config, weights, share),
    columns: lengthOf(share.columns),
    outputs: shares.map((one) => outputsOf(config, one)),
    peers: peers[i] as (MessagePort | undefined)[],
  }));
}

/** The result of `work`; rejects if it takes longer than `ms`. */
function within<T>(ms: number, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`it was not ready within ${ms} ms`)), ms);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
