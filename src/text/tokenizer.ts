// Tokenizers, made by the optional library.

import {
  expectFields,
  expectFlag,
  expectFunction,
  expectInt,
  expectRecord,
  LARGEST_INT,
} from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { reasonOf } from "../base/util/strings.ts";
import { readIds } from "../models/decoder/forward.ts";
import type { LibraryTokenizer, Tokenizers } from "./libraries.ts";
import { divideLongTexts, encodePlain, specialsOf } from "./special-tokens.ts";

// U+FEFF in vocabularies with tokens of bytes. The library decodes each run of these by a TextDecoder, which takes U+FEFF at the
// start of one for a byte order mark and drops it; a space behind it is then at the start of a text, and dropped too.

const MARK = ["<0xEF>", "<0xBB>", "<0xBF>"];
const BYTE = /^<0x[\dA-F]{2}>$/i;

/** Returns what writes U+FEFF twice where the library drops it: of two, it drops the first. `special` are tokens that may be skipped. */
function createMarkKeeper(
  made: LibraryTokenizer,
  special: ReadonlySet<unknown>,
): (ids: readonly number[], keepSpecial: boolean) => number[] {
  const mark = MARK.map((token) => made.token_to_id(token) ?? -1);
  const how = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
  if (mark.includes(-1) || made.decode([...mark], how) !== "") return (ids) => [...ids];
  return (ids, keepSpecial) => {
    let isInRun = false;
    return ids.flatMap((id, i) => {
      const token = made.id_to_token(id) ?? "";
      if (!keepSpecial && special.has(token)) return [id];
      const isLost = !isInRun && mark.every((each, byte) => ids[i + byte] === each);
      isInRun = BYTE.test(token);
      return isLost ? [...mark, id] : [id];
    });
  };
}

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

/** What a tokenizer is made from, in the form of tokenizer.json and tokenizer_config.json. */
export interface TokenizerFiles {
  readonly json: object;
  readonly config: object;
  readonly vocabSize: number;
  /** Ids that end a generation, or their tokens. */
  readonly ends: readonly (number | string)[];
  readonly chatTemplate: string | undefined;
  readonly specialTokens: Readonly<Record<string, string>>;
}

/** Makes a tokenizer by the library; `what` names the file in messages. */
export function makeTokenizer(
  where: string,
  what: string,
  library: Tokenizers,
  { json, config, vocabSize, ends, chatTemplate, specialTokens }: TokenizerFiles,
): Tokenizer {
  /** The library may fail on a part of the file only when it comes to it. */
  const attempt = <T>(from: string, run: () => T, length?: number): T => {
    try {
      return run();
    } catch (cause) {
      if (length !== undefined && isOverflow(cause)) {
        const rule = "one that @huggingface/tokenizers encodes before the stack overflows";
        throw new RangeError(`${from}: text expected ${rule}, got ${length} characters`, { cause });
      }
      const text = `${from}: ${what} expected a tokenizer that @huggingface/tokenizers reads, got ${reasonOf(cause)}`;
      throw new HeadwiseError("BAD_FILE", text, { cause });
    }
  };
  const made = attempt(where, () => new library.Tokenizer(json, config));
  divideLongTexts(made, json);
  const endIds = ends
    .map((end) => (typeof end === "string" ? made.token_to_id(end) : end))
    .filter((id) => id !== undefined);
  const specials = specialsOf(json, config, endIds, Object.values(specialTokens));
  const keepMarks = attempt(where, () => createMarkKeeper(made, new Set(specials.skipped)));
  return Object.freeze<Tokenizer>({
    encode(text, options = {}) {
      if (typeof text !== "string") throw new TypeError(`encode: text expected a string, got ${describe(text)}`);
      expectFields("encode", "options", options, ["addSpecial", "parseSpecial", "plain"]);
      const { addSpecial = true, parseSpecial = true, plain } = options;
      const add_special_tokens = expectFlag("encode", "options.addSpecial", addSpecial);
      const isPlain = !expectFlag("encode", "options.parseSpecial", parseSpecial);
      if (plain !== undefined) expectPlaces(plain, text);
      const run = (marked: string) =>
        attempt("encode", () => made.encode(marked, { add_special_tokens }).ids, text.length);
      const isWhole = !isPlain && plain === undefined;
      const ids = isWhole ? run(text) : encodePlain(made, specials, text, isPlain || (plain ?? []), run);
      if (ids.every((id) => typeof id === "number")) return ids;
      throw new RangeError(
        `encode: text expected characters that the vocabulary has tokens for, got ${describe(text)}`,
      );
    },
    decode(ids, options = {}) {
      expectFields("decode", "options", options, ["keepSpecial"]);
      const keepSpecial = expectFlag("decode", "options.keepSpecial", options.keepSpecial);
      const unknown = ids.find((id) => made.id_to_token(id) === undefined);
      if (unknown !== undefined)
        throw new RangeError(
          `decode: ids expected ids of the vocabulary (${vocabSize} tokens), got ${describe(unknown)}`,
        );
      // The library refuses to decode nothing. Cleaned up, the space before a mark would vanish when the mark comes.
      if (ids.length === 0) return "";
      const how = { skip_special_tokens: !keepSpecial, clean_up_tokenization_spaces: false };
      return attempt("decode", () => made.decode(keepMarks(ids, keepSpecial), how));
    },
    vocabSize,
    endIds: [...new Set(endIds)],
    ...(chatTemplate === undefined ? {} : { chatTemplate }),
    specialTexts: specials.texts,
    specialTokens,
  });
}

/** Throws unless these are places in a text, ascending. */
function expectPlaces(plain: readonly number[], text: string): void {
  const isPlace = (at: unknown, i: number) =>
    Number.isInteger(at) && (at as number) > (plain[i - 1] ?? -1) && (at as number) < text.length;
  if (Array.isArray(plain) && plain.every(isPlace)) return;
  const rule = `ascending places of the text, below ${text.length}`;
  const wrong = Array.isArray(plain) ? plain.find((at, i) => !isPlace(at, i)) : plain;
  throw new (Array.isArray(plain) ? RangeError : TypeError)(
    `encode: options.plain expected ${rule}, got ${describe(wrong)}`,
  );
}

/** Whether the stack overflowed, which engines say in different ways. */
const isOverflow = (cause: unknown) => /stack|recursion|too many (function )?arguments/i.test(reasonOf(cause));
