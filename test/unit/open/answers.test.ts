// Answers: streamed or whole, several at once, aborted, and conversations that go on.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  createSession,
  exportSession,
  forward,
  generateText,
  type Model,
  type OpenedModel,
  openModel,
  type Session,
} from "./entries.ts";

const FILE = "model/stories/stories.gguf";
const TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}";
const STARTS = [
  "anna put the apple in the box .",
  "the cat sat on the mat because it was",
  "tom was hungry , so he opened the bag",
  "emma had a book .",
  "the ball did not fit in the box",
];

let model: OpenedModel;
/** The same, of which the memory is not measured. */
let other: OpenedModel;
beforeAll(async () => {
  model = await openModel(FILE, { template: TEMPLATE });
  other = await openModel(FILE, { template: TEMPLATE });
});
afterAll(() => {
  model.release();
  other.release();
});

/** The pages of all layers of a session, as bytes. */
const pagesOf = (session: Session) => exportSession(session).map((layer) => layer.map(({ bytes }) => bytes));

/** Throws unless a session holds the bits of one that reads its tokens at once. */
function expectColdStart(session: Session): void {
  const { tokens, maxSeqLen } = session;
  const { cache } = model.choices;
  using cold = createSession(other.parts.model as Model, { maxSeqLen, format: cache?.value });
  forward(cold, tokens);
  expect(pagesOf(session)).toEqual(pagesOf(cold));
}

describe("an answer", () => {
  test("is the text of generateText, in pieces and as a whole, without or after the loop", async () => {
    const { model: decoder, tokenizer } = model.parts;
    using session = createSession(decoder as Model, { format: model.choices.cache?.value });
    let expected = "";
    for await (const piece of generateText(session, tokenizer, STARTS[0] as string, { maxTokens: 20 }))
      expected += piece;
    const answer = model.text(STARTS[0] as string, { maxTokens: 20 });
    expect(await answer.text).toBe(expected);
    let again = "";
    for await (const piece of answer) again += piece;
    expect(again).toBe(expected);
    const { seconds, firstSeconds, ...end } = await answer.end;
    expect(end).toEqual({ reason: "length", read: 9, reused: 0, written: 20 });
    expect(seconds).toBeGreaterThanOrEqual(firstSeconds);
    expect(firstSeconds).toBeGreaterThan(0);
    const ids = await answer.ids;
    expect(ids.length).toBe(20);
    // Each is the most probable one, whose logarithm is that of softmax.
    using read = createSession(decoder as Model, { format: model.choices.cache?.value });
    const { logits } = forward(read, tokenizer.encode(STARTS[0] as string));
    const sum = logits.reduce((all, logit) => all + Math.exp(logit), 0);
    expect((await answer.logprobs)[0]).toBeCloseTo(Math.log(Math.exp(logits[ids[0] as number] as number) / sum), 4);
  });

  test("with guesses is the same one, beside others", async () => {
    const plain = await model.text(STARTS[0] as string, { maxTokens: 40 }).ids;
    const options = { maxTokens: 40, draft: { ngram: 1 } };
    const answers = [options, { maxTokens: 40 }, options].map((each) => model.text(STARTS[0] as string, each));
    for (const answer of answers) expect(await answer.ids).toEqual(plain);
    const abort = new AbortController();
    const aborted = model.text(STARTS[1] as string, { ...options, signal: abort.signal });
    for await (const _ of aborted) abort.abort();
    expect((await aborted.end).reason).toBe("aborted");
    await expect(model.text("the", { draft: { ngram: 99 } }).end).rejects.toThrow(
      "text: draft.ngram expected an integer from 1 to 16, got 99",
    );
    await model.text("the", { maxTokens: 1 }).end;
    for (const session of model.parts.sessions) expectColdStart(session);
  });

  test("has a seed, and the same text with it", async () => {
    const options = { maxTokens: 12, temperature: 1 };
    const answer = model.text(STARTS[1] as string, options);
    const { seed } = await answer.end;
    expect(seed).toBeTypeOf("number");
    expect(await model.text(STARTS[1] as string, { ...options, seed }).text).toBe(await answer.text);
  });

  test("ends at a text of stop, which is not given", async () => {
    const whole = await model.text(STARTS[0] as string, { maxTokens: 20 }).text;
    const answer = model.text(STARTS[0] as string, { maxTokens: 20, stop: " the" });
    expect(await answer.text).toBe(whole.slice(0, whole.indexOf(" the")));
    expect(await answer.end).toMatchObject({ reason: "stop", stop: " the" });
  });

  test("ends when its loop is left, and when it is aborted, with what there is", async () => {
    const left = model.text(STARTS[0] as string);
    for await (const _ of left) break;
    expect(await left.end).toMatchObject({ reason: "left" });
    const abort = new AbortController();
    const aborted = model.text(STARTS[0] as string, { signal: abort.signal });
    let shown = "";
    for await (const piece of aborted) {
      shown += piece;
      abort.abort();
    }
    expect(shown).not.toBe("");
    expect(await aborted.text).toBe(shown);
    expect(await aborted.end).toMatchObject({ reason: "aborted" });
    const before = model.text(STARTS[0] as string, { signal: AbortSignal.abort() });
    expect([await before.text, (await before.end).reason]).toEqual(["", "aborted"]);
  });

  test("fails for wrong arguments at once, and rejects with what fails later", async () => {
    const options = { temperature: -1 };
    expect(() => model.text("the", options)).toThrow("text: temperature expected");
    expect(() => model.text("the", { maxNewTokens: 3 } as never)).toThrow("text: options expected maxTokens instead");
    expect(() => model.text(7 as never)).toThrow("text: prompt expected text or ids, got 7");
    expect(() => model.chat("Hi" as never)).toThrow('chat: messages expected a list of 1 or more messages, got "Hi"');
    const long = model.text("the ".repeat(300));
    await expect(long.text).rejects.toThrow("text: prompt expected at most 192 tokens, got 301");
    await expect(long.end).rejects.toMatchObject({ code: "CACHE_FULL" });
    const failing = model.text("the", {
      logitsProcessors: [
        () => {
          throw new Error("mine");
        },
      ],
    });
    await expect(failing.text).rejects.toThrow("mine");
    const read = async () => {
      for await (const _ of failing);
    };
    await expect(read()).rejects.toThrow("mine");
  });
});

describe("answers at once", () => {
  test("ten with random aborts have the bits of one alone, and give their memory back", async () => {
    const prompts = Array.from({ length: 10 }, (_, i) => `${STARTS[i % 5]} ${STARTS[(i + i * i) % 5]}`);
    const alone: (readonly number[])[] = [];
    for (const prompt of prompts) alone.push(await model.text(prompt, { maxTokens: 30 }).ids);
    const releaseKept = () => {
      for (const session of [...model.parts.sessions]) session.release();
    };
    // The first export takes memory for itself.
    for (const session of model.parts.sessions) pagesOf(session);
    releaseKept();
    const used = model.parts.kernels.usedBytes;
    for (const round of [0, 1, 2]) {
      const answers = prompts.map((prompt, i) => {
        const abort = new AbortController();
        const answer = model.text(prompt, { maxTokens: 30, signal: abort.signal });
        const after = (7 * i + 5 * round) % 40;
        const stopping = (async () => {
          let count = 0;
          for await (const _ of answer) if (++count > after) abort.abort();
        })();
        return { answer, stopping };
      });
      await Promise.all(answers.map(({ stopping }) => stopping));
      for (const [i, { answer }] of answers.entries()) {
        const ids = await answer.ids;
        const { reason } = await answer.end;
        expect(ids).toEqual(reason === "aborted" ? alone[i]?.slice(0, ids.length) : alone[i]);
      }
      // What was aborted leaves at the next step.
      await model.text("the", { maxTokens: 1 }).end;
      for (const session of model.parts.sessions) expectColdStart(session);
      releaseKept();
      expect(model.parts.kernels.usedBytes).toBe(used);
    }
  });

  test("wait for each other where memory has no room for all", async () => {
    using small = await openModel(FILE, { memory: 2_400_000 });
    const one = await small.text(STARTS[0] as string, { maxTokens: 100 }).text;
    const all = Array.from({ length: 6 }, () => small.text(STARTS[0] as string, { maxTokens: 100 }).text);
    expect(new Set(await Promise.all(all))).toEqual(new Set([one]));
  });
});

describe("a conversation", () => {
  const question = (content: string) => ({ role: "user", content });

  test("that goes on reads what is new alone, with the bits of a cold start", async () => {
    using chat = await openModel(FILE, { template: TEMPLATE });
    const messages = [question("anna put the apple in the box .")];
    const first = chat.chat(messages, { maxTokens: 8 });
    messages.push({ role: "assistant", content: await first.text }, question("where was the apple ? in the"));
    const second = chat.chat(messages, { maxTokens: 8 });
    const { read, reused } = await second.end;
    expect(reused).toBeGreaterThan(8);
    expect(read + reused).toBe(await chat.countTokens(messages));
    using cold = await openModel(FILE, { template: TEMPLATE });
    const other = cold.chat(messages, { maxTokens: 8 });
    expect(await other.ids).toEqual(await second.ids);
    expect((await other.end).reused).toBe(0);
    const [warm] = chat.parts.sessions;
    const [again] = cold.parts.sessions;
    expect(pagesOf(warm as Session)).toEqual(pagesOf(again as Session));
  });

  test("that begins as another shares its beginning, and both go on", async () => {
    using chat = await openModel(FILE, { template: TEMPLATE });
    const shared = question("anna put the apple in the box . tom moved the apple to the bag . emma had a book .");
    const ask = async (content: string) => chat.chat([shared, question(content)], { maxTokens: 4 }).end;
    expect((await ask("where was the apple ?")).reused).toBe(0);
    expect((await ask("who had the book ?")).reused).toBeGreaterThan(16);
    expect((await ask("where was the apple ? in")).reused).toBeGreaterThan(20);
    expect(chat.parts.sessions.length).toBe(3);
  });

  test("that is too long is refused, or forgets its oldest turns, whole ones, behind the system's message", async () => {
    using chat = await openModel(FILE, { template: TEMPLATE, maxSeqLen: 64 });
    const system = { role: "system", content: "kate had a pie ." };
    const turns = Array.from({ length: 9 }, (_, i) => [
      question(`emma put the scarf in the bucket . ${"now ".repeat(i % 3)}`),
      { role: "assistant", content: "yes ." },
    ]).flat();
    const messages = [system, ...turns, question("where was the scarf ? in the")];
    const refused = chat.chat(messages, { maxTokens: 4 });
    await expect(refused.text).rejects.toThrow(
      /^chat: messages expected at most 64 tokens, got \d+: whenFull: "forget" leaves out the oldest turns$/,
    );
    const answer = chat.chat(messages, { maxTokens: 4, whenFull: "forget" });
    const { forgotten = 0, read } = await answer.end;
    expect(forgotten % 2).toBe(0);
    expect(read).toBeLessThanOrEqual(60);
    const kept = [system, ...messages.slice(1 + forgotten)];
    expect(read).toBe(await chat.countTokens(kept));
    // Those that follow begin with the same messages for a while, which are not read again.
    messages.push({ role: "assistant", content: await answer.text }, question("where ?"));
    const next = await chat.chat(messages, { maxTokens: 4, whenFull: "forget" }).end;
    expect(next.reused > 20 || (next.forgotten ?? 0) > forgotten).toBe(true);
    const endless = [system, question("now ".repeat(80))];
    await expect(chat.chat(endless, { maxTokens: 4, whenFull: "forget" }).text).rejects.toThrow(
      "chat: messages expected a last turn of at most 60 tokens beside the messages of the system, got more",
    );
  });
});
