// Text as it is generated.

import { expectFlag, readFields, readOptions } from "../base/util/arguments.ts";
import { describe, HeadwiseError, underName } from "../base/util/errors.ts";
import { withEnd } from "../base/util/steps.ts";
import { reasonOf } from "../base/util/strings.ts";
import { expectModel, type LoadedModel, type Model } from "../models/blocks/model.ts";
import {
  createSession,
  expectSession,
  expectUnused,
  nearestLength,
  readIds,
  type Session,
  type TokenIds,
} from "../models/decoder/session.ts";
import {
  type Begun,
  type GeneratedToken,
  type GenerateOptions,
  type GenerationEnd,
  generateTokens,
  wasAborted,
} from "../models/generate/generate.ts";
import { expectTokenizer, type Tokenizer } from "./tokenizer.ts";

/** Options of `generateText`: those of `generate`, and for text. */
export interface GenerateTextOptions extends GenerateOptions {
  /** Ids that end the generation. Default the `endIds` of the tokenizer. */
  readonly stopIds?: TokenIds | undefined;
  /** Texts that end the generation, which may straddle tokens. What is before is given, the text itself is not. Default none. */
  readonly stop?: string | readonly string[] | undefined;
  /** Whether special tokens are part of the text. Default false. */
  readonly keepSpecial?: boolean | undefined;
}

/** What a generation of text gave, also where it was left or aborted: until then. */
export interface TextEnd extends GenerationEnd {
  /** As of `generate`: "stop" also where one of `stop` came. */
  readonly reason: GenerationEnd["reason"];
  /** The stop string that ended it, if one did. */
  readonly stop?: string;
  /** All text that was given. */
  readonly text: string;
  /** The ids of the tokens that were generated. */
  readonly ids: readonly number[];
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Those of them that the session had read before, and that were not read again. */
  readonly reusedTokens: number;
  /** Milliseconds of reading the prompt, up to the first token. */
  readonly promptMs: number;
  /** Milliseconds of the tokens behind the first: (ids.length - 1) * 1000 / generationMs are tokens a second. */
  readonly generationMs: number;
}

/** Text as it is generated: pieces for `for await`, and what it gave in the end. */
export interface TextGeneration extends AsyncGenerator<string, TextEnd, void> {
  /**
   * What it gave, once the loop has ended, was left (`break`, `return()`, an error in it) or aborted; it rejects with what else the
   * loop throws. As long as nobody asks for pieces, nothing is generated, and this stays pending.
   */
  readonly end: Promise<TextEnd>;
}

export const TEXT_OPTIONS = [
  "temperature",
  "topK",
  "topP",
  "minP",
  "repetitionPenalty",
  "seed",
  "logitsProcessors",
  "signal",
  "sliceMs",
  "maxTokens",
  "stopIds",
  "draft",
  "stop",
  "keepSpecial",
] as const;

/**
 * Generates text behind a prompt, and gives it in pieces of whole characters as they come. No piece ever changes.
 *
 * A session holds what it has read: if the prompt begins with the same tokens, only the others are read, and what the session has
 * beyond them is forgotten. So the whole text is passed again when a text is continued, and the result is that of a new session.
 * Leaving the loop early is allowed. The promise `end` of the result says why it ended, with the whole text, tokens and times.
 * @param on A session, or a model: then a session is made as long as needed, at most as `createSession` makes it, and released.
 * @param prompt Text, to which the tokenizer adds what the model expects around it, or ids. On a session of `readSource`, text is
 * what the decoder has written so far, "" at first, and the start token of config.json is put before it instead.
 * @throws TypeError or RangeError naming the argument, also for a tokenizer of more tokens than the model has, and for tokens that
 * the other of the two does not know. What `generate` throws.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadModel, models } from "headwise/models";
 * import { generateText } from "headwise/text";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const encode = (text: string) => text.split(" ").map(Number);
 * const words = { encode, decode: (ids: readonly number[]) => ` ${ids.join(" ")}` };
 * const pieces = generateText(model, words, "81 90 23 0 81 90", { maxTokens: 4 });
 * let shown = "";
 * for await (const piece of pieces) shown += piece;
 * const { text, reason, promptTokens, generationMs } = await pieces.end;
 * console.log(text === shown, text.trim(), reason, promptTokens, generationMs > 0); // true 23 0 81 90 length 6 true
 * kernels.release();
 */
export function generateText(
  on: Model | Session,
  tokenizer: Tokenizer,
  prompt: string | TokenIds,
  options: GenerateTextOptions = {},
): TextGeneration {
  return writeText((begun) =>
    prepareText("generateText", on, tokenizer, options, begun, async ({ encoder }) => {
      if (typeof prompt !== "string") return { ids: prompt, context: true, isText: false };
      // A decoder that begins with its start token has nothing else around a text.
      const ids = encoder ? tokenizer.encode(prompt, { addSpecial: false }) : tokenizer.encode(prompt);
      return { ids, context: true, isText: true };
    }),
  );
}

/** The tokens of a prompt. */
interface Prompt {
  readonly ids: TokenIds;
  /** Whether what is generated is the same text, or begins one of its own. */
  readonly context: boolean;
  /** Whether the prompt was text, whose tokens a decoder with an encoder reads behind its start token. */
  readonly isText: boolean;
}

/** A generation of text whose arguments are checked. */
interface TextWork {
  readonly tokens: AsyncGenerator<GeneratedToken, GenerationEnd, void>;
  readonly stream: TextStream;
  readonly stops: StopFinder;
  readonly promptTokens: number;
  /** Tokens of the prompt that are not read again. */
  reusedTokens(): number;
  close(): Promise<void>;
}

/** Checks the arguments of a generation behind the prompt that `makePrompt` gives then. Errors name `where`. Sets `begun`. */
export async function prepareText(
  where: string,
  on: Model | Session,
  tokenizer: Tokenizer,
  options: GenerateTextOptions,
  begun: Begun,
  makePrompt: (model: LoadedModel) => Promise<Prompt>,
): Promise<TextWork> {
  const isSession = typeof Object(on).truncate === "function";
  if (isSession) expectSession(where, on as Session);
  else expectModel(where, on as Model);
  const model = isSession ? (on as Session).model : (on as Model);
  expectTokenizer(where, tokenizer);
  const { stop, keepSpecial, ...rest } = readOptions(where, options, TEXT_OPTIONS);
  const stops = findStops(readStops(where, stop));
  const isKept = expectFlag(where, "options.keepSpecial", keepSpecial);
  const { vocabSize, endIds = [] } = tokenizer;
  if (vocabSize !== undefined && vocabSize > model.vocabSize)
    throw new RangeError(
      `${where}: tokenizer expected at most ${model.vocabSize} tokens, those of the model, got ${vocabSize}`,
    );
  // Tokens beyond those of the model, which was made for fewer, cannot come.
  const given = { stopIds: Array.from(endIds).filter((id) => id < model.vocabSize), ...rest };
  const { ids, context, isText } = await makePrompt(model);
  const most = isSession ? (on as Session).maxSeqLen : model.spec.sessionLength;
  const start = isText && model.encoder ? [expectStart(where, model)] : [];
  const prompt = readPrompt(where, tokenizer, ids, model.vocabSize, most, start);
  const stream = streamText(where, tokenizer, context ? prompt : [], isKept);
  const session = isSession ? (on as Session) : openSession(where, on as Model, prompt.length, given.maxTokens);
  let reused = 0;
  const unread = () => {
    reused = reuse(where, session, prompt);
    return prompt.slice(reused);
  };
  const tokens = generateTokens(where, session, unread, given, begun, prompt.length);
  return {
    ...{ tokens, stream, stops, promptTokens: prompt.length, reusedTokens: () => reused },
    async close() {
      await tokens.return(undefined as never);
      if (!isSession) session.release();
    },
  };
}

/** Generates the text that `prepare` prepares when the first piece is asked for. */
export function writeText(prepare: (begun: Begun) => Promise<TextWork>): TextGeneration {
  const begun: Begun = {};
  const written: Written = { begun, work: undefined, text: "", ids: [], promptMs: 0, generationMs: 0 };
  return withEnd(
    writePieces(() => prepare(begun), written),
    (reason) => endOf(written, { reason }),
    (error) => wasAborted(begun, error),
  );
}

/** What was generated so far. */
interface Written {
  readonly begun: Begun;
  work: TextWork | undefined;
  text: string;
  readonly ids: number[];
  promptMs: number;
  generationMs: number;
}

function endOf({ begun, work, ...written }: Written, end: GenerationEnd & Pick<TextEnd, "stop">): TextEnd {
  return {
    ...begun.seeded,
    ...end,
    ...written,
    promptTokens: work?.promptTokens ?? 0,
    reusedTokens: work?.reusedTokens() ?? 0,
  };
}

/** The pieces of a text, which it adds to `written`. */
async function* writePieces(prepare: () => Promise<TextWork>, written: Written): AsyncGenerator<string, TextEnd, void> {
  try {
    written.work = await prepare();
    const { tokens, stream, stops } = written.work;
    for (let isFirst = true; ; isFirst = false) {
      const began = performance.now();
      const next = await tokens.next();
      const ms = performance.now() - began;
      if (isFirst) written.promptMs = ms;
      else if (!next.done) written.generationMs += ms;
      if (!next.done) written.ids.push(next.value.id);
      const piece = next.done ? stream.end() : stream.push(next.value.id);
      const found = stops.push(piece);
      const given = next.done && found.stop === undefined ? found.text + stops.end() : found.text;
      written.text += given;
      if (given !== "") yield given;
      if (found.stop !== undefined) return endOf(written, { reason: "stop", stop: found.stop });
      if (next.done) return endOf(written, next.value);
    }
  } finally {
    await written.work?.close();
  }
}

/** The token that the decoder of a model with two halves begins with. */
export function expectStart(where: string, { spec: { startId } }: LoadedModel): number {
  if (startId !== undefined) return startId;
  const rule = "a model whose config.json states decoder_start_token_id, or ids as the prompt";
  throw new RangeError(`${where}: session expected ${rule}, got neither`);
}

/** Reads the tokens of a prompt, at most `most`, all of which the model must have. Puts `start` before them if it is not there. */
export function readPrompt(
  where: string,
  tokenizer: Tokenizer,
  given: TokenIds,
  vocabSize: number,
  most: number,
  start: readonly number[],
): readonly number[] {
  if (typeof given !== "object" || given === null || typeof given.length !== "number")
    throw new TypeError(`${where}: prompt expected text or ids, got ${describe(given)}`);
  if (given.length > most)
    throw new HeadwiseError("CACHE_FULL", `${where}: prompt expected at most ${most} tokens, got ${given.length}`);
  const ids = Array.from(given);
  const beyond = ids.find((id) => Number.isInteger(id) && id >= vocabSize);
  if (beyond !== undefined) {
    const rule = `tokens that the model has (ids below ${vocabSize})`;
    const got = `${describe(tokenizer.decode([beyond], { keepSpecial: true }))} with id ${beyond}`;
    throw new RangeError(`${where}: prompt expected ${rule}, got ${got}`);
  }
  const prompt = Array.from(readIds(where, "prompt", ids, vocabSize, Infinity));
  if (prompt[0] !== start[0]) prompt.unshift(...start);
  if (prompt.length === 0) throw new RangeError(`${where}: prompt expected 1 or more tokens, got none`);
  return prompt;
}

/** A session for a prompt and what follows it. */
function openSession(where: string, model: Model, length: number, maxTokens: unknown): Session {
  const most = model.spec.sessionLength;
  const wanted = typeof maxTokens === "number" && maxTokens >= 0 ? Math.min(length + maxTokens, most) : most;
  return underName(where, () => createSession(model, { maxSeqLen: Math.ceil(wanted) }));
}

/** Forgets what a session has read besides the beginning of a prompt, of which at least one token is read again. */
function reuse(where: string, session: Session, prompt: readonly number[]): number {
  const { length, tokens } = session;
  expectUnused(where, session);
  let same = 0;
  while (same < length && same < prompt.length - 1 && tokens[same] === prompt[same]) same++;
  if (same === length) return same;
  // Behind a window, tokens that would be needed again may be gone.
  const kept = nearestLength(session, same, length);
  session.truncate(kept);
  return kept;
}

/** Finds stop strings in text that comes in pieces. */
export interface StopFinder {
  /** The text that is certain not to belong to a stop string, and the stop string behind it, if one is complete. */
  push(piece: string): { readonly text: string; readonly stop?: string };
  /** What was held back because a stop string could have begun there. */
  end(): string;
}

/** Reads the option `stop`: a string or a list of them. */
export function readStops(where: string, stop: unknown): readonly string[] {
  const given: readonly unknown[] = stop === undefined ? [] : Array.isArray(stop) ? [...stop] : [stop];
  return given.map((each, i) => {
    const name = Array.isArray(stop) ? `stop[${i}]` : "stop";
    const rule = "a string of 1 or more whole characters";
    // Half of a surrogate pair is never given, nor found.
    if (typeof each === "string" && each !== "" && !/\p{Surrogate}/u.test(each)) return each;
    const text = `${where}: ${name} expected ${rule}, got ${describe(each)}`;
    throw typeof each === "string" ? new RangeError(text) : new TypeError(text);
  });
}

/** Looks for the first of `stops` in text that comes in pieces, which may divide it anywhere. */
export function findStops(stops: readonly string[]): StopFinder {
  let held = "";
  /** The stop string that is complete first, so that it does not matter how the text is divided; of several, the longest. */
  const firstOf = () => {
    let first: { at: number; stop: string; end: number } | undefined;
    for (const stop of stops) {
      const at = held.indexOf(stop);
      const end = at + stop.length;
      if (at >= 0 && (!first || end < first.end || (end === first.end && at < first.at))) first = { at, stop, end };
    }
    return first;
  };
  /** Characters at the end with which a stop string begins. */
  const begun = () => {
    const most = Math.min(held.length, Math.max(0, ...stops.map(({ length }) => length - 1)));
    for (let count = most; count > 0; count--)
      if (stops.some((stop) => stop.startsWith(held.slice(-count)))) return count;
    return 0;
  };
  return {
    push(piece) {
      held += piece;
      const found = firstOf();
      if (found) return { text: held.slice(0, found.at), stop: found.stop };
      const text = held.slice(0, held.length - begun());
      held = held.slice(text.length);
      return { text };
    },
    end: () => held,
  };
}

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
