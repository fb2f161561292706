// The optional packages that this folder needs: what it uses of them, and how they are found.

import { describe, HeadwiseError } from "../base/util/errors.ts";
import { reasonOf } from "../base/util/strings.ts";

/** The exports of `@huggingface/tokenizers`, as far as they are used. */
export interface TokenizersLibrary {
  /** The class of tokenizers. */
  readonly Tokenizer: object;
}

/** The exports of `@huggingface/jinja`, as far as they are used. */
export interface JinjaLibrary {
  /** The function that parses the tokens of a template. */
  readonly parse: (tokens: never) => unknown;
}

/** A token that is looked for in texts before anything else; it may take the spaces beside it, or stand for whole words alone. */
interface AddedToken {
  readonly content: string;
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  readonly single_word: boolean;
}

/** What is used of a tokenizer. */
export interface LibraryTokenizer {
  encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: readonly number[] };
  decode(ids: number[], options: { skip_special_tokens: boolean; clean_up_tokenization_spaces: boolean }): string;
  readonly decoder: ((tokens: string[]) => string) | null;
  readonly post_processor:
    | ((
        first: string[],
        second: string[] | null,
        addSpecial: boolean,
      ) => { readonly tokens: readonly string[]; readonly token_type_ids?: readonly number[] })
    | null;
  normalizer: ((text: string) => string) | null;
  pre_tokenizer: ((text: string, options?: object) => string[]) | null;
  model: ((pieces: string[]) => string[]) & { readonly unk_token?: string };
  /** What divides texts at added tokens, before and after they are normalised. */
  readonly splitter_unnormalized: { split(text: string): string[] };
  readonly splitter_normalized: { split(text: string): string[] };
  readonly added_tokens_map: ReadonlyMap<string, AddedToken>;
  id_to_token(id: number): string | undefined;
  token_to_id(token: string): number | undefined;
}

/** `TokenizersLibrary` as it is called: a tokenizer is made of tokenizer.json and tokenizer_config.json, parsed. */
export interface Tokenizers {
  readonly Tokenizer: new (tokenizer: object, config: object) => LibraryTokenizer;
}

/** `JinjaLibrary` as it is called. */
export interface Jinja {
  readonly parse: (tokens: readonly object[]) => unknown;
}

// The names stand in the imports themselves, where bundlers look for them, and each within `try`: then a package that is not
// installed is a warning of the bundler, or nothing.

/** `given`, or else the package `@huggingface/tokenizers`. */
export async function findTokenizers(where: string, given: TokenizersLibrary | undefined): Promise<Tokenizers> {
  const name = "@huggingface/tokenizers";
  const expect = (library: object) => expectExports<Tokenizers>(where, name, library, ["Tokenizer"]);
  if (given !== undefined) return expect(given);
  try {
    return expect(await import("@huggingface/tokenizers"));
  } catch (cause) {
    throw missing(where, name, cause);
  }
}

/** `given`, or else the package `@huggingface/jinja`. */
export async function findJinja(where: string, given: JinjaLibrary | undefined): Promise<Jinja> {
  const name = "@huggingface/jinja";
  const expect = (library: object) => expectExports<Jinja>(where, name, library, ["parse"]);
  if (given !== undefined) return expect(given);
  try {
    return expect(await import("@huggingface/jinja"));
  } catch (cause) {
    throw missing(where, name, cause);
  }
}

function expectExports<Library>(
  where: string,
  name: string,
  library: object,
  used: readonly (keyof Library & string)[],
): Library {
  if (used.every((field) => typeof Object(library)[field] === "function")) return library as Library;
  const text = `${where}: options.library expected the exports of ${name} (${used.join(", ")})`;
  throw new TypeError(`${text}, got ${describe(library)}`);
}

function missing(where: string, name: string, cause: unknown): HeadwiseError {
  const rule = `the package ${name}: npm install ${name}, or pass its exports as options.library`;
  return new HeadwiseError("NO_LIBRARY", `${where}: expected ${rule}, got ${reasonOf(cause)}`, { cause });
}
