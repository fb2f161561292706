import { readFileSync } from "node:fs";
import { Worker } from "node:worker_threads";
import type { ThreadWorker } from "../../src/base/platform/workers.ts";
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

/** A shard's worker of Node's, from whose messages `change` makes those that arrive here. */
export function changedWorker(
  change: (message: unknown, count: number) => readonly unknown[],
): ThreadWorker & { readonly worker: Worker } {
  const worker = new Worker(shardSource, { eval: true });
  let count = 0;
  const { postMessage } = worker;
  return {
    worker,
    postMessage: postMessage.bind(worker),
    terminate: () => worker.terminate(),
    ...{ ref: () => worker.ref(), unref: () => worker.unref() },
    on(event: string, listener: (value: unknown) => void) {
      worker.on(event, (value) => {
        for (const each of event === "message" ? change(value, ++count) : [value]) listener(each);
      });
    },
  } as ThreadWorker & { readonly worker: Worker };
}

/** The code and text of the error that `work` rejects with. */
export const errorOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "no error",
    (error: Error & { code?: string }) => `${error.code ?? error.name} ${error.message}`,
  );
