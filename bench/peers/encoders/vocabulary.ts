// A vocabulary of BERT's form in which each word is a token, and the files of its tokenizer.

const SPECIAL: Readonly<Record<number, string>> = {
  0: "[PAD]",
  100: "[UNK]",
  101: "[CLS]",
  102: "[SEP]",
  103: "[MASK]",
};

/** The word of an id: five letters. */
export const wordOf = (id: number): string =>
  Array.from({ length: 5 }, (_, i) => String.fromCharCode(97 + (Math.floor(id / 26 ** (4 - i)) % 26))).join("");

/** tokenizer.json and tokenizer_config.json of so many tokens. */
export function tokenizerFiles(vocabSize: number): Record<string, string> {
  const special = (id: string, type = 0) => ({ SpecialToken: { id, type_id: type } });
  const token = (id: number) => ({ id: SPECIAL[id], ids: [id], tokens: [SPECIAL[id]] });
  const added = Object.entries(SPECIAL).map(([id, content]) => ({
    ...{ id: Number(id), content, special: true, normalized: false },
    ...{ single_word: false, lstrip: false, rstrip: false },
  }));
  const tokenizer = {
    ...{ version: "1.0", truncation: null, padding: null, added_tokens: added },
    normalizer: {
      ...{ type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
    },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: {
      type: "TemplateProcessing",
      single: [special("[CLS]"), { Sequence: { id: "A", type_id: 0 } }, special("[SEP]")],
      pair: [
        ...[special("[CLS]"), { Sequence: { id: "A", type_id: 0 } }, special("[SEP]")],
        ...[{ Sequence: { id: "B", type_id: 1 } }, special("[SEP]", 1)],
      ],
      special_tokens: { "[CLS]": token(101), "[SEP]": token(102) },
    },
    decoder: { type: "WordPiece", prefix: "##", cleanup: true },
    model: {
      ...{ type: "WordPiece", unk_token: "[UNK]", continuing_subword_prefix: "##", max_input_chars_per_word: 100 },
      vocab: Object.fromEntries(Array.from({ length: vocabSize }, (_, id) => [SPECIAL[id] ?? wordOf(id), id])),
    },
  };
  const config = {
    ...{ tokenizer_class: "BertTokenizer", model_max_length: 512, do_lower_case: true },
    ...{ pad_token: "[PAD]", unk_token: "[UNK]", cls_token: "[CLS]", sep_token: "[SEP]", mask_token: "[MASK]" },
  };
  return { "tokenizer.json": JSON.stringify(tokenizer), "tokenizer_config.json": JSON.stringify(config) };
}
