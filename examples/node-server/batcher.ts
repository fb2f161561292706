// Conversations that run at the same time share each step. A new prompt joins at the next step.

import { setImmediate } from "node:timers/promises";
import { createSession, type GeneratedToken, type GenerationJob, generateMany, type Model } from "headwise/models";

/** A prompt to continue. */
export interface Ask {
  readonly ids: readonly number[];
  readonly maxTokens: number;
  /** Whether nobody reads the answer any more. */
  gone(): boolean;
  /** Called with each token as soon as it is computed. */
  send(token: GeneratedToken): void;
}

interface Conversation extends GenerationJob {
  readonly ask: Ask;
  finish(error?: unknown): void;
}

export type Batcher = ReturnType<typeof createBatcher>;

/** Runs at most `together` conversations at a time; as many again may wait. */
export function createBatcher(model: Model, together: number) {
  const waiting: Conversation[] = [];
  const running = new Set<Conversation>();
  let largest = 0;
  let wake = () => {};
  let working = false;

  /** Those that may begin, until none is left. */
  async function* admitted(): AsyncGenerator<Conversation, void> {
    while (running.size + waiting.length > 0) {
      const next = running.size < together ? waiting.shift() : undefined;
      if (next?.ask.gone()) next.finish(new Error("the client is gone"));
      else if (next) {
        running.add(next);
        largest = Math.max(largest, running.size);
        yield next;
      } else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  }

  function end(conversation: Conversation, error?: unknown): void {
    running.delete(conversation);
    conversation.finish(error);
    wake();
  }

  async function work(): Promise<void> {
    working = true;
    try {
      for await (const { job, token, end: outcome } of generateMany(admitted())) {
        if (token) job.ask.send(token);
        else end(job, outcome?.reason === "error" ? outcome.error : undefined); // the others go on
        await setImmediate(); // requests that have come meanwhile join the next step
      }
    } catch (error) {
      for (const conversation of [...running, ...waiting.splice(0)]) end(conversation, error);
    }
    working = false;
    if (waiting.length > 0) void work();
  }

  return {
    /** Resolves after the last token; rejects if a step fails. */
    async generate(ask: Ask): Promise<void> {
      const { ids, maxTokens } = ask;
      const session = createSession(model, { maxSeqLen: ids.length + maxTokens });
      try {
        await new Promise<void>((resolve, reject) => {
          const finish = (error?: unknown) => (error === undefined ? resolve() : reject(error));
          waiting.push({ session, ids, maxTokens, ask, finish });
          wake();
          if (!working) void work();
        });
      } finally {
        session.release();
      }
    },
    /** Whether no further conversation may wait. */
    full: (): boolean => waiting.length >= together,
    /** The number of running and of waiting conversations, and the largest number that shared a step. */
    counts: () => ({ running: running.size, waiting: waiting.length, largest }),
  };
}
