// Ids and texts of tokenizers of every kind, against the Rust core of Python's package and SentencePiece: test/vectors/text.

import { describe, expect, test } from "vitest";
import { loadTokenizer, readGgufTokenizer, type Tokenizer } from "../../../src/entries/text.ts";
import { createTextStream } from "../../../src/text/generate-text.ts";
import { readTextVectors, type TextVectors, toGgufVocabulary } from "../../support/vocabulary.ts";

const bytesOf = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const load = (tokenizer: object) =>
  loadTokenizer((name) => (name === "tokenizer.json" ? bytesOf(tokenizer) : undefined));

const byteLevel = readTextVectors("byte-level");
const idOf = (content: string) => byteLevel.tokenizer.added_tokens.find((each) => each.content === content)?.id ?? -1;

/** Each file of vectors, and what its GGUF metadata says besides the vocabulary. */
const KINDS: readonly (readonly [string, TextVectors, Parameters<typeof toGgufVocabulary>[1]])[] = [
  ["byte-level", byteLevel, { pre: "qwen2", bos_token_id: idOf("<|begin|>"), add_bos_token: true }],
  ["sentencepiece-bpe", readTextVectors("sentencepiece-bpe"), { bos_token_id: 1, eos_token_id: 2 }],
  ["unigram", readTextVectors("unigram"), { eos_token_id: 1, add_space_prefix: true, remove_extra_whitespaces: true }],
  ["word-piece", readTextVectors("word-piece"), { bos_token_id: 2, seperator_token_id: 3 }],
];

/**
 * What `@huggingface/tokenizers` 0.2.0 does otherwise than Rust: it does not set ideographs beyond U+FFFF apart, as BERT does. The
 * tests fail when this is no longer so.
 */
const OTHERWISE: Readonly<Record<string, readonly string[]>> = {
  "word-piece": ["𠀀𠮷野家 𝔘𝔫𝔦𝔠𝔬𝔡𝔢"],
};
/** Where tokenizers adds no space before a text that begins with SentencePiece's own mark for one, SentencePiece does. */
const OF_PYTHON: Readonly<Record<string, readonly string[]>> = { unigram: ["▁ lower one eighth block ▁▁x"] };

describe.each(KINDS)("%s", (kind, vectors, more) => {
  const sources: readonly (readonly [string, () => Promise<Tokenizer>])[] = [
    ["tokenizer.json", () => load(vectors.tokenizer)],
    ["GGUF", () => readGgufTokenizer({ metadata: toGgufVocabulary(vectors, more) })],
  ];
  test.each(sources)("%s: ids and texts are those of the Rust core", async (_, make) => {
    const tokenizer = await make();
    const wrong = vectors.cases.filter(([text, ids, decoded]) => {
      const same = JSON.stringify(Array.from(tokenizer.encode(text))) === JSON.stringify(ids);
      return !same || tokenizer.decode(ids) !== decoded;
    });
    expect(wrong.map(([text]) => text)).toEqual(OTHERWISE[kind] ?? []);
    expect(vectors.cases.length).toBeGreaterThan(35);
  });

  test.each(sources)(
    "%s: text that comes token by token is the whole text, and no piece ends within a character",
    async (_, make) => {
      const tokenizer = await make();
      for (const [, ids] of vectors.cases) {
        const stream = createTextStream(tokenizer);
        const pieces = ids.map((id) => stream.push(id));
        expect(pieces.join("") + stream.end()).toBe(tokenizer.decode(ids));
        for (const piece of pieces) expect(piece).not.toMatch(/\uFFFD|\p{Surrogate}/u);
      }
    },
  );
});

test("U+FEFF that is written by tokens of bytes stays, with the space behind it, also token by token", async () => {
  const tokenizer = await load(readTextVectors("sentencepiece-bpe").tokenizer);
  const bytes = tokenizer.encode("\ufeff", { addSpecial: false }).slice(-3);
  expect(tokenizer.decode(bytes)).toBe("\ufeff");
  const special = tokenizer.endIds?.[0] ?? 1;
  for (const text of ["\ufeff mark \ufeff\ufeff é\ufeff end", "a\ufeff  b", "\ufeff\ufeff"]) {
    const ids = tokenizer.encode(text, { addSpecial: false });
    expect(tokenizer.decode(ids)).toBe(text);
    const stream = createTextStream(tokenizer);
    expect(ids.map((id) => stream.push(id)).join("") + stream.end()).toBe(text);
  }
  // A token that is skipped does not end a run of bytes; one that is kept does.
  const mixed = [...bytes, special, ...bytes];
  expect(tokenizer.decode(mixed)).toBe("\ufeff\ufeff");
  expect(tokenizer.decode(mixed, { keepSpecial: true })).toMatch(/^\ufeff.+\ufeff$/);
});

test.each(KINDS.filter(([, { spm }]) => spm))(
  "%s from GGUF: ids are SentencePiece's own",
  async (kind, vectors, more) => {
    const tokenizer = await readGgufTokenizer({ metadata: toGgufVocabulary(vectors, more) });
    const wrong = (vectors.spm ?? []).filter(
      ([text, ids]) =>
        JSON.stringify(Array.from(tokenizer.encode(text, { addSpecial: false }))) !== JSON.stringify(ids),
    );
    expect(wrong.map(([text]) => text)).toEqual(OF_PYTHON[kind] ?? []);
    expect(vectors.spm?.length).toBeGreaterThan(30);
  },
);

test.each(Object.entries(byteLevel.families ?? {}))(
  "tokenizer.ggml.pre %s divides as the model's own tokenizer.json",
  async (pre, expected) => {
    const metadata = toGgufVocabulary(byteLevel, { pre, bos_token_id: idOf("<|begin|>"), add_bos_token: true });
    const tokenizer = await readGgufTokenizer({ metadata });
    const texts = byteLevel.texts ?? [];
    expect(expected.length).toBe(texts.length);
    const wrong = texts.flatMap((text, i) => {
      const ids = Array.from(tokenizer.encode(text));
      return JSON.stringify(ids) === JSON.stringify(expected[i]) ? [] : [[text, expected[i], ids]];
    });
    expect(wrong).toEqual([]);
  },
);
