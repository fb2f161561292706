// An answer as it is written.

import type { GeneratedToken, GenerationEnd } from "../models/generate/generate.ts";

/** Why an answer ended, and what it took. */
export interface AnswerEnd {
  /**
   * "stop": the model ended it, or one of `stop` or `stopIds` came; "length": `maxTokens`; "full": no room is left for another token;
   * "left": the loop over it was left; "aborted": by the signal.
   */
  readonly reason: GenerationEnd["reason"];
  /** The text of `stop` that ended it, if one did. */
  readonly stop?: string;
  /** The id that ended it, if one did. */
  readonly stopId?: number;
  /** Tokens of the prompt that were read for it. */
  readonly read: number;
  /** Tokens of the prompt that were read before, for another answer, and were not read again. */
  readonly reused: number;
  /** Tokens that were written. */
  readonly written: number;
  /** With a temperature above 0, the seed that gives the same answer again. */
  readonly seed?: number;
  /** Seconds until it ended. */
  readonly seconds: number;
  /** Seconds until its first token. */
  readonly firstSeconds: number;
  /** With `whenFull: "forget"`, how many messages were left out, the oldest ones. */
  readonly forgotten?: number;
}

/**
 * An answer that is being written: pieces of text for `for await`, and promises of the whole, which need no loop. It is written whether
 * or not anybody reads it; leaving a loop over it ends it. An abort is an end like others: loops finish, and the promises give what
 * there is.
 * @example
 * import { openModel } from "headwise";
 * using model = await openModel("model/stories/stories.gguf");
 * const answer = model.text("the cat sat on the mat because it was", { maxTokens: 1 });
 * let shown = "";
 * for await (const piece of answer) shown += piece;
 * const { reason, read, written } = await answer.end;
 * console.log(shown === (await answer.text), reason, read, written); // true length 10 1
 */
export interface Answer extends AsyncIterable<string> {
  /** The whole text. */
  readonly text: Promise<string>;
  /** The ids of the tokens that were written. */
  readonly ids: Promise<readonly number[]>;
  /** Of each of `ids`, the logarithm of the probability that the model gives it, before any option of sampling changed it. */
  readonly logprobs: Promise<readonly number[]>;
  /** Why it ended, and what it took. */
  readonly end: Promise<AnswerEnd>;
}

/** What writes an answer: its text as it comes, and its end. */
export class AnswerWriter {
  readonly #pieces: string[] = [];
  readonly #tokens: GeneratedToken[] = [];
  readonly #leave: () => void;
  #outcome: { readonly error: unknown } | "ended" | undefined;
  #settle!: (end: AnswerEnd | Promise<AnswerEnd>) => void;
  /** Called when there is more for the loops that wait. */
  #waiting: (() => void)[] = [];
  readonly answer: Answer;

  /** @param leave Called when a loop over the answer is left before its end. */
  constructor(leave: () => void) {
    this.#leave = leave;
    const end = new Promise<AnswerEnd>((resolve) => {
      this.#settle = resolve;
    });
    // Who reads the pieces alone learns of a failure there.
    const quiet = <T>(promise: Promise<T>): Promise<T> => {
      promise.catch(() => {});
      return promise;
    };
    this.answer = Object.freeze({
      end: quiet(end),
      text: quiet(end.then(() => this.#pieces.join(""))),
      ids: quiet(end.then(() => this.#tokens.map(({ id }) => id))),
      logprobs: quiet(end.then(() => this.#tokens.map(({ logprob }) => logprob))),
      [Symbol.asyncIterator]: () => this.#read(),
    });
  }

  /** Whether the end is known. */
  get ended(): boolean {
    return this.#outcome !== undefined;
  }

  /** Adds text, and the token that it came with. */
  push(piece: string, token?: GeneratedToken): void {
    if (token) this.#tokens.push(token);
    if (piece === "") return;
    this.#pieces.push(piece);
    this.#wake();
  }

  finish(end: AnswerEnd): void {
    if (this.ended) return;
    this.#outcome = "ended";
    this.#settle(end);
    this.#wake();
  }

  fail(error: unknown): void {
    if (this.ended) return;
    this.#outcome = { error };
    this.#settle(Promise.reject(error));
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** The pieces from the first on, as they come. */
  async *#read(): AsyncGenerator<string, void, void> {
    try {
      for (let at = 0; ; ) {
        if (at < this.#pieces.length) yield this.#pieces[at++] as string;
        else if (this.#outcome === undefined)
          await new Promise<void>((resolve) => {
            this.#waiting.push(resolve);
          });
        else if (this.#outcome === "ended") return;
        else throw this.#outcome.error;
      }
    } finally {
      // A loop that has come to the end finds it settled.
      if (!this.ended) this.#leave();
    }
  }
}
