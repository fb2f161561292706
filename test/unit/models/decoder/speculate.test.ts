// Speculative decoding with sessions that cannot forget every guess, and drafts that are refused.

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { HeadwiseError, type Kernels } from "../../../../src/entries/core.ts";
import type { Model } from "../../../../src/models/blocks/model.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { createSession, type Session, type SessionOptions } from "../../../../src/models/decoder/session.ts";
import {
  checkDrafts,
  type DraftOptions,
  type GenerateOptions,
  generate,
} from "../../../../src/models/generate/generate.ts";
import { generateMany } from "../../../../src/models/generate/generate-many.ts";
import type { LogitsProcessor } from "../../../../src/models/generate/sampling.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";

const prompt = Array.from({ length: 380 }, (_, i) => (i * 29 + 5) % 67);

let kernels: Kernels;
let model: Model;
let other: Model;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
  model = await loadModel(kernels, tinyFolder(TINY.gemma2));
  other = await loadModel(kernels, tinyFolder(TINY.gpt_oss));
});
afterAll(() => kernels.release());
const open = (options: SessionOptions = {}, of = model) => createSession(of, { maxSeqLen: 900, ...options });

async function run(session: Session, ids: readonly number[], options: GenerateOptions): Promise<number[]> {
  const tokens: number[] = [];
  for await (const { id } of generate(session, ids, options)) tokens.push(id);
  return tokens;
}

/** Formats by age: every page changes its format once, at 128 tokens. */
const AGING = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q8", values: "q8" },
] as const;

test.each([
  ["truncatable 0", { truncatable: 0 }],
  ["truncatable 3", { truncatable: 3 }],
  ["formats by age", { format: AGING }],
  ["formats by age and truncatable 1", { format: AGING, truncatable: 1 }],
] satisfies [string, SessionOptions][])(
  "the tokens are those of plain decoding where sessions cannot forget every guess: %s",
  async (_, options) => {
    // Some guesses hold and some do not; 300 tokens cross two pages.
    const sampling = { temperature: 0.5, seed: 3, maxTokens: 300 };
    using plain = open(options);
    const tokens = await run(plain, prompt, sampling);
    const guides: (() => DraftOptions)[] = [
      () => ({ ngram: 1, tokens: 64 }),
      () => ({ session: open(options), tokens: 7 }),
      () => ({ session: open(options, other), tokens: 5 }),
    ];
    for (const guide of guides) {
      const draft = guide();
      using session = open(options);
      expect(await run(session, prompt, { ...sampling, draft })).toEqual(tokens);
      expect(session.length).toBe(plain.length);
      if ("session" in draft) draft.session.release();
    }
  },
);

describe("a generation that is left between the tokens of a step", () => {
  const ids = prompt.slice(0, 20);

  /** Leaves a generation behind `count` tokens, or has it stop at the next one. */
  const leave = async (way: "break" | "return" | "stop id", session: Session, count: number, draft?: DraftOptions) => {
    const tokens: number[] = [];
    const options = { ...(way === "stop id" && { stopIds: [stopsAt[count] as number] }), draft };
    const all = generate(session, ids, { maxTokens: 20, ...options });
    if (way === "return") {
      while (tokens.length < count) tokens.push(((await all.next()).value as { readonly id: number }).id);
      await all.return(undefined as never);
    } else
      for await (const { id } of all) {
        tokens.push(id);
        if (way === "break" && tokens.length === count) break;
      }
    return { tokens, length: session.length, held: [...session.tokens], logits: forward(session, [7]).logits };
  };
  let stopsAt: number[];
  beforeAll(async () => {
    using plain = open();
    stopsAt = await run(plain, ids, { maxTokens: 20 });
  });

  test.each(["break", "return", "stop id"] as const)(
    "by %s, behind 1 to 12 of them: the session holds what plain decoding holds, and the next logits have its bits",
    async (way) => {
      let between = 0;
      for (let count = 1; count <= 12; count++) {
        using plain = open();
        const want = await leave(way, plain, count);
        for (const tokens of [3, 7, 12]) {
          using session = open();
          using guide = open();
          // The model itself guesses, so that every guess is right, and a step gives tokens + 1 of them.
          expect(await leave(way, session, count, { session: guide, tokens }), `${count}, ${tokens}`).toEqual(want);
          if (count % (tokens + 1) !== 0) between++;
        }
      }
      expect(between).toBeGreaterThan(24);
    },
  );
});

describe("a session that is forked in the loop, where memory is scarce", () => {
  const ids = prompt.slice(0, 127);
  /** Runs with memory of which the next block, or none, is refused. */
  const scarce = async (run: () => Promise<unknown>, refused: number) => {
    const allocate = kernels.memory.allocate.bind(kernels.memory);
    let left = refused;
    const spy = vi.spyOn(kernels.memory, "allocate").mockImplementation((where, bytes) => {
      if (left-- > 0) throw new HeadwiseError("OUT_OF_MEMORY", `${where}: memory expected ${bytes} bytes, got none`);
      return allocate(where, bytes);
    });
    try {
      return await run().catch((error: unknown) => error);
    } finally {
      spy.mockRestore();
    }
  };
  const said = (where: string) =>
    expect.objectContaining({ code: "OUT_OF_MEMORY", message: expect.stringMatching(`^${where}: memory expected`) });

  test("generate that is left between the tokens of a step says so, and the session holds those of the step", async () => {
    using plain = open();
    const want = await run(plain, ids, { maxTokens: 12 });
    using session = open();
    using guide = open();
    const all = generate(session, ids, { maxTokens: 12, draft: { session: guide, tokens: 7 } });
    const first = (await all.next()).value as { readonly id: number };
    expect(session.length).toBe(127 + 7);
    using fork = session.fork();
    const { usedBytes } = kernels;
    const error = await scarce(() => all.return(undefined as never), 1);
    expect(error).toEqual(said("generate"));
    await expect(all.end).rejects.toBe(error);
    expect([session.length, session.tokens.slice(127), kernels.usedBytes]).toEqual([134, want.slice(0, 7), usedBytes]);
    // With memory, both go on from where plain decoding would have been left.
    for (const each of [session, fork]) {
      each.truncate(127);
      expect([first.id, ...(await run(each, [first.id], { maxTokens: 11 }))]).toEqual(want);
    }
  });

  test("generateMany that is left says so for one session, and has the others forget what was not given", async () => {
    using plain = open();
    const want = await run(plain, [...ids, 1], { maxTokens: 5 });
    const sessions = [open(), open(), open()] as const;
    const forks: Session[] = [];
    const all = generateMany(sessions.map((session) => ({ session, ids: [...ids, 1] })));
    await all.next();
    for (const session of sessions) forks.push(session.fork());
    expect(await scarce(() => all.return(), 1)).toEqual(said("generateMany: jobs\\[1\\]"));
    expect(sessions.map(({ length }) => length)).toEqual([128, 128, 127]);
    sessions[1].truncate(127);
    for (const each of sessions.slice(1)) expect(await run(each, [1], { maxTokens: 5 })).toEqual(want);
    for (const each of [...sessions, ...forks]) each.release();
  });
});

describe("behind a prompt of 3 tokens", () => {
  /** Leaves 3 tokens, which depend on all tokens of the sequence and their order. */
  const hashing: LogitsProcessor = ([ids], { data }) => {
    let hash = 7;
    for (const id of ids as bigint[]) hash = (Math.imul(hash, 31) + Number(id) + 1) >>> 0;
    for (let id = 0; id < data.length; id++) if (id > 2) data[id] = Number.NEGATIVE_INFINITY;
    data[hash % 3] = 50;
  };

  test.each([
    ["processors", { logitsProcessors: [hashing] }, (): DraftOptions => ({ ngram: 1, tokens: 6 })],
    ["penalties", { repetitionPenalty: 1.3 }, (): DraftOptions => ({ session: open(), tokens: 6 })],
    [
      "penalties and temperatures",
      { repetitionPenalty: 1.3, temperature: 0.3, seed: 1 },
      (): DraftOptions => ({ session: open(), tokens: 6 }),
    ],
  ] satisfies [string, GenerateOptions, () => DraftOptions][])(
    "%s see the guesses that were accepted before: the tokens are those of plain decoding",
    async (_, sampling, drafting) => {
      const options = { ...sampling, maxTokens: 60 };
      using plain = open();
      const want = await run(plain, [1, 2, 0], options);
      using session = open();
      const got: number[] = [];
      // While a token is given, the session already holds those behind it that the same step accepted.
      let accepted = 0;
      for await (const { id } of generate(session, [1, 2, 0], { ...options, draft: drafting() })) {
        if (session.length > 3 + got.length) accepted++;
        got.push(id);
      }
      expect(got).toEqual(want);
      expect(accepted).toBeGreaterThan(5);
    },
  );
});

test("a draft session that holds other tokens reads those of the sequence", async () => {
  using plain = open();
  const tokens = await run(plain, prompt, { maxTokens: 20 });
  for (const truncatable of [2, 128]) {
    using guide = open({ truncatable });
    forward(guide, prompt.toReversed());
    using session = open();
    expect(await run(session, prompt, { maxTokens: 20, draft: { session: guide } })).toEqual(tokens);
    expect(guide.length).toBeGreaterThan(prompt.length);
  }
});

test("a generation that is aborted, in a pass of the draft or of the model, keeps usable sessions", async () => {
  using plain = open();
  const tokens = await run(plain, prompt, { maxTokens: 20 });
  for (let at = 1; at <= 40; at += 3) {
    using session = open();
    using guide = open({}, other);
    const stop = new AbortController();
    // Counts the yields to the event loop of both models' passes.
    let count = 0;
    const signal = Object.assign(stop.signal, {
      throwIfAborted() {
        if (++count === at) throw new Error(`look ${at}`);
      },
    });
    const got: number[] = [];
    const aborted = (async () => {
      const draft = { session: guide, tokens: 3 };
      for await (const { id } of generate(session, prompt, { signal, sliceMs: 1e-6, maxTokens: 20, draft }))
        got.push(id);
    })();
    await expect(aborted).rejects.toThrow(`look ${at}`);
    expect(session.length).toBe(got.length === 0 ? 0 : prompt.length + got.length - 1);
    const next = got.length === 0 ? prompt : got.slice(-1);
    expect([...got, ...(await run(session, next, { maxTokens: 20 - got.length, draft: { session: guide } }))]).toEqual(
      tokens,
    );
  }
});

test("a call on the session while a draft guesses is refused, or the generation that finds its tokens", async () => {
  const ids = [1, 2, 3, 4];
  using plain = open({ maxSeqLen: 128 });
  const want = await run(plain, ids, { maxTokens: 8 });
  let refused = 0;
  for (let turns = 1; turns <= 40; turns++) {
    using session = open({ maxSeqLen: 128 });
    using guide = open({ maxSeqLen: 128 }, other);
    const call = run(session, ids, { draft: { session: guide }, maxTokens: 8, sliceMs: 1e-6 }).catch(
      ({ code }) => code,
    );
    for (let turn = 0; turn < turns; turn++)
      await (turn < 20 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, 0)));
    const { length } = session;
    const own = prompt.slice(0, 128 - length);
    let code: string | undefined;
    try {
      forward(session, own);
    } catch (error) {
      code = (error as { code: string }).code;
    }
    const got = await call;
    if (code === "IN_USE") {
      refused++;
      expect(got).toEqual(want);
    } else if (typeof got === "string") {
      expect(got).toBe("IN_USE");
      expect(session.tokens.slice(length)).toEqual(own);
    } else expect(got).toEqual(want);
  }
  expect(refused).toBeGreaterThan(0);
});

test("an ngram guesses what followed the last tokens where they occurred last before", async () => {
  using session = open();
  const guess = (ngram: number, ids: readonly number[], most: number) =>
    checkDrafts("test", session, { ngram })?.guess(ids, most, { sliceMs: 1 });
  const ids = [1, 2, 5, 6, 1, 2, 7, 8, 9, 2, 3, 1, 2];
  expect(await guess(2, ids, 3)).toEqual([7, 8, 9]);
  expect(await guess(2, ids, 20)).toEqual([7, 8, 9, 2, 3, 1, 2]);
  expect(await guess(1, ids, 2)).toEqual([3, 1]);
  expect(await guess(3, ids, 2)).toEqual([]);
  expect(await guess(13, ids, 2)).toEqual([]);
  // From the first token on, and from the one before the last.
  expect(await guess(2, [1, 2, 3, 1, 2], 2)).toEqual([3, 1]);
  expect(await guess(1, [4, 4], 2)).toEqual([4]);
});

test("a session guesses 4 tokens at a time by default, and an ngram 8", async () => {
  using session = open();
  using guide = open();
  expect([{ session: guide }, { ngram: 2 }].map((draft) => checkDrafts("test", session, draft)?.tokens)).toEqual([
    4, 8,
  ]);
});

test("drafts that cannot serve are refused before anything is read", async () => {
  using session = open();
  const attempt = (draft: unknown) => generate(session, [1], { draft: draft as DraftOptions }).next();
  await expect(attempt({ session })).rejects.toThrow(
    "generate: draft.session expected another session, got the same one",
  );
  using wide = await loadModel(kernels, tinyFolder({ ...TINY.llama, vocab_size: 70 }));
  using foreign = createSession(wide);
  await expect(attempt({ session: foreign })).rejects.toThrow(
    "generate: draft.session expected a model with 67 tokens, got 70",
  );
  await expect(attempt({})).rejects.toThrow("generate: draft expected either a session or an ngram, got ");
  await expect(attempt({ ngram: 0 })).rejects.toThrow("generate: draft.ngram expected an integer from 1 to 16, got 0");
  await expect(attempt({ ngram: 2, tokens: 65 })).rejects.toThrow(
    "draft.tokens expected an integer from 1 to 64, got 65",
  );
  const released = open();
  released.release();
  await expect(attempt({ session: released })).rejects.toMatchObject({ code: "RELEASED" });
  expect(session.length).toBe(0);
});
