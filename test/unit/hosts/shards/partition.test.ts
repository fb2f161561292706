import { Worker } from "node:worker_threads";
import { describe, expect, test } from "vitest";
import type { AttentionConfig } from "../../../../src/entries/index.ts";
import { createSharded } from "../../../../src/hosts/shards/attention.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { randomWeights } from "../../../support/layers.ts";
import { shardBuilds, shardSource, small, withShards } from "../../../support/shards.ts";

const random = createRandom(2026);

/** A layer of three kv heads. */
const config: AttentionConfig = { ...small, causal: true };
const weights = randomWeights(random, config, { biases: true });

describe("the number of shards", () => {
  test.each([
    [1, 1, "one shard was asked for"],
    [2, 2, "as many as were asked for"],
    [64, 3, "a shard has whole key-value heads, and there are 3"],
  ])("%i asked for, %i used", (requested, used, reason) =>
    withShards(config, weights, { shards: requested }, async ({ shards }) => {
      expect(shards).toEqual({ requested, used, reason });
    }),
  );

  test("a norm over all heads makes one shard", () => {
    const full: AttentionConfig = { ...config, qkNorm: { kind: "full" } };
    return withShards(full, randomWeights(random, full), { shards: 2 }, async ({ shards }) => {
      expect(shards).toEqual({ requested: 2, used: 1, reason: 'qkNorm of kind "full" takes all heads together' });
    });
  });

  test.each([
    [2, 2],
    [3, 3],
    [5, 4],
    [7, 4],
    [16, 8],
  ])('"auto" on %i processors makes no more of 8 kv heads than help: %i', async (processors, used) => {
    const eight: AttentionConfig = { dModel: 16, numHeads: 8 };
    const hostFor = () => ({
      ...{ processors, sharing: { possible: false, reason: "" } },
      createWorker: () => new Worker(shardSource, { eval: true }),
    });
    const attention = await createSharded(shardBuilds, hostFor, eight, randomWeights(random, eight), {});
    attention.release();
    expect(attention.shards.requested).toBe("auto");
    expect(attention.shards.used).toBe(used);
  });
});
