// Where tokens lie in their text, and what the library leaves out of added tokens.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadTokenizer } from "../../../src/entries/text.ts";
import { firstTokens, frameOf, placeIds, writeTokens } from "../../../src/text/token-places.ts";
import type { MadeTokenizer, Tokenizer } from "../../../src/text/tokenizer.ts";

const words = (vocab: readonly string[], more: object = {}) => ({
  model: {
    ...{ type: "WordPiece", unk_token: "[UNK]", continuing_subword_prefix: "##", max_input_chars_per_word: 100 },
    vocab: Object.fromEntries(vocab.map((token, id) => [token, id])),
  },
  ...{ added_tokens: [], normalizer: null, pre_tokenizer: { type: "BertPreTokenizer" }, post_processor: null },
  ...{ decoder: { type: "WordPiece", prefix: "##", cleanup: false }, ...more },
});

async function load(json: object) {
  const tokenizer = await loadTokenizer((name) =>
    name === "tokenizer.json" ? new TextEncoder().encode(JSON.stringify(json)) : undefined,
  );
  const made = tokenizer.made as MadeTokenizer;
  const partsOf = (text: string) => {
    const ids = tokenizer.encode(text, { addSpecial: false });
    return placeIds("entities", made, text, ids).map(({ token, begin, end }) => [token, text.slice(begin, end)]);
  };
  return { tokenizer, made, partsOf };
}

const LOWER = {
  type: "BertNormalizer",
  clean_text: true,
  handle_chinese_chars: true,
  strip_accents: null,
  lowercase: true,
};

describe("tokens lie in the text that they came from", () => {
  test("also where letters were changed, marks removed, and spaces added", async () => {
    const { partsOf } = await load(words(["[UNK]", "caf", "##e", "中", "x", "."], { normalizer: LOWER }));
    expect(partsOf("Café  x中.")).toEqual([
      ["caf", "Caf"],
      ["##e", "é"],
      ["x", "x"],
      ["中", "中"],
      [".", "."],
    ]);
    expect(partsOf("cafe\u0301 x")).toEqual([
      ["caf", "caf"],
      ["##e", "e"],
      ["x", "x"],
    ]);
    expect(partsOf("𝔘 caf x")).toEqual([
      ["[UNK]", "𝔘"],
      ["caf", "caf"],
      ["x", "x"],
    ]);
  });

  test("also where a normaliser puts something before the text, and composes letters", async () => {
    const steps = [
      { type: "Prepend", prepend: "▁" },
      { type: "Replace", pattern: { String: " " }, content: "▁" },
      { type: "NFC" },
    ];
    const vocab = ["<unk>", "▁", "a", "b", "한", "▁a", "▁b"].map((token, id) => [token, id]);
    const model = { type: "Unigram", unk_id: 0, vocab, byte_fallback: false };
    const { partsOf } = await load(
      words([], { model, normalizer: { type: "Sequence", normalizers: steps }, pre_tokenizer: null, decoder: null }),
    );
    expect(partsOf("a b")).toEqual([
      ["▁a", "a"],
      ["▁b", " b"],
    ]);
    expect(partsOf("\u1112\u1161\u11ab b").map(([, text]) => text)).toEqual([
      "\u1112\u1161\u11ab",
      "\u1112\u1161\u11ab",
      " b",
    ]);
  });

  test("added tokens take the spaces that they say, and stand for whole words where they say so", async () => {
    const added = (id: number, content: string, more: object) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: false,
      ...more,
    });
    const bytes = ["<unk>", "s", "e", "Ġ", "y", "t", "yes", "<m>"];
    const model = {
      type: "BPE",
      vocab: Object.fromEntries(bytes.map((token, id) => [token, id])),
      merges: [],
      unk_token: "<unk>",
    };
    const { partsOf } = await load(
      words([], {
        ...{ model, decoder: { type: "ByteLevel" } },
        added_tokens: [added(6, "yes", { single_word: true }), added(7, "<m>", { lstrip: true })],
        pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
      }),
    );
    expect(partsOf("se <m> yes yest").map(([token]) => token)).toEqual([
      "s",
      "e",
      "<m>",
      "Ġ",
      "yes",
      "Ġ",
      "y",
      "e",
      "s",
      "t",
    ]);
    expect(partsOf("se <m>")).toEqual([
      ["s", "s"],
      ["e", "e"],
      ["<m>", "<m>"],
    ]);
  });
});

test("the frame of two texts has both, and the types that the file says", async () => {
  const special = { id: "[SEP]", ids: [1], tokens: ["[SEP]"] };
  const pair = [
    { Sequence: { id: "A", type_id: 0 } },
    { SpecialToken: { id: "[SEP]", type_id: 0 } },
    { Sequence: { id: "B", type_id: 1 } },
  ];
  const template = { type: "TemplateProcessing", single: pair.slice(0, 2), pair, special_tokens: { "[SEP]": special } };
  const sep = {
    id: 1,
    content: "[SEP]",
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  };
  const { made } = await load(words(["[UNK]", "[SEP]"], { post_processor: template, added_tokens: [sep] }));
  expect(frameOf(made, 2)).toEqual([
    { id: undefined, text: 0, type: 0 },
    { id: 1, text: undefined, type: 0 },
    { id: undefined, text: 1, type: 1 },
  ]);
  const plain = await load(words(["[UNK]"]));
  expect(frameOf(plain.made, 2).map(({ text }) => text)).toEqual([0, 1]);
});

test("tokens of bytes are written as text, and words that were written stay", async () => {
  const bytes = words([], {
    pre_tokenizer: { type: "ByteLevel" },
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab: { a: 0 }, merges: [] },
  });
  const { made } = await load(bytes);
  expect(writeTokens(made, ["ĠÃ", "©", " done"])).toBe(" é done");
});

describe("the first tokens of a text", () => {
  const vectors = join(import.meta.dirname, "../../vectors");
  const ofText = (name: string) => JSON.parse(readFileSync(join(vectors, "text", `${name}.json`), "utf8"));
  const folders: Readonly<Record<string, () => Promise<Tokenizer>>> = {
    "word pieces": () => loadTokenizer(join(vectors, "retrieval/bert-modules")),
    "pairs of bytes": () => loadTokenizer(join(vectors, "retrieval/rerank-roberta")),
    "pieces of SentencePiece": async () => (await load(ofText("sentencepiece-bpe").tokenizer)).tokenizer,
    unigrams: async () => (await load(ofText("unigram").tokenizer)).tokenizer,
  };
  const PARTS = [
    "the",
    "cat",
    "Paris",
    "näive",
    "cafe\u0301",
    "\u03a3\u03a3",
    " ",
    " ",
    " ",
    "  ",
    "\n",
    "\t",
    ".",
    "!?",
    "'s",
  ];
  const MORE = [
    "[SEP]",
    "</s>",
    "<mask>",
    "12345",
    "\u3002",
    "\u3001",
    "\u4e2d\u6587",
    "\ud55c\uae00",
    "\u{1f600}",
    "\u0301",
    "\u200b",
    "x".repeat(70),
  ];

  test.each(Object.entries(folders))(
    "of %s are those of the whole text, of which no more is encoded",
    async (_, open) => {
      const tokenizer = await open();
      let [seed, cut] = [7, 0];
      const random = (count: number) => {
        seed = (seed * 1103515245 + 12345) % 2 ** 31;
        return Math.floor((seed / 2 ** 31) * count);
      };
      for (let round = 0; round < 120; round++) {
        const parts = [...PARTS, ...(round % 3 === 0 ? MORE : [])];
        const text = Array.from({ length: 40 + random(900) }, () => parts[random(parts.length)]).join("");
        const most = 1 + random(60);
        const found = firstTokens(tokenizer, text, most);
        const whole = tokenizer.encode(text, { addSpecial: false });
        expect(found.ids.slice(0, most)).toEqual(whole.slice(0, most));
        expect(text.startsWith(found.text)).toBe(true);
        expect(found.ids).toEqual(whole.slice(0, found.ids.length));
        if (found.text !== text) cut++;
      }
      expect(cut).toBeGreaterThan(40);
      let encoded = 0;
      const counting = {
        ...tokenizer,
        encode: (...given: Parameters<Tokenizer["encode"]>) => {
          encoded += given[0].length;
          return tokenizer.encode(...given);
        },
      };
      const long = "the cat sat on a mat in Paris ".repeat(3e5);
      expect(firstTokens(counting, long, 512).ids.length).toBeGreaterThanOrEqual(512);
      expect(encoded).toBeLessThan(2 ** 17);
    },
  );

  test("are those of the whole where a token of the vocabulary, or an added one, has a mark behind a letter", async () => {
    const model = { type: "BPE", vocab: { a: 0, " ": 1, "a ": 2, "a a": 3 }, merges: ["a  "] };
    const steps = { pre_tokenizer: null, model, decoder: null };
    const [joined, added] = [
      await load(words([], steps)),
      await load(
        words(["[UNK]", "a"], {
          added_tokens: [
            {
              id: 2,
              content: "a a",
              special: true,
              normalized: false,
              lstrip: false,
              rstrip: false,
              single_word: false,
            },
          ],
        }),
      ),
    ];
    const text = "a ".repeat(500);
    for (const { tokenizer } of [joined, added]) expect(firstTokens(tokenizer, text, 3).text).toBe(text);
  });
});
