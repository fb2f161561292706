import type { TokenizerModel } from "./tokenizer-model.ts";
import { NORMAL, type Vocabulary } from "./vocabulary.ts";

/** How GGUF marks a token that begins a word. */
const BEGINS = "\u2581";

/** WordPiece, `tokenizer.ggml.model` "bert", whose files mark beginnings of words instead of what continues them. */
export function wordPieceModel(vocabulary: Vocabulary): TokenizerModel {
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
