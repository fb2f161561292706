// Tokens of one session, as they are generated, and guesses of those that come, which the model checks in one pass.

import { yieldToEventLoop } from "../../base/platform/host.ts";
import { expectInt, readFields, readOptions } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { withEnd } from "../../base/util/steps.ts";
import { checkSlices, type SliceOptions, type Slices } from "../../layers/pass/forward.ts";
import { checkModelCall, type ModelCall, runCalls } from "../decoder/forward.ts";
import {
  expectReady,
  expectSession,
  expectUnchanged,
  forgetTokens,
  holdSession,
  nearestLength,
  readIds,
  type Session,
  type TokenIds,
} from "../decoder/session.ts";
import {
  type Choice,
  checkSampling,
  chooseToken,
  SAMPLING_OPTIONS,
  type Sampling,
  type SamplingOptions,
} from "./sampling.ts";

/** A generated token. */
export interface GeneratedToken {
  /** From 0 to vocabSize - 1. */
  readonly id: number;
  /** Logarithm of the probability that the model gives it, before any option of sampling changed it. */
  readonly logprob: number;
}

/** Why a generation ended. */
export interface GenerationEnd {
  /**
   * "stop": one of `stopIds` came; "length": maxTokens; "full": the session has no room for another token. Of the promise `end`
   * also "left": the loop was left; "aborted": by the signal.
   */
  readonly reason: "stop" | "length" | "full" | "left" | "aborted";
  /** The id that ended it, which is not among the generated tokens. */
  readonly stopId?: number;
  /** With a temperature above 0, the seed that gives the same tokens again: the one that was given or drawn. */
  readonly seed?: number;
}

/** Tokens as they are generated, for `for await`, and why they ended. */
export interface TokenGeneration extends AsyncGenerator<GeneratedToken, GenerationEnd, void> {
  /**
   * Why it ended, also where the loop was left or aborted; it rejects with what else the loop throws. As long as nobody asks for
   * tokens, nothing is generated, and this stays pending.
   */
  readonly end: Promise<GenerationEnd>;
}

/** Options of `generate`. */
export interface GenerateOptions extends SamplingOptions, Omit<SliceOptions, "onProgress"> {
  /**
   * Tokens at most, 0 or more. Default as many as the session has room for. With 0, `ids` are checked and not read; after the last
   * of more tokens, that token is not read.
   */
  readonly maxTokens?: number | undefined;
  /** Ids that end the generation, at most vocabSize of them. Default none. */
  readonly stopIds?: TokenIds | undefined;
  /**
   * Speculative decoding: guesses tokens, and checks several of them in one pass. The tokens are those of plain decoding; only the
   * time differs. Default none.
   */
  readonly draft?: DraftOptions | undefined;
}

/** Fields of GenerateOptions. */
const GENERATE_OPTIONS = [...SAMPLING_OPTIONS, "signal", "sliceMs", "maxTokens", "stopIds", "draft"] as const;

/** Checked GenerateOptions besides how passes are sliced. */
interface Generation {
  readonly sampling: Sampling;
  readonly maxTokens: number;
  readonly stops: ReadonlySet<number>;
  /** What its end says of the seed. */
  readonly seeded: Pick<GenerationEnd, "seed">;
}

/** What a generation sets when it begins, and its end needs where it is left or aborted. */
export interface Begun {
  seeded?: Pick<GenerationEnd, "seed">;
  signal?: SliceOptions["signal"];
}

/** Whether a generation threw its signal's reason. */
export const wasAborted = ({ signal }: Begun, error: unknown): boolean =>
  signal?.aborted === true && signal.reason === error;

/** Checks what was read of the options of a generation. */
export function checkGeneration(where: string, given: GenerateOptions, vocabSize: number): Generation {
  const { maxTokens, stopIds } = given;
  const sampling = checkSampling(where, given);
  return {
    sampling,
    seeded: sampling.temperature > 0 ? { seed: sampling.seed } : {},
    maxTokens: maxTokens === undefined ? Infinity : expectInt(where, "maxTokens", maxTokens, 0),
    stops: new Set(stopIds === undefined ? [] : readStopIds(where, stopIds, vocabSize)),
  };
}

function readStopIds(where: string, stopIds: TokenIds, vocabSize: number): readonly number[] {
  const read = readIds(where, "stopIds", stopIds, vocabSize, vocabSize);
  if (read.length > vocabSize)
    throw new RangeError(`${where}: stopIds expected at most ${vocabSize} ids, those of the model, got ${read.length}`);
  return Array.from(read);
}

/**
 * Reads `ids`, and generates tokens behind them, one at a time; with `maxTokens` 0, reads nothing. Each pass runs in time slices
 * with yields to the event loop.
 * Leaving the loop early is allowed: the session then holds all tokens but the last one that was given. If the session was forked
 * in the loop, leaving it between the tokens of one step of a `draft` may take memory: without it `OUT_OF_MEMORY` is thrown, and the
 * session holds all tokens of the step. The promise `end` of the result says why it ended, and with which seed.
 *
 * With one seed, the tokens are the same on every engine in the `simd` build, and the same in any batch, with any draft and on
 * any number of threads.
 * @param ids Tokens behind those that the session has read, 1 or more.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `CACHE_FULL` if `ids` do not fit, `OUT_OF_MEMORY`,
 * `RELEASED`, `IN_USE` (another call runs on the session, or has changed it since the last token), `BAD_FILE` (rows that are left in
 * a file cannot be read). RangeError if processors leave no token, or NaN or Infinity. The signal's reason. What was generated until
 * then stays in the session.
 * @example
 * import { loadKernels } from "headwise";
 * import { createSession, generate, loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const session = createSession(model, { maxSeqLen: 64 });
 * const ids = [];
 * for await (const { id } of generate(session, [81, 90, 23, 0, 81, 90], { maxTokens: 4 })) ids.push(id);
 * console.log(ids.join(" "), session.length); // 23 0 81 90 9
 * kernels.release();
 */
export function generate(session: Session, ids: TokenIds, options: GenerateOptions = {}): TokenGeneration {
  const begun: Begun = {};
  return withEnd(
    generateTokens("generate", session, () => ids, options, begun),
    (reason) => ({ reason, ...begun.seeded }),
    (error) => wasAborted(begun, error),
  );
}

/**
 * The tokens of `generate`; errors name `where`. The ids are asked for when the options are checked. Sets `begun`. `promptLength`:
 * tokens of a prompt of which the session may have read some before. Default as many as the ids.
 */
export async function* generateTokens(
  where: string,
  session: Session,
  listIds: () => TokenIds,
  options: GenerateOptions,
  begun: Begun,
  promptLength?: number,
): AsyncGenerator<GeneratedToken, GenerationEnd, void> {
  expectSession(where, session);
  const given = readOptions(where, options, GENERATE_OPTIONS);
  begun.signal = given.signal;
  const { sampling: asked, maxTokens, stops, seeded } = checkGeneration(where, given, session.model.vocabSize);
  begun.seeded = seeded;
  const slices = checkSlices(where, given);
  const drafts = checkDrafts(where, session, given.draft);
  const pace = createPace(slices);
  const first = checkModelCall(where, session, listIds(), "last");
  const tokenRules = session.model.spec.tokenRules?.(promptLength ?? first.ids.length);
  const sampling = { ...asked, tokenRules };
  let next = first.ids;
  let changes = session.changes.count;
  for (let count = 0, { past } = first; ; ) {
    if (count >= maxTokens) return { reason: "length", ...seeded };
    const before = past + next.length;
    if (before > session.maxSeqLen) return { reason: "full", ...seeded };
    await pace();
    expectReady(where, session, past, changes);
    const chosen = await step(where, session, next, sampling, drafts, maxTokens - count, slices);
    past = before + chosen.length - 1;
    changes = session.changes.count;
    let given = 0;
    try {
      for (const choice of chosen) {
        if (stops.has(choice.id)) return { reason: "stop", stopId: choice.id, ...seeded };
        count++;
        yield choice;
        given++;
        expectUnchanged(where, session, past, changes);
      }
    } finally {
      // Ended between guesses that were right: plain decoding would not have read those that follow.
      if (given < chosen.length - 1) forgetTokens(where, session, past, before + given, changes);
    }
    next = Int32Array.of((chosen.at(-1) as Choice).id);
  }
}

/** Reads tokens, and with them what a draft guesses behind them; returns the tokens that follow: one, or more if guesses hold. */
async function step(
  where: string,
  session: Session,
  ids: Int32Array,
  sampling: Sampling,
  drafts: Drafter | undefined,
  most: number,
  slices: Slices,
): Promise<Choice[]> {
  const past = session.length;
  const before = past + ids.length;
  const guesses = drafts ? await holdSession(session, () => guessTokens(drafts, session, ids, most - 1, slices)) : [];
  const all = Int32Array.from([...ids, ...guesses]);
  const call: ModelCall = { where, session, past, ids: all, outputs: guesses.length + 1 };
  const chosen: Choice[] = [];
  await runCalls(
    where,
    session.model,
    [call],
    (row) => {
      // A row counts if all guesses before it were right.
      if (chosen.length !== row.output || (row.output > 0 && chosen.at(-1)?.id !== guesses[row.output - 1])) return;
      const seen = () => [...session.tokens, ...all.subarray(0, ids.length + row.output)];
      chosen.push(chooseToken(row, sampling, seen, before + row.output));
    },
    slices,
  );
  // The last chosen token is read with the next call, as are those behind a wrong guess.
  if (guesses.length > 0) {
    expectSession(where, session);
    expectUnchanged(where, session, past + all.length);
    session.truncate(before + chosen.length - 1);
  }
  return chosen;
}

/** Up to `most` guesses of what follows the tokens that are still to be read. */
function guessTokens(
  drafts: Drafter,
  session: Session,
  ids: Int32Array,
  most: number,
  slices: Slices,
): Promise<readonly number[]> {
  const length = session.length + ids.length;
  const count = forgettable(session, length, Math.min(drafts.tokens, session.maxSeqLen - length, most));
  return drafts.guess([...session.tokens, ...ids], count, slices);
}

/**
 * Passes of small models are shorter than a slice and yield by themselves to nobody. Returns a function to call between passes,
 * which yields to the event loop if that has not happened for `sliceMs`.
 */
export function createPace({ sliceMs }: Slices): () => Promise<void> {
  let due = performance.now() + sliceMs;
  return async () => {
    if (performance.now() < due) return;
    await yieldToEventLoop();
    due = performance.now() + sliceMs;
  };
}

// Guesses of the tokens that a model will generate, which it then checks in one pass.

/** Where guesses come from: a smaller model with the same ids, or the sequence itself. */
export type DraftOptions =
  | {
      /** A session of another model, which reads the same tokens. Behind the generation it has read some of them. */
      readonly session: Session;
      /**
       * Tokens to guess at a time, 1 to 64. Default 4. Fewer where a session could not be truncated by as many: behind a window
       * with a small `truncatable`, at the end of a page whose format changes with age, and with recurrent layers, which can forget
       * tokens of a call of up to 16: the first pass, with the prompt, guesses none then.
       */
      readonly tokens?: number | undefined;
    }
  | {
      /** Continue as the sequence did where its last tokens, this many, occurred before. 1 to 16. */
      readonly ngram: number;
      /** As for `session`. Default 8. */
      readonly tokens?: number | undefined;
    };

/** Guesses what follows tokens. */
interface Drafter {
  /** Tokens to guess at a time, at most. */
  readonly tokens: number;
  /** Up to `most` tokens that may follow `ids`. */
  guess(ids: readonly number[], most: number, slices: Slices): Promise<readonly number[]>;
}

/** The most tokens that are guessed at a time. */
const MOST_GUESSED = 64;

/** Checks the option `draft`. */
export function checkDrafts(where: string, session: Session, draft: DraftOptions | undefined): Drafter | undefined {
  if (draft === undefined) return undefined;
  const either = draft as { readonly session?: Session; readonly ngram?: number; readonly tokens?: number };
  const given = readFields(where, "draft", either, ["session", "ngram", "tokens"]);
  if ((given.session === undefined) === (given.ngram === undefined))
    throw new TypeError(`${where}: draft expected either a session or an ngram, got ${describe(draft)}`);
  const tokens = expectInt(where, "draft.tokens", given.tokens ?? (given.session ? 4 : 8), 1, MOST_GUESSED);
  if (given.ngram !== undefined) return { tokens, ...lookup(expectInt(where, "draft.ngram", given.ngram, 1, 16)) };
  const own = given.session as Session;
  expectSession(where, own);
  if (own === session) throw new RangeError(`${where}: draft.session expected another session, got the same one`);
  if (own.model.vocabSize !== session.model.vocabSize)
    throw new RangeError(
      `${where}: draft.session expected a model with ${session.model.vocabSize} tokens, got ${own.model.vocabSize}`,
    );
  return { tokens, ...ofSession(where, own) };
}

/** Guesses from the last place in the sequence where its last `length` tokens occurred before. */
function lookup(length: number): Pick<Drafter, "guess"> {
  return {
    async guess(ids, most) {
      const end = ids.length;
      for (let at = end - length - 1; at >= 0; at--) {
        let same = 0;
        while (same < length && ids[at + same] === ids[end - length + same]) same++;
        if (same === length) return ids.slice(at + length, at + length + most);
      }
      return [];
    },
  };
}

/** Guesses the most probable tokens of another model. */
function ofSession(where: string, session: Session): Pick<Drafter, "guess"> {
  return {
    async guess(ids, most, slices) {
      let shared = 0;
      while (shared < session.length && shared < ids.length - 1 && session.tokens[shared] === ids[shared]) shared++;
      // What cannot be cut there, since older tokens aged or were dropped, is read again.
      shared = nearestLength(session, shared, session.length);
      session.truncate(shared);
      let count = Math.min(most, session.maxSeqLen - ids.length);
      const guessed: number[] = [];
      let unread = ids.slice(shared);
      while (guessed.length < count) {
        const call = checkModelCall(where, session, unread, "last");
        let id = 0;
        await runCalls(where, session.model, [call], (row) => (id = row.top(1).ids[0] as number), slices);
        if (guessed.length === 0) {
          // What it has read now is part of the sequence; what it reads from here on may not be. The last guess is not read.
          for (const state of session.states) state.mark?.();
          const { length } = session;
          while (count > 1 && nearestLength(session, length, length + count - 1) < length) count--;
        }
        guessed.push(id);
        unread = [id];
      }
      return guessed;
    },
  };
}

/**
 * How many of `count` tokens behind the first `length` a session can read and then be truncated by, all or some: all, unless its
 * caches drop what is behind a window, or change the formats of pages, or the call is a long one on recurrent layers.
 */
export function forgettable(session: Session, length: number, count: number): number {
  let most = count;
  const isForgettable = (kept: number) => nearestLength(session, length + kept, length + most) === length + kept;
  while (most > 0 && !Array.from({ length: most }, (_, kept) => isForgettable(kept)).every(Boolean)) most--;
  return most;
}
