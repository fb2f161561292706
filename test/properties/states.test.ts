// Sequences that are forked share pages, and have the bits of sequences that share nothing, whatever is done with them in whatever
// order; and in the end all memory is free.

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import {
  createKvCache,
  HeadwiseError,
  type Kernels,
  type KvCacheOptions,
  scaledDotProductAttention,
  type Tensor,
} from "../../src/entries/core.ts";
import { exportPages, importPages } from "../../src/entries/models.ts";
import { createKvState, expectPages, type KvState } from "../../src/layers/attention/kv-state.ts";
import { tableOf } from "../../src/layers/state/table.ts";
import { forward, forwardAsync } from "../../src/models/decoder/forward.ts";
import { createSession, type Session, type SessionOptions } from "../../src/models/decoder/session.ts";
import { loadSeq2Seq } from "../../src/models/encoder/load.ts";
import { readSource } from "../../src/models/encoder/read-source.ts";
import { generate } from "../../src/models/generate/generate.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { failKernels } from "../support/failing-kernels.ts";
import { firstDifference, kernelsOf } from "../support/layers.ts";
import { calls, sampledSeeds } from "../support/sampled.ts";
import { TINY, type TinyName, tinyFolder } from "../support/tiny-models.ts";
import { seq2seqFolder, sourceFor } from "../support/tiny-seq2seq.ts";

/** The sample's seed, or in the long run, which takes another one each time, HEADWISE_SEED. */
const SEED = Number(process.env.HEADWISE_SEED ?? calls(Date.now() % 1e6, Number(process.env.HEADWISE_SAMPLE ?? 1)));
console.log(`Forks: seed ${SEED} (HEADWISE_SEED).`);

const AGING = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q8", values: "f16", tokens: 128 },
  { keys: "q8", values: "q4" },
] as const;
const MOST = 900;
const KINDS: readonly (readonly [name: string, options: Partial<KvCacheOptions>])[] = [
  ["float32", {}],
  ["two sequences of float16", { batch: 2, format: "f16" }],
  ["8 and 4 bits", { format: { keys: "q8", values: "q4" } }],
  ["ages", { format: AGING }],
  ["two that age", { batch: 2, format: AGING }],
  ["a window", { window: { left: 60 }, truncatable: 37 }],
  ["a window that ages", { window: { left: 300 }, truncatable: 200, format: AGING }],
];
const [HEADS, DIM] = [2, 5];

/** A state that is forked, one that had the same calls and shares nothing, and the keys of each token. */
interface Pair {
  readonly forked: KvState;
  readonly alone: KvState;
  readonly keys: Float32Array[];
}

/** Makes `count` random calls on states of one kind, fills those that are left, and releases them. */
function runTrial(kernels: Kernels, random: Random, options: Partial<KvCacheOptions>, count: number): void {
  const { batch = 1, window, format } = options;
  const isPlain = format === undefined && window === undefined;
  const open = () =>
    createKvState(createKvCache(kernels, { numKvHeads: HEADS, headDim: DIM, maxSeqLen: MOST, ...options }));
  const draw = (tokens: number) => ({
    data: random.floats(batch * HEADS * tokens * DIM),
    shape: [batch, HEADS, tokens, DIM],
  });
  const attend = ({ cache }: KvState, [q, k, v]: readonly [Tensor, Tensor, Tensor]) =>
    scaledDotProductAttention(kernels, q, k, v, { cache, causal: true, ...(window && { window }) }).output.data;

  const append = ({ forked, alone, keys }: Pair, tokens: number, failing: number) => {
    const rows = [draw(tokens), draw(tokens), draw(tokens)] as const;
    const restore = failKernels(kernels, ["attention_f32", "attention_pages", "append_pages"], failing);
    let y: Float32Array;
    try {
      y = attend(forked, rows);
    } catch (error) {
      expect((error as Error).message).toBe("failed");
      return;
    } finally {
      restore();
    }
    expect(firstDifference(y, attend(alone, rows))).toBe(-1);
    const [, { data }] = rows;
    for (let t = 0; t < tokens; t++)
      keys.push(
        Float32Array.from({ length: HEADS * DIM }, (_, i) => {
          return data[(Math.floor(i / DIM) * tokens + t) * DIM + (i % DIM)] as number;
        }),
      );
  };
  const fork = ({ forked, alone, keys }: Pair): Pair => {
    const { usedBytes } = kernels;
    const bytes = forked.forkBytes;
    const copy = forked.fork("fork");
    expect([copy.bytes, kernels.usedBytes - usedBytes]).toEqual([bytes, bytes]);
    const other = open();
    importPages(other.cache, exportPages(alone.cache), keys.length);
    return { forked: copy, alone: other, keys: [...keys] };
  };
  const cut = ({ forked, alone, keys }: Pair, length: number) => {
    const to = forked.nearest(length, keys.length);
    // What was imported knows less of what it has held.
    if (alone.nearest(length, keys.length) !== to) return;
    for (const state of [forked, alone]) {
      state.expectTruncatable(to);
      state.reserve(to);
      state.truncate(to);
    }
    keys.length = to;
  };
  const compare = ({ forked, alone, keys }: Pair) => {
    expect(forked.cache.length).toBe(keys.length);
    expect(exportPages(forked.cache)).toEqual(exportPages(alone.cache));
    // No sequence has a page behind its last token.
    for (let b = 0; b < batch; b++)
      expect(tableOf(kernels, forked.pages, b).findLastIndex((entry) => entry > 0)).toBeLessThan(keys.length / 128);
    if (!isPlain) return;
    const { data } = forked.cache.read().key;
    for (const [t, key] of keys.entries())
      for (const [i, value] of key.entries())
        if (data[(Math.floor(i / DIM) * keys.length + t) * DIM + (i % DIM)] !== value)
          throw new Error(`token ${t}, component ${i}`);
  };

  const pairs: Pair[] = [];
  const release = (place: number) => {
    for (const { forked, alone } of pairs.splice(place, 1)) for (const state of [forked, alone]) state.release();
  };
  for (let i = 0; i < count; i++) {
    if (pairs.length === 0) pairs.push({ forked: open(), alone: open(), keys: [] });
    const place = random.int(0, pairs.length - 1);
    const pair = pairs[place] as Pair;
    const what = random.int(0, 99);
    const tokens = [1, random.int(1, 9), random.int(1, 150), random.int(1, 400)][random.int(0, 3)] as number;
    if (what < 60 && pair.keys.length + tokens <= MOST)
      append(pair, tokens, what < 6 ? random.int(1, 3) : Number.POSITIVE_INFINITY);
    else if (what < 75 && pairs.length < 5) pairs.push(fork(pair));
    else if (what < 88) cut(pair, random.int(0, pair.keys.length));
    else if (what < 94) release(place);
    else compare(pair);
  }
  // As many tokens as fit, for which all that was reserved is needed.
  for (const pair of pairs) append(pair, MOST - pair.keys.length, Number.POSITIVE_INFINITY);
  for (const pair of pairs) compare(pair);
  while (pairs.length > 0) release(random.int(0, pairs.length - 1));
}

describe("states that are forked", () => {
  let kernels: Kernels;
  beforeAll(async () => {
    kernels = await kernelsOf("simd");
    // The largest call, so that the scratch grows no more.
    for (const [, options] of KINDS) runTrial(kernels, createRandom(1), options, 30);
  });
  afterAll(() => kernels.release());

  test.each(KINDS)(
    "%s: appends, calls that fail, forks, cuts and releases in any order have the bits of states that share nothing, and leave no memory: 100,000 in the long run",
    (_name, options) => {
      const { usedBytes, memory } = kernels;
      const { scratchBytes } = memory;
      const trials = calls(50, 4);
      for (let i = 0; i < trials; i++)
        runTrial(kernels, createRandom(SEED + i), options, Math.ceil(calls(100_000, 2100) / KINDS.length / trials));
      expect(kernels.usedBytes - memory.scratchBytes).toBe(usedBytes - scratchBytes);
    },
  );
});

describe("sessions that are forked", () => {
  let kernels: Kernels;
  beforeAll(async () => {
    kernels = await kernelsOf("simd");
  });
  afterAll(() => kernels.release());
  const load = (name: TinyName, more = {}) => loadModel(kernels, tinyFolder({ ...TINY[name], ...more }));
  const ids = Array.from({ length: 400 }, (_, i) => (i * 29 + 5) % 67);

  const MODELS: readonly (readonly [name: TinyName, options: SessionOptions])[] = [
    ["llama", {}],
    ["llama", { format: "q8" }],
    ["llama", { format: AGING }],
    ["gpt2", { format: { keys: "f16", values: "q4" } }],
    ["gemma2", { truncatable: 40 }],
    ["deepseek_v3", {}],
    ["deepseek_v3", { format: "q8" }],
  ];
  const cases = MODELS.flatMap(([name, options]) => sampledSeeds(1, 12, 1).map((n) => ({ name, options, n })));

  test.each(cases)(
    "$name, $options, $n: calls, forks, cuts and releases in any order have the logits of sessions that read all by themselves, and leave no memory",
    async ({ name, options, n }) => {
      using model = await load(name);
      const open = () => createSession(model, { maxSeqLen: 300, ...options });
      const alone = (tokens: readonly number[]) => {
        using session = open();
        return forward(session, tokens).logits;
      };
      alone(ids.slice(0, 300));
      const { usedBytes } = kernels;
      const random = createRandom(SEED + n);
      const sessions: Session[] = [];
      for (let i = 0; i < 60; i++) {
        if (sessions.length === 0) sessions.push(open());
        const place = random.int(0, sessions.length - 1);
        const session = sessions[place] as Session;
        const what = random.int(0, 9);
        const { length } = session;
        if (what < 5 && length < 300) {
          const count = Math.min(300 - length, [1, 1, 3, 140][random.int(0, 3)] as number);
          const next = Array.from({ length: count }, () => random.int(0, 66));
          const all = [...session.tokens, ...next];
          const { logits } = what === 0 ? await forwardAsync(session, next, { sliceMs: 1e-6 }) : forward(session, next);
          expect(firstDifference(logits, alone(all)), `seed ${SEED}, step ${i}`).toBe(-1);
        } else if (what < 7 && sessions.length < 4) sessions.push(session.fork());
        else if (what < 9) {
          const to = random.int(0, length);
          session.truncate(Math.min(...session.states.map((state) => state.nearest(to, length))));
        } else for (const each of sessions.splice(place, 1)) each.release();
      }
      for (const session of sessions) session.release();
      expect(kernels.usedBytes).toBe(usedBytes);
    },
  );

  test("a fork takes the pages from that of its next token on, once for each that is written, and a cut below takes the rest", async () => {
    using model = await load("llama");
    using session = createSession(model, { maxSeqLen: 512 });
    forward(session, ids.slice(0, 300));
    const page = 2 * 2 * 128 * (12 + 16) * 4; // two layers of two heads, whose values are padded to whole panels
    const tables = 2 * 64;
    expect(session.bytes).toBe(4 * page + tables);
    const before = kernels.usedBytes;
    const fork = session.fork();
    expect([fork.length, fork.maxSeqLen, fork.bytes]).toEqual([300, 512, 2 * page + tables]);
    for (const each of [session, fork]) forward(each, [...ids.slice(0, 200)]);
    expect(kernels.usedBytes - before).toBe(fork.bytes);
    fork.truncate(100);
    expect(kernels.usedBytes - before).toBe(4 * page + tables);
    fork.truncate(0);
    forward(fork, ids);
    expect(kernels.usedBytes - before).toBe(4 * page + tables);
    fork.release();
    expect(kernels.usedBytes).toBe(before);
  });

  test("a fork of a fork uses what sessions that were released have left", async () => {
    using model = await load("llama");
    // The scratch of calls grows once, in whichever test is the first.
    const held = () => kernels.usedBytes - kernels.memory.scratchBytes;
    const before = held();
    let session = createSession(model, { maxSeqLen: 512 });
    forward(session, ids.slice(0, 300));
    let most = 0;
    for (let i = 0; i < 20; i++) {
      const fork = session.fork();
      session.release();
      session = fork;
      forward(session, [i]);
      if (i === 3) most = held();
      session.truncate(300);
    }
    expect(held()).toBeLessThanOrEqual(most);
    session.release();
    expect(held()).toBe(before);
  });

  test.each([
    [130, 8],
    [513, 8],
    [641, 11],
  ])(
    "a fork at token %d whose first session is released keeps %d pages, where a session of its own has 8, and its bits",
    async (count, pages) => {
      using model = await load("llama");
      const held = () => kernels.usedBytes - kernels.memory.scratchBytes;
      const before = held();
      const prompt = Array.from({ length: count }, (_, i) => (i * 29 + 5) % 67);
      const session = createSession(model, { maxSeqLen: 1024 });
      forward(session, prompt);
      const fork = session.fork();
      session.release();
      const page = 2 * 2 * 128 * (12 + 16) * 4;
      // Besides tables.
      expect(Math.floor((held() - before) / page)).toBe(pages);
      using alone = createSession(model, { maxSeqLen: 1024 });
      forward(alone, prompt);
      for (const next of [[5], ids]) {
        const [got, want] = [fork, alone].map((each) => forward(each, next.slice(0, 1024 - each.length)).logits);
        expect(firstDifference(got as Float32Array, want as Float32Array)).toBe(-1);
      }
      fork.release();
    },
  );

  test("a first session that is released without memory for a smaller block leaves its own to the fork", async () => {
    using model = await load("llama");
    const session = createSession(model, { maxSeqLen: 1024 });
    forward(session, ids.slice(0, 130));
    const fork = session.fork();
    const { usedBytes } = kernels;
    const refuse = vi.spyOn(kernels.memory, "allocate").mockImplementation(() => {
      throw new HeadwiseError("OUT_OF_MEMORY", "release: no memory");
    });
    session.release();
    refuse.mockRestore();
    expect(kernels.usedBytes).toBe(usedBytes);
    using alone = createSession(model, { maxSeqLen: 1024 });
    forward(alone, ids.slice(0, 130));
    const [got, want] = [fork, alone].map((each) => forward(each, ids).logits) as [Float32Array, Float32Array];
    expect(firstDifference(got, want)).toBe(-1);
    fork.release();
    expect(kernels.usedBytes).toBeLessThan(usedBytes);
  });

  test("a fork fails before anything has changed: without memory, while a call runs, and once released", async () => {
    using model = await load("llama");
    const session = createSession(model, { maxSeqLen: 512 });
    forward(session, ids.slice(0, 300));
    const before = kernels.usedBytes;
    const { memory } = kernels;
    const allocate = memory.allocate.bind(memory);
    const refused = new HeadwiseError("OUT_OF_MEMORY", "fork: no memory");
    for (const fails of [2, 3]) {
      let calls = 0;
      memory.allocate = (where, bytes) => {
        if (++calls === fails) throw refused;
        return allocate(where, bytes);
      };
      expect(() => session.fork()).toThrow(refused);
      memory.allocate = allocate;
      expect(kernels.usedBytes).toBe(before);
    }
    // The second of two layers cannot be cut, and then the first is not.
    const fork = session.fork();
    let calls = 0;
    memory.allocate = (where, bytes) => {
      if (++calls === 2) throw refused;
      return allocate(where, bytes);
    };
    expect(() => fork.truncate(10)).toThrow(refused);
    memory.allocate = allocate;
    expect([fork.length, ...fork.states.map((state) => expectPages("test", state).cache.length)]).toEqual([
      300, 300, 300,
    ]);
    expect(kernels.usedBytes).toBe(before + fork.bytes);
    const next = [session, fork].map((each) => forward(each, [7]).logits) as [Float32Array, Float32Array];
    expect(firstDifference(...next)).toBe(-1);
    fork.release();
    expect(kernels.usedBytes).toBe(before);

    const running = forwardAsync(session, ids.slice(0, 100), { sliceMs: 1e-6 });
    expect(() => session.fork()).toThrow("fork: cache expected one that no unfinished call is using");
    await running;
    session.release();
    expect(() => session.fork()).toThrow(new HeadwiseError("RELEASED", "fork: session was released"));
    const own = await load("llama");
    using left = createSession(own, { maxSeqLen: 64 });
    own.release();
    expect(() => left.fork()).toThrow(new HeadwiseError("RELEASED", "fork: model was released"));
  });

  test("a fork that has no memory leaves what earlier cuts have reserved, and nothing else", async () => {
    using model = await load("llama");
    const session = createSession(model, { maxSeqLen: 512 });
    forward(session, ids.slice(0, 300));
    const fork = session.fork();
    fork.truncate(0);
    session.truncate(200);
    const { memory, usedBytes } = kernels;
    const allocate = memory.allocate.bind(memory);
    let calls = 0;
    memory.allocate = (where, bytes) => {
      if (++calls === 3) throw new HeadwiseError("OUT_OF_MEMORY", "fork: no memory");
      return allocate(where, bytes);
    };
    expect(() => session.fork()).toThrow("fork: no memory");
    memory.allocate = allocate;
    expect(kernels.usedBytes).toBe(usedBytes);
    for (const each of [fork, session]) each.release();
  });

  test("a cut that one layer refuses takes no memory for the others", async () => {
    const layer_types = ["full_attention", "sliding_attention"];
    const config = { ...TINY.gemma2, model_type: "gemma3_text", rope_local_base_freq: 1000, layer_types };
    using model = await loadModel(kernels, tinyFolder(config));
    const session = createSession(model, { maxSeqLen: 1024, truncatable: 40 });
    forward(session, ids);
    forward(session, ids);
    const fork = session.fork();
    const { usedBytes } = kernels;
    expect(() => fork.truncate(300)).toThrow("truncate: length expected 0 or at least");
    expect([kernels.usedBytes, fork.length]).toEqual([usedBytes, 800]);
    for (const each of [fork, session]) each.release();
  });

  test("a fork takes the bytes that it says, also behind a call that failed while pages aged", async () => {
    using model = await load("llama");
    const session = createSession(model, { maxSeqLen: 512, format: AGING });
    forward(session, ids.slice(0, 384));
    const restore = failKernels(kernels, ["attention_pages"], 2);
    expect(() => forward(session, ids.slice(384, 390))).toThrow("failed");
    restore();
    const { usedBytes } = kernels;
    const fork = session.fork();
    expect(kernels.usedBytes - usedBytes).toBe(fork.bytes);
    for (const each of [fork, session]) each.release();
  });

  test("a fork of a session on a source shares it, and generates the same tokens when the first is released", async () => {
    using model = await loadSeq2Seq(kernels, seq2seqFolder("t5"));
    const before = kernels.usedBytes;
    const run = async (session: Session) => {
      const found: number[] = [];
      for await (const { id } of generate(session, [5, 6], { maxTokens: 12 })) found.push(id);
      return found;
    };
    const session = await readSource(model, sourceFor("t5", 30), { maxSeqLen: 64 });
    forward(session, ids.slice(0, 20));
    const fork = session.fork();
    const expected = await run(session);
    session.release();
    expect(await run(fork)).toEqual(expected);
    fork.release();
    expect(kernels.usedBytes - kernels.memory.scratchBytes).toBeLessThanOrEqual(before);
  });
});
