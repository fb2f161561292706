// Text that follows a prompt, or the answer to it, for `headwise generate`.

import type { GenerateOptions } from "../decoder/generate.ts";
import type { Session } from "../decoder/session.ts";
import { type ChatOptions, chat } from "../text/chat.ts";
import { generateText, type TextEnd } from "../text/generate-text.ts";
import { findJinja, findTokenizers } from "../text/libraries.ts";
import { loadTokenizer } from "../text/load-tokenizer.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { FileError, UsageError } from "./args.ts";
import { aboutFile, readText } from "./files.ts";
import { findLibrary } from "./libraries.ts";
import type { Loading } from "./loading.ts";

/** Loads the tokenizer of a model's folder or GGUF file. Errors of the library get its path. */
export async function openTokenizer(
  command: string,
  model: string,
  { store }: Pick<Loading, "store">,
): Promise<Tokenizer> {
  const library = await findLibrary(command, "@huggingface/tokenizers", findTokenizers);
  try {
    return await loadTokenizer(model, { library, store });
  } catch (error) {
    throw aboutFile(command, model, error);
  }
}

/** What a conversation is written by. */
type ChatWriter = Required<Pick<ChatOptions, "template" | "library">>;

/** The template in a file, or else that of the model, and what renders it. */
export async function openChat(
  command: string,
  model: string,
  { chatTemplate }: Tokenizer,
  file: string | undefined,
): Promise<ChatWriter> {
  const template = file === undefined ? chatTemplate : await readText(command, "--template", file);
  if (template === undefined) {
    const rule = "a model with a chat template, or --template with one";
    throw new FileError(`${command}: --chat expected ${rule}, got ${model} without one`);
  }
  return { template, library: await findLibrary(command, "@huggingface/jinja", findJinja) };
}

/** Generates text that follows a prompt, or as a `conversation` the answer to it, and passes each piece to `write`. */
export async function writeText(
  session: Session,
  tokenizer: Tokenizer,
  prompt: string,
  conversation: ChatWriter | undefined,
  options: GenerateOptions & { readonly stop?: string },
  write: (piece: string) => void,
): Promise<TextEnd> {
  const pieces = conversation
    ? chat(session, tokenizer, [{ role: "user", content: prompt }], { ...options, ...conversation })
    : generateText(session, tokenizer, prompt, options);
  let next = await pieces.next().catch((error: unknown) => {
    throw error instanceof RangeError || error instanceof TypeError ? new UsageError(error.message) : error;
  });
  for (; !next.done; next = await pieces.next()) write(next.value);
  return next.value;
}
