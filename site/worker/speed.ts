// How fast the loaded model is on this device: its first token, and each token after it.

import { createSession, forward } from "headwise/models";
import type { Call } from "./call.ts";
import { loadedModel } from "./load.ts";
import { pause } from "./pause.ts";

/** What was measured of a model. */
export interface Speed {
  /** Tokens of the prompt, and milliseconds from its beginning to the logits of the first token: a median of `PROMPTS`. */
  readonly promptTokens: number;
  readonly firstMs: number;
  /** Milliseconds of a token after it: the median of so many samples, and between which times four of five lie. */
  readonly samples: number;
  readonly tokenMs: number;
  readonly range: readonly [least: number, most: number];
  /** Bytes of the memory of the kernels: weights, cache and scratch. */
  readonly memoryBytes: number;
}

/** Tokens of the prompt, how often it is read, and most tokens of a sample behind it. */
const [PROMPT, PROMPTS, MOST_TOKENS] = [64, 3, 64];
/** Samples, which end sooner when they have taken so long; and what a sample takes at least, as clocks of browsers are coarse. */
const [SAMPLES, MOST_MS, SAMPLE_MS] = [25, 10_000, 20];

export async function speedTask(_: undefined, { report, signal }: Call): Promise<Speed> {
  const { model } = loadedModel();
  const room = Math.min(PROMPT + MOST_TOKENS, model.maxSeqLen ?? Number.POSITIVE_INFINITY);
  const promptTokens = Math.min(PROMPT, room >> 1);
  const ids = Array.from({ length: promptTokens }, (_, i) => (i * 31 + 7) % model.vocabSize);
  const session = createSession(model, { maxSeqLen: room });
  const readPrompt = (): number => {
    session.truncate(0);
    const begin = performance.now();
    forward(session, ids, { top: 1 });
    return performance.now() - begin;
  };
  /** Reads tokens behind the prompt, one by one, again and again. */
  const write = (tokens: number): number => {
    const begin = performance.now();
    for (let i = 0; i < tokens; i++) {
      if (session.length === room) session.truncate(promptTokens);
      forward(session, [ids[i % promptTokens] as number], { top: 1 });
    }
    return performance.now() - begin;
  };
  try {
    // Engines use their best compiler only after a while.
    readPrompt();
    const firsts: number[] = [];
    const [all, begin] = [PROMPTS + SAMPLES, performance.now()];
    for (let i = 0; i < PROMPTS; i++) {
      await pause(signal);
      firsts.push(readPrompt());
      report({ kind: "progress", done: i + 1, all });
    }
    let tokens = 1;
    for (; write(tokens) < SAMPLE_MS; tokens *= 2) await pause(signal);
    const times: number[] = [];
    while (times.length < SAMPLES && (times.length === 0 || performance.now() - begin < MOST_MS)) {
      await pause(signal);
      const ms = write(tokens);
      // Something else slowed down the run that chose this number of tokens; for so few, clocks may show 0.
      if (ms < SAMPLE_MS / 2) tokens *= 2;
      else times.push(ms / tokens);
      report({ kind: "progress", done: PROMPTS + times.length, all });
    }
    const at = (list: readonly number[], share: number) =>
      [...list].sort((a, b) => a - b)[Math.floor(share * (list.length - 1))] as number;
    return {
      ...{ promptTokens, firstMs: at(firsts, 0.5), samples: times.length, tokenMs: at(times, 0.5) },
      range: [at(times, 0.1), at(times, 0.9)],
      memoryBytes: model.kernels.memoryBytes,
    };
  } finally {
    session.release();
  }
}
