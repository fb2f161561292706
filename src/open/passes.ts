// Answers that are written at the same time share passes: each step of the model is one for all of them.

import { yieldToEventLoop } from "../base/platform/host.ts";
import type { GeneratedToken, GenerationEnd } from "../models/generate/generate.ts";
import { type GenerationFailure, type GenerationJob, generateMany } from "../models/generate/generate-many.ts";

/** A generation with its callbacks. */
export interface Work extends GenerationJob {
  /** Called with each of its tokens. */
  onToken(token: GeneratedToken): void;
  /** Called at its end. */
  onEnd(end: GenerationEnd | GenerationFailure): void;
}

/** What runs generations of one model. */
export interface Passes {
  /** Begins a generation at the next step. */
  add(work: Work): void;
}

/** Runs generations of one model together, as long as there are any. */
export function createPasses(): Passes {
  const waiting: Work[] = [];
  const running = new Set<Work>();
  const begun = new WeakSet<Work>();
  let isRunning = false;
  let wake = () => {};

  /** Those that wait, as long as others run. */
  async function* next(): AsyncGenerator<Work, void, void> {
    for (;;) {
      const first = waiting.shift();
      if (first) {
        running.add(first);
        yield first;
      } else if (running.size === 0) return;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  }

  const endOf = (work: Work, end: GenerationEnd | GenerationFailure) => {
    running.delete(work);
    work.onEnd(end);
    wake();
  };

  async function run(): Promise<void> {
    isRunning = true;
    try {
      while (waiting.length > 0)
        try {
          for await (const { job, token, end } of generateMany(next()))
            if (token) {
              job.onToken(token);
              // The first words are read before the next step is computed.
              if (!begun.has(job)) await yieldToEventLoop();
              begun.add(job);
            } else if (end) endOf(job, end);
        } catch (error) {
          // A step of all of them has failed, or the model was released.
          for (const work of [...running]) endOf(work, { reason: "error", error });
        }
    } finally {
      isRunning = false;
    }
  }

  return {
    add(work) {
      waiting.push(work);
      wake();
      if (!isRunning) void run();
    },
  };
}
