// Writes the vectors of text: small tokenizers, and what the Rust core of Hugging Face's tokenizers, which Python's package runs
// too, and SentencePiece make of awkward texts with them. README.md says how to run it.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Tokenizer } from "tokenizers";
import { CORPUS, SHORT, TEXTS } from "./corpus.mjs";
import { byteCharacters, trainBpe, trainWordPiece } from "./train.mjs";

const folder = import.meta.dirname;
const added = (id, content, special = true) => ({
  ...{ id, content, special, single_word: false, lstrip: false, rstrip: false, normalized: false },
});
const around = (first, last) => {
  const special = (token) => (token ? [{ SpecialToken: { id: token.content, type_id: 0 } }] : []);
  const sequence = (id) => ({ Sequence: { id, type_id: 0 } });
  const used = [first, last].filter((token) => token);
  return {
    type: "TemplateProcessing",
    single: [...special(first), sequence("A"), ...special(last)],
    pair: [...special(first), sequence("A"), sequence("B"), ...special(last)],
    special_tokens: Object.fromEntries(used.map(({ content, id }) => [content, { id: content, ids: [id], tokens: [content] }])),
  };
};
const json = (parts) => ({ version: "1.0", truncation: null, padding: null, normalizer: null, pre_tokenizer: null, ...parts });

/** What Rust makes of each text: the text, its ids with special tokens, and their text without. */
async function casesOf(tokenizer, texts) {
  const rust = Tokenizer.fromString(JSON.stringify(tokenizer));
  const cases = [];
  for (const text of texts) {
    const ids = (await rust.encode(text, null, { addSpecialTokens: true })).getIds();
    cases.push([text, ids, await rust.decode(ids, true)]);
  }
  return cases;
}

const write = (name, value) => {
  const text = JSON.stringify(value, null, 1).replace(/\[\n\s+(-?\d[\d,\s.e-]*)\n\s+\]/g, (_, list) => `[${list.replace(/\s+/g, " ")}]`);
  writeFileSync(join(folder, `${name}.json`), `${text}\n`);
};

// --- Byte-level BPE -------------------------------------------------------------------------------------------------

const split = (Regex) => ({ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false });
const byteLevel = (use_regex) => ({ type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex });
const sequence = (...pretokenizers) => ({ type: "Sequence", pretokenizers });
const digits = (individual_digits) => ({ type: "Digits", individual_digits });
const nfc = { type: "NFC" };

/** The normaliser and pre-tokenizer of models' own tokenizer.json, by `tokenizer.ggml.pre`. */
const FAMILIES = {
  "gpt-2": [null, byteLevel(true)],
  olmo: [nfc, byteLevel(true)],
  smollm: [null, sequence(digits(true), byteLevel(true))],
  "command-r": [nfc, sequence(digits(true), byteLevel(true))],
  falcon: [null, sequence({ type: "Punctuation", behavior: "Contiguous" }, byteLevel(true), split("[0-9][0-9][0-9]"))],
  "llama-bpe": [
    null,
    sequence(
      split(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      ),
      byteLevel(false),
    ),
  ],
  qwen2: [
    nfc,
    sequence(
      split(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      ),
      byteLevel(false),
    ),
  ],
  qwen35: [
    nfc,
    sequence(
      split(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      ),
      byteLevel(false),
    ),
  ],
  tekken: [
    null,
    sequence(
      split(
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      ),
      byteLevel(false),
    ),
  ],
  "gpt-4o": [
    null,
    sequence(
      split(
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      ),
      byteLevel(false),
    ),
  ],
  "deepseek-coder": [
    null,
    sequence(
      ...["[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+"].map(split),
      digits(true),
      byteLevel(false),
    ),
  ],
  "deepseek-v3": [
    null,
    sequence(
      split("\\p{N}{1,3}"),
      split("[一-龥぀-ゟ゠-ヿ]+"),
      split(
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      ),
      byteLevel(false),
    ),
  ],
  "deepseek-llm": [
    null,
    sequence(
      split("[\\r\\n]"),
      split(
        "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
      ),
      split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"),
      split("\\s+$"),
      split("[一-龥ࠀ-一가-퟿]+"),
      digits(false),
      byteLevel(false),
    ),
  ],
  // No model's own: what llama.cpp takes for files that name none.
  default: [
    null,
    sequence(
      split("[\\p{P}\\$\\+<=>\\^~\\|]+"),
      split("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"),
      ...["\\p{N}+", "[0-9][0-9][0-9]"].map(split),
      byteLevel(false),
    ),
  ],
};

const bpe = trainBpe(CORPUS, 400);
const tokens = [...byteCharacters(), ...bpe.map(([left, right]) => left + right)];
const bos = added(tokens.length, "<|begin|>");
const end = added(tokens.length + 1, "<|im_end|>");
const tool = added(tokens.length + 2, "<tool>", false);
const byteLevelJson = ([normalizer, pre_tokenizer], ignore_merges = false) =>
  json({
    ...{ added_tokens: [bos, end, tool], normalizer, pre_tokenizer, post_processor: around(bos) },
    decoder: { ...byteLevel(true), add_prefix_space: true },
    model: {
      ...{ type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null },
      ...{ fuse_unk: false, byte_fallback: false, ignore_merges },
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: bpe,
    },
  });
const SPECIAL = ["<|begin|>Hi<|im_end|>\n<|im_end|>", " <tool> x<tool>y <|begin|"];
const first = byteLevelJson(FAMILIES.qwen2);
const families = {};
for (const [name, parts] of Object.entries(FAMILIES))
  families[name] = (await casesOf(byteLevelJson(parts, ["llama-bpe", "tekken"].includes(name)), SHORT)).map(([, ids]) => ids);
write("byte-level", { tokenizer: first, cases: await casesOf(first, [...TEXTS, ...SPECIAL]), texts: SHORT, families });

// --- SentencePiece ---------------------------------------------------------------------------------------------------

const temporary = mkdtempSync(join(tmpdir(), "text-vectors-"));
const spm = (program, ...args) => execFileSync(program, args, { encoding: "utf8", stdio: ["pipe", "pipe", "ignore"] });

function trainSentencePiece(kind, ...options) {
  const [input, prefix] = [join(temporary, "corpus.txt"), join(temporary, kind)];
  writeFileSync(input, CORPUS.flatMap((text) => text.split(/\r?\n/)).join("\n"));
  spm("spm_train", `--input=${input}`, `--model_prefix=${prefix}`, `--model_type=${kind}`, ...options);
  spm("spm_export_vocab", `--model=${prefix}.model`, `--output=${prefix}.vocab`);
  const pieces = readFileSync(`${prefix}.vocab`, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => line.split("\t"))
    .map(([piece, score]) => [piece, Number(score)]);
  /** SentencePiece reads lines: texts with line ends are left to Rust. */
  const encode = (texts) => {
    const file = join(temporary, "texts.txt");
    writeFileSync(file, texts.join("\n"));
    const lines = spm("spm_encode", `--model=${prefix}.model`, "--output_format=id", file).split("\n");
    return texts.map((text, i) => [text, (lines[i] ?? "").split(" ").filter((id) => id !== "").map(Number)]);
  };
  return { pieces, encode };
}

const LINES = TEXTS.filter((text) => !/[\n\r\0]/.test(text) && text !== "");
/** The files of SentencePiece have one score in so many digits; GGUF has float32. */
const rounded = (pieces) => pieces.map(([piece, score]) => [piece, Math.fround(score)]);

const llama = trainSentencePiece(
  "bpe",
  ...["--vocab_size=800", "--byte_fallback=true", "--normalization_rule_name=identity", "--character_coverage=0.995"],
  ...["--remove_extra_whitespaces=false", "--add_dummy_prefix=true", "--split_digits=true", "--hard_vocab_limit=false"],
);
/** Every way to divide a piece in two, best pieces first: how transformers converts such a model. */
function mergesOf(pieces) {
  const ids = new Map(pieces.map(([piece], id) => [piece, id]));
  const merges = [];
  for (const [piece, score] of pieces) {
    const characters = [...piece];
    for (let at = 1; at < characters.length; at++) {
      const [left, right] = [characters.slice(0, at).join(""), characters.slice(at).join("")];
      if (ids.has(left) && ids.has(right)) merges.push([left, right, score]);
    }
  }
  return merges.sort((a, b) => b[2] - a[2]).map(([left, right]) => [left, right]);
}
const [unk, begin, close] = llama.pieces.slice(0, 3).map(([piece], id) => added(id, piece));
const llamaJson = json({
  added_tokens: [unk, begin, close],
  normalizer: {
    type: "Sequence",
    normalizers: [
      { type: "Prepend", prepend: "▁" },
      { type: "Replace", pattern: { String: " " }, content: "▁" },
    ],
  },
  post_processor: around(begin),
  decoder: {
    type: "Sequence",
    decoders: [
      { type: "Replace", pattern: { String: "▁" }, content: " " },
      ...[{ type: "ByteFallback" }, { type: "Fuse" }, { type: "Strip", content: " ", start: 1, stop: 0 }],
    ],
  },
  model: {
    ...{ type: "BPE", dropout: null, unk_token: unk.content, continuing_subword_prefix: null, end_of_word_suffix: null },
    ...{ fuse_unk: true, byte_fallback: true, ignore_merges: false },
    vocab: Object.fromEntries(llama.pieces.map(([piece], id) => [piece, id])),
    merges: mergesOf(llama.pieces),
  },
});
write("sentencepiece-bpe", {
  tokenizer: llamaJson,
  scores: rounded(llama.pieces).map(([, score]) => score),
  cases: await casesOf(llamaJson, [...TEXTS, "<s>Hi</s> there</s>"]),
  spm: llama.encode(LINES),
});

const t5 = trainSentencePiece(
  "unigram",
  ...["--vocab_size=900", "--pad_id=0", "--eos_id=1", "--unk_id=2", "--bos_id=-1", "--hard_vocab_limit=false"],
  ...["--normalization_rule_name=identity", "--character_coverage=0.995"],
);
const [pad, eos, unknown] = t5.pieces.slice(0, 3).map(([piece], id) => added(id, piece));
const metaspace = { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: false };
const t5Json = json({
  added_tokens: [pad, eos, unknown],
  normalizer: {
    type: "Sequence",
    normalizers: [
      { type: "Replace", pattern: { Regex: "\\A +| +\\z" }, content: "" },
      { type: "Replace", pattern: { Regex: " {2,}" }, content: " " },
    ],
  },
  pre_tokenizer: metaspace,
  post_processor: around(undefined, eos),
  decoder: metaspace,
  model: { type: "Unigram", unk_id: 2, byte_fallback: false, vocab: rounded(t5.pieces) },
});
write("unigram", { tokenizer: t5Json, cases: await casesOf(t5Json, TEXTS), spm: t5.encode(LINES) });
rmSync(temporary, { recursive: true });

// --- WordPiece -------------------------------------------------------------------------------------------------------

const words = trainWordPiece(CORPUS, 700);
const [bertPad, bertUnk, cls, sep] = words.slice(0, 4).map((word, id) => added(id, word));
const bertJson = json({
  added_tokens: [bertPad, bertUnk, cls, sep],
  normalizer: {
    ...{ type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: true, lowercase: true },
  },
  pre_tokenizer: { type: "BertPreTokenizer" },
  post_processor: around(cls, sep),
  decoder: { type: "WordPiece", prefix: "##", cleanup: true },
  model: {
    ...{ type: "WordPiece", unk_token: "[UNK]", continuing_subword_prefix: "##", max_input_chars_per_word: 100 },
    vocab: Object.fromEntries(words.map((word, id) => [word, id])),
  },
});
write("word-piece", { tokenizer: bertJson, cases: await casesOf(bertJson, TEXTS) });
