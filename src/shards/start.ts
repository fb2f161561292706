// Starts the shards of a layer: how many, where they run, and what each gets.

import type { CheckedWeights } from "../attention/check-weights.ts";
import type { CheckedConfig } from "../attention/config.ts";
import { AUTO_MOST, endWorker, makeWorkers, type ThreadHost, type ThreadWorker } from "../platform/workers.ts";
import { orRefuse } from "../tensor/tensor.ts";
import { HeadwiseError } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";
import type { Modules } from "../wasm/instantiate.ts";
import type { StartRequest } from "./messages.ts";
import { arraysIn, cutConfig, cutWeights, lengthOf, outputsOf, type Share, sharesOf } from "./partition.ts";
import { createShardPool, type ShardPool } from "./pool.ts";

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
export interface StartedShards {
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
export async function startShards(
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
