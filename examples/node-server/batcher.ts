// Conversations that run at the same time share each step. A new prompt joins at the next step.

import { setImmediate as yieldToEventLoop } from "node:timers/promises";
import type { Choice, Decoder, Sequence } from "../decoder/decoder.ts";

export interface Job {
  readonly prompt: string;
  /** The number of characters to continue it by. */
  readonly tokens: number;
  readonly signal: AbortSignal;
  /** Called with each character as soon as it is computed. */
  send(choice: Choice): void;
}

interface Conversation extends Sequence {
  readonly job: Job;
  tokens: readonly number[];
  left: number;
  finish(error?: unknown): void;
}

export type Batcher = ReturnType<typeof createBatcher>;

/** Runs at most `together` conversations at a time; as many again may wait. */
export function createBatcher(decoder: Decoder, together: number) {
  const waiting: { readonly job: Job; finish(error?: unknown): void }[] = [];
  const running = new Set<Conversation>();
  let largest = 0;
  let working = false;

  function end(conversation: Conversation, error?: unknown): void {
    running.delete(conversation);
    for (const cache of conversation.caches) cache.release();
    conversation.finish(error);
  }

  function admit(): void {
    while (running.size < together && waiting.length > 0) {
      const { job, finish } = waiting.shift()!;
      try {
        const caches = decoder.createCaches(job.prompt.length + job.tokens);
        running.add({ job, tokens: decoder.encode(job.prompt), left: job.tokens, caches, finish });
      } catch (error) {
        finish(error);
      }
    }
    for (const conversation of running)
      if (conversation.job.signal.aborted) end(conversation, conversation.job.signal.reason);
  }

  function step(): void {
    const batch = Array.from(running);
    largest = Math.max(largest, batch.length);
    try {
      for (const [i, logits] of decoder.nextMany(batch).entries()) {
        const conversation = batch[i]!;
        const choice = decoder.choose(logits);
        conversation.tokens = decoder.encode(choice.character);
        conversation.left--;
        conversation.job.send(choice);
        if (conversation.left === 0) end(conversation);
      }
    } catch (error) {
      for (const conversation of running) end(conversation, error);
    }
  }

  async function work(): Promise<void> {
    working = true;
    while (running.size + waiting.length > 0) {
      await yieldToEventLoop(); // sends characters, and lets new requests in
      admit();
      step();
    }
    working = false;
  }

  return {
    /** Resolves after the last character; rejects when the signal aborts or a step fails. */
    generate: (job: Job): Promise<void> =>
      new Promise((resolve, reject) => {
        waiting.push({ job, finish: (error) => (error === undefined ? resolve() : reject(error)) });
        if (!working) void work();
      }),
    /** Whether no further conversation may wait. */
    full: (): boolean => waiting.length >= together,
    /** The number of running and of waiting conversations, and the largest number that shared a step. */
    counts: () => ({ running: running.size, waiting: waiting.length, largest }),
  };
}
