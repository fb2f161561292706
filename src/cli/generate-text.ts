// Text behind a prompt, or the answer to it, for `headwise generate`.

import type { GenerateOptions } from "../decoder/generate.ts";
import type { Session } from "../decoder/session.ts";
import { chat } from "../text/chat.ts";
import { generateText, type TextEnd } from "../text/generate-text.ts";
import { loadTokenizer } from "../text/load-tokenizer.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { UsageError } from "./args.ts";
import { aboutFile } from "./files.ts";

/** Loads the tokenizer of a model's folder or GGUF file. Errors of the library get its path. */
export async function openTokenizer(command: string, model: string): Promise<Tokenizer> {
  try {
    return await loadTokenizer(model);
  } catch (error) {
    throw aboutFile(command, model, error);
  }
}

/** Generates text behind a prompt, or with `asChat` the answer to it, and passes each piece to `write`. */
export async function writeText(
  session: Session,
  tokenizer: Tokenizer,
  prompt: string,
  asChat: boolean,
  options: GenerateOptions & { readonly stop?: string },
  write: (piece: string) => void,
): Promise<TextEnd> {
  const pieces = asChat
    ? chat(session, tokenizer, [{ role: "user", content: prompt }], options)
    : generateText(session, tokenizer, prompt, options);
  let next = await pieces.next().catch((error: unknown) => {
    throw error instanceof RangeError || error instanceof TypeError ? new UsageError(error.message) : error;
  });
  for (; !next.done; next = await pieces.next()) write(next.value);
  return next.value;
}
