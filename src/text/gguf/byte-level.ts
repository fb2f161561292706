import { findPreTokenizer } from "./pre-tokenizers.ts";
import type { TokenizerModel } from "./tokenizer-model.ts";
import { NORMAL, type Vocabulary } from "./vocabulary.ts";

/**
 * Stands for bytes that have no token, such as those of controls in Falcon's vocabulary, which has none for what is unknown. It is no
 * token itself, so a text with such a byte is refused, where the library would leave the byte out.
 */
const NO_TOKEN = "";

/** Byte-level BPE, `tokenizer.ggml.model` "gpt2": tokens and merges are written in 256 characters, one for each byte. */
export function byteLevelModel(where: string, vocabulary: Vocabulary): TokenizerModel {
  const { tokens, byText, fail } = vocabulary;
  const rules = findPreTokenizer(where, vocabulary.text("pre") ?? "default");
  const unknown = vocabulary.token("unknown_token_id");
  const lacksBytes = byteCharacters().some((character) => byText.get(character)?.type !== NORMAL);
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
      ...{ type: "BPE", dropout: null, unk_token: lacksBytes ? (unknown?.text ?? NO_TOKEN) : null },
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

/** The characters of the bytes that UTF-8 has. */
function byteCharacters(): string[] {
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const isShown = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(isShown ? byte : 256 + others++);
  }).filter((_, byte) => byte !== 0xc0 && byte !== 0xc1 && byte < 0xf5);
}
