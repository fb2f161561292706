import { expectFields, expectFlag } from "../util/arguments.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";
import { createMarkKeeper } from "./byte-order-mark.ts";
import { divideLongTexts, encodePlain, specialsOf } from "./encode-parts.ts";
import type { Tokenizers } from "./libraries.ts";
import type { Tokenizer } from "./tokenizer.ts";

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
