// Text behind a prompt: pieces, ends, what a session has read before, and wrong arguments.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../../src/entries/core.ts";
import {
  chat,
  type GenerateTextOptions,
  generateText,
  type TextEnd,
  type TextGeneration,
  type Tokenizer,
} from "../../../src/entries/text.ts";
import type { Model } from "../../../src/models/blocks/model.ts";
import { createSession } from "../../../src/models/decoder/session.ts";
import { loadSeq2Seq } from "../../../src/models/encoder/load.ts";
import { readSource } from "../../../src/models/encoder/read-source.ts";
import { generate } from "../../../src/models/generate/generate.ts";
import { loadModel } from "../../../src/models/load/load-model.ts";
import { kernelsOf } from "../../support/layers.ts";
import { END, force, pieces } from "../../support/text-tokenizer.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";
import { seq2seqTensors, sourceFor, TINY_SEQ2SEQ, type TinySeq2Seq } from "../../support/tiny-seq2seq.ts";

let kernels: Kernels;
let model: Model;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
  // 67 tokens. Every other layer has a window of 9, and sessions drop pages behind it.
  model = await loadModel(kernels, tinyFolder(TINY.gemma2));
});
afterAll(() => kernels.release());

/** All pieces, and the end but for its times. */
async function read(
  all: TextGeneration,
): Promise<{ pieces: string[]; end: Omit<TextEnd, "promptMs" | "generationMs"> }> {
  const pieces: string[] = [];
  for await (const piece of all) pieces.push(piece);
  const { promptMs, generationMs, ...end } = await all.end;
  return { pieces, end };
}

/** Has the model say `text` behind "abc", and then end. */
function say(text: string, options: GenerateTextOptions = {}) {
  const ids = [...pieces.encode(text), END];
  return read(generateText(model, pieces, "abc", { logitsProcessors: [force(ids, 3)], maxTokens: 40, ...options }));
}

describe("pieces", () => {
  test("are whole characters, as soon as these are complete", async () => {
    const { pieces: given, end } = await say("Hello 😀é.");
    expect(given).toEqual(["Hello", " ", "😀", "é", "."]);
    expect(end).toEqual({
      ...{ reason: "stop", stopId: END, text: "Hello 😀é.", promptTokens: 3, reusedTokens: 0 },
      ids: pieces.encode("Hello 😀é."),
    });
  });

  test("of a character that maxTokens cuts are U+FFFD at the end", async () => {
    const { pieces: given, end } = await say("a😀", { maxTokens: 3 });
    expect(given).toEqual(["a", "\uFFFD"]);
    expect(end).toMatchObject({ reason: "length", text: "a\uFFFD" });
  });

  test("have special tokens only with keepSpecial", async () => {
    const options = { stopIds: [], maxTokens: 2 };
    expect((await say("a", options)).end.text).toBe("a");
    expect((await say("a", { ...options, keepSpecial: true })).end.text).toBe("a</s>");
  });
});

describe("the end", () => {
  const greedy = { maxTokens: 12, stopIds: [] };

  test("is what the generator returns, with the times of the prompt and of the tokens behind the first", async () => {
    const all = generateText(model, pieces, "hello world", greedy);
    const began = performance.now();
    let next = await all.next();
    const firstMs = performance.now() - began;
    while (!next.done) next = await all.next();
    const allMs = performance.now() - began;
    expect(await all.end).toBe(next.value);
    const { promptMs, generationMs } = next.value;
    expect(promptMs).toBeGreaterThan(0);
    expect(promptMs).toBeLessThanOrEqual(firstMs);
    expect(generationMs).toBeGreaterThan(0);
    expect(promptMs + generationMs).toBeLessThanOrEqual(allMs);
  });

  test("does not count what the loop does between pieces", async () => {
    const all = generateText(model, pieces, "abc", { ...greedy, maxTokens: 3 });
    for await (const _ of all) await new Promise((done) => setTimeout(done, 150));
    expect((await all.end).generationMs).toBeLessThan(150);
  });

  test("of a loop that is left has what was given until then", async () => {
    const all = generateText(model, pieces, "abc", { logitsProcessors: [force(pieces.encode("Hello abc"), 3)] });
    for await (const piece of all) if (piece === "a") break;
    expect(await all.end).toMatchObject({ reason: "left", text: "Hello a", ids: pieces.encode("Hello a") });
  });

  test.each(["return", "throw"] as const)(
    "of %s() has what was given until then, also before the first piece",
    async (way) => {
      using session = createSession(model, { maxSeqLen: 900 });
      const ids = pieces.encode("Hello abc");
      for (const count of [0, 2]) {
        const options = { logitsProcessors: [force(ids, 3)], temperature: 1, seed: 5 };
        const all = generateText(session, pieces, "abc", options);
        for (let i = 0; i < count; i++) await all.next();
        const left = way === "return" ? all.return(undefined as never) : all.throw(new Error("mine"));
        if (way === "throw") await expect(left).rejects.toThrow("mine");
        else await left;
        const read = count > 0 ? { promptTokens: 3, seed: 5 } : { promptTokens: 0 };
        expect(await all.end).toEqual({
          ...{ reason: "left", text: count > 0 ? "Hello " : "", ids: ids.slice(0, count), reusedTokens: 0, ...read },
          ...{ promptMs: expect.any(Number), generationMs: expect.any(Number) },
        });
      }
    },
  );

  test("after an abort has the text until then, its tokens and times", async () => {
    const controller = new AbortController();
    const ids = pieces.encode("Hello abc");
    const options = { logitsProcessors: [force(ids, 3)], temperature: 1, seed: 5, signal: controller.signal };
    const all = generateText(model, pieces, "abc", options);
    for (let i = 0; i < 3; i++) await all.next();
    controller.abort(new Error("enough"));
    await expect(all.next()).rejects.toThrow("enough");
    const end = await all.end;
    expect(end).toMatchObject({ reason: "aborted", seed: 5, text: "Hello a", ids: ids.slice(0, 3), promptTokens: 3 });
    expect([end.promptMs, end.generationMs].every((ms) => ms > 0)).toBe(true);
    const early = generateText(model, pieces, "abc", options);
    await expect(early.next()).rejects.toThrow("enough");
    expect(await early.end).toMatchObject({ reason: "aborted", text: "", ids: [] });
  });

  test("has the seed that was drawn, which gives the same text again", async () => {
    const drawn = { maxTokens: 12, stopIds: [], temperature: 1 };
    const ends = [
      await read(generateText(model, pieces, "abc", drawn)),
      await read(generateText(model, pieces, "abc", drawn)),
    ];
    const seeds = ends.map(({ end }) => end.seed);
    expect(new Set(seeds).size).toBe(2);
    for (const { end } of ends)
      expect(await read(generateText(model, pieces, "abc", { ...drawn, seed: end.seed }))).toMatchObject({ end });
    const stopped = generateText(model, pieces, "abc", {
      ...drawn,
      seed: 3,
      logitsProcessors: [force(pieces.encode("a b"), 3)],
      stop: " ",
    });
    expect((await read(stopped)).end).toMatchObject({ reason: "stop", stop: " ", seed: 3 });
  });

  test("rejects as the loop does, and disturbs nobody who does not ask for it", async () => {
    const all = generateText(model, pieces, "abc", { temperature: -1 });
    await expect(all.next()).rejects.toThrow("generateText: temperature expected");
    // An unhandled rejection would end the test run.
    await new Promise((done) => setTimeout(done));
    await expect(all.end).rejects.toThrow("generateText: temperature expected");
  });
});

describe("stop strings", () => {
  test("may straddle tokens: what is before is given, the string itself is not", async () => {
    const { pieces: given, end } = await say("Hello world. STOP more", { stop: ["STOP", "never"] });
    expect(given.join("")).toBe("Hello world. ");
    expect(end).toMatchObject({ reason: "stop", stop: "STOP", text: "Hello world. " });
    expect(end.stopId).toBeUndefined();
  });

  test("that only begin are given in the end", async () => {
    const { end } = await say("a ST", { stop: "STOP" });
    expect(end).toMatchObject({ reason: "stop", stopId: END, text: "a ST" });
  });

  test("end the generation: no further token is computed", async () => {
    const { end } = await say("Hello stopping here", { stop: " stop" });
    expect(end.ids.length).toBe(2);
  });
});

describe("sessions", () => {
  const greedy = { maxTokens: 12, stopIds: [] };

  test("that were not given are released, also when the loop is left or an option is wrong", async () => {
    const before = kernels.usedBytes;
    await say("Hello");
    for await (const _ of generateText(model, pieces, "abc", greedy)) break;
    await expect(read(generateText(model, pieces, "abc", { temperature: -1 }))).rejects.toThrow(RangeError);
    expect(kernels.usedBytes).toBe(before);
  });

  test("read only what they have not read, and the text is that of a new session", async () => {
    using session = createSession(model, { maxSeqLen: 900 });
    const first = await read(generateText(session, pieces, "hello world", greedy));
    expect(first.end).toMatchObject({ promptTokens: 7, reusedTokens: 0 });
    const longer = [...pieces.encode("hello world"), ...first.end.ids, 12, 13];
    const fresh = await read(generateText(model, pieces, longer, greedy));
    const again = await read(generateText(session, pieces, longer, greedy));
    expect(again.end).toEqual({ ...fresh.end, reusedTokens: 7 + 11 });
    // Another text that begins alike, and one that the session has read wholly.
    const other = await read(generateText(session, pieces, "hello there", greedy));
    expect(other.end.reusedTokens).toBe(5);
    expect(other.end).toEqual({
      ...(await read(generateText(model, pieces, "hello there", greedy))).end,
      reusedTokens: 5,
    });
    expect((await read(generateText(session, pieces, "hello", greedy))).end.reusedTokens).toBe(4);
  });

  test("with drafts give the same text, and hold what plain decoding would", async () => {
    using session = createSession(model, { maxSeqLen: 900 });
    const plain = await read(generateText(model, pieces, "hello world", greedy));
    const drafted = await read(generateText(session, pieces, "hello world", { ...greedy, draft: { ngram: 1 } }));
    expect(drafted).toEqual(plain);
    expect(session.length).toBe(7 + 11);
  });

  test("begin anew where a window has dropped what would be needed", async () => {
    using session = createSession(model, { maxSeqLen: 900, truncatable: 0 });
    const long = Array.from({ length: 600 }, (_, i) => (i * 7) % 30);
    await read(generateText(session, pieces, long, { maxTokens: 1, stopIds: [] }));
    const { end } = await read(generateText(session, pieces, long.slice(0, 300), greedy));
    expect(end.reusedTokens).toBe(0);
    expect(end.ids).toEqual((await read(generateText(model, pieces, long.slice(0, 300), greedy))).end.ids);
  });

  test("that two calls use at once refuse one of them", async () => {
    using session = createSession(model, { maxSeqLen: 900 });
    const both = ["hello", "world"].map((text) => read(generateText(session, pieces, text, greedy)));
    const [first, second] = await Promise.allSettled(both);
    const results = [first, second].map((result) =>
      result?.status === "rejected" ? result.reason.code : result?.value.end.reason,
    );
    expect(results.sort()).toEqual(["IN_USE", "length"]);
  });

  test("that are too short for the prompt are as before", async () => {
    using session = createSession(model, { maxSeqLen: 8 });
    await read(generateText(session, pieces, "abcd", { maxTokens: 1, stopIds: [] }));
    await expect(read(generateText(session, pieces, "x hello world"))).rejects.toThrow(
      "generateText: prompt expected at most 8 tokens, got 9",
    );
    expect(session.length).toBe(4);
    const { end } = await read(generateText(session, pieces, "abcd", { stopIds: [] }));
    expect(end).toMatchObject({ reason: "full" });
    expect(end.ids.length).toBe(5);
  });
});

describe("tokenizers of other models", () => {
  test.each<readonly [string, Partial<Tokenizer>, unknown, string]>([
    ["more tokens", { vocabSize: 68 }, "a", "tokenizer expected at most 67 tokens, those of the model, got 68"],
    [
      "a token beyond the model's",
      { encode: () => [1, 70], decode: () => "<image>" },
      "a",
      'prompt expected tokens that the model has (ids below 67), got "<image>" with id 70',
    ],
    ["no ids", { encode: () => [] }, "", "prompt expected 1 or more tokens, got none"],
    [
      "ids that are none",
      { encode: () => [1, Number.NaN] },
      "a",
      "prompt[1] expected an integer from 0 to 66, got NaN",
    ],
    ["a prompt that is neither", {}, 5, "prompt expected text or ids, got 5"],
    [
      "a promise of ids",
      { encode: (async () => [1]) as never },
      "a",
      "prompt expected text or ids, got Promise: await it",
    ],
    ["more ids than memory holds", {}, { length: 2e9 }, "prompt expected at most 512 tokens, got 2000000000"],
    ["texts that are none", { decode: (() => 5) as never }, "a", "tokenizer.decode expected to return text, got 5"],
    [
      "promises of texts",
      { decode: (async () => "a") as never },
      "a",
      "tokenizer.decode expected to return text, got Promise: await it",
    ],
    ["a size that is none", { vocabSize: Number.NaN }, "a", "tokenizer.vocabSize expected an integer >= 0, got NaN"],
    ["ends that are no list", { endIds: 5 as never }, "a", "tokenizer.endIds expected "],
    [
      "an end that is none",
      { endIds: [2, -1] },
      "a",
      "tokenizer.endIds[1] expected an integer from 0 to 2147483647, got -1",
    ],
    ["no decode", { decode: undefined as never }, "a", "tokenizer.decode expected a function, got undefined"],
  ])("with %s are refused", async (_, change, prompt, text) => {
    const all = generateText(model, { ...pieces, ...change }, prompt as string);
    await expect(all.next()).rejects.toThrow(`generateText: ${text}`);
  });

  test("with fewer tokens are taken until the model gives one of the others", async () => {
    const before = kernels.usedBytes;
    const decode = (ids: readonly number[]) => {
      if (ids.includes(60)) throw new RangeError("no token 60");
      return pieces.decode(ids);
    };
    const all = generateText(model, { ...pieces, decode }, "abc", { logitsProcessors: [force([0, 60], 3)] });
    expect(await all.next()).toEqual({ value: "Hello", done: false });
    await expect(all.next()).rejects.toThrow(
      "generateText: tokenizer expected text for all tokens of the model, among them 60, got RangeError: no token 60",
    );
    expect(kernels.usedBytes).toBe(before);
  });

  test("that end with a token beyond the model's end with the others", async () => {
    const options = { logitsProcessors: [force([...pieces.encode("a"), END], 3)] };
    const { end } = await read(generateText(model, { ...pieces, endIds: [END, 90] }, "abc", options));
    expect(end).toMatchObject({ reason: "stop", stopId: END });
  });
});

test.each<readonly [unknown, unknown, string]>([
  [{}, {}, "model expected"],
  [undefined, { maxTokens: -1 }, "maxTokens expected an integer >= 0, got -1"],
  [undefined, { stops: ["a"] }, "options expected only"],
  [undefined, { keepSpecial: 1 }, "options.keepSpecial expected true or false, got 1"],
  [undefined, { stop: [1] }, "stop[0] expected a string of 1 or more whole characters, got 1"],
])("wrong arguments are named: %j, %j", async (on, options, text) => {
  const all = generateText((on ?? model) as Model, pieces, "a", options as GenerateTextOptions);
  await expect(all.next()).rejects.toThrow(`generateText: ${text}`);
});

test("the signal ends it with its reason", async () => {
  const controller = new AbortController();
  const all = generateText(model, pieces, "abc", { stopIds: [], signal: controller.signal });
  await all.next();
  controller.abort(new Error("enough"));
  await expect(read(all)).rejects.toThrow("enough");
});

describe("models with two halves", () => {
  /** What encoders expect around a text, and decoders do not. */
  const surrounding: Tokenizer = {
    ...pieces,
    encode: (text, { addSpecial = true } = {}) => [...pieces.encode(text), ...(addSpecial ? [END] : [])],
    chatTemplate: "{% for m in messages %}{{ m.content }}{% endfor %}",
  };
  const START = 40;
  const greedy = { maxTokens: 8, stopIds: [] };

  /** A model of this name, whose config.json may state the start token. */
  const load = (name: TinySeq2Seq, stated: object = { decoder_start_token_id: START }) =>
    loadSeq2Seq(kernels, tinyFolder({ ...TINY_SEQ2SEQ[name], ...stated }, seq2seqTensors(name)));

  test.each(["t5", "bart", "whisper"] as const)("%s: begin with the start token of config.json", async (name) => {
    using model = await load(name);
    const open = () => readSource(model, sourceFor(name, 20), { maxSeqLen: 64 });
    const abc = pieces.encode("abc");
    for (const [prompt, ids] of [
      ["", [START]],
      ["abc", [START, ...abc]],
      [
        [START, ...abc],
        [START, ...abc],
      ],
      // Ids are read as they are.
      [abc, abc],
    ] as const) {
      using plain = await open();
      const want: number[] = [];
      for await (const { id } of generate(plain, ids, { maxTokens: 8 })) want.push(id);
      using session = await open();
      const { end } = await read(generateText(session, surrounding, prompt, greedy));
      expect(end).toMatchObject({ ids: want, promptTokens: ids.length });
      expect(session.tokens).toEqual([...ids, ...want.slice(0, -1)]);
      if (prompt !== "abc") continue;
      session.truncate(0);
      const answer = await read(chat(session, surrounding, [{ role: "user", content: prompt }], greedy));
      expect(answer.end.ids).toEqual(want);
      // The whole text again, with the token that its template may write itself.
      const startsItself = { ...surrounding, encode: () => [START, ...abc] };
      const again = await read(generateText(session, startsItself, prompt, greedy));
      expect(again.end).toMatchObject({ ids: want, promptTokens: 4, reusedTokens: 3 });
    }
  });

  test("whose config.json states none are refused with text, and read ids", async () => {
    using model = await load("bart", {});
    using session = await readSource(model, sourceFor("bart", 20), { maxSeqLen: 64 });
    await expect(read(generateText(session, surrounding, "abc", greedy))).rejects.toThrow(
      "generateText: session expected a model whose config.json states decoder_start_token_id, or ids as the prompt, got neither",
    );
    expect(session.length).toBe(0);
    expect((await read(generateText(session, surrounding, [2], greedy))).end.ids.length).toBe(8);
  });

  test.each([67, -1, 1.5, "0"])("with the start token %j are refused", async (decoder_start_token_id) => {
    await expect(load("t5", { decoder_start_token_id })).rejects.toThrow(
      "loadSeq2Seq: decoder_start_token_id expected an integer from 0 to 66, got ",
    );
  });
});
