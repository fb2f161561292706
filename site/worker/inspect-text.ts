// The tokens of a text, and the words in it that have none.

import { sitesOf } from "headwise/inspect";
import { loadedModel } from "./load.ts";

/** Words that the vocabulary lacks, and the token that the model reads in their place. */
export interface Unknown {
  readonly words: readonly string[];
  readonly token: string;
}

export interface Encoded {
  readonly ids: readonly number[];
  /** Tokens of the text that are left out. */
  readonly cut: number;
}

/** Bytes that the weights of all heads may take. */
const MOST_BYTES = 2 ** 27;

/** Words, numbers, and signs one by one. */
const WORDS = /[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]/gu;
const wordsOf = (text: string): string[] => [...new Set(text.match(WORDS) ?? [])];

/** The tokens of a text, as many as all maps have room for. */
export function encodeText(text: string): Encoded {
  const { model, tokenizer } = loadedModel();
  let all: readonly number[];
  try {
    all = tokenizer.encode(text);
  } catch (error) {
    const word = wordsOf(text).find((each) => !isEncoded(each));
    throw word === undefined ? error : new Error(`The vocabulary has no token for “${word}”: leave it out.`);
  }
  if (all.length === 0) throw new Error("Type a text.");
  const fit = Math.floor(Math.sqrt(MOST_BYTES / 4 / sitesOf(model, "z").length));
  const ids = all.slice(0, Math.min(fit, model.maxSeqLen ?? fit));
  return { ids, cut: all.length - ids.length };
}

function isEncoded(word: string): boolean {
  try {
    loadedModel().tokenizer.encode(word);
    return true;
  } catch {
    return false;
  }
}

/** The unknown words of a text, which may be none that the model could read. */
export async function unknownTask({ text }: { readonly text: string }): Promise<Unknown | undefined> {
  try {
    return unknownIn(text, loadedModel().tokenizer.encode(text));
  } catch {
    return undefined; // reading it says why
  }
}

/** The unknown words of a text of these tokens; undefined if there are none. */
export function unknownIn(text: string, ids: readonly number[]): Unknown | undefined {
  const { tokenizer } = loadedModel();
  const token = tokenizer.specialTokens?.unk_token;
  if (token === undefined) return undefined;
  const idsOf = (word: string) => tokenizer.encode(word, { addSpecial: false });
  const [id, ...others] = idsOf(token);
  if (id === undefined || others.length > 0 || !ids.includes(id)) return undefined;
  const words = wordsOf(text).filter((word) => idsOf(word).includes(id));
  return words.length > 0 ? { words, token } : undefined;
}
