import { HttpError } from "./http.ts";
import type { Limits } from "./limits.ts";

/** The checked body of POST …/tokens. */
export interface Ask {
  /** Tokens of the added text; none to continue the last answer. */
  readonly prompt: readonly number[];
  /** The number of tokens to compute. */
  readonly tokens: number;
  /** The length of the conversation that the client expects, so that a request sent twice is rejected. */
  readonly at: number | undefined;
  /** Whether to hash the logits. */
  readonly digest: boolean;
}

const bad = (message: string) => new HttpError(400, "bad_request", message);

/** Checks a body. Throws HttpError: 400 for a wrong type, 413 for a long prompt, 422 for a wrong value. */
export function checkAsk(body: unknown, limits: Limits, vocabulary: string): Ask {
  if (body === null || typeof body !== "object" || Array.isArray(body)) throw bad("the body must be a JSON object");
  const { text, tokens, at, digest, ...others } = body as Record<string, unknown>;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw bad(`there is no field ${JSON.stringify(unknown)}: text, tokens, at, digest`);
  if (typeof text !== "string") throw bad("text must be a string");
  if (typeof tokens !== "number" || !Number.isInteger(tokens)) throw bad("tokens must be an integer");
  if (at !== undefined && (typeof at !== "number" || !Number.isInteger(at) || at < 0))
    throw bad("at must be an integer >= 0");
  if (digest !== undefined && typeof digest !== "boolean") throw bad("digest must be true or false");
  const { MAX_PROMPT, MAX_ANSWER } = limits;
  if (text.length > MAX_PROMPT)
    throw new HttpError(413, "prompt_too_long", `text may have ${MAX_PROMPT} characters, this one has ${text.length}`);
  if (tokens < 1 || tokens > MAX_ANSWER)
    throw new HttpError(422, "bad_tokens", `tokens must be from 1 to ${MAX_ANSWER}, not ${tokens}`);
  const prompt = Array.from(text, (character) => {
    const token = vocabulary.indexOf(character);
    if (token < 0)
      throw new HttpError(422, "unknown_character", `the model does not know ${JSON.stringify(character)}`);
    return token;
  });
  return { prompt, tokens, at, digest: digest ?? false };
}
