// Conversations that run at the same time share each step. A new one joins at the next step.

import { createSession, type GeneratedToken, type GenerationJob, generateMany, type Model } from "headwise/models";

/** A text to continue. */
export interface Ask extends Pick<GenerationJob, "ids" | "maxTokens" | "stopIds"> {
  /** Whether nobody reads the answer any more. */
  gone(): boolean;
  /** Called with each token as soon as it is computed. */
  send(token: GeneratedToken): void;
}

interface Waiting {
  readonly ask: Ask;
  finish(error?: unknown): void;
}

interface Conversation extends GenerationJob, Waiting {}

/** Runs at most `maxJobs` conversations at a time; as many again may wait. */
export function createBatcher(model: Model, maxJobs: number) {
  const waiting: Waiting[] = [];
  const running = new Set<Conversation>();
  let largest = 0;
  const sleep = () => {};
  let wake = sleep;

  /** The next conversation, whenever there is room for one. */
  async function* nextOnes(): AsyncGenerator<Conversation, never, void> {
    for (;;) {
      const next = waiting.shift();
      if (next?.ask.gone()) next.finish();
      else if (next) {
        const { ids, maxTokens = 0, stopIds } = next.ask;
        let session: Conversation["session"];
        try {
          session = createSession(model, { maxSeqLen: ids.length + maxTokens });
        } catch (error) {
          next.finish(error);
          continue;
        }
        const conversation = { ...next, session, ids, maxTokens, stopIds };
        largest = Math.max(largest, running.add(conversation).size);
        yield conversation;
      } else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  }

  function end(conversation: Conversation, error?: unknown): void {
    running.delete(conversation);
    conversation.session.release();
    conversation.finish(error);
  }

  async function work(): Promise<never> {
    for (;;)
      try {
        // Slices shorter than a step: each token is sent at once, and requests that have come meanwhile join the next step.
        for await (const { job, token, end: outcome } of generateMany(nextOnes(), { maxJobs, sliceMs: 0.1 }))
          if (token) job.ask.send(token);
          else end(job, outcome?.reason === "error" ? outcome.error : undefined); // the others go on
      } catch (error) {
        if (running.size === 0) throw error; // not of a step
        wake = sleep; // the source that this loop leaves must take nobody any more
        for (const conversation of running) end(conversation, error);
      }
  }
  void work();

  return {
    /** Resolves after the last token; rejects if a step fails. */
    generate: (ask: Ask): Promise<void> =>
      new Promise((resolve, reject) => {
        waiting.push({ ask, finish: (error) => (error === undefined ? resolve() : reject(error)) });
        wake();
      }),
    /** Whether no further conversation may wait. */
    full: (): boolean => waiting.length >= maxJobs,
    /** The number of running and of waiting conversations, and the largest number that shared a step. */
    counts: () => ({ running: running.size, waiting: waiting.length, largest }),
  };
}
