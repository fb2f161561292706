import type { TokenizerModel } from "./tokenizer-model.ts";
import { BYTE, NORMAL, type Token, UNKNOWN, type Vocabulary } from "./vocabulary.ts";

/** How SentencePiece writes a space. */
const SPACE = "\u2581";

const replace = (pattern: object, content: string) => ({ type: "Replace", pattern, content });

/**
 * SentencePiece's BPE, `tokenizer.ggml.model` "llama": of two neighbours that are a token together, those of the highest score are
 * joined first. That is BPE with a merge for every way to divide a token in two.
 */
export function sentencePieceModel(vocabulary: Vocabulary): TokenizerModel {
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
export function unigramModel(vocabulary: Vocabulary): TokenizerModel {
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
