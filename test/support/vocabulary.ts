// A tokenizer.json of test/vectors/text as the metadata that a GGUF file has for it.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { GgufValue } from "../../src/files/gguf.ts";

/** What tokenizer.json says, as far as it is looked at. */
export interface TokenizerJson {
  readonly added_tokens: readonly { readonly id: number; readonly content: string; readonly special: boolean }[];
  readonly model: {
    readonly type: string;
    readonly vocab: Readonly<Record<string, number>> | readonly (readonly [string, number])[];
    readonly merges?: readonly (readonly [string, string])[];
    readonly unk_token?: string | null;
    readonly unk_id?: number;
  };
}

/** A text, its ids with special tokens, and the text of these without. */
export type TextCase = readonly [text: string, ids: readonly number[], decoded: string];

/** A file of test/vectors/text. */
export interface TextVectors {
  readonly tokenizer: TokenizerJson;
  readonly cases: readonly TextCase[];
  /** Ids without special tokens, by SentencePiece itself. */
  readonly spm?: readonly (readonly [string, readonly number[]])[];
  readonly scores?: readonly number[];
  readonly texts?: readonly string[];
  /** Ids of `texts`, by `tokenizer.ggml.pre`. */
  readonly families?: Readonly<Record<string, readonly (readonly number[])[]>>;
}

export function readTextVectors(name: string): TextVectors {
  return JSON.parse(readFileSync(join(import.meta.dirname, `../vectors/text/${name}.json`), "utf8"));
}

/** The tokens of a vocabulary by id, those that were added among them. */
function tokensOf({ model, added_tokens }: TokenizerJson): string[] {
  const { vocab } = model;
  const tokens = Array.isArray(vocab)
    ? vocab.map(([token]) => token as string)
    : Object.entries(vocab as Readonly<Record<string, number>>)
        .sort(([, a], [, b]) => a - b)
        .map(([token]) => token);
  for (const { id, content } of added_tokens) tokens[id] = content;
  return tokens;
}

const KINDS: Readonly<Record<string, string>> = { WordPiece: "bert", Unigram: "t5" };

/** The metadata, with `more` keys below `tokenizer.ggml.`. */
export function toGgufVocabulary(
  { tokenizer, scores }: Pick<TextVectors, "tokenizer" | "scores">,
  more: Readonly<Record<string, GgufValue>> = {},
): Map<string, GgufValue> {
  const { model, added_tokens: added } = tokenizer;
  const tokens = tokensOf(tokenizer);
  const unknown = model.unk_id ?? tokens.indexOf(model.unk_token ?? "");
  const kind = KINDS[model.type] ?? (scores ? "llama" : "gpt2");
  const typeOf = (token: string, id: number) => {
    const special = added.find((each) => each.id === id)?.special;
    if (id === unknown) return 2;
    if (special !== undefined) return special ? 3 : 4;
    return kind === "llama" && /^<0x[0-9A-F]{2}>$/.test(token) ? 6 : 1;
  };
  /** GGUF marks the beginnings of words instead of what continues them. */
  const asWord = (token: string, id: number) => {
    if (kind !== "bert" || typeOf(token, id) !== 1) return token;
    return token.startsWith("##") ? token.slice(2) : `\u2581${token}`;
  };
  const unigram = Array.isArray(model.vocab) ? model.vocab.map(([, score]) => score as number) : undefined;
  const all = {
    ...{ model: kind, tokens: tokens.map(asWord), token_type: Int32Array.from(tokens, typeOf) },
    ...(unknown >= 0 ? { unknown_token_id: unknown } : {}),
    ...(kind === "gpt2" ? { merges: (model.merges ?? []).map((pair) => pair.join(" ")) } : {}),
    ...(scores || unigram ? { scores: Float32Array.from(scores ?? unigram ?? []) } : {}),
    ...more,
  };
  return new Map(Object.entries(all).map(([key, value]) => [`tokenizer.ggml.${key}`, value as GgufValue]));
}
