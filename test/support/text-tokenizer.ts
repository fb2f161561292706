// A tokenizer of a few tokens, some of which are parts of characters, and a way to have a model give the tokens of a text.

import type { LogitsProcessor } from "../../src/entries/models.ts";
import type { Tokenizer } from "../../src/entries/text.ts";

const utf8 = new TextEncoder();

/** Bytes of 67 tokens: words, one that ends a text, single bytes of an emoji and a letter, and single characters. */
const TOKENS: readonly Uint8Array[] = [
  ...["Hello", " wor", "ld", ".", " stop", "ping", "ST", "OP", "\n", "</s>"].map((text) => utf8.encode(text)),
  ...Array.from(utf8.encode("😀é"), (byte) => Uint8Array.of(byte)),
  ...Array.from("abcdefghijklmnopqrstuvwxyz <>:0123456789ABCDEFGHIJK", (letter) => utf8.encode(letter)),
];

export const END = 9;

const startsAt = (bytes: Uint8Array, token: Uint8Array, at: number) => token.every((byte, i) => bytes[at + i] === byte);

/** The longest token at each place, from left to right. Nothing is added to a text. */
export const pieces: Tokenizer = {
  encode(text) {
    const bytes = utf8.encode(text);
    const ids: number[] = [];
    for (let at = 0; at < bytes.length; ) {
      const [id] = TOKENS.map((token, id) => [id, token] as const)
        .filter(([, token]) => startsAt(bytes, token, at))
        .reduce((best, each) => (each[1].length > best[1].length ? each : best), [-1, new Uint8Array()] as const);
      if (id < 0) throw new RangeError(`no token for byte ${bytes[at]}`);
      ids.push(id);
      at += (TOKENS[id] as Uint8Array).length;
    }
    return ids;
  },
  decode(ids, { keepSpecial = false } = {}) {
    const kept = ids.filter((id) => keepSpecial || id !== END);
    return new TextDecoder().decode(
      Uint8Array.from(
        kept.flatMap((id) => {
          const token = TOKENS[id];
          if (token === undefined) throw new RangeError(`no token ${id}`);
          return [...token];
        }),
      ),
    );
  },
  vocabSize: TOKENS.length,
  endIds: [END],
};

/** Has the model give these tokens, whatever it thinks, behind a prompt of `length` tokens. */
export function force(ids: readonly number[], length: number): LogitsProcessor {
  return ([before], { data }) => {
    data.fill(Number.NEGATIVE_INFINITY);
    data[ids[(before?.length ?? 0) - length] ?? 0] = 0;
  };
}
