// Calls on sessions that fail: arguments, signals, sessions that are in use, released or full. The session is as before.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { forward, forwardAsync } from "../../../src/decoder/forward.ts";
import { generate } from "../../../src/decoder/generate.ts";
import { generateMany } from "../../../src/decoder/generate-many.ts";
import { loadModel } from "../../../src/decoder/load-model.ts";
import type { Model } from "../../../src/decoder/model.ts";
import { createSession, type Session, type SessionOptions } from "../../../src/decoder/session.ts";
import type { Kernels } from "../../../src/entries/core.ts";
import { kernelsOf } from "../../support/layers.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";

const idsOf = (count: number) => Array.from({ length: count }, (_, i) => (i * 29 + 5) % 67);

let kernels: Kernels;
let model: Model;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
  // Every other layer has a window of 9, and drops pages behind it in sessions of this length.
  model = await loadModel(kernels, tinyFolder(TINY.gemma2));
});
afterAll(() => kernels.release());
const open = (options: SessionOptions = {}) => createSession(model, { maxSeqLen: 900, ...options });

/** The tokens that `generate` gives, the first with logits of all that was read before. */
async function tokensOf(session: Session, ids: readonly number[], maxTokens: number): Promise<number[]> {
  const tokens: number[] = [];
  for await (const { id } of generate(session, ids, { maxTokens })) tokens.push(id);
  return tokens;
}

describe("token ids", () => {
  const calls = {
    forward: (session: Session, ids: never) => forward(session, ids),
    forwardAsync: (session: Session, ids: never) => forwardAsync(session, ids),
    generate: (session: Session, ids: never) => generate(session, ids).next(),
    generateMany: (session: Session, ids: never) => generateMany([{ session, ids }]).next(),
  };
  const bad: readonly (readonly [string, unknown, string])[] = [
    ["too large", [1, 67], "ids[1] expected an integer from 0 to 66, got 67"],
    ["negative", [-1], "ids[0] expected an integer from 0 to 66, got -1"],
    ["not an integer", [0, 1, 2.5], "ids[2] expected an integer from 0 to 66, got 2.5"],
    ["not a number", ["1"], 'ids[0] expected an integer from 0 to 66, got "1"'],
    [
      "big integers",
      [1n],
      "ids[0] expected an integer from 0 to 66, got 1n: convert them with Array.from(ids, Number)",
    ],
    ["none", [], "ids expected 1 or more tokens, got none"],
    ["no list", 5, "ids expected a list of integers, got 5"],
  ];
  const cases = Object.entries(calls).flatMap(([name, call]) =>
    bad.map(([what, ids, text]) => ({ name, call, what, ids, text })),
  );

  test.each(cases)("that are $what are refused by $name, and the session is as before", async (each) => {
    using session = open();
    forward(session, [1, 2]);
    const run = async () => each.call(session, each.ids as never);
    await expect(run()).rejects.toThrow(`${each.name}: ${each.text}`);
    expect(session.length).toBe(2);
  });

  test("ids that do not fit are refused with the three numbers, and the session is as before", async () => {
    using session = open({ maxSeqLen: 10 });
    forward(session, idsOf(8));
    for (const [name, call] of Object.entries(calls)) {
      const run = async () => call(session, [1, 2, 3] as never);
      await expect(run()).rejects.toMatchObject({
        code: "CACHE_FULL",
        message: `${name}: past 8 + ids 3 exceeds maxSeqLen 10`,
      });
    }
    expect(session.length).toBe(8);
    forward(session, [1, 2]);
  });
});

describe("signals", () => {
  test("forwardAsync that is aborted at any slice leaves the session with its bits", async () => {
    using plain = open();
    forward(plain, idsOf(380));
    const want = forward(plain, idsOf(300)).logits;
    let slices = 0;
    using counted = open();
    await forwardAsync(counted, idsOf(300), { sliceMs: 1e-6, onProgress: () => slices++ });
    expect(slices).toBeGreaterThan(5);
    using session = open();
    forward(session, idsOf(380));
    for (let at = 1; at <= slices; at++) {
      const stop = new AbortController();
      let seen = 0;
      const onProgress = () => ++seen === at && stop.abort(new Error(`slice ${at}`));
      const call = forwardAsync(session, idsOf(300), { sliceMs: 1e-6, onProgress, signal: stop.signal });
      expect(() => forward(session, [1])).toThrow(expect.objectContaining({ code: "IN_USE" }));
      await expect(call).rejects.toThrow(`slice ${at}`);
      expect(session.length).toBe(380);
    }
    expect(forward(session, idsOf(300)).logits).toEqual(want);
  });

  test("a signal that was aborted before refuses every call", async () => {
    using session = open();
    const signal = AbortSignal.abort(new Error("before"));
    await expect(forwardAsync(session, [1], { signal })).rejects.toThrow("before");
    await expect(generate(session, [1], { signal }).next()).rejects.toThrow("before");
    await expect(generateMany([{ session, ids: [1] }], { signal }).next()).rejects.toThrow("before");
    expect(session.length).toBe(0);
  });

  test.each(["generate", "generateMany"])("%s of a small model lets timers run, and a signal end it", async (name) => {
    using session = open();
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error("enough")), 0);
    const run = async () => {
      const { signal } = stop;
      if (name === "generate") for await (const _ of generate(session, [1], { signal }));
      else for await (const _ of generateMany([{ session, ids: [1] }], { signal }));
    };
    await expect(run()).rejects.toThrow("enough");
    expect(session.length).toBeLessThan(session.maxSeqLen);
  });

  test("a generation whose session was changed between its tokens is refused", async () => {
    using session = open();
    const generation = generate(session, [1, 2]);
    await generation.next();
    forward(session, [3]);
    await expect(generation.next()).rejects.toMatchObject({ code: "IN_USE" });
    expect(session.length).toBe(3);
  });

  test("jobs that are no list are refused", async () => {
    using session = open();
    const one = { session, ids: [1] };
    await expect(generateMany(one as never).next()).rejects.toThrow(
      "generateMany: jobs expected a list or another iterable of jobs, got",
    );
  });

  test("generateMany that is aborted in a step leaves every session after its last whole step", async () => {
    const prompts = [idsOf(30), idsOf(200), idsOf(3)];
    const jobs = prompts.map((ids) => ({ session: open(), ids, maxTokens: 12 }));
    const stop = new AbortController();
    const got = new Map<Session, number[]>(jobs.map(({ session }) => [session, []]));
    const aborted = (async () => {
      for await (const { job, token } of generateMany(jobs, { signal: stop.signal, sliceMs: 1e-6 })) {
        if (token) got.get(job.session)?.push(token.id);
        // In the middle of the next pass, or before it.
        if (got.get(job.session)?.length === 5) setTimeout(() => stop.abort(new Error("enough")), 0);
      }
    })();
    await expect(aborted).rejects.toThrow("enough");
    for (const { session, ids } of jobs) {
      const tokens = got.get(session) as number[];
      expect(tokens.length).toBeGreaterThan(3);
      expect(session.length).toBe(ids.length + tokens.length - 1);
      const rest = await tokensOf(session, tokens.slice(-1), 12 - tokens.length);
      using alone = open();
      expect([...tokens, ...rest]).toEqual(await tokensOf(alone, ids, 12));
      session.release();
    }
  });
});

describe("many at once", () => {
  test("a session that is full ends its job alone; the others go on", async () => {
    const jobs = [
      { session: open({ maxSeqLen: 20 }), ids: idsOf(15), maxTokens: 30 },
      { session: open(), ids: idsOf(15), maxTokens: 30 },
    ];
    const ends: unknown[] = [];
    const counts = [0, 0];
    for await (const { job, token, end } of generateMany(jobs)) {
      const which = jobs.indexOf(job);
      if (token) counts[which] = (counts[which] as number) + 1;
      else ends.push([which, end]);
    }
    expect(counts).toEqual([6, 30]);
    expect(ends).toEqual([
      [0, { reason: "full" }],
      [1, { reason: "length" }],
    ]);
    expect(jobs.map(({ session }) => session.length)).toEqual([20, 44]);
    for (const { session } of jobs) session.release();
  });

  test("a loop that is left after any event leaves sessions that go on with the same tokens", async () => {
    const prompts = [idsOf(30), idsOf(3), idsOf(40)];
    const want = await Promise.all(prompts.map((ids) => tokensOf(open(), ids, 6)));
    for (const events of [1, 2, 3, 4, 5, 9]) {
      const jobs = prompts.map((ids) => ({ session: open(), ids, maxTokens: 6 }));
      const given = prompts.map((): number[] => []);
      let count = 0;
      for await (const { job, token } of generateMany(jobs)) {
        if (token) given[jobs.indexOf(job)]?.push(token.id);
        if (++count === events) break;
      }
      for (const [i, { session, ids }] of jobs.entries()) {
        const known = [...ids, ...(given[i] as number[])];
        expect(session.length).toBe(known.length - 1);
        const left = 6 - (known.length - ids.length);
        expect([...known, ...(await tokensOf(session, known.slice(-1), left))]).toEqual([
          ...ids,
          ...(want[i] as number[]),
        ]);
        session.release();
      }
    }
  });

  test("a processor that throws ends the generation; every session is as before the step", async () => {
    let calls = 0;
    const logitsProcessors = [
      () => {
        if (++calls === 4) throw new Error("no grammar");
      },
    ];
    const jobs = [
      { session: open(), ids: idsOf(5), maxTokens: 9 },
      { session: open(), ids: idsOf(5), maxTokens: 9, logitsProcessors },
    ];
    const all = (async () => {
      for await (const _ of generateMany(jobs));
    })();
    await expect(all).rejects.toThrow("no grammar");
    const want = await tokensOf(open(), idsOf(5), 5);
    for (const { session } of jobs) {
      expect(session.length).toBe(5 + 2);
      expect(await tokensOf(session, want.slice(2, 3), 2)).toEqual(want.slice(3));
      session.release();
    }
  });

  test("a source that fails ends the generation with its reason; sessions keep what was read", async () => {
    const session = open();
    const source = async function* () {
      yield { session, ids: [1, 2, 3] };
      await new Promise((resolve) => setTimeout(resolve, 5));
      throw new Error("no more jobs");
    };
    let count = 0;
    const all = (async () => {
      for await (const { token } of generateMany(source())) if (token) count++;
    })();
    await expect(all).rejects.toThrow("no more jobs");
    expect(session.length).toBe(3 + count - 1);
    session.release();
  });

  test("two jobs of one session, and sessions of two models, are refused", async () => {
    using session = open();
    const twice = [
      { session, ids: [1] },
      { session, ids: [2] },
    ];
    await expect(generateMany(twice).next()).rejects.toMatchObject({ code: "IN_USE" });
    using other = await loadModel(kernels, tinyFolder(TINY.llama));
    using foreign = createSession(other);
    const mixed = [
      { session, ids: [1] },
      { session: foreign, ids: [1] },
    ];
    await expect(generateMany(mixed).next()).rejects.toThrow("jobs expected sessions of one model, got two");
    expect([session.length, foreign.length]).toEqual([0, 0]);
  });
});

describe("between tokens", () => {
  test.each(["generate", "generateMany"])(
    "%s refuses a session that was released, and writes nothing",
    async (name) => {
      using other = open();
      forward(other, idsOf(200));
      const session = open();
      const all = name === "generate" ? generate(session, [1, 2]) : generateMany([{ session, ids: [1, 2] }]);
      await all.next();
      session.release();
      // Takes the memory that the session had.
      using next = open();
      forward(next, idsOf(100));
      await expect(all.next()).rejects.toMatchObject({ code: "RELEASED" });
      using fresh = open();
      forward(fresh, idsOf(100));
      expect(forward(next, [7]).logits).toEqual(forward(fresh, [7]).logits);
    },
  );

  test.each(["generate", "generateMany"])("%s refuses a session that another call is using", async (name) => {
    using session = open();
    const all = name === "generate" ? generate(session, [1, 2]) : generateMany([{ session, ids: [1, 2] }]);
    await all.next();
    const reading = forwardAsync(session, idsOf(50), { sliceMs: 1e-6 });
    await expect(all.next()).rejects.toMatchObject({ code: "IN_USE" });
    await reading;
    expect(session.length).toBe(52);
  });
});

test("a prompt longer than a call has arguments is read", async () => {
  const config = { ...TINY.llama, model_type: "mistral", sliding_window: 4, num_hidden_layers: 1, hidden_size: 8 };
  const small = { ...config, intermediate_size: 8, num_attention_heads: 1, num_key_value_heads: 1, head_dim: 8 };
  using own = await loadModel(kernels, tinyFolder(small), { maxSeqLen: 2 ** 18 });
  using session = createSession(own, { maxSeqLen: 2 ** 18 });
  forward(session, idsOf(2 ** 18 - 1));
  expect(await tokensOf(session, [1], 1)).toHaveLength(1);
  expect(session.length).toBe(2 ** 18);
});
