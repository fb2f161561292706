// Calls on sessions that fail: arguments, signals, sessions that are in use, released or full. The session is as before.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HeadwiseError, type Kernels } from "../../../../src/entries/core.ts";
import type { Model } from "../../../../src/models/blocks/model.ts";
import { forward, forwardAsync } from "../../../../src/models/decoder/forward.ts";
import { createSession, type Session, type SessionOptions } from "../../../../src/models/decoder/session.ts";
import { type GenerateOptions, generate } from "../../../../src/models/generate/generate.ts";
import {
  type GenerateManyOptions,
  type GenerationEvent,
  type GenerationJob,
  generateMany,
} from "../../../../src/models/generate/generate-many.ts";
import type { LogitsProcessor } from "../../../../src/models/generate/sampling.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";

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

/** A call as messages name it. */
const nameOf = (call: string) => (call === "generateMany" ? "generateMany: jobs[0]" : call);

/** What a generation gives next. Throws why the job failed, if it did. */
async function nextOf(all: AsyncGenerator<unknown>): Promise<unknown> {
  const { value } = await all.next();
  const { end } = Object(value) as Partial<GenerationEvent>;
  if (end?.reason === "error") throw end.error;
  return value;
}

describe("token ids", () => {
  const calls = {
    forward: (session: Session, ids: never) => forward(session, ids),
    forwardAsync: (session: Session, ids: never) => forwardAsync(session, ids),
    generate: (session: Session, ids: never) => generate(session, ids).next(),
    generateMany: (session: Session, ids: never) => nextOf(generateMany([{ session, ids }])),
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
    ["no list", 5, "ids expected an array, got 5"],
    ["of a negative length", { length: -1 }, "ids expected an array, got Object"],
  ];
  const cases = Object.entries(calls).flatMap(([name, call]) =>
    bad.map(([what, ids, text]) => ({ name, call, what, ids, text })),
  );

  test.each(cases)("that are $what are refused by $name, and the session is as before", async (each) => {
    using session = open();
    forward(session, [1, 2]);
    const run = async () => each.call(session, each.ids as never);
    await expect(run()).rejects.toThrow(`${nameOf(each.name)}: ${each.text}`);
    expect(session.length).toBe(2);
  });

  test("ids of another type than a number are a TypeError, and other numbers a RangeError", () => {
    using session = open();
    for (const id of ["1", 1n, null]) expect(() => forward(session, [id] as never)).toThrow(TypeError);
    for (const id of [67, -1, 2.5, Number.NaN]) expect(() => forward(session, [id])).toThrow(RangeError);
  });

  test("ids that do not fit are refused with the three numbers, and the session is as before", async () => {
    using session = open({ maxSeqLen: 10 });
    forward(session, idsOf(8));
    for (const [name, call] of Object.entries(calls)) {
      const run = async () => call(session, [1, 2, 3] as never);
      await expect(run()).rejects.toMatchObject({
        code: "CACHE_FULL",
        message: `${nameOf(name)}: past 8 + ids 3 exceeds maxSeqLen 10`,
      });
      const endless = async () => call(session, { length: 2 ** 40 } as never);
      await expect(endless()).rejects.toMatchObject({ code: "CACHE_FULL" });
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

  test.each([
    [Number.NaN, 3],
    [Number.POSITIVE_INFINITY, 3],
    [Number.NaN, 66],
    [Number.POSITIVE_INFINITY, 66],
  ])("a processor that leaves %d at token %d ends its generation at any temperature", async (bad, at) => {
    const spoil: LogitsProcessor = (_ids, { data }) => data.fill(bad, at, at + 1);
    for (const temperature of [0, 0.7]) {
      using session = open();
      const options = { maxTokens: 3, temperature, seed: 1, logitsProcessors: [spoil] };
      await expect(generate(session, idsOf(5), options).next()).rejects.toThrow(
        `generate: logits at position 5 expected finite numbers or -Infinity after logitsProcessors, got ${bad} as the largest`,
      );
    }
  });

  test("a processor that throws ends its generation, and its job alone", async () => {
    const failing = () => {
      let calls = 0;
      return () => {
        if (++calls === 4) throw new Error("no grammar");
      };
    };
    const want = await tokensOf(open(), idsOf(5), 9);
    using alone = open();
    const generation = generate(alone, idsOf(5), { logitsProcessors: [failing()] });
    for (const id of want.slice(0, 3)) expect(await generation.next()).toMatchObject({ value: { id } });
    await expect(generation.next()).rejects.toThrow("no grammar");
    expect(alone.length).toBe(5 + 2);
    using session = open();
    using other = open();
    const jobs = [
      { session: other, ids: idsOf(5), logitsProcessors: [failing()] },
      { session, ids: idsOf(5), maxTokens: 9 },
    ];
    const tokens: number[] = [];
    const ends: unknown[] = [];
    for await (const { job, token, end } of generateMany(jobs)) {
      if (token && job.session === session) tokens.push(token.id);
      if (end) ends.push(end);
    }
    expect(ends).toEqual([{ reason: "error", error: new Error("no grammar") }, { reason: "length" }]);
    expect(tokens).toEqual(want);
    expect(other.length).toBe(5 + 3);
  });

  test.each([
    "a job of ids that do not fit",
    "a session that is released between steps",
    "one that is released in a step",
  ])("%s ends one job; the others go on with the same tokens", async (what) => {
    const want = await tokensOf(open(), idsOf(200), 9);
    using session = open();
    const bad = open({ maxSeqLen: 256 });
    let calls = 0;
    const releasing = () => void (++calls === 3 && what.includes("in a step") && bad.release());
    const good = { session, ids: idsOf(200), maxTokens: 9, logitsProcessors: [releasing] };
    const jobs = [good, { session: bad, ids: what.includes("not fit") ? idsOf(257) : idsOf(200) }];
    const tokens: number[] = [];
    const failures: unknown[] = [];
    const ends: unknown[] = [];
    for await (const { job, token, end } of generateMany(jobs, { sliceMs: 1e-6 })) {
      if (job === good && token) tokens.push(token.id);
      if (tokens.length === 3 && what.includes("between")) bad.release();
      if (end?.reason === "error") failures.push(end.error);
      else if (end) ends.push([job === good, end]);
    }
    expect(tokens).toEqual(want);
    expect(ends).toEqual([[true, { reason: "length" }]]);
    expect(failures).toMatchObject([{ code: what.includes("not fit") ? "CACHE_FULL" : "RELEASED" }]);
    expect(String(failures[0])).toContain("generateMany: jobs[1]: ");
    bad.release();
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
    await expect(nextOf(generateMany(twice))).rejects.toMatchObject({ code: "IN_USE" });
    using other = await loadModel(kernels, tinyFolder(TINY.llama));
    using foreign = createSession(other);
    const mixed = [
      { session, ids: [1] },
      { session: foreign, ids: [1] },
    ];
    await expect(nextOf(generateMany(mixed))).rejects.toThrow(
      "generateMany: jobs[1]: session expected one of the same model as the first job, got another",
    );
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
      await expect(nextOf(all)).rejects.toMatchObject({ code: "RELEASED" });
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
    await expect(nextOf(all)).rejects.toMatchObject({ code: "IN_USE" });
    await reading;
    expect(session.length).toBe(52);
  });
});

describe("a session that its owner changes", () => {
  test.each(["generate", "generateMany"])(
    "between two tokens of %s, to others of the same number, is refused",
    async (name) => {
      using session = open();
      const all = name === "generate" ? generate(session, [1, 2, 3]) : generateMany([{ session, ids: [1, 2, 3] }]);
      await all.next();
      // Nothing has changed.
      session.truncate(session.length);
      await all.next();
      session.truncate(session.length - 1);
      forward(session, [9]);
      const message = expect.stringMatching(
        /expected the 4 tokens that it had, got others: another call has changed it$/,
      );
      await expect(nextOf(all)).rejects.toMatchObject({ code: "IN_USE", message });
      expect(session.tokens.slice(3)).toEqual([9]);
      expect(session.length).toBe(4);
    },
  );

  test.each([1, 3, 128])("between a step and the end of another job, by %d tokens, is refused", async (count) => {
    using session = open({ maxSeqLen: 128 });
    using other = open({ maxSeqLen: 128 });
    using third = open({ maxSeqLen: 128 });
    forward(third, idsOf(100));
    const want = forward(third, [9]).logits;
    third.truncate(100);
    const jobs = [
      { session, ids: [1, 2], maxTokens: 20 },
      { session: other, ids: [3], maxTokens: 0 },
    ];
    const ends: unknown[] = [];
    for await (const { end } of generateMany(jobs)) {
      if (end) ends.push(end.reason === "error" ? end.error : end);
      if (ends.length === 1) forward(session, idsOf(count));
    }
    expect(ends).toHaveLength(2);
    expect(ends[1]).toMatchObject({
      code: "IN_USE",
      message: `generateMany: jobs[0]: session expected the 0 tokens that it had, got ${count}: another call has changed it`,
    });
    expect(session.length).toBe(count);
    expect(forward(third, [9]).logits).toEqual(want);
  });

  test("by a truncation is refused, too", async () => {
    using session = open();
    const all = generateMany([{ session, ids: [1, 2] }]);
    await all.next();
    session.truncate(1);
    await expect(nextOf(all)).rejects.toMatchObject({ code: "IN_USE" });
    expect(session.length).toBe(1);
  });

  test.each([
    ["generate", "kernels"],
    ["generate", "model"],
    ["generate", "session"],
    ["generateMany", "kernels"],
    ["generateMany", "model"],
    ["generateMany", "session"],
  ])("%s can be left after its %s was released", async (name, what) => {
    const kernels = await kernelsOf("relaxed");
    const model = await loadModel(kernels, tinyFolder(TINY.llama));
    const sessions = [1, 2].map(() => createSession(model, { maxSeqLen: 64 }));
    const release = () => {
      if (what === "kernels") kernels.release();
      else if (what === "model") model.release();
      else for (const session of sessions) session.release();
    };
    // The period of the prompt makes guesses hold, so that a step gives several tokens.
    const ids = [5, 5, 5, 5, 5, 5];
    const [session] = sessions as [Session];
    const [draft] = [{ session: sessions[1] as Session }];
    if (name === "generate") {
      for await (const _ of generate(session, ids, { draft })) {
        release();
        break;
      }
    } else
      for await (const _ of generateMany(sessions.map((session) => ({ session, ids })))) {
        release();
        break;
      }
    kernels.release();
  });

  test.each(["generate", "generateMany"])("%s can be left while another call reads", async (name) => {
    using session = open();
    using other = open();
    let reading: Promise<unknown> | undefined;
    if (name === "generate") {
      for await (const _ of generate(session, idsOf(5), { draft: { session: other } })) {
        reading = forwardAsync(session, idsOf(300), { sliceMs: 1e-6 });
        break;
      }
    } else
      for await (const _ of generateMany([other, session].map((session) => ({ session, ids: [1] })))) {
        reading = forwardAsync(session, idsOf(300), { sliceMs: 1e-6 });
        break;
      }
    const { length } = session;
    await reading;
    expect(session.length).toBe(length + 300);
  });
});

describe("maxJobs", () => {
  const lengths = [3, 1, 4, 2, 5];
  /** Jobs whose sessions are opened when they are asked for, and what runs at each time. */
  function counted() {
    const opened = { now: 0, most: 0 };
    const next = (maxTokens: number) => {
      opened.most = Math.max(opened.most, ++opened.now);
      return { session: open(), ids: idsOf(maxTokens), maxTokens };
    };
    return { opened, next };
  }
  async function run(jobs: Iterable<GenerationJob> | AsyncIterable<GenerationJob>, opened: { now: number }) {
    const tokens = new Map<number, number[]>();
    for await (const { job, token, end } of generateMany(jobs, { maxJobs: 2 })) {
      const own = tokens.get(job.ids.length) ?? [];
      if (token) tokens.set(job.ids.length, [...own, token.id]);
      if (!end) continue;
      expect(end).toEqual({ reason: "length" });
      job.session.release();
      opened.now--;
    }
    return tokens;
  }

  test.each(["list", "source"])(
    "takes jobs of a %s only as others end, with the tokens of each alone",
    async (kind) => {
      const { opened, next } = counted();
      function* list() {
        for (const each of lengths) yield next(each);
      }
      async function* source() {
        yield* list();
      }
      const tokens = await run(kind === "list" ? list() : source(), opened);
      expect(opened).toEqual({ now: 0, most: 2 });
      for (const each of lengths) {
        using session = open();
        const alone = await tokensOf(session, idsOf(each), each);
        expect(tokens.get(each), `${each} tokens`).toEqual(alone);
      }
    },
  );

  test("gives the place of a job that ended to the next one before the next step", async () => {
    const { opened, next } = counted();
    const order: string[] = [];
    function* list() {
      for (const each of [1, 3, 2]) yield next(each);
    }
    for await (const { job, end } of generateMany(list(), { maxJobs: 2 })) {
      order.push(`${job.ids.length}${end ? " ends" : ""}`);
      if (end) job.session.release();
    }
    expect(order).toEqual(["1", "3", "1 ends", "3", "2", "3", "2", "3 ends", "2 ends"]);
    expect(opened.most).toBe(3);
  });

  test("runs the jobs that came before a list or a source throws", async () => {
    function* list(session: Session): Generator<GenerationJob> {
      yield { session, ids: [1, 2], maxTokens: 2 };
      throw new Error("no more");
    }
    async function* source(session: Session): AsyncGenerator<GenerationJob> {
      yield* list(session);
    }
    for (const jobs of [list, source]) {
      using session = open();
      const seen: string[] = [];
      const run = async () => {
        for await (const { end } of generateMany<GenerationJob>(jobs(session))) {
          seen.push(end?.reason ?? "token");
          // The source may throw while an event is held.
          await new Promise((resolve) => setTimeout(resolve, 2));
        }
      };
      await expect(run(), jobs.name).rejects.toThrow("no more");
      expect(seen.length, jobs.name).toBeGreaterThan(0);
    }
  });

  test("lets a loop that is left end a list", async () => {
    let ended = false;
    function* list() {
      try {
        for (;;) yield { session: open(), ids: [1] };
      } finally {
        ended = true;
      }
    }
    const begun: GenerationJob[] = [];
    for await (const { job } of generateMany(list(), { maxJobs: 1 })) {
      begun.push(job);
      break;
    }
    expect(ended).toBe(true);
    for (const { session } of begun) session.release();
  });

  test.each([0, 1.5, null, "2"])("%s is refused", async (maxJobs) => {
    const options = { maxJobs } as unknown as GenerateManyOptions;
    await expect(nextOf(generateMany([], options))).rejects.toThrow(
      "generateMany: maxJobs expected an integer >= 1, got",
    );
  });
});

describe("sources of jobs that wait", () => {
  /** Gives one job, and never a second. */
  const sourceOf = (session: Session, returned: () => void = () => {}) => ({
    [Symbol.asyncIterator]() {
      let given = false;
      return {
        next(): Promise<IteratorResult<GenerationJob, undefined>> {
          if (given) return new Promise(() => {});
          given = true;
          return Promise.resolve({ done: false, value: { session, ids: [1, 2], maxTokens: 3 } });
        },
        return: async () => {
          returned();
          return { done: true as const, value: undefined };
        },
      };
    },
  });
  /** A generator: what asks it to return waits for its next job. */
  async function* generatorOf(session: Session) {
    yield { session, ids: [1, 2], maxTokens: 3 };
    await new Promise(() => {});
  }

  test("do not keep a loop from being left, and have their return called", async () => {
    using session = open();
    for await (const _ of generateMany(generatorOf(session))) break;
    let returned = 0;
    for await (const _ of generateMany(sourceOf(session, () => returned++))) break;
    expect(returned).toBe(1);
    // One that is not asked now, because no more jobs can run, too.
    for await (const _ of generateMany(
      sourceOf(session, () => returned++),
      { maxJobs: 1 },
    ))
      break;
    expect(returned).toBe(2);
  });

  test.each([1, 2, 3])("let a signal end the generation after event %d", async (events) => {
    using session = open();
    const stop = new AbortController();
    const run = async () => {
      let count = 0;
      for await (const _ of generateMany(generatorOf(session), { signal: stop.signal }))
        if (++count === events) stop.abort(new Error("enough"));
    };
    await expect(run()).rejects.toThrow("enough");
  });

  test("let a signal end the generation while no job runs", async () => {
    using session = open();
    const stop = new AbortController();
    const run = async () => {
      for await (const { end } of generateMany(generatorOf(session), { signal: stop.signal }))
        if (end) setTimeout(() => stop.abort(new Error("enough")), 5);
    };
    await expect(run()).rejects.toThrow("enough");
  });

  test("are asked for no more once the loop was left", async () => {
    let asked = 0;
    const sessions: Session[] = [];
    const source = {
      [Symbol.asyncIterator]: () => ({
        async next() {
          asked++;
          await new Promise((resolve) => setTimeout(resolve, 1));
          const session = open({ maxSeqLen: 20 });
          sessions.push(session);
          return { done: false as const, value: { session, ids: [1] } };
        },
      }),
    };
    for await (const _ of generateMany(source)) break;
    const before = asked;
    await new Promise((resolve) => setTimeout(resolve, 40));
    expect(asked).toBe(before);
    for (const session of sessions) session.release();
  });

  test("are asked for 64 jobs ahead at most", async () => {
    using session = open();
    let asked = 0;
    async function* endless() {
      for (;;) {
        asked++;
        yield { session, ids: [1], maxTokens: 3 };
      }
    }
    for await (const _ of generateMany(endless())) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      break;
    }
    expect(asked).toBeGreaterThanOrEqual(64);
    expect(asked).toBeLessThanOrEqual(66);
  });

  test("whose return throws do not hide why the generation failed", async () => {
    using session = open();
    const stop = new AbortController();
    const source = sourceOf(session, () => {
      throw new Error("cannot return");
    });
    const run = async () => {
      for await (const _ of generateMany(source, { signal: stop.signal })) stop.abort(new Error("enough"));
    };
    await expect(run()).rejects.toThrow("enough");
  });
});

describe("options of a generation", () => {
  test.each([
    [{ stopIds: [1, 999] }, RangeError, "stopIds[1] expected an integer from 0 to 66, got 999"],
    [{ stopIds: null }, TypeError, "stopIds expected an array, got null"],
    [{ stopIds: { length: 2 ** 40 } }, RangeError, "stopIds expected at most 67 ids"],
    [{ logitsProcessors: 5 }, TypeError, "logitsProcessors expected an array of functions, got 5"],
    [{ topP: "1" }, TypeError, 'topP expected a number above 0 and up to 1, got "1"'],
    [{ minP: "1" }, TypeError, 'minP expected a number from 0 to 1, got "1"'],
  ])("%o are refused", async (options, kind, text) => {
    using session = open();
    const alone = generate(session, [1], options as never).next();
    await expect(alone).rejects.toThrow(kind);
    await expect(generate(session, [1], options as never).next()).rejects.toThrow(`generate: ${text}`);
    const job = { session, ids: [1], ...options } as never;
    await expect(nextOf(generateMany([job]))).rejects.toThrow(`generateMany: jobs[0]: ${text}`);
    expect(session.length).toBe(0);
  });

  test("no session is refused by name", async () => {
    const attempt = generate(undefined as never, [1]).next();
    await expect(attempt).rejects.toThrow("generate: session expected what createSession gives, got undefined");
  });

  test("maxTokens 0 checks ids and reads none", async () => {
    using session = open();
    expect(await generate(session, [1, 2], { maxTokens: 0 }).next()).toEqual({
      done: true,
      value: { reason: "length" },
    });
    await expect(generate(session, [99], { maxTokens: 0 }).next()).rejects.toThrow("generate: ids[0]");
    expect(session.length).toBe(0);
  });

  test("processors may run other calls, which let the memory grow", async () => {
    using plain = open();
    const want = await tokensOf(plain, [1, 2], 2);
    const kernels = await kernelsOf("relaxed");
    const model = await loadModel(kernels, tinyFolder(TINY.gemma2));
    const session = createSession(model, { maxSeqLen: 900 });
    const grow = () => void forward(createSession(model, { maxSeqLen: 40_000 }), idsOf(300));
    const tokens: number[] = [];
    for await (const { id } of generate(session, [1, 2], { maxTokens: 2, logitsProcessors: [grow] })) tokens.push(id);
    expect(tokens).toEqual(want);
    kernels.release();
  });

  test.each([1e-36, 1e-38, 1e-40, 1e-310])("temperature %d takes the most probable tokens", async (temperature) => {
    using plain = open();
    const want = await tokensOf(plain, idsOf(9), 5);
    using session = open();
    const tokens: number[] = [];
    for await (const { id, logprob } of generate(session, idsOf(9), { maxTokens: 5, temperature })) {
      tokens.push(id);
      expect(logprob).toBeLessThanOrEqual(0);
    }
    expect(tokens).toEqual(want);
  });
});

test("kernels that were released are named by calls on their models and sessions", async () => {
  const own = await kernelsOf("relaxed");
  const model = await loadModel(own, tinyFolder(TINY.llama));
  const session = createSession(model, { maxSeqLen: 64 });
  own.release();
  const said = (where: string) => new HeadwiseError("RELEASED", `${where}: model.kernels was released`);
  expect(() => createSession(model)).toThrow(said("createSession"));
  expect(() => forward(session, [1])).toThrow(said("forward"));
  expect(() => session.fork()).toThrow(said("fork"));
  await expect(generate(session, [1]).next()).rejects.toThrow(said("generate"));
});

test.each(["generate", "generateMany"])("%s leaves the memory in use as it was", async (name) => {
  // Kernels of its own: sessions that other tests have left may be collected meanwhile.
  using own = await kernelsOf("relaxed");
  using model = await loadModel(own, tinyFolder(TINY.gemma2));
  using session = createSession(model, { maxSeqLen: 400 });
  const before = own.usedBytes;
  const options = { maxTokens: 3, sliceMs: 1e-6 };
  if (name === "generate") await generate(session, idsOf(300), options).next();
  else await nextOf(generateMany([{ session, ids: idsOf(300), maxTokens: 3 }], { sliceMs: 1e-6 }));
  expect(own.usedBytes).toBe(before);
});

describe("the end of a generation", () => {
  const drawn = { temperature: 1, maxTokens: 12 };

  /** The tokens of a generation that is not given a seed, and the seed in its end. */
  async function draw(call: "generate" | "generateMany"): Promise<readonly [tokens: number[], seed: number]> {
    using session = open();
    const tokens: number[] = [];
    const job = { session, ids: idsOf(5), ...drawn };
    if (call === "generate") {
      const all = generate(session, job.ids, drawn);
      for await (const { id } of all) tokens.push(id);
      return [tokens, (await all.end).seed as number];
    }
    let end: GenerationEvent["end"];
    for await (const event of generateMany([job])) {
      if (event.token) tokens.push(event.token.id);
      end = event.end;
    }
    return [tokens, (end as { readonly seed: number }).seed];
  }

  test.each(["generate", "generateMany"] as const)(
    "%s: a temperature without a seed draws one each time, which gives the same tokens again",
    async (call) => {
      const seeds = new Set<number>();
      for (let i = 0; i < 3; i++) {
        const [tokens, seed] = await draw(call);
        seeds.add(seed);
        using session = open();
        const again: number[] = [];
        for await (const { id } of generate(session, idsOf(5), { ...drawn, seed })) again.push(id);
        expect(again).toEqual(tokens);
      }
      // Two of three are equal once in 1.4e9 runs.
      expect(seeds.size).toBe(3);
    },
  );

  test("has the seed that was given, and none at temperature 0", async () => {
    using session = open();
    const endOf = async (options: GenerateOptions) => {
      session.truncate(0);
      const all = generate(session, [1, 2], { maxTokens: 2, ...options });
      for await (const _ of all);
      return all.end;
    };
    expect(await endOf({ temperature: 0.5, seed: 7 })).toEqual({ reason: "length", seed: 7 });
    expect(await endOf({ seed: 7 })).toEqual({ reason: "length" });
    const stopIds = Array.from({ length: 67 }, (_, id) => id);
    const { stopId, ...stopped } = await endOf({ temperature: 0.5, seed: 7, stopIds });
    expect([stopped, stopId === undefined]).toEqual([{ reason: "stop", seed: 7 }, false]);
  });

  test.each([
    ["return() before the first token", 0, "return"],
    ["throw() before the first token", 0, "throw"],
    ["return()", 3, "return"],
    ["throw()", 3, "throw"],
  ] as const)("says that it was left by %s, when the session is free", async (_, count, way) => {
    using session = open();
    const all = generate(session, [1, 2], { ...drawn, seed: 7 });
    const ended = all.end.then((end) => [end, session.length]);
    for (let i = 0; i < count; i++) await all.next();
    const left = way === "return" ? all.return(undefined as never) : all.throw(new Error("mine"));
    if (way === "throw") await expect(left).rejects.toThrow("mine");
    else expect((await left).done).toBe(true);
    const seeded = count > 0 ? { seed: 7 } : {};
    expect(await ended).toEqual([{ reason: "left", ...seeded }, count > 0 ? 2 + count - 1 : 0]);
    expect(await all.next()).toEqual({ value: undefined, done: true });
  });

  test("says that it was aborted, and rejects with other errors", async () => {
    using session = open();
    const stop = new AbortController();
    const all = generate(session, [1, 2], { ...drawn, seed: 7, signal: stop.signal });
    await all.next();
    stop.abort(new Error("enough"));
    await expect(all.next()).rejects.toThrow("enough");
    expect(await all.end).toEqual({ reason: "aborted", seed: 7 });
    const early = generate(session, [1], { ...drawn, signal: stop.signal });
    await expect(early.next()).rejects.toThrow("enough");
    expect(await early.end).toMatchObject({ reason: "aborted" });
    const wrong = generate(session, [67]);
    await expect(wrong.next()).rejects.toThrow("ids[0] expected");
    await expect(wrong.end).rejects.toThrow("ids[0] expected");
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
