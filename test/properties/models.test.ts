// What holds for whole decoders: the bits of logits do not depend on how tokens are cut into calls, on other sessions, or on
// threads; plans are exact; and a call that fails changes nothing.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../src/entries/core.ts";
import type { Model } from "../../src/models/blocks/model.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession, type Session, type SessionOptions } from "../../src/models/decoder/session.ts";
import { generate } from "../../src/models/generate/generate.ts";
import { type GenerationJob, generateMany } from "../../src/models/generate/generate-many.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { planModel } from "../../src/models/load/plan-model.ts";
import { kernelsOf, shippedBuilds, threadedKernels } from "../support/layers.ts";
import { TINY, type TinyName, tinyFolder } from "../support/tiny-models.ts";

const NAMES = Object.keys(TINY) as TinyName[];
const prompt = Array.from({ length: 150 }, (_, i) => (i * 29 + 5) % 67);

/** The tokens of a generation. */
async function run(session: Session, ids: readonly number[], options: Parameters<typeof generate>[2]) {
  const tokens: number[] = [];
  for await (const { id } of generate(session, ids, options)) tokens.push(id);
  return tokens;
}

describe.each(shippedBuilds)("whole decoders in the %s build", (build) => {
  let kernels: Kernels;
  const models = new Map<TinyName, Model>();
  beforeAll(async () => {
    kernels = await kernelsOf(build);
    for (const name of NAMES) models.set(name, await loadModel(kernels, tinyFolder(TINY[name])));
  });
  afterAll(() => kernels.release());
  const modelOf = (name: TinyName) => models.get(name) as Model;
  const open = (name: TinyName, options: SessionOptions = {}) =>
    createSession(modelOf(name), { maxSeqLen: 300, ...options });

  test.each(NAMES)("%s: a prompt at once, in chunks and token by token gives the same bits", (name) => {
    const [whole, chunks, single] = [open(name), open(name), open(name)];
    const all = forward(whole, prompt, { rows: "all" }).logits;
    const width = modelOf(name).vocabSize;
    for (let at = 0; at < prompt.length; at += 37) {
      const part = forward(chunks, prompt.slice(at, at + 37), { rows: "all" }).logits;
      expect(part).toEqual(all.subarray(at * width, at * width + part.length));
    }
    for (const [at, id] of prompt.entries())
      expect(forward(single, [id]).logits, `token ${at}`).toEqual(all.subarray(at * width, (at + 1) * width));
    expect(all.every(Number.isFinite)).toBe(true);
    for (const session of [whole, chunks, single]) session.release();
  });

  test.each(NAMES)("%s: truncating and reading again gives the same bits", (name) => {
    using session = open(name);
    const first = forward(session, prompt).logits;
    session.truncate(100);
    expect(forward(session, prompt.slice(100)).logits).toEqual(first);
    expect(session.length).toBe(prompt.length);
  });

  test("the largest logits of rows are those of all logits, the lower id of two first", () => {
    const [all, few] = [open("phi"), open("phi")];
    const { logits } = forward(all, prompt, { rows: "all" });
    const top = forward(few, prompt, { rows: "all", top: 3 });
    for (let row = 0; row < prompt.length; row++) {
      const own = logits.subarray(row * 67, (row + 1) * 67);
      const order = [...own.keys()].sort((a, b) => (own[b] as number) - (own[a] as number) || a - b).slice(0, 3);
      expect([...(top.ids as Int32Array).subarray(3 * row, 3 * row + 3)]).toEqual(order);
      expect([...top.logits.subarray(3 * row, 3 * row + 3)]).toEqual(order.map((id) => own[id]));
    }
    expect(() => forward(few, [1], { top: 68 })).toThrow("forward: top expected an integer from 1 to 67, got 68");
  });

  test("sessions of other lengths, joining and leaving, do not change a job's tokens", async () => {
    const job = (ids: readonly number[], maxTokens: number, more: object = {}): GenerationJob => ({
      ...{ session: open("qwen3_moe"), ids, maxTokens, ...more },
    });
    const jobs = [
      job([1, 2, 3], 7),
      job(prompt, 30, { temperature: 0.9, topK: 20, seed: 3 }),
      job([66, 0], 12, { temperature: 1, topP: 0.8, seed: 0 }),
      job([4], 0),
    ];
    const got = new Map<GenerationJob, number[]>(jobs.map((each) => [each, []]));
    const ends: unknown[] = [];
    const source = async function* () {
      for (const each of jobs) {
        yield each;
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    };
    for await (const { job: of, token, end } of generateMany(source())) {
      if (token) got.get(of)?.push(token.id);
      else ends.push(end);
    }
    for (const { seed } of jobs) expect(ends).toContainEqual({ reason: "length", ...(seed !== undefined && { seed }) });
    expect(ends.length).toBe(jobs.length);
    for (const each of jobs) {
      const { session, ids, ...options } = each;
      expect(got.get(each)).toEqual(await run(open("qwen3_moe"), ids as number[], options));
    }
  });

  test.each([
    {},
    { temperature: 1, seed: 0 },
    { temperature: 0.8, topK: 12, topP: 0.9, seed: 7 },
    { temperature: 1.3, minP: 0.05, repetitionPenalty: 1.2, seed: 1 },
  ])("guesses of n-grams and of another model leave the tokens of plain decoding, with %o", async (sampling) => {
    const options = { ...sampling, maxTokens: 40 };
    const plain = open("llama");
    const tokens = await run(plain, prompt, options);
    const drafts = [
      { ngram: 1 },
      { ngram: 2, tokens: 3 },
      { session: open("gpt2") },
      { session: open("llama"), tokens: 6 },
    ];
    for (const draft of drafts) {
      const session = open("llama");
      expect(await run(session, prompt, { ...options, draft })).toEqual(tokens);
      expect(session.length).toBe(plain.length);
      // What follows has the same bits, so that the caches hold the same.
      const next = forward(session, [tokens.at(-1) as number]).logits;
      plain.truncate(session.length - 1);
      expect(next).toEqual(forward(plain, [tokens.at(-1) as number]).logits);
      plain.truncate(session.length - 1);
    }
  });

  test("planModel counts the session that createSession makes by default", () => {
    const config = { ...(TINY.llama as object), max_position_embeddings: 8192 };
    expect(planModel(config).sessions).toBe(planModel(config, { maxSeqLen: 4096 }).sessions);
  });

  test.each(NAMES)("%s: planModel gives the bytes that model, sessions and calls take", async (name) => {
    using own = await kernelsOf(build);
    const sizes = { maxSeqLen: 200, rows: 100, outputs: 1 };
    const plan = planModel(TINY[name], { ...sizes, weights: "f32" });
    const model = await loadModel(own, tinyFolder(TINY[name]), { weights: "f32", maxSeqLen: 200 });
    expect(own.usedBytes).toBe(plan.weights);
    expect(model.bytes).toBe(plan.weights);
    const session = createSession(model, { maxSeqLen: 200 });
    expect(session.bytes).toBe(plan.sessions);
    forward(session, prompt.slice(0, 100));
    expect(own.usedBytes).toBe(plan.total);
    session.release();
    model.release();
    expect(own.usedBytes).toBe(plan.scratch);
  });

  test("a generation that is aborted, or left, keeps a usable session", async () => {
    const session = open("gemma2");
    const stop = new AbortController();
    const tokens: number[] = [];
    const aborted = (async () => {
      for await (const { id } of generate(session, prompt, { signal: stop.signal, sliceMs: 0.001 })) {
        tokens.push(id);
        if (tokens.length === 5) stop.abort(new Error("enough"));
      }
    })();
    await expect(aborted).rejects.toThrow("enough");
    expect(session.length).toBe(prompt.length + 4);
    for await (const { id } of generate(session, [tokens.at(-1) as number])) {
      tokens.push(id);
      if (tokens.length === 12) break;
    }
    expect(tokens).toEqual(await run(open("gemma2"), prompt, { maxTokens: 12 }));
  });

  test("a session that is full ends a generation, and keeps what was read", async () => {
    const session = open("llama", { maxSeqLen: 20 });
    const it = generate(session, [1, 2, 3]);
    let next = await it.next();
    let count = 0;
    for (; !next.done; next = await it.next()) count++;
    expect([count, next.value, session.length]).toEqual([18, { reason: "full" }, 20]);
    expect(() => forward(session, [1])).toThrow("forward: past 20 + ids 1 exceeds maxSeqLen 20");
    session.truncate(10);
    expect(forward(session, [1]).logits.length).toBe(67);
  });
});

test("threads give the bits of one", async () => {
  for (const build of shippedBuilds) {
    const [one, three] = [await kernelsOf(build), await threadedKernels(build, 3)];
    for (const name of NAMES) {
      const [a, b] = [await loadModel(one, tinyFolder(TINY[name])), await loadModel(three, tinyFolder(TINY[name]))];
      const [x, y] = [createSession(a, { maxSeqLen: 200 }), createSession(b, { maxSeqLen: 200 })];
      expect(forward(y, prompt, { rows: "all" }).logits, name).toEqual(forward(x, prompt, { rows: "all" }).logits);
      for (const id of [3, 1, 4]) expect(forward(y, [id]).logits, name).toEqual(forward(x, [id]).logits);
    }
    one.release();
    three.release();
  }
}, 120_000);
