// Tokens that Whisper's files suppress or force, beside a plain choice from the logits.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { loadKernels } from "../../../../src/entries/index.ts";
import {
  forward,
  type GenerateOptions,
  generate,
  generateMany,
  loadSeq2Seq,
  models,
  readSource,
  type Seq2Seq,
} from "../../../../src/entries/models.ts";
import { generateText } from "../../../../src/entries/text.ts";
import type { Kernels } from "../../../../src/wasm/kernels.ts";
import { seq2seqFolder, sourceFor, TINY_SEQ2SEQ } from "../../../support/tiny-seq2seq.ts";

const START = [50, 51];
const TOKENS = 6;
let kernels: Kernels;
beforeAll(async () => {
  kernels = await loadKernels({ models });
});
afterAll(() => kernels.release());

const bytesOf = (value: object) => new TextEncoder().encode(JSON.stringify(value));

/** Whisper with more fields in config.json, and with generation_config.json if it is given. */
const load = (config: object, generation?: object): Promise<Seq2Seq> => {
  const file = seq2seqFolder("whisper");
  return loadSeq2Seq(kernels, (name) => {
    if (name === "config.json") return bytesOf({ ...TINY_SEQ2SEQ.whisper, ...config });
    return name === "generation_config.json" && generation ? bytesOf(generation) : file(name);
  });
};

async function write(model: Seq2Seq, ids: readonly number[], options: GenerateOptions = {}): Promise<number[]> {
  using session = await readSource(model, sourceFor("whisper", 20), { maxSeqLen: 64 });
  const found: number[] = [];
  for await (const { id } of generate(session, ids, { maxTokens: TOKENS, ...options })) found.push(id);
  return found;
}

/** The most probable tokens behind `ids` that `allows` lets through. */
async function choose(
  model: Seq2Seq,
  ids: readonly number[],
  allows: (id: number, position: number) => boolean,
): Promise<number[]> {
  using session = await readSource(model, sourceFor("whisper", 20), { maxSeqLen: 64 });
  const found: number[] = [];
  for (let next = ids; found.length < TOKENS; next = [found.at(-1) as number]) {
    const position = ids.length + found.length;
    const allowed = Array.from(forward(session, next).logits, (logit, id) =>
      allows(id, position) ? logit : -Infinity,
    );
    found.push(allowed.indexOf(Math.max(...allowed)));
  }
  return found;
}

describe("generate with Whisper", () => {
  let plain: number[];
  beforeAll(async () => {
    using model = await load({});
    plain = await choose(model, START, () => true);
    expect(await write(model, START)).toEqual(plain);
  });

  test("never gives a token of suppress_tokens, and at first none of begin_suppress_tokens", async () => {
    const [first = 0, second = 0] = plain;
    using without = await load({ begin_suppress_tokens: [first, 9999] });
    expect(await write(without, START)).toEqual(await choose(without, START, (id, at) => at !== 2 || id !== first));
    using model = await load({ suppress_tokens: [second], begin_suppress_tokens: [first] });
    const wanted = await choose(model, START, (id, at) => id !== second && (at !== 2 || id !== first));
    expect(wanted).not.toEqual(plain);
    expect(await write(model, START)).toEqual(wanted);
    expect(await write(model, START, { draft: { ngram: 1 } })).toEqual(wanted);
    using session = await readSource(model, sourceFor("whisper", 20), { maxSeqLen: 64 });
    const many: number[] = [];
    for await (const { token } of generateMany([{ session, ids: START, maxTokens: TOKENS }]))
      if (token) many.push(token.id);
    expect(many).toEqual(wanted);
  });

  test("gives the ids of forced_decoder_ids at their positions, and begins behind them", async () => {
    const forced = [
      [1, 51],
      [2, null],
      [3, 7],
    ];
    const [first = 0] = plain;
    using model = await load({ forced_decoder_ids: forced, suppress_tokens: [7], begin_suppress_tokens: [first] });
    const wanted = await choose(model, [50], (id, at) => {
      const force = ({ 1: 51, 3: 7 } as Record<number, number>)[at];
      return force === undefined ? id !== 7 && (at !== 4 || id !== first) : id === force;
    });
    expect([wanted[0], wanted[2]]).toEqual([51, 7]);
    expect(await write(model, [50])).toEqual(wanted);
    // A prompt that has these positions is read as it is.
    const prompt = [50, 3, 4, 5];
    expect(await write(model, prompt)).toEqual(
      await choose(model, prompt, (id, at) => id !== 7 && (at !== 4 || id !== first)),
    );
  });

  test("generation_config.json counts instead of config.json", async () => {
    const [first = 0] = plain;
    using model = await load({ suppress_tokens: [first] }, { suppress_tokens: [] });
    expect(await write(model, START)).toEqual(plain);
    using other = await load({}, { suppress_tokens: [first] });
    expect(await write(other, START)).toEqual(await choose(other, START, (id) => id !== first));
  });

  test("where all tokens are suppressed, the error blames logitsProcessors only if there are some", async () => {
    using model = await load({ suppress_tokens: Array.from({ length: 67 }, (_, id) => id) });
    const text = (cause: string) =>
      `generate: logits at position 2 expected one above -Infinity${cause}, got -Infinity as the largest`;
    await expect(write(model, START)).rejects.toThrow(new RangeError(text("")));
    const some = { logitsProcessors: [() => undefined] };
    await expect(write(model, START, some)).rejects.toThrow(new RangeError(text(" after logitsProcessors")));
  });

  test("a session that goes on where it stopped does not begin again, and begins behind what is forced", async () => {
    const last = plain.at(-1) as number;
    using model = await load({ begin_suppress_tokens: [last] });
    using session = await readSource(model, sourceFor("whisper", 20), { maxSeqLen: 64 });
    const found: number[] = [];
    for (const ids of [START, [last, last]])
      for await (const { id } of generate(session, ids, { maxTokens: 1 })) found.push(id);
    expect(found[0]).not.toBe(last);
    expect(found[1]).toBe(last);
    const forced = Array.from({ length: 3 }, (_, i) => [i + 1, last]);
    using other = await load({ begin_suppress_tokens: [last], forced_decoder_ids: forced });
    using slow = await readSource(other, sourceFor("whisper", 20), { maxSeqLen: 64 });
    const behind: number[] = [];
    for (let ids = [50]; behind.length < 4; ids = [behind.at(-1) as number])
      for await (const { id } of generate(slow, ids, { maxTokens: 1 })) behind.push(id);
    expect(behind.slice(0, 3)).toEqual([last, last, last]);
    expect(behind[3]).not.toBe(last);
  });

  test("text on a session that has read a part of the prompt begins behind the whole of it, as on a new one", async () => {
    const numbers = { encode: () => [], decode: (ids: readonly number[]) => ids.map((id) => `${id} `).join("") };
    const [first = 0] = plain;
    using model = await load({ begin_suppress_tokens: [first] });
    using session = await readSource(model, sourceFor("whisper", 20), { maxSeqLen: 64 });
    const wanted = await write(model, START);
    expect(wanted).not.toEqual(plain);
    for (const reused of [0, START.length - 1]) {
      const all = generateText(session, numbers, START, { maxTokens: TOKENS });
      for await (const _ of all);
      expect(await all.end).toMatchObject({ ids: wanted, reusedTokens: reused });
    }
  });
});

test.each([
  [[1], "generation_config.json: JSON expected an object, got Array"],
  [{ suppress_tokens: [1, -1] }, "generation_config.json: suppress_tokens expected a list of token ids, got -1"],
  [{ begin_suppress_tokens: 5 }, "generation_config.json: begin_suppress_tokens expected an array, got 5"],
  [
    { forced_decoder_ids: [[1, 67]] },
    'generation_config.json: forced_decoder_ids expected pairs of a position and an id below 67, got "[1, 67]"',
  ],
])("%j is refused by the name of the file and the field", async (generation, message) => {
  await expect(load({}, generation)).rejects.toMatchObject({ code: "BAD_FILE", message: `loadSeq2Seq: ${message}` });
});

test("fields of config.json are refused by its name", async () => {
  await expect(load({ suppress_tokens: 5 })).rejects.toThrow(
    "loadSeq2Seq: config.json: suppress_tokens expected an array, got 5",
  );
});
