import { expectFields, expectFlag } from "../util/arguments.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";
import { createMarkKeeper } from "./byte-order-mark.ts";
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
  const attempt = <T>(from: string, run: () => T): T => {
    try {
      return run();
    } catch (cause) {
      const text = `${from}: ${what} expected a tokenizer that @huggingface/tokenizers reads, got ${reasonOf(cause)}`;
      throw new HeadwiseError("BAD_FILE", text, { cause });
    }
  };
  const made = attempt(where, () => new library.Tokenizer(json, config));
  const { added_tokens: added } = json as { readonly added_tokens?: unknown };
  const special = (Array.isArray(added) ? added : []).filter((token) => Object(token).special);
  const keepMarks = attempt(where, () => createMarkKeeper(made, new Set(special.map(({ content }) => content))));
  const endIds = ends.map((end) => (typeof end === "string" ? made.token_to_id(end) : end));
  return Object.freeze<Tokenizer>({
    encode(text, options = {}) {
      if (typeof text !== "string") throw new TypeError(`encode: text expected a string, got ${describe(text)}`);
      expectFields("encode", "options", options, ["addSpecial"]);
      const { addSpecial = true } = options;
      const add_special_tokens = expectFlag("encode", "options.addSpecial", addSpecial);
      const { ids } = attempt("encode", () => made.encode(text, { add_special_tokens }));
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
    endIds: [...new Set(endIds.filter((id) => id !== undefined))],
    ...(chatTemplate === undefined ? {} : { chatTemplate }),
    specialTokens,
  });
}
