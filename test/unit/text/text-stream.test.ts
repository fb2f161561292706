// Text of tokens that come one at a time.

import { expect, test } from "vitest";
import { createTextStream } from "../../../src/text/generate-text.ts";
import type { Tokenizer } from "../../../src/text/tokenizer.ts";

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
/** A token for each byte. */
const bytes: Tokenizer = {
  encode: (text) => [...new TextEncoder().encode(text)],
  decode: (ids) => decoder.decode(Uint8Array.from(ids)),
};
/** As tokenizers in Rust decode tokens of bytes: several in a row that are not text are U+FFFD each. */
const strict: Tokenizer = {
  ...bytes,
  decode: (ids) => {
    const text = decoder.decode(Uint8Array.from(ids));
    return text.includes("\uFFFD") ? "\uFFFD".repeat(ids.length) : text;
  },
};
/** A space before each word but the first. */
const words: Tokenizer = { encode: () => [], decode: (ids) => ids.map((id) => `w${id}`).join(" ") };

function piecesOf(tokenizer: Tokenizer, ids: readonly number[], context: readonly number[] = []): string[] {
  const stream = createTextStream(tokenizer, context);
  return [...ids.map((id) => stream.push(id)), stream.end()];
}

test("a character comes with its last byte, and nothing before", () => {
  expect(piecesOf(bytes, [...(bytes.encode("a€😀") as number[])])).toEqual(["a", "", "", "€", "", "", "", "😀", ""]);
  expect(piecesOf(strict, [...(bytes.encode("€😀") as number[])])).toEqual(["", "", "€", "", "", "", "😀", ""]);
});

test("bytes that are no character are U+FFFD when that is certain, and at the end", () => {
  expect(piecesOf(bytes, [0xff, 0x61, 0xe2, 0x82])).toEqual(["", "\uFFFDa", "", "", "\uFFFD"]);
});

test("U+FFFD that a text has is given with what follows", () => {
  expect(piecesOf(bytes, [...(bytes.encode("\uFFFDb") as number[])]).join("")).toBe("\uFFFDb");
});

test("the first token is written as behind the context, which is not given again", () => {
  expect(piecesOf(words, [2, 3], [0, 1])).toEqual([" w2", " w3", ""]);
  expect(piecesOf(words, [2, 3])).toEqual(["w2", " w3", ""]);
});

test("few tokens are decoded at a time, however long the text is", () => {
  let longest = 0;
  const counting: Tokenizer = {
    ...bytes,
    decode: (ids) => {
      longest = Math.max(longest, ids.length);
      return bytes.decode(ids);
    },
  };
  const ids = [...(bytes.encode("abcé€😀".repeat(50)) as number[])];
  expect(piecesOf(counting, ids).join("")).toBe("abcé€😀".repeat(50));
  expect(longest).toBeLessThanOrEqual(8);
});

test("of a long context only the end is decoded", () => {
  const asked: number[] = [];
  const counting: Tokenizer = {
    ...words,
    decode: (ids) => {
      asked.push(ids.length);
      return words.decode(ids);
    },
  };
  expect(
    piecesOf(
      counting,
      [1],
      Array.from({ length: 10_000 }, (_, id) => id),
    ),
  ).toEqual([" w1", ""]);
  expect(Math.max(...asked)).toBe(33);
});

test("wrong arguments are named", () => {
  const message = 'createTextStream: options expected only keepSpecial, got "special"';
  expect(() => createTextStream(bytes, [], { special: true } as never)).toThrow(message);
  expect(() => createTextStream({} as never)).toThrow("createTextStream: tokenizer.encode expected a function");
});

test("a token that the tokenizer does not have is named", () => {
  const failing: Tokenizer = {
    ...bytes,
    decode: (ids) => {
      if (ids.includes(300)) throw new RangeError("no such token");
      return bytes.decode(ids);
    },
  };
  const stream = createTextStream(failing);
  stream.push(97);
  expect(() => stream.push(300)).toThrow(
    "createTextStream: tokenizer expected text for all tokens of the model, among them 300, got RangeError: no such token",
  );
});
