/**
 * Layers whose heads are divided among workers that share no memory, for hosts where memory cannot be shared. The kernels and
 * the source of the workers are inlined.
 * @packageDocumentation
 */

import relaxed from "../../build/relaxed.wasm";
import shardSource from "../../build/shards-worker.txt";
import simd from "../../build/simd.wasm";
import { findHost, type Scope } from "../base/platform/workers.ts";
import { createSharded, type ShardedAttention, type ShardOptions } from "../hosts/shards/attention.ts";
import type { AttentionConfig } from "../layers/attention/config.ts";
import type { AttentionWeights } from "../layers/attention/weights.ts";

export type { ThreadWorker } from "../base/platform/workers.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { ShardedAttention, ShardOptions, Shards } from "../hosts/shards/attention.ts";
export {
  type AttendShardedOptions,
  attendSharded,
  createShardedCache,
  type ShardedCache,
} from "../hosts/shards/attention.ts";
export type { AttentionConfig, CheckedConfig } from "../layers/attention/config.ts";
export type { AttentionWeights } from "../layers/attention/weights.ts";
export type { CacheOptions } from "../layers/state/kv-cache.ts";

/**
 * Starts workers and gives each the weights of some heads. On hosts without workers, and if they do not start, there is one
 * shard on the calling thread, for the reason in `shards.reason`.
 * @throws The errors of `loadKernels` and `createAttention`. `ABI_MISMATCH` also if `createWorker` makes workers that run
 * another version of `headwise/shards-worker`, or another script; RangeError if an array of the weights is detached or
 * resized before the promise settles.
 * @example
 * import { createShardedAttention } from "headwise/shards";
 * const matrix = { data: new Float32Array(64 * 64), shape: [64, 64] };
 * const weights = { wq: matrix, wk: matrix, wv: matrix, wo: matrix };
 * const attention = await createShardedAttention({ dModel: 64, numHeads: 4 }, weights, { shards: 2 });
 * console.log(attention.shards); // { requested: 2, used: 2, reason: 'as many as were asked for' }
 * attention.release();
 */
export async function createShardedAttention(
  config: AttentionConfig,
  weights: AttentionWeights,
  options: ShardOptions = {},
): Promise<ShardedAttention> {
  const hostFor = (createWorker: ShardOptions["createWorker"]) =>
    findHost(globalThis as Scope, shardSource, createWorker);
  return createSharded({ simd, relaxed }, hostFor, config, weights, options);
}
