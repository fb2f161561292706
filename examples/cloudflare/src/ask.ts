import type { Tokenizer } from "headwise/text";
import { HttpError } from "./http.ts";
import type { Limits } from "./limits.ts";

/** The checked body of POST …/text. */
export interface Ask {
  /** What is added to the conversation; empty to continue the last answer. */
  readonly text: string;
  /** Tokens of the answer at most. */
  readonly tokens: number;
  /** The length of the conversation that the client expects, so that a request sent twice is rejected. */
  readonly at: number | undefined;
  /** As of `generate`. */
  readonly temperature: number;
  readonly seed: number;
  /** Whether to hash the logits. */
  readonly digest: boolean;
}

const bad = (message: string) => new HttpError(400, "bad_request", message);

/** Checks a body. Throws HttpError: 400 for a wrong type, 413 for a long text, 422 for a wrong value. */
export function checkAsk(body: unknown, { MAX_PROMPT, MAX_ANSWER }: Limits, tokenizer: Tokenizer): Ask {
  if (body === null || typeof body !== "object" || Array.isArray(body)) throw bad("the body must be a JSON object");
  const { text, tokens, at, temperature = 0, seed = 0, digest = false, ...others } = body as Record<string, unknown>;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    throw bad(`there is no field ${JSON.stringify(unknown)}: text, tokens, at, temperature, seed, digest`);
  if (typeof text !== "string") throw bad("text must be a string");
  if (!isInteger(tokens)) throw bad("tokens must be an integer");
  if (at !== undefined && !(isInteger(at) && at >= 0)) throw bad("at must be an integer >= 0");
  if (typeof temperature !== "number" || !(temperature >= 0 && temperature <= 2))
    throw bad("temperature must be a number from 0 to 2");
  if (!isInteger(seed) || seed < 0 || seed >= 2 ** 32) throw bad("seed must be an integer from 0 to 4294967295");
  if (typeof digest !== "boolean") throw bad("digest must be true or false");
  if (text.length > MAX_PROMPT)
    throw new HttpError(413, "prompt_too_long", `text may have ${MAX_PROMPT} characters, this one has ${text.length}`);
  if (tokens < 1 || tokens > MAX_ANSWER)
    throw new HttpError(422, "bad_tokens", `tokens must be from 1 to ${MAX_ANSWER}, not ${tokens}`);
  const strange = text.match(/\S+/g)?.find((word) => !isKnown(tokenizer, word));
  if (strange !== undefined)
    throw new HttpError(422, "unknown_word", `the model does not know the word ${JSON.stringify(strange)}`);
  return { text, tokens, at, temperature, seed, digest };
}

const isInteger = (value: unknown): value is number => Number.isInteger(value);

/** Whether a word has no special tokens, which stand for what the vocabulary does not have and are not written as text. */
function isKnown(tokenizer: Tokenizer, word: string): boolean {
  return tokenizer.encode(word, { addSpecial: false }).every((id) => tokenizer.decode([id]) !== "");
}
