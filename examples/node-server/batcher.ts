// Conversations that run at the same time take their steps together: a prompt that arrives joins the others' next step.

import { setImmediate as turnOfOthers } from "node:timers/promises";
import type { Choice, Decoder, Turn } from "./decoder.ts";

export interface Job {
  readonly prompt: string;
  /** How many characters to continue it by. */
  readonly tokens: number;
  readonly signal: AbortSignal;
  /** Called with each character as it comes. */
  send(choice: Choice): void;
}

interface Conversation extends Turn {
  readonly job: Job;
  text: string;
  left: number;
  settle(error?: unknown): void;
}

export type Batcher = ReturnType<typeof createBatcher>;

/** Runs at most `together` conversations at a time; as many again may wait. */
export function createBatcher(decoder: Decoder, together: number) {
  const waiting: { readonly job: Job; settle(error?: unknown): void }[] = [];
  const running = new Set<Conversation>();
  let largest = 0;
  let awake = false;

  function end(conversation: Conversation, error?: unknown): void {
    running.delete(conversation);
    for (const cache of conversation.caches) cache.release();
    conversation.settle(error);
  }

  function admit(): void {
    while (running.size < together && waiting.length > 0) {
      const { job, settle } = waiting.shift()!;
      try {
        const caches = decoder.open(job.prompt.length + job.tokens);
        running.add({ job, text: job.prompt, left: job.tokens, caches, settle });
      } catch (error) {
        settle(error);
      }
    }
    for (const conversation of running)
      if (conversation.job.signal.aborted) end(conversation, conversation.job.signal.reason);
  }

  function step(): void {
    const batch = Array.from(running);
    largest = Math.max(largest, batch.length);
    try {
      for (const [i, choice] of decoder.step(batch).entries()) {
        const conversation = batch[i]!;
        conversation.text = choice.character;
        conversation.left--;
        conversation.job.send(choice);
        if (conversation.left === 0) end(conversation);
      }
    } catch (error) {
      for (const conversation of running) end(conversation, error);
    }
  }

  async function work(): Promise<void> {
    awake = true;
    while (running.size + waiting.length > 0) {
      await turnOfOthers(); // requests that came meanwhile start with the next step, and characters go out
      admit();
      step();
    }
    awake = false;
  }

  return {
    /** Resolves behind the last character; rejects when the signal aborts or a step fails. */
    generate: (job: Job): Promise<void> =>
      new Promise((resolve, reject) => {
        waiting.push({ job, settle: (error) => (error === undefined ? resolve() : reject(error)) });
        if (!awake) void work();
      }),
    /** Whether as many wait as may. */
    full: (): boolean => waiting.length >= together,
    /** How many run, and how many took one step together at most. */
    counts: () => ({ running: running.size, waiting: waiting.length, largest }),
  };
}
