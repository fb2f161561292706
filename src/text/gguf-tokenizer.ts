// The vocabulary of a GGUF file as a tokenizer.json.

import { describe, HeadwiseError } from "../base/util/errors.ts";
import type { GgufValue } from "../files/gguf.ts";
import type { TokenizerFiles } from "./tokenizer.ts";

/** Types of tokens, by number. */
const NORMAL = 1;
const UNKNOWN = 2;
const CONTROL = 3;
const USER_DEFINED = 4;
const BYTE = 6;

/** A token of the vocabulary. */
interface Token {
  readonly id: number;
  readonly text: string;
  readonly type: number;
  readonly score: number;
}

/** The checked vocabulary of a GGUF file. */
interface Vocabulary {
  /** `tokenizer.ggml.model`. */
  readonly model: string;
  /** `general.name`, of the whole model; "" where there is none. */
  readonly name: string;
  readonly tokens: readonly Token[];
  readonly byText: ReadonlyMap<string, Token>;
  /** What a key below `tokenizer.ggml.` holds, checked: text, a flag, the token of an id; or a list, as it is. */
  text(key: string): string | undefined;
  flag(key: string): boolean | undefined;
  token(key: string): Token | undefined;
  list(key: string): GgufValue | undefined;
  fail(key: string, rule: string, got: unknown): never;
}

/** Longer tokens are in no known vocabulary. */
const LONGEST = 1024;

/** Reads and checks the keys `tokenizer.ggml.*`. */
function readVocabulary(where: string, metadata: ReadonlyMap<string, GgufValue>): Vocabulary {
  const get = (key: string) => metadata.get(`tokenizer.ggml.${key}`);
  const fail = (key: string, rule: string, got: unknown): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: key "tokenizer.ggml.${key}" expected ${rule}, got ${describe(got)}`);
  };
  const model = get("model");
  if (typeof model !== "string" || model === "none") return fail("model", "the kind of a vocabulary", model);
  const texts = get("tokens");
  if (!Array.isArray(texts) || texts.length === 0) return fail("tokens", "a list of strings", texts);
  const numbers = (key: string) => {
    const values = get(key);
    if (values === undefined) return undefined;
    const isList = ArrayBuffer.isView(values) && (values as Float32Array).length === texts.length;
    return isList ? (values as Float32Array) : fail(key, `${texts.length} numbers, one for each token`, values);
  };
  const types = numbers("token_type");
  const scores = numbers("scores");
  const byText = new Map<string, Token>();
  const tokens = texts.map((given: unknown, id): Token => {
    if (typeof given !== "string") return fail(`tokens`, "strings", given);
    if (given.length > LONGEST) fail("tokens", `tokens of at most ${LONGEST} characters`, given);
    // No text is made of this one.
    const text = given === "" ? `[EMPTY_${id}]` : given;
    const token = { id, text, type: types?.[id] ?? NORMAL, score: scores?.[id] ?? 0 };
    if (!Number.isFinite(token.score)) fail("scores", "finite numbers", token.score);
    const first = byText.get(text);
    if (first) fail("tokens", `tokens that differ, but ids ${first.id} and ${id} are the same`, text);
    byText.set(text, token);
    return token;
  });
  return {
    ...{ model, name: String(metadata.get("general.name") ?? ""), tokens, byText, fail, list: get },
    text(key) {
      const value = get(key);
      return value === undefined || typeof value === "string" ? value : fail(key, "text", value);
    },
    flag(key) {
      const value = get(key);
      return value === undefined || typeof value === "boolean" ? value : fail(key, "true or false", value);
    },
    token(key) {
      const value = get(key);
      if (value === undefined) return undefined;
      const id = typeof value === "bigint" ? Number(value) : value;
      // Files have 2^32 - 1 where there is no such token.
      if (id === -1 || id === 2 ** 32 - 1) return undefined;
      return (typeof id === "number" ? tokens[id] : undefined) ?? fail(key, `an id below ${tokens.length}`, value);
    },
  };
}

/** Tokens that end a turn in known models: files seldom name all that do. */
const ENDS = [
  ...["<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>"],
  ...["<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"],
];

/** Special tokens of Phi-3 that do not take the spaces behind them, as its others do. Its files do not say so. */
const PHI3_KEEPS = ["<unk>", "<s>", "<|endoftext|>"];

/** tokenizer.json and what else a tokenizer needs, from the vocabulary of a GGUF file. */
export function readTokenizerFiles(
  where: string,
  metadata: ReadonlyMap<string, GgufValue>,
): Omit<TokenizerFiles, "chatTemplate"> {
  const vocabulary = readVocabulary(where, metadata);
  const { model, normalizer, pre_tokenizer, decoder, ...adds } = modelOf(where, vocabulary);
  const { tokens, byText } = vocabulary;
  const bos = vocabulary.token("bos_token_id") ?? vocabulary.token("cls_token_id");
  const eos = vocabulary.token("eos_token_id");
  // The name has this spelling in files.
  const sep = vocabulary.token("seperator_token_id");
  const first = (vocabulary.flag("add_bos_token") ?? adds.addBos) ? bos : undefined;
  const last = (vocabulary.flag("add_eos_token") ?? adds.addEos) ? eos : undefined;
  const between = (vocabulary.flag("add_sep_token") ?? adds.addSep) ? (sep ?? eos) : undefined;
  const named = { bos, eos, unk: vocabulary.token("unknown_token_id"), sep, pad: vocabulary.token("padding_token_id") };
  const ends = [eos, vocabulary.token("eot_token_id"), vocabulary.token("eom_token_id")];
  const control = (text: string) => (byText.get(text)?.type === CONTROL ? byText.get(text) : undefined);
  // In the format of gpt-oss, this one ends a part of an answer.
  const known = ENDS.filter((text) => text !== "<|end|>" || !control("<|return|>")).map(control);
  const isPhi3 = /phi-?3/i.test(vocabulary.name);
  const isAdded = ({ type }: Token) => [CONTROL, USER_DEFINED, UNKNOWN].includes(type);
  return {
    json: {
      ...{ version: "1.0", truncation: null, padding: null },
      added_tokens: tokens.filter(isAdded).map(({ id, text, type }) => ({
        ...{ id, content: text, special: type !== USER_DEFINED },
        ...{ single_word: false, lstrip: false, normalized: false },
        rstrip: isPhi3 && !PHI3_KEEPS.includes(text),
      })),
      ...{ normalizer, pre_tokenizer, model, decoder },
      post_processor: template(first, between ?? last),
    },
    config: {},
    vocabSize: tokens.length,
    ends: [...ends, ...known].flatMap((token) => (token ? [token.id] : [])),
    specialTokens: Object.fromEntries(
      Object.entries(named).flatMap(([name, token]) => (token ? [[`${name}_token`, token.text]] : [])),
    ),
  };
}

function modelOf(where: string, vocabulary: Vocabulary): TokenizerModel {
  switch (vocabulary.model) {
    case "gpt2":
      return byteLevelModel(where, vocabulary);
    case "llama":
      return sentencePieceModel(vocabulary);
    case "bert":
      return wordPieceModel(vocabulary);
    case "t5":
      return unigramModel(vocabulary);
    default:
      return vocabulary.fail("model", "gpt2, llama, bert or t5", vocabulary.model);
  }
}

/** What is put around a text: a token before it, and one behind it. */
function template(first: Token | undefined, last: Token | undefined): object {
  const special = (token: Token | undefined) => (token ? [{ SpecialToken: { id: token.text, type_id: 0 } }] : []);
  const around = (id: string) => [...special(first), { Sequence: { id, type_id: 0 } }, ...special(last)];
  const used = [first, last].flatMap((token) => (token ? [token] : []));
  return {
    ...{ type: "TemplateProcessing", single: around("A"), pair: [...around("A"), ...around("B")] },
    special_tokens: Object.fromEntries(used.map(({ text, id }) => [text, { id: text, ids: [id], tokens: [text] }])),
  };
}

/** The parts of tokenizer.json that depend on the kind of vocabulary, and what is added to a text where the file does not say. */
interface TokenizerModel {
  readonly model: object;
  readonly normalizer: object | null;
  readonly pre_tokenizer: object | null;
  readonly decoder: object;
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly addSep: boolean;
}

/**
 * Stands for bytes without a token, such as those of controls in Falcon's vocabulary, where none is for what is unknown. It is no
 * token itself, so a text with such a byte is refused, where the library would leave the byte out.
 */
const NO_TOKEN = "";

/** Byte-level BPE, `tokenizer.ggml.model` "gpt2": tokens and merges are written in 256 characters, one for each byte. */
function byteLevelModel(where: string, vocabulary: Vocabulary): TokenizerModel {
  const { tokens, byText, fail } = vocabulary;
  const rules = findPreTokenizer(where, vocabulary.text("pre") ?? "default");
  const unknown = vocabulary.token("unknown_token_id");
  const lines = vocabulary.list("merges") ?? [];
  if (!Array.isArray(lines)) return fail("merges", "a list of strings", lines);
  const merges = lines.map((line: unknown): readonly [string, string] => {
    const [left, right, ...more] = typeof line === "string" ? line.split(" ") : [];
    if (!left || !right || more.length > 0) return fail("merges", "two tokens and a space between them", line);
    const isKnown = [left, right, left + right].every((text) => byText.has(text));
    return isKnown ? [left, right] : fail("merges", "merges of tokens to tokens", line);
  });
  const split = (pattern: string) => ({
    type: "Split",
    pattern: { Regex: pattern },
    behavior: "Isolated",
    invert: false,
  });
  const level = { type: "ByteLevel", add_prefix_space: false, trim_offsets: false };
  return {
    model: {
      ...{ type: "BPE", dropout: null, unk_token: unknown?.text ?? NO_TOKEN },
      ...{ continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: false },
      ...{ ignore_merges: rules.ignoreMerges ?? false, merges },
      vocab: Object.fromEntries(tokens.map(({ text, id }) => [text, id])),
    },
    normalizer: rules.nfc ? { type: "NFC" } : null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [...rules.patterns.map(split), { ...level, use_regex: false }],
    },
    decoder: { ...level, use_regex: true },
    ...{ addBos: rules.addBos ?? false, addEos: false, addSep: rules.addSep ?? false },
  };
}

/** How SentencePiece writes a space. */
const SPACE = "\u2581";

const replace = (pattern: object, content: string) => ({ type: "Replace", pattern, content });

/**
 * SentencePiece's BPE, `tokenizer.ggml.model` "llama": of two neighbours that are a token together, those of the highest score are
 * joined first. That is BPE with a merge for every way to divide a token in two.
 */
function sentencePieceModel(vocabulary: Vocabulary): TokenizerModel {
  const { tokens, byText, fail } = vocabulary;
  const hasBytes = Array.from({ length: 256 }, (_, byte) => byText.get(byteToken(byte))).every(
    (token) => token?.type === BYTE,
  );
  const unknown = vocabulary.token("unknown_token_id") ?? tokens.find(({ type }) => type === UNKNOWN);
  if (!hasBytes && !unknown) return fail("tokens", "tokens of all bytes, or one for what is unknown", "neither");
  const prefix = vocabulary.flag("add_space_prefix") ?? true;
  return {
    model: {
      ...{ type: "BPE", dropout: null, unk_token: unknown?.text ?? null, continuing_subword_prefix: null },
      ...{ end_of_word_suffix: null, fuse_unk: true, byte_fallback: hasBytes, ignore_merges: false },
      vocab: Object.fromEntries(tokens.map(({ text, id }) => [text, id])),
      merges: mergesOf(vocabulary),
    },
    normalizer: {
      type: "Sequence",
      normalizers: [...(prefix ? [{ type: "Prepend", prepend: SPACE }] : []), replace({ String: " " }, SPACE)],
    },
    pre_tokenizer: null,
    decoder: {
      type: "Sequence",
      decoders: [
        replace({ String: SPACE }, " "),
        ...[{ type: "ByteFallback" }, { type: "Fuse" }],
        ...(prefix ? [{ type: "Strip", content: " ", start: 1, stop: 0 }] : []),
      ],
    },
    ...{ addBos: true, addEos: false, addSep: false },
  };
}

const byteToken = (byte: number) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

/**
 * Known vocabularies have pieces of up to some 50 characters. The time grows with the square: that of 256 thousand pieces of 10 is a
 * tenth of the most.
 */
const LONGEST_PIECE = 256;
const MOST_SQUARED = 2 ** 28;

function mergesOf({ tokens, byText, fail }: Vocabulary): (readonly [string, string])[] {
  const merges: { readonly whole: Token; readonly left: Token; readonly right: Token }[] = [];
  let squared = 0;
  for (const whole of tokens) {
    if (whole.type !== NORMAL) continue;
    const { length } = whole.text;
    if (length > LONGEST_PIECE) fail("tokens", `pieces of at most ${LONGEST_PIECE} characters`, whole.text);
    squared += length * length;
    if (squared > MOST_SQUARED)
      fail("tokens", `pieces whose squared lengths add up to at most ${MOST_SQUARED}`, squared);
    let at = 0;
    for (const character of whole.text) {
      at += character.length;
      const left = byText.get(whole.text.slice(0, at));
      const right = byText.get(whole.text.slice(at));
      if (left?.type === NORMAL && right?.type === NORMAL) merges.push({ whole, left, right });
    }
  }
  const order = (a: (typeof merges)[number], b: (typeof merges)[number]) =>
    b.whole.score - a.whole.score || a.whole.id - b.whole.id || a.left.id - b.left.id;
  return merges.sort(order).map(({ left, right }) => [left.text, right.text]);
}

/** SentencePiece's unigrams, `tokenizer.ggml.model` "t5": the division of the largest sum of scores. */
function unigramModel(vocabulary: Vocabulary): TokenizerModel {
  const { tokens, fail } = vocabulary;
  const unknown = vocabulary.token("unknown_token_id") ?? tokens.find(({ type }) => type === UNKNOWN);
  if (!unknown) return fail("unknown_token_id", "the id of a token", undefined);
  const map = vocabulary.list("precompiled_charsmap");
  if (map !== undefined && !(map instanceof Uint8Array || map instanceof Int8Array))
    return fail("precompiled_charsmap", "bytes", map);
  const scheme = vocabulary.flag("add_space_prefix") ? "always" : "never";
  const metaspace = { type: "Metaspace", replacement: SPACE, prepend_scheme: scheme, split: false };
  const single = [replace({ Regex: "\\A +| +\\z" }, ""), replace({ Regex: " {2,}" }, " ")];
  return {
    model: {
      ...{ type: "Unigram", unk_id: unknown.id, byte_fallback: false },
      vocab: tokens.map(({ text, score }) => [text, score]),
    },
    normalizer: {
      type: "Sequence",
      normalizers: [
        ...(map ? [{ type: "Precompiled", precompiled_charsmap: base64Of(map) }] : []),
        ...(vocabulary.flag("remove_extra_whitespaces") ? single : []),
      ],
    },
    pre_tokenizer: metaspace,
    decoder: metaspace,
    ...{ addBos: false, addEos: true, addSep: false },
  };
}

function base64Of(bytes: Uint8Array | Int8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte & 255);
  return btoa(text);
}

/** How GGUF marks a token that begins a word. */
const BEGINS = "\u2581";

/** WordPiece, `tokenizer.ggml.model` "bert", whose files mark beginnings of words instead of what continues them. */
function wordPieceModel(vocabulary: Vocabulary): TokenizerModel {
  const { tokens, fail } = vocabulary;
  const unknown = vocabulary.token("unknown_token_id") ?? vocabulary.byText.get("[UNK]");
  if (!unknown) return fail("unknown_token_id", "the id of a token", undefined);
  const words = tokens.map(({ text, type, id }) => {
    // Such as [unused1], which files do not always call unused.
    if (type !== NORMAL || /^\[.+\]$/.test(text)) return [text, id] as const;
    return [text.startsWith(BEGINS) ? text.slice(1) : `##${text}`, id] as const;
  });
  const hasCapitals = tokens.some(({ text, type }) => type === NORMAL && /^\u2581?[A-Z][a-z]+$/.test(text));
  const lowercase = vocabulary.flag("normalizer.lowercase") ?? !hasCapitals;
  const strip = vocabulary.flag("normalizer.strip_accents") ?? lowercase;
  return {
    model: {
      ...{ type: "WordPiece", unk_token: unknown.text, continuing_subword_prefix: "##", max_input_chars_per_word: 100 },
      vocab: Object.fromEntries(words),
    },
    normalizer: {
      ...{ type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: strip, lowercase },
    },
    pre_tokenizer: { type: "BertPreTokenizer" },
    decoder: { type: "WordPiece", prefix: "##", cleanup: true },
    ...{ addBos: true, addEos: false, addSep: true },
  };
}

/** How byte-level BPE divides a text before it merges. */
interface PreTokenizer {
  /** One after the other: what a pattern matches, and what lies between, is not merged with its neighbours. */
  readonly patterns: readonly string[];
  /** Canonical composition first. */
  readonly nfc?: boolean;
  /** A piece that is a token as a whole is that token, whatever its merges. */
  readonly ignoreMerges?: boolean;
  /** Whether a text begins with the token that begins one, where the file does not say. */
  readonly addBos?: boolean;
  /** Whether a text ends with the token that separates two, where the file does not say. */
  readonly addSep?: boolean;
}

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const SPACES = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const words = (digits: string) => `[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`;
const LLAMA3 = `${CONTRACTIONS}|${words("\\p{N}{1,3}")}`;
const QWEN2 = `${CONTRACTIONS}|${words("\\p{N}")}`;
const QWEN35 = [
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}`,
  `| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`,
].join("");
/** Words of capitals then small letters, each behind at most one other character. */
const cased = (suffix: string) => {
  const [upper, lower] = ["[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"];
  const before = "[^\\r\\n\\p{L}\\p{N}]?";
  return `${before}${upper}*${lower}+${suffix}|${before}${upper}+${lower}*${suffix}`;
};
const casedWords = (suffix: string, digits: string) =>
  `${cased(suffix)}|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`;
const SEPARATE_DIGITS = ["\\p{N}", GPT2];
const DEEPSEEK_3 = [
  "\\p{N}{1,3}",
  "[一-龥぀-ゟ゠-ヿ]+",
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" +
    `|${SPACES}`,
];
/** Letters that have case, as DeepSeek's first tokenizer lists them. */
const DEEPSEEK_LETTERS = [
  "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆ",
  "Έ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽ",
  "Ა-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗ",
  "ὙὛὝὟ-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ-ῌῐ-\u1FD3ῖ-\u1FDBῠ-Ῥ",
  "ῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹ",
  "ℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛ",
  "Ꜣ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏",
  "𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃",
].join("");
const CJK = "[一-龥ࠀ-一가-\uD7FF]+";

/**
 * By `tokenizer.ggml.pre`. The patterns are those of the models' tokenizer.json, as llama.cpp cites them; NFC where those files
 * have it, which llama.cpp leaves out.
 */
const PRE_TOKENIZERS: readonly (readonly [names: string, PreTokenizer])[] = [
  ["default", { patterns: ["[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"] }],
  ["llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", llama3({ ignoreMerges: true, addBos: true })],
  ["dbrx smaug-bpe glm4 chatglm-bpe", llama3({})],
  ["qwen2 deepseek-r1-qwen", { patterns: [QWEN2], nfc: true }],
  ["stablelm2 megrez kormo hunyuan solar-open grok-2", { patterns: [QWEN2] }],
  ["qwen35", { patterns: [QWEN35], nfc: true }],
  ["gpt-2 phi-2 jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum", { patterns: [GPT2] }],
  ["olmo mpt modern-bert", { patterns: [GPT2], nfc: true }],
  ["roberta-bpe", { patterns: [GPT2], addBos: true, addSep: true }],
  ["smollm starcoder refact codeshell exaone minerva-7b mellum2", { patterns: SEPARATE_DIGITS }],
  ["command-r", { patterns: SEPARATE_DIGITS, nfc: true }],
  ["falcon", { patterns: ["[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"] }],
  ["deepseek-v3 hunyuan-dense joyai-llm", { patterns: DEEPSEEK_3 }],
  ["deepseek-coder", { patterns: ["[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"] }],
  [
    "deepseek-llm",
    {
      patterns: ["[\\r\\n]", `\\s?[${DEEPSEEK_LETTERS}]+`, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", CJK, "\\p{N}+"],
    },
  ],
  ["tekken", { patterns: [casedWords("", "\\p{N}")], ignoreMerges: true, addBos: true }],
  ["gpt-4o llama4 minimax-m2", { patterns: [casedWords(`${CONTRACTIONS}?`, "\\p{N}{1,3}")] }],
];

function llama3(rules: Omit<PreTokenizer, "patterns">): PreTokenizer {
  return { patterns: [LLAMA3], ...rules };
}

const BY_NAME: ReadonlyMap<string, PreTokenizer> = new Map(
  PRE_TOKENIZERS.flatMap(([names, rules]) => names.split(" ").map((name) => [name, rules] as const)),
);

/** The pre-tokenizer of this name. */
function findPreTokenizer(where: string, name: string): PreTokenizer {
  const found = BY_NAME.get(name);
  if (found) return found;
  const text = `${where}: key "tokenizer.ggml.pre" expected one of ${[...BY_NAME.keys()].join(", ")}, got ${describe(name)}`;
  throw new HeadwiseError("BAD_FILE", text);
}
