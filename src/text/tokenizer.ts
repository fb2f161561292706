import { readIds } from "../decoder/forward.ts";
import { expectFunction, expectInt, expectRecord, LARGEST_INT } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";

/**
 * What makes ids of text, and text of ids. `loadTokenizer` and `readGgufTokenizer` make one; an object around any other library
 * will do as well.
 */
export interface Tokenizer {
  /**
   * The ids of a text. Without `addSpecial: false`, with the tokens that the model expects around a text, such as one that
   * begins it. The text of a special token stands for that token, unless `parseSpecial` is false, or `plain`, places in the text
   * (UTF-16 units, ascending), has that of one of its characters. Then it is text like any other.
   */
  encode(
    text: string,
    options?: {
      readonly addSpecial?: boolean;
      readonly parseSpecial?: boolean;
      readonly plain?: readonly number[];
    },
  ): readonly number[];
  /**
   * The text of ids, without special tokens unless `keepSpecial` is true. Bytes that are no whole character become U+FFFD. What
   * more ids add comes behind it, except in place of U+FFFD at its end.
   */
  decode(ids: readonly number[], options?: { readonly keepSpecial?: boolean }): string;
  /** Tokens of the vocabulary, not counting those that were added to it. A model with fewer is refused. */
  readonly vocabSize?: number | undefined;
  /** Ids that end a generation. */
  readonly endIds?: readonly number[] | undefined;
  /** The Jinja template of conversations. */
  readonly chatTemplate?: string | undefined;
  /**
   * Texts that `encode` takes for special tokens. With them, `chat` passes `plain`, so that they are text where they occur in
   * messages; without, they stand for the tokens there too.
   */
  readonly specialTexts?: readonly string[] | undefined;
  /** Texts of special tokens by the names that chat templates have for them, such as `bos_token`. */
  readonly specialTokens?: Readonly<Record<string, string>> | undefined;
}

/** Throws unless `tokenizer` has the two functions, and what else it has is of the right type. */
export function expectTokenizer(where: string, tokenizer: Tokenizer): void {
  expectRecord(where, "tokenizer", tokenizer);
  expectFunction(where, "tokenizer.encode", tokenizer.encode);
  expectFunction(where, "tokenizer.decode", tokenizer.decode);
  const { vocabSize, endIds, specialTexts } = tokenizer;
  if (vocabSize !== undefined) expectInt(where, "tokenizer.vocabSize", vocabSize, 0);
  if (endIds !== undefined) readIds(where, "tokenizer.endIds", endIds, LARGEST_INT + 1, Number.POSITIVE_INFINITY);
  if (specialTexts !== undefined && !(Array.isArray(specialTexts) && specialTexts.every(isText))) {
    const rule = "a list of texts of 1 or more characters";
    throw new TypeError(`${where}: tokenizer.specialTexts expected ${rule}, got ${describe(specialTexts)}`);
  }
}

const isText = (text: unknown) => typeof text === "string" && text !== "";
