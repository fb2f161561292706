// Workers of shards that run another script, or another version, or post what is not their answer.

import { Worker } from "node:worker_threads";
import { describe, expect, test } from "vitest";
import type { ThreadWorker } from "../../../../src/base/platform/workers.ts";
import type { AttentionConfig } from "../../../../src/entries/index.ts";
import { attendSharded, createShardedAttention, createShardedCache } from "../../../../src/entries/shards.ts";
import { SCRIPT, type ShardMessage, type ShardReply } from "../../../../src/hosts/shards/shard.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { randomWeights } from "../../../support/layers.ts";
import { changedWorker, errorOf, shardSource, small } from "../../../support/shards.ts";
import { fakeWorker, NO_WORKERS } from "../../../support/worker-faults.ts";

const random = createRandom(2026);
const config: AttentionConfig = { ...small, causal: true };
const weights = randomWeights(random, config);
const tokens = floats(random, 9 * small.dModel);

const create = (createWorker: () => ThreadWorker) =>
  createShardedAttention(config, weights, { shards: 2, createWorker });

describe("createWorker", () => {
  test.each(NO_WORKERS)("that returns %s: TypeError, and the workers made before are ended", async (got, make) => {
    const first = fakeWorker();
    let made = 0;
    expect(await errorOf(create(() => (made++ === 0 ? first : make()) as ThreadWorker))).toBe(
      `TypeError createShardedAttention: createWorker expected a function that returns a new Worker, got one that returns ${got}`,
    );
    expect([made, first.ended]).toEqual([2, 1]);
  });

  test("that throws once: the other worker is ended, and there is one shard on the calling thread", async () => {
    const first = fakeWorker();
    let made = 0;
    const attention = await create(() => {
      if (made++ === 0) return first;
      throw new Error("policy");
    });
    expect(attention.shards).toEqual({
      requested: 2,
      used: 1,
      reason: "no worker started (Error: policy): one shard, on the calling thread",
    });
    expect(first.ended).toBe(1);
    expect((await attendSharded(attention, tokens)).length).toBe(tokens.length);
    attention.release();
  });
});

const answer = (script: unknown, message: unknown) => [{ script, id: (message as { id: number }).id, body: {} }];

test.each<[string, (message: unknown) => readonly unknown[], string]>([
  ["null", () => [null], "another script"],
  ["a string", () => ["hello"], "another script"],
  ["an empty object, as those of earlier versions", () => [{}], "another script"],
  ["junk of the right shape", (message) => answer(undefined, message), "another script"],
  [
    "answers of another version",
    (message) => answer("headwise/shards-worker 0.1.0", message),
    "headwise/shards-worker 0.1.0",
  ],
])("workers that post %s are refused, and all are ended", async (_, reply, other) => {
  const workers = [fakeWorker(reply), fakeWorker(reply)];
  const made = [...workers];
  expect(await errorOf(create(() => made.shift() as ThreadWorker))).toBe(
    `ABI_MISMATCH createShardedAttention: createWorker expected a function that returns a new Worker of ${SCRIPT}, got one of ${other}`,
  );
  expect(workers.map(({ ended }) => ended)).toEqual([1, 1]);
});

test("a worker that is started by another version ends with an error", async () => {
  const worker = new Worker(shardSource, { eval: true });
  const failed = new Promise<Error>((resolve) => worker.once("error", resolve));
  worker.postMessage({ kind: "start" });
  expect((await failed).message).toBe(`${SCRIPT} was started by another script`);
});

/** What an attention gives whose second worker posts these messages instead of its answer to a call. */
async function callWith(change: (message: ShardMessage<ShardReply>) => readonly unknown[]): Promise<string> {
  const workers: Worker[] = [];
  const attention = await create(() => {
    const made = changedWorker((message, count) =>
      workers.indexOf(made.worker) === 1 && count === 3 ? change(message as ShardMessage<ShardReply>) : [message],
    );
    workers.push(made.worker);
    return made;
  });
  const ended = Promise.all(workers.map((worker) => new Promise((resolve) => worker.once("exit", resolve))));
  const cache = await createShardedCache(attention, { maxSeqLen: 9 });
  const out = new Float32Array(tokens.length);
  const text = await errorOf(attendSharded(attention, tokens, { cache, out }));
  // A message that comes after the answer is noticed by the next call at the latest.
  const next = await errorOf(attendSharded(attention, tokens));
  if (text === "no error") attention.release();
  else expect([next.slice(0, 11), cache.length, out.every((y) => y === 0)]).toEqual(["WORKER_LOST", 0, true]);
  await ended;
  return text === "no error" ? next : text;
}

const STRAY =
  /^WORKER_LOST attendSharded: a worker was lost \(it posted what cannot be its answer\), and with it its heads/;

test.each<[string, (message: ShardMessage<ShardReply>) => readonly unknown[]]>([
  ["null", () => [null]],
  ["a string", () => ["hello"]],
  ["an object", () => [{}]],
  ["no body", (message) => [{ ...message, body: null }]],
  ["no y", (message) => [{ ...message, body: { x: message.body.x } }]],
  ["no x", (message) => [{ ...message, body: { y: message.body.y } }]],
  ["a shorter y", (message) => [{ ...message, body: { ...message.body, y: message.body.y?.slice(1) } }]],
  ["y as a list", (message) => [{ ...message, body: { ...message.body, y: Array.from(message.body.y ?? []) } }]],
  ["the answer to another call", (message) => [{ ...message, id: message.id - 1 }]],
  ["an answer of another version", (message) => [{ ...message, script: "headwise/shards-worker 0.1.0" }]],
  ["its answer twice", (message) => [message, message]],
])("a worker that posts %s ends the call and the attention; cache and out are unchanged", async (_, change) => {
  expect(await callWith(change)).toMatch(STRAY);
});

test("the same workers with their own messages work", async () => {
  expect(await callWith((message) => [message])).toBe("no error");
});
