import { expectFlag, readFields } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";
import { expectTokenizer, type Tokenizer } from "./tokenizer.ts";

/** Text of tokens that come one at a time. */
export interface TextStream {
  /**
   * The text that this token completes, in whole characters: empty while the bytes of a character are incomplete. Later tokens do
   * not change it.
   */
  push(id: number): string;
  /** What remains when no more tokens come: U+FFFD for bytes that are no character. */
  end(): string;
}

/** What bytes are written as that are not a character yet, or never will be. */
const PARTIAL = "\uFFFD";

/** Tokens of the context that are looked at: more than are needed to know how the next one is written. */
const CONTEXT = 32;

/**
 * Makes text of tokens as they come.
 * @param context Tokens before them, whose text was given already: it decides whether the first one keeps its space.
 * @param options `keepSpecial`: as of `Tokenizer.decode`.
 * @throws RangeError from `push` if the tokenizer does not have the token.
 * @example
 * import { createTextStream } from "headwise/text";
 * const bytes = { encode: (text: string) => [...new TextEncoder().encode(text)],
 *   decode: (ids: readonly number[]) => new TextDecoder().decode(Uint8Array.from(ids)) };
 * const stream = createTextStream(bytes);
 * console.log(bytes.encode("h€").map((id) => stream.push(id))); // [ 'h', '', '', '€' ]
 */
export function createTextStream(
  tokenizer: Tokenizer,
  context: readonly number[] = [],
  options: { readonly keepSpecial?: boolean | undefined } = {},
): TextStream {
  const where = "createTextStream";
  expectTokenizer(where, tokenizer);
  const { keepSpecial } = readFields(where, "options", options, ["keepSpecial"]);
  return streamText(where, tokenizer, context, expectFlag(where, "options.keepSpecial", keepSpecial));
}

/** `createTextStream`; errors name `where`. */
export function streamText(
  where: string,
  tokenizer: Tokenizer,
  context: readonly number[] = [],
  keepSpecial = false,
): TextStream {
  const textOf = (ids: readonly number[]): string => {
    let text: unknown;
    try {
      text = tokenizer.decode(ids, { keepSpecial });
    } catch (cause) {
      const rule = `text for all tokens of the model, among them ${ids.at(-1)}`;
      throw new RangeError(`${where}: tokenizer expected ${rule}, got ${reasonOf(cause)}`, { cause });
    }
    if (typeof text === "string") return text;
    throw new TypeError(`${where}: tokenizer.decode expected to return text, got ${describe(text)}`);
  };
  // The tokens of the last piece, and those behind it: how a token is written may depend on the one before.
  let ids = Array.from(context).slice(-CONTEXT);
  let behind = ids.length;
  let text = textOf(ids);
  let given = text.length;
  const give = (end: number): string => {
    const piece = text.slice(given, end);
    given = Math.max(given, end);
    return piece;
  };
  return {
    push(id) {
      ids.push(id);
      text = textOf(ids);
      let end = text.length;
      while (text[end - 1] === PARTIAL) end--;
      if (end <= given) return "";
      const piece = give(end);
      if (end === text.length) {
        ids = ids.slice(behind);
        behind = ids.length;
        text = textOf(ids);
        given = text.length;
      }
      return piece;
    },
    end: () => give(text.length),
  };
}
