import type { GgufValue } from "../../files/gguf/header.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";

/** Types of tokens, by number. */
export const NORMAL = 1;
export const UNKNOWN = 2;
export const CONTROL = 3;
export const USER_DEFINED = 4;
export const BYTE = 6;

/** A token of the vocabulary. */
export interface Token {
  readonly id: number;
  readonly text: string;
  readonly type: number;
  readonly score: number;
}

/** The checked vocabulary of a GGUF file. */
export interface Vocabulary {
  /** `tokenizer.ggml.model`. */
  readonly model: string;
  /** `general.name`, of the whole model; "" where there is none. */
  readonly name: string;
  readonly tokens: readonly Token[];
  readonly byText: ReadonlyMap<string, Token>;
  /** What a key below `tokenizer.ggml.` holds, checked: text, a flag, the token of an id; or a list, as it is. */
  text(key: string): string | undefined;
  flag(key: string): boolean | undefined;
  token(key: string): Token | undefined;
  list(key: string): GgufValue | undefined;
  fail(key: string, rule: string, got: unknown): never;
}

/** Longer tokens are in no known vocabulary. */
const LONGEST = 1024;

/** Reads and checks the keys `tokenizer.ggml.*`. */
export function readVocabulary(where: string, metadata: ReadonlyMap<string, GgufValue>): Vocabulary {
  const get = (key: string) => metadata.get(`tokenizer.ggml.${key}`);
  const fail = (key: string, rule: string, got: unknown): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: key "tokenizer.ggml.${key}" expected ${rule}, got ${describe(got)}`);
  };
  const model = get("model");
  if (typeof model !== "string" || model === "none") return fail("model", "the kind of a vocabulary", model);
  const texts = get("tokens");
  if (!Array.isArray(texts) || texts.length === 0) return fail("tokens", "a list of strings", texts);
  const numbers = (key: string) => {
    const values = get(key);
    if (values === undefined) return undefined;
    const isList = ArrayBuffer.isView(values) && (values as Float32Array).length === texts.length;
    return isList ? (values as Float32Array) : fail(key, `${texts.length} numbers, one for each token`, values);
  };
  const types = numbers("token_type");
  const scores = numbers("scores");
  const byText = new Map<string, Token>();
  const tokens = texts.map((given: unknown, id): Token => {
    if (typeof given !== "string") return fail(`tokens`, "strings", given);
    if (given.length > LONGEST) fail("tokens", `tokens of at most ${LONGEST} characters`, given);
    // No text is made of this one.
    const text = given === "" ? `[EMPTY_${id}]` : given;
    const token = { id, text, type: types?.[id] ?? NORMAL, score: scores?.[id] ?? 0 };
    if (!Number.isFinite(token.score)) fail("scores", "finite numbers", token.score);
    const first = byText.get(text);
    if (first) fail("tokens", `tokens that differ, but ids ${first.id} and ${id} are the same`, text);
    byText.set(text, token);
    return token;
  });
  return {
    ...{ model, name: String(metadata.get("general.name") ?? ""), tokens, byText, fail, list: get },
    text(key) {
      const value = get(key);
      return value === undefined || typeof value === "string" ? value : fail(key, "text", value);
    },
    flag(key) {
      const value = get(key);
      return value === undefined || typeof value === "boolean" ? value : fail(key, "true or false", value);
    },
    token(key) {
      const value = get(key);
      if (value === undefined) return undefined;
      const id = typeof value === "bigint" ? Number(value) : value;
      // Files have 2^32 - 1 where there is no such token.
      if (id === -1 || id === 2 ** 32 - 1) return undefined;
      return (typeof id === "number" ? tokens[id] : undefined) ?? fail(key, `an id below ${tokens.length}`, value);
    },
  };
}
