// The optional packages that this folder needs: what it uses of them, and how they are found.

import { describe, HeadwiseError } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";

/** What is used of a tokenizer of `@huggingface/tokenizers`. */
export interface LibraryTokenizer {
  /** Its ids of a text. */
  encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: readonly number[] };
  /** Its text of ids. */
  decode(ids: number[], options: { skip_special_tokens: boolean; clean_up_tokenization_spaces: boolean }): string;
  /** The token of an id. */
  id_to_token(id: number): string | undefined;
  /** The id of a token. */
  token_to_id(token: string): number | undefined;
}

/** What is used of `@huggingface/tokenizers`. */
export interface TokenizersLibrary {
  /** Makes a tokenizer of tokenizer.json and tokenizer_config.json, parsed. */
  readonly Tokenizer: new (
    tokenizer: object,
    config: object,
  ) => LibraryTokenizer;
}

/** What is used of an interpreter of `@huggingface/jinja`. */
export interface JinjaInterpreter {
  /** Runs a whole template. */
  run(program: never): { readonly value: unknown };
  /** Runs a part of one. */
  evaluate(node: never, environment: never): { readonly value: unknown };
}

/** What is used of `@huggingface/jinja`. */
export interface JinjaLibrary {
  /** Parses a template. */
  readonly Template: new (
    template: string,
  ) => { readonly parsed: unknown };
  /** The variables of a template. */
  readonly Environment: new () => { set(name: string, value: unknown): unknown };
  /** Runs a parsed template. */
  readonly Interpreter: new (
    environment: never,
  ) => JinjaInterpreter;
}

/** `given`, or else the package `@huggingface/tokenizers`. */
export function findTokenizers(where: string, given: TokenizersLibrary | undefined): Promise<TokenizersLibrary> {
  const name = "@huggingface/tokenizers";
  // The name stands in the import itself, where bundlers look for it.
  const load = () => import("@huggingface/tokenizers").catch(missing(where, name));
  return find<TokenizersLibrary>(where, name, given, ["Tokenizer"], load);
}

/** `given`, or else the package `@huggingface/jinja`. */
export function findJinja(where: string, given: JinjaLibrary | undefined): Promise<JinjaLibrary> {
  const name = "@huggingface/jinja";
  const load = () => import("@huggingface/jinja").catch(missing(where, name));
  return find<JinjaLibrary>(where, name, given, ["Template", "Environment", "Interpreter"], load);
}

async function find<Library extends object>(
  where: string,
  name: string,
  given: Library | undefined,
  used: readonly (keyof Library)[],
  load: () => Promise<Library>,
): Promise<Library> {
  const library = given ?? (await load());
  if (used.every((field) => typeof Object(library)[field] === "function")) return library;
  const text = `${where}: options.library expected the exports of ${name} (${used.join(", ")})`;
  throw new TypeError(`${text}, got ${describe(library)}`);
}

function missing(where: string, name: string): (cause: unknown) => never {
  return (cause) => {
    const rule = `the package ${name}: npm install ${name}, or pass its exports as options.library`;
    throw new HeadwiseError("NO_LIBRARY", `${where}: expected ${rule}, got ${reasonOf(cause)}`, { cause });
  };
}
