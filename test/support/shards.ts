import { readFileSync } from "node:fs";
import type { AttentionConfig, AttentionWeights } from "../../src/entries/index.ts";
import { createShardedAttention, type ShardedAttention, type ShardOptions } from "../../src/entries/shards.ts";
import { wasmOf } from "./modules.ts";

/** The source of a shard's worker as it ships. */
export const shardSource: string = readFileSync(new URL("../../build/shards-worker.txt", import.meta.url), "utf8");

export const shardBuilds = { simd: wasmOf("simd"), relaxed: wasmOf("relaxed") };

/** A layer of three kv heads. */
export const small = { dModel: 24, numHeads: 6, numKvHeads: 3, headDim: 8 } as const;

/** Runs `use` with a sharded attention, and releases it. */
export async function withShards(
  config: AttentionConfig,
  weights: AttentionWeights,
  options: ShardOptions,
  use: (attention: ShardedAttention) => Promise<void>,
): Promise<void> {
  const attention = await createShardedAttention(config, weights, options);
  try {
    await use(attention);
  } finally {
    attention.release();
  }
}
