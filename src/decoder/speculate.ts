// Guesses of the tokens that a model will generate, which it then checks in one pass.

import { expectInt, readFields } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { finish } from "../util/steps.ts";
import { commitCalls, type ModelCall, runModel } from "./pass.ts";
import { expectSession, type Session } from "./session.ts";

/** Where guesses come from: a smaller model with the same ids, or the sequence itself. */
export type DraftOptions =
  | {
      /** A session of another model, which reads the same tokens. Behind the generation it has read some of them. */
      readonly session: Session;
      /** Tokens to guess at a time, 1 to 64. Default 4. */
      readonly tokens?: number;
    }
  | {
      /** Continue as the sequence did where its last tokens, this many, occurred before. 1 to 16. */
      readonly ngram: number;
      /** Tokens to guess at a time, 1 to 64. Default 8. */
      readonly tokens?: number;
    };

/** Guesses what follows tokens. */
export interface Drafter {
  /** Up to `most` tokens that may follow `ids`. */
  guess(ids: readonly number[], most: number): Promise<readonly number[]>;
}

/** The most tokens that are guessed at a time. */
const MOST_GUESSED = 64;

/** Checks the option `draft`. */
export function checkDrafts(where: string, session: Session, draft: DraftOptions | undefined): Drafter | undefined {
  if (draft === undefined) return undefined;
  const given = readFields(where, "draft", draft as Record<string, unknown>, ["session", "ngram", "tokens"]) as {
    session?: Session;
    ngram?: number;
    tokens?: number;
  };
  if ((given.session === undefined) === (given.ngram === undefined))
    throw new TypeError(`${where}: draft expected either a session or an ngram, got ${describe(draft)}`);
  const tokens = expectInt(where, "draft.tokens", given.tokens ?? (given.session ? 4 : 8), 1, MOST_GUESSED);
  if (given.ngram !== undefined) return lookup(expectInt(where, "draft.ngram", given.ngram, 1, 16), tokens);
  const own = given.session as Session;
  expectSession(where, own);
  if (own.model.vocabSize !== session.model.vocabSize)
    throw new RangeError(
      `${where}: draft.session expected a model with ${session.model.vocabSize} tokens, got ${own.model.vocabSize}`,
    );
  return ofSession(where, own, tokens);
}

/** Guesses from the last place in the sequence where its last `length` tokens occurred before. */
function lookup(length: number, tokens: number): Drafter {
  return {
    async guess(ids, most) {
      const end = ids.length;
      for (let at = end - length - 1; at >= 0; at--) {
        let same = 0;
        while (same < length && ids[at + same] === ids[end - length + same]) same++;
        if (same === length) return ids.slice(at + length, at + length + Math.min(tokens, most));
      }
      return [];
    },
  };
}

/** Guesses the most probable tokens of another model. */
function ofSession(where: string, session: Session, tokens: number): Drafter {
  return {
    async guess(ids, most) {
      let shared = 0;
      while (shared < session.length && shared < ids.length - 1 && session.tokens[shared] === ids[shared]) shared++;
      session.truncate(shared);
      const guessed: number[] = [];
      let unread = ids.slice(shared);
      const room = session.maxSeqLen - ids.length;
      while (guessed.length < Math.min(tokens, most, room)) {
        const call: ModelCall = { where, session, ids: Int32Array.from(unread), outputs: 1 };
        let id = 0;
        finish(runModel(where, session.model, [call], (row) => (id = row.top(1).ids[0] as number)));
        commitCalls([call]);
        guessed.push(id);
        unread = [id];
      }
      return guessed;
    },
  };
}
