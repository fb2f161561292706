// The tokens of a text as it is written: how likely each was, and what else might have come.

import { nextTokens } from "headwise/inspect";
import type { GenerateTextOptions, Tokenizer } from "headwise/text";

/** A token that might have come. */
export interface Alternative {
  /** As it would stand in the text, with the space before it. */
  readonly text: string;
  readonly probability: number;
}

/** A token that came: `others` are the likeliest besides it. */
export interface WrittenToken extends Alternative {
  readonly others: readonly Alternative[];
}

type LogitsProcessor = NonNullable<GenerateTextOptions["logitsProcessors"]>[number];

export interface TokenRecorder {
  /** Sees the logits of each token before it is chosen, and changes none. */
  readonly see: LogitsProcessor;
  /** The tokens that were chosen since the last call. */
  take(): WrittenToken[];
  /** The last token, whose choice no later logits show, of all that were generated; one that ends the text is none of them. */
  end(ids: readonly number[]): WrittenToken[];
}

/** Alternatives of a token. */
const OTHERS = 6;

export function recordTokens(tokenizer: Tokenizer): TokenRecorder {
  /** The logits of the token that is being chosen, and the one before it. */
  let open: { readonly logits: Float32Array; readonly before: number | undefined } | undefined;
  let chosen: WrittenToken[] = [];
  let count = 0;

  /** Tokens that are the first bytes of a letter, as one: the next one goes on with it. */
  let part: (WrittenToken & { readonly ids: readonly number[]; readonly before: number | undefined }) | undefined;

  const textOf = (before: number | undefined, ids: readonly number[]): string => {
    if (before === undefined) return tokenizer.decode([...ids]);
    return tokenizer.decode([before, ...ids]).slice(tokenizer.decode([before]).length);
  };
  const othersOf = (logits: Float32Array, before: number | undefined, id: number): Alternative[] =>
    nextTokens(logits, OTHERS + 1)
      .filter((each) => each.id !== id)
      .slice(0, OTHERS)
      .map((each) => ({ text: textOf(before, [each.id]), probability: each.probability }))
      // Special tokens have no text, and parts of a letter none of their own.
      .filter(({ text }) => text !== "" && !text.includes("\ufffd"));
  const close = (id: number | undefined): void => {
    if (!open || id === undefined) return;
    const { logits, before } = open;
    const first = part ?? { before, ids: [], probability: 1, others: othersOf(logits, before, id) };
    const ids = [...first.ids, id];
    const probability = first.probability * (nextTokens(logits, [id])[0]?.probability ?? 0);
    const token = { text: textOf(first.before, ids), probability, others: first.others };
    part = token.text.endsWith("\ufffd") ? { ...token, before: first.before, ids } : undefined;
    if (!part) chosen.push(token);
    open = undefined;
    count++;
  };
  return {
    see([ids = []], { data }) {
      const last = ids.at(-1);
      const before = last === undefined ? undefined : Number(last);
      close(before);
      open = { logits: data.slice(), before };
    },
    take() {
      const taken = chosen;
      chosen = [];
      return taken;
    },
    end(ids) {
      if (ids.length > count) close(ids.at(-1));
      if (part) chosen.push(part);
      return this.take();
    },
  };
}
