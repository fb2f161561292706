// A text that goes on with the likeliest tokens, and where one head looks from each of them.

import { forwardWith } from "headwise/inspect";
import { createSession } from "headwise/models";
import type { Tensor } from "headwise/weights";
import type { Call } from "./call.ts";
import { loadedModel } from "./load.ts";
import { pause } from "./pause.ts";

export interface LookGiven {
  readonly prompt: string;
  readonly maxTokens: number;
  readonly layer: number;
  readonly head: number;
}

export interface Looked {
  /** Tokens that were written, and how fast, the maps of the head's layer included; undefined without a second one. */
  readonly written: number;
  readonly tokensPerSecond: number | undefined;
  /** Whether the text came to an end, or the model has room for no more. */
  readonly isEnd: boolean;
}

/** Reports the tokens of the prompt, and then each one that is written. */
export async function lookTask(
  { prompt, maxTokens, layer, head }: LookGiven,
  { report, signal }: Call,
): Promise<Looked> {
  const { model, tokenizer } = loadedModel();
  const { maxSeqLen = Number.POSITIVE_INFINITY } = model;
  let ids = [...tokenizer.encode(prompt)];
  if (ids.length >= maxSeqLen) throw new Error(`The model reads ${maxSeqLen} tokens; the text has ${ids.length}.`);
  const session = createSession(model);
  const all: number[] = [];
  let shown = "";
  /** The text that a token adds: a mark of the tokenizer is shown as such. */
  const add = (id: number): string => {
    const before = shown;
    all.push(id);
    shown = tokenizer.decode(all);
    return shown.slice(before.length) || ` ${tokenizer.decode([id], { keepSpecial: true })}`;
  };
  let begin = 0;
  try {
    for (let written = 0; ; written++) {
      await pause(signal);
      const { ids: next = [], patterns } = forwardWith(session, ids, { top: 1, patterns: [layer] });
      report({ kind: "looks", words: ids.map(add), weights: rowsOf(patterns[0] as Tensor, head) });
      const now = performance.now();
      if (written === 0) begin = now;
      const id = next[0] as number;
      const isEnd = (tokenizer.endIds ?? []).includes(id) || all.length >= maxSeqLen;
      if (isEnd || written === maxTokens) {
        const tokensPerSecond = written > 1 ? (1000 * written) / (now - begin) : undefined;
        return { written, tokensPerSecond, isEnd };
      }
      ids = [id];
    }
  } finally {
    session.release();
  }
}

/** The weights of each query of a head of maps [heads, queries, keys], up to the query itself: the last key is the last query's. */
function rowsOf({ data, shape }: Tensor, head: number): Float32Array[] {
  const [, queries, keys] = shape as [number, number, number];
  return Array.from({ length: queries }, (_, i) => {
    const at = (head * queries + i) * keys;
    return data.slice(at, at + keys - queries + i + 1) as Float32Array;
  });
}
