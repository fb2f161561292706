// Tokenizers of the vocabulary in a GGUF file: what the keys say, and vocabularies that are wrong or hostile.

import { describe, expect, test } from "vitest";
import { loadTokenizer, readGgufTokenizer } from "../../../src/entries/text.ts";
import { openGguf } from "../../../src/entries/weights.ts";
import type { GgufValue } from "../../../src/files/gguf.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { list, text, u32, writeGguf } from "../../support/gguf-writer.ts";
import { readTextVectors, toGgufVocabulary } from "../../support/vocabulary.ts";

const byteLevel = readTextVectors("byte-level");
const sentencePiece = readTextVectors("sentencepiece-bpe");
const wordPiece = readTextVectors("word-piece");
const unigram = readTextVectors("unigram");
const SIZE = 659;

/** The byte-level vocabulary with other keys; undefined takes one away. */
function withKeys(more: Readonly<Record<string, GgufValue | undefined>>, vectors = byteLevel) {
  const metadata = toGgufVocabulary(vectors, { pre: "qwen2", bos_token_id: 656, eos_token_id: 657 });
  for (const [key, value] of Object.entries(more)) {
    if (value === undefined) metadata.delete(`tokenizer.ggml.${key}`);
    else metadata.set(`tokenizer.ggml.${key}`, value);
  }
  return { metadata };
}
const read = (more: Parameters<typeof withKeys>[0], vectors = byteLevel) => readGgufTokenizer(withKeys(more, vectors));
const tokens = toGgufVocabulary(byteLevel).get("tokenizer.ggml.tokens") as readonly string[];
const replaced = (id: number, token: unknown) => tokens.map((each, i) => (i === id ? token : each)) as string[];

test("the keys say what is put around a text, and what ends one", async () => {
  const { encode, endIds, specialTokens, vocabSize } = await read({});
  expect({ ids: encode("a"), endIds, specialTokens, vocabSize }).toEqual({
    ...{ ids: [97], endIds: [657], vocabSize: SIZE },
    specialTokens: { bos_token: "<|begin|>", eos_token: "<|im_end|>" },
  });
  expect((await read({ add_bos_token: true, add_eos_token: true })).encode("a")).toEqual([656, 97, 657]);
  expect((await read({ pre: "llama-bpe" })).encode("a")).toEqual([656, 97]);
  expect((await read({ pre: "llama-bpe", add_bos_token: false })).encode("a")).toEqual([97]);
  for (const none of [2 ** 32 - 1, -1])
    expect((await read({ bos_token_id: none, add_bos_token: true })).encode("a")).toEqual([97]);
  expect((await read({ eos_token_id: 655, eot_token_id: 5n })).endIds).toEqual([655, 5, 657]);
  expect((await read({ pre: "roberta-bpe" })).encode("a")).toEqual([656, 97, 657]);
  const bert = { bos_token_id: undefined, cls_token_id: 2, seperator_token_id: 3, eos_token_id: undefined };
  expect((await read(bert, wordPiece)).encode("a").length).toBe(3);
  expect((await read({ ...bert, add_sep_token: false }, wordPiece)).encode("a").length).toBe(2);
});

test("<|end|> ends an answer, but for vocabularies with <|return|>, in which it ends a part of one", async () => {
  const words = replaced(656, "<|end|>");
  expect((await read({ tokens: words })).endIds).toEqual([657, 656]);
  words[657] = "<|return|>";
  expect((await read({ tokens: words })).endIds).toEqual([657]);
});

test("the chat template is the file's, and a text that begins with a space keeps it without add_space_prefix", async () => {
  const metadata = withKeys({}).metadata.set("tokenizer.chat_template", "{{ messages }}");
  expect((await readGgufTokenizer({ metadata })).chatTemplate).toBe("{{ messages }}");
  const [prefixed, plain] = [
    await read({ bos_token_id: 1 }, sentencePiece),
    await read({ bos_token_id: 1, add_space_prefix: false }, sentencePiece),
  ];
  const ids = Array.from(plain.encode(" cat", { addSpecial: false }));
  expect(prefixed.encode("cat", { addSpecial: false })).toEqual(ids);
  expect([prefixed.decode(ids), plain.decode(ids)]).toEqual(["cat", " cat"]);
});

/** A tokenizer of SentencePiece's pieces with their scores, whose ids begin with 1; 0 is what is unknown. */
function ofPieces(model: "llama" | "t5", pieces: Readonly<Record<string, number>>) {
  const tokens = ["<unk>", ...Object.keys(pieces)];
  const keys = {
    ...{ model, tokens, token_type: Int32Array.from(tokens, (_, id) => (id === 0 ? 2 : 1)) },
    ...{ scores: Float32Array.of(0, ...Object.values(pieces)), add_space_prefix: false },
  };
  const metadata = new Map<string, GgufValue>(Object.entries(keys).map(([key, to]) => [`tokenizer.ggml.${key}`, to]));
  return readGgufTokenizer({ metadata });
}
const idsIn = ({ encode }: Awaited<ReturnType<typeof ofPieces>>, text: string) =>
  Array.from(encode(text, { addSpecial: false }));

test("SentencePiece joins neighbours of the highest score first, wherever it stands in the vocabulary, and of one score the first", async () => {
  const letters = { a: -20, b: -20, c: -20 };
  const [a, c, ab, bc] = [1, 3, 4, 5];
  expect(idsIn(await ofPieces("llama", { ...letters, ab: -5, bc: -1 }), "abc")).toEqual([a, bc]);
  expect(idsIn(await ofPieces("llama", { ...letters, ab: -1, bc: -5 }), "abc")).toEqual([ab, c]);
  expect(idsIn(await ofPieces("llama", { ...letters, ab: -3, bc: -3 }), "abc")).toEqual([ab, c]);
  // Pieces of three are joined from any two parts of them.
  expect(idsIn(await ofPieces("llama", { ...letters, bc: -5, abc: -9 }), "abc")).toEqual([5]);
  expect(idsIn(await ofPieces("llama", { ...letters, ab: -5, abc: -9 }), "abc")).toEqual([5]);
});

test("SentencePiece has one token for a run of unknown characters, and never a piece that no two others make", async () => {
  const letters = { a: -20, b: -20, c: -20, "😀": -20 };
  expect(idsIn(await ofPieces("llama", letters), "adda")).toEqual([1, 0, 1]);
  expect(idsIn(await ofPieces("llama", { ...letters, abc: -1 }), "abc")).toEqual([1, 2, 3]);
  expect(idsIn(await ofPieces("llama", { ...letters, "a😀": -1, "a😀b": -2 }), "a😀b")).toEqual([6]);
});

test("unigrams may hold several words, and the division of the largest sum of scores is taken", async () => {
  const pieces = { "▁": -9, a: -4, b: -4, "▁a": -3, "▁b": -3, "▁a▁b": -5 };
  expect(idsIn(await ofPieces("t5", pieces), " a b a")).toEqual([6, 4]);
  expect(idsIn(await ofPieces("t5", { ...pieces, "▁a▁b": -7 }), " a b a")).toEqual([4, 5, 4]);
});

test("several spaces are one to unigrams, and those at the ends none, only where remove_extra_whitespaces says so", async () => {
  const [kept, cut] = await Promise.all(
    [false, true].map((remove_extra_whitespaces) =>
      readGgufTokenizer({ metadata: toGgufVocabulary(unigram, { eos_token_id: 1, remove_extra_whitespaces }) }),
    ),
  );
  const absent = await readGgufTokenizer({ metadata: toGgufVocabulary(unigram, { eos_token_id: 1 }) });
  const ids = Array.from(kept!.encode("the cat"));
  for (const spaced of ["the cat", "  the cat", "the   cat "]) expect(Array.from(cut!.encode(spaced))).toEqual(ids);
  for (const tokenizer of [kept!, absent]) expect(tokenizer.decode(tokenizer.encode("the   cat "))).toBe("the   cat ");
});

test("a map of characters makes one of those that are written in several ways", async () => {
  const [mapped, plain] = await Promise.all(
    [Uint8Array.of(0), undefined].map((map) =>
      readGgufTokenizer({
        metadata: toGgufVocabulary(unigram, { eos_token_id: 1, ...(map && { precompiled_charsmap: map }) }),
      }),
    ),
  );
  const ids = Array.from(plain!.encode("fi"));
  expect([Array.from(mapped!.encode("ﬁ")), Array.from(mapped!.encode("fi"))]).toEqual([ids, ids]);
  expect(Array.from(plain!.encode("ﬁ"))).not.toEqual(ids);
});

test("a word of WordPiece has at most 100 characters", async () => {
  const { encode } = await read({ bos_token_id: undefined, eos_token_id: undefined }, wordPiece);
  const [most, more] = [100, 101].map((count) => encode("a".repeat(count), { addSpecial: false }));
  expect(most!.length).toBeGreaterThan(1);
  expect(more).toEqual(encode("\u2603", { addSpecial: false }));
});

test("capitals in the vocabulary, or the key, decide whether WordPiece makes letters small", async () => {
  const metadata = toGgufVocabulary(wordPiece, { bos_token_id: 2, seperator_token_id: 3 });
  const words = metadata.get("tokenizer.ggml.tokens") as string[];
  const unused = words.indexOf("▁xyzzy") < 0 ? words.length - 1 : 0;
  const cased = new Map(metadata).set(
    "tokenizer.ggml.tokens",
    words.map((word, i) => (i === unused ? "▁The" : word)),
  );
  const idsOf = async (given: typeof metadata) =>
    Array.from((await readGgufTokenizer({ metadata: given })).encode("The"));
  expect(await idsOf(cased)).toEqual([2, unused, 3]);
  expect(await idsOf(new Map(cased).set("tokenizer.ggml.normalizer.lowercase", true))).toEqual(await idsOf(metadata));
});

test("special tokens of Phi-3 take the spaces behind them", async () => {
  const idsOf = async (name: string) => {
    const metadata = toGgufVocabulary(sentencePiece, { bos_token_id: 1, add_bos_token: false });
    return Array.from(
      (await readGgufTokenizer({ metadata: metadata.set("general.name", name) })).encode("</s> \n cat<s> cat"),
    );
  };
  const cat = (await read({ add_bos_token: false }, sentencePiece)).encode("cat");
  const spaced = (await read({ add_bos_token: false }, sentencePiece)).encode(" cat");
  expect(await idsOf("Phi-3-mini")).toEqual([2, ...cat, 1, ...spaced]);
  expect((await idsOf("Llama")).length).toBeGreaterThan(2 + cat.length + spaced.length);
});

test("special tokens are text only where asked for", async () => {
  const { encode, decode } = await read({});
  const ids = Array.from(encode("a<|im_end|>b<tool>"));
  expect(ids).toEqual([97, 657, 98, 658]);
  expect(decode(encode("a <|im_end|> b"))).toBe("a  b");
  expect([decode(ids), decode(ids, { keepSpecial: true })]).toEqual(["ab<tool>", "a<|im_end|>b<tool>"]);
});

test("a vocabulary may lack bytes, as Falcon's lacks those of controls: they are unknown, or a text that has them is refused", async () => {
  const { encode } = await read({ tokens: replaced(tokens.indexOf("\u0103"), "other") });
  expect(Array.from(encode("a<|im_end|>"))).toEqual([97, 657]);
  expect(() => encode("a\u0003")).toThrow(
    new RangeError('encode: text expected characters that the vocabulary has tokens for, got "a\\u0003"'),
  );
  const known = await read({ tokens: replaced(tokens.indexOf("\u0103"), "other"), unknown_token_id: 98 });
  expect(Array.from(known.encode("a\u0003"))).toEqual([97, 98]);
});

test("tokens that the vocabulary does not have are named, and wrong arguments", async () => {
  const { encode, decode } = await read({});
  expect(() => decode([1, SIZE])).toThrow(`decode: ids expected ids of the vocabulary (${SIZE} tokens), got ${SIZE}`);
  expect(() => decode([-1])).toThrow(`decode: ids expected ids of the vocabulary (${SIZE} tokens), got -1`);
  expect(decode([])).toBe("");
  expect(() => encode(5 as never)).toThrow("encode: text expected a string, got 5");
  expect(() => encode("", { special: true } as never)).toThrow(
    'encode: options expected only addSpecial, parseSpecial, plain, got "special"',
  );
  await expect(readGgufTokenizer({} as never)).rejects.toThrow(
    "readGgufTokenizer: file expected metadata, as openGguf gives it, got Object",
  );
});

describe("hostile vocabularies are refused by key", () => {
  test.each<readonly [string, Parameters<typeof withKeys>[0], string]>([
    ["no kind", { model: undefined }, 'model" expected the kind of a vocabulary, got undefined'],
    ["none", { model: "none" }, 'model" expected the kind of a vocabulary, got "none"'],
    ["an unknown kind", { model: "rwkv" }, 'model" expected gpt2, llama, bert or t5, got "rwkv"'],
    ["no tokens", { tokens: undefined }, 'tokens" expected a list of strings, got undefined'],
    ["an empty list", { tokens: [] }, 'tokens" expected a list of strings, got Array'],
    ["numbers as tokens", { tokens: Int32Array.of(1) }, 'tokens" expected a list of strings, got Int32Array'],
    ["lists as tokens", { tokens: [["a"]], token_type: undefined }, 'tokens" expected strings, got Array'],
    [
      "a long token",
      { tokens: replaced(3, "x".repeat(1025)) },
      `tokens" expected tokens of at most 1024 characters, got "${"x".repeat(80)}…"`,
    ],
    [
      "a token twice",
      { tokens: replaced(5, "!") },
      'tokens" expected tokens that differ, but ids 5 and 33 are the same, got "!"',
    ],
    [
      "too few types",
      { token_type: Int32Array.of(1) },
      'token_type" expected 659 numbers, one for each token, got Int32Array',
    ],
    ["scores of another kind", { scores: ["1"] }, 'scores" expected 659 numbers, one for each token, got Array'],
    ["scores that are none", { scores: new Float32Array(SIZE).fill(NaN) }, 'scores" expected finite numbers, got NaN'],
    ["another pre-tokenizer", { pre: "whisper" }, 'pre" expected one of default, llama-bpe,'],
    ["a pre-tokenizer that is no text", { pre: 5 }, 'pre" expected text, got 5'],
    ["merges of another kind", { merges: Int32Array.of(1) }, 'merges" expected a list of strings, got Int32Array'],
    ["a merge of one", { merges: ["ab"] }, 'merges" expected two tokens and a space between them, got "ab"'],
    ["a merge of three", { merges: ["a b c"] }, 'merges" expected two tokens and a space between them, got "a b c"'],
    ["a merge to no token", { merges: ["a !"] }, 'merges" expected merges of tokens to tokens, got "a !"'],
    ["an end beyond the tokens", { eos_token_id: SIZE }, `eos_token_id" expected an id below ${SIZE}, got ${SIZE}`],
    ["an end that is no id", { eos_token_id: 1.5 }, `eos_token_id" expected an id below ${SIZE}, got 1.5`],
    [
      "an end that is the name of a method",
      { eos_token_id: "at" },
      `eos_token_id" expected an id below ${SIZE}, got "at"`,
    ],
    ["an end in a list", { eos_token_id: ["3"] }, `eos_token_id" expected an id below ${SIZE}, got Array`],
    ["a flag that is none", { add_bos_token: 1 }, 'add_bos_token" expected true or false, got 1'],
    [
      "no bytes and nothing for what is unknown",
      { model: "llama" },
      'tokens" expected tokens of all bytes, or one for what is unknown, got "neither"',
    ],
    ["nothing for what is unknown", { model: "bert" }, 'unknown_token_id" expected the id of a token, got undefined'],
    [
      "a map that is no bytes",
      { model: "t5", unknown_token_id: 1, precompiled_charsmap: [] },
      'precompiled_charsmap" expected bytes, got Array',
    ],
  ])("%s", async (_, more, text) => {
    expect(await badFileOf(() => read(more))).toContain(`readGgufTokenizer: key "tokenizer.ggml.${text}`);
  });
});

test("pieces of SentencePiece have at most 256 characters", async () => {
  const metadata = toGgufVocabulary(sentencePiece);
  const all = metadata.get("tokenizer.ggml.tokens") as string[];
  metadata.set("tokenizer.ggml.tokens", [...all.slice(0, -1), "a".repeat(256)]);
  expect((await readGgufTokenizer({ metadata })).vocabSize).toBe(all.length);
  metadata.set("tokenizer.ggml.tokens", [...all.slice(0, -1), "a".repeat(257)]);
  expect(await badFileOf(() => readGgufTokenizer({ metadata }))).toContain(
    "expected pieces of at most 256 characters, got",
  );
});

test("so many long pieces that dividing them would take minutes are refused", async () => {
  const metadata = toGgufVocabulary(sentencePiece);
  const all = metadata.get("tokenizer.ggml.tokens") as string[];
  const long = Array.from({ length: 5000 }, (_, i) => `${i}`.padStart(250, "a"));
  metadata.set("tokenizer.ggml.tokens", [...all, ...long]);
  const length = all.length + long.length;
  metadata.set("tokenizer.ggml.token_type", new Int32Array(length).fill(1));
  metadata.set("tokenizer.ggml.scores", new Float32Array(length));
  expect(await badFileOf(() => readGgufTokenizer({ metadata }))).toMatch(
    /key "tokenizer.ggml.tokens" expected pieces whose squared lengths add up to at most 268435456, got 2684\d+$/,
  );
});

test("names such as __proto__ and empty ones are tokens like others", async () => {
  const names = ["__proto__", "constructor", ""];
  const all = tokens.map((token, id) => names[id - 600] ?? token);
  const merges = (toGgufVocabulary(byteLevel).get("tokenizer.ggml.merges") as string[]).slice(0, 100);
  const { encode, decode } = await read({ tokens: all, merges });
  expect(Array.from(encode("a cat"), (id) => decode([id])).join("")).toBe("a cat");
  expect(decode([600, 601])).toBe("__proto__constructor");
});

test("it is read from a file that openGguf opened", async () => {
  const { pieces, types } = {
    pieces: ["[UNK]", "[CLS]", "[SEP]", "▁the", "▁cat", "s"],
    types: [2, 3, 3, 1, 1, 1],
  };
  const bytes = writeGguf({
    metadata: {
      "tokenizer.ggml.model": text("bert"),
      "tokenizer.ggml.tokens": list(8, pieces),
      "tokenizer.ggml.token_type": list(5, types),
    },
  });
  const tokenizer = await readGgufTokenizer(await openGguf(bytes));
  expect(tokenizer.encode("The cats xyz")).toEqual([3, 4, 5, 0]);
  expect(tokenizer.decode([3, 4, 5])).toBe("the cats");
});

test("loadTokenizer takes the file itself, as loadModel does", async () => {
  const { metadata } = withKeys({});
  const typed = Object.fromEntries(
    [...metadata].map(([key, value]) => {
      if (typeof value === "string") return [key, text(value)];
      if (typeof value === "number") return [key, u32(value)];
      return [
        key,
        list(typeof (value as ArrayLike<unknown>)[0] === "string" ? 8 : 5, Array.from(value as ArrayLike<unknown>)),
      ];
    }),
  );
  const bytes = writeGguf({ metadata: typed });
  const own = await readGgufTokenizer({ metadata });
  for (const source of [bytes, new Blob([bytes]), [new File([bytes], "tiny.gguf")]]) {
    const { encode, endIds, vocabSize } = await loadTokenizer(source);
    expect([encode("The cat"), endIds, vocabSize]).toEqual([own.encode("The cat"), own.endIds, own.vocabSize]);
  }
  await expect(loadTokenizer(writeGguf({}))).rejects.toThrow('loadTokenizer: key "tokenizer.ggml.model"');
});
