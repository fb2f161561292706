// Guesses of the tokens that a model will generate, which it then checks in one pass.

import { expectInt, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import type { Slices } from "../../layers/pass/slices.ts";
import { checkModelCall } from "../decoder/forward.ts";
import { runCalls } from "../decoder/pass.ts";
import { expectSession, nearestLength, type Session } from "../decoder/session.ts";

/** Where guesses come from: a smaller model with the same ids, or the sequence itself. */
export type DraftOptions =
  | {
      /** A session of another model, which reads the same tokens. Behind the generation it has read some of them. */
      readonly session: Session;
      /**
       * Tokens to guess at a time, 1 to 64. Default 4. Fewer where a session could not be truncated by as many: behind a window
       * with a small `truncatable`, and at the end of a page whose format changes with age.
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
export interface Drafter {
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
      const count = forgettable(session, ids.length, Math.min(most, session.maxSeqLen - ids.length));
      const guessed: number[] = [];
      let unread = ids.slice(shared);
      while (guessed.length < count) {
        const call = checkModelCall(where, session, unread, "last");
        let id = 0;
        await runCalls(where, session.model, [call], (row) => (id = row.top(1).ids[0] as number), slices);
        guessed.push(id);
        unread = [id];
      }
      return guessed;
    },
  };
}

/**
 * How many of `count` tokens behind the first `length` a session can read and then be truncated by: all, unless its caches drop
 * what is behind a window, or change the formats of pages.
 */
export function forgettable(session: Session, length: number, count: number): number {
  let most = count;
  while (most > 0 && nearestLength(session, length, length + most) < length) most--;
  return most;
}
