import { describe, HeadwiseError } from "../../base/util/errors.ts";

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
export function findPreTokenizer(where: string, name: string): PreTokenizer {
  const found = BY_NAME.get(name);
  if (found) return found;
  const text = `${where}: key "tokenizer.ggml.pre" expected one of ${[...BY_NAME.keys()].join(", ")}, got ${describe(name)}`;
  throw new HeadwiseError("BAD_FILE", text);
}
