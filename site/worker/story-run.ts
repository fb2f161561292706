// The story of the start page: where the heads that answer look, what the model says next with and without heads, and what each head
// carries alone. The build records a run of it, and the page's engine makes the same one of any text.

import { forwardWith, nextTokens, sitesOf } from "headwise/inspect";
import { createSession, type Model } from "headwise/models";
import type { Tokenizer } from "headwise/text";

export interface HeadPlace {
  readonly layer: number;
  readonly head: number;
}

/** The heads of the model of stories that look back at what a question asks for: model/stories/README.md. */
export const SEVEN: readonly HeadPlace[] = [0, 1, 2, 3, 4, 5, 6].map((head) => ({ layer: 1, head }));

/** A word of the text; `isKnown` is whether the vocabulary has it. */
export interface StoryWord {
  readonly word: string;
  readonly isKnown: boolean;
}

/** A word that may come next, with its probability when all heads are there, and without those of `off`. */
export interface StoryGuess {
  readonly word: string;
  readonly all: number;
  readonly without: number;
}

/** What the page shows. Shares and log-odds are rounded, so that a recording is short and a live run has the same numbers. */
export interface Story {
  readonly text: string;
  readonly words: readonly StoryWord[];
  /** The heads that are taken away. */
  readonly off: readonly HeadPlace[];
  /** Of each of the seven heads: its weights from the last word on each word; what is missing to 1 is on the beginning. */
  readonly looks: readonly (readonly number[])[];
  /** Of the likeliest in either pass, by their probability with all heads. */
  readonly next: readonly StoryGuess[];
  /** By layer and head: how the log-odds of the likeliest word change without this head alone. */
  readonly effects: readonly (readonly number[])[];
}

/** A run that the build has recorded. */
export interface Recording {
  readonly story: Story;
  readonly seven: readonly HeadPlace[];
  /** Words and marks that the model knows. */
  readonly words: number;
}

/** Rows of bars. */
const GUESSES = 8;
/** Words that a text may have: beyond, one line of arcs is no picture any more. */
const MOST_WORDS = 60;
/** Names of special tokens, marks one by one, and what lies between these and spaces, as the tokenizer takes them. */
const WORDS = /<\w+>|[\p{P}!-/:-@[-\x60{-~]|[^\s\p{P}!-/:-@[-\x60{-~]+/gu;

const round = (value: number, digits: number): number => Number(value.toFixed(digits)) + 0;

/** What the passes of a text left that do not depend on which heads are off. */
export interface Read {
  readonly text: string;
  readonly ids: readonly number[];
  readonly words: readonly StoryWord[];
  /** The tokens of each word: where they begin and end. */
  readonly tokens: readonly (readonly [begin: number, end: number])[];
  readonly looks: Story["looks"];
  readonly logits: Float32Array;
  readonly effects: Story["effects"];
}

/** Reads a text with all heads, and then without each. */
export function readStory(model: Model, tokenizer: Tokenizer, text: string): Read {
  const { ids, words, tokens } = wordsOf(tokenizer, text);
  const layer = SEVEN[0]?.layer as number;
  const { logits, looks } = withSession(model, (session) => {
    const { logits, patterns } = forwardWith(session, ids, { patterns: [layer] });
    const { data, shape } = patterns[0] as (typeof patterns)[number];
    const [heads, rows, keys] = shape as [number, number, number];
    const weight = (head: number, [begin, end]: readonly [number, number]) => {
      const row = (head * rows + rows - 1) * keys;
      return data.subarray(row + begin, row + end).reduce((sum, each) => sum + each, 0);
    };
    if (heads <= (SEVEN.at(-1)?.head as number)) throw new Error("The story is told by the model of stories alone.");
    return { logits, looks: SEVEN.map(({ head }) => tokens.map((each) => round(weight(head, each), 3))) };
  });
  const answer = nextTokens(logits, 1)[0]?.id as number;
  const before = logOdds(logits, answer);
  const effects = Array.from({ length: model.layers }, (): number[] => []);
  for (const { layer = 0, head = 0 } of sitesOf(model, "z"))
    effects[layer]?.push(round(logOdds(passWithout(model, ids, [{ layer, head }]), answer) - before, 2));
  return { text, ids, words, tokens, looks, logits, effects };
}

/** The story of a text that was read, without some heads; `compared` are those that the bars move to while none is off. */
export function tellStory(
  model: Model,
  tokenizer: Tokenizer,
  read: Read,
  off: readonly HeadPlace[],
  compared: readonly HeadPlace[] = SEVEN,
): Story {
  const { text, ids, words, looks, logits, effects } = read;
  const without = passWithout(model, ids, off.length > 0 ? off : compared);
  const found = [logits, without].flatMap((each) => nextTokens(each, GUESSES).map(({ id }) => id));
  const unique = [...new Set(found)];
  const [all, left] = [nextTokens(logits, unique), nextTokens(without, unique)];
  const next = unique
    .map((id, i): StoryGuess & { most: number } => {
      const shares = [all[i]?.probability as number, left[i]?.probability as number] as const;
      const word = tokenizer.decode([id], { keepSpecial: true }).trim();
      return { word, all: round(shares[0], 4), without: round(shares[1], 4), most: Math.max(...shares) };
    })
    .sort((a, b) => b.most - a.most)
    .slice(0, GUESSES)
    .sort((a, b) => b.all - a.all || b.without - a.without)
    .map(({ word, all, without }) => ({ word, all, without }));
  return { text, words, off, looks, next, effects };
}

function withSession<T>(model: Model, work: (session: ReturnType<typeof createSession>) => T): T {
  const session = createSession(model);
  try {
    return work(session);
  } finally {
    session.release();
  }
}

/** The logits after the text when heads give nothing. */
export const passWithout = (model: Model, ids: readonly number[], off: readonly HeadPlace[]): Float32Array =>
  withSession(model, (session) => {
    const edits = off.map(({ layer, head }) => ({ at: "z", layer, head, set: 0 }) as const);
    return forwardWith(session, ids, { edits }).logits;
  });

/** ln(p / (1 - p)) of a token. */
export function logOdds(logits: Float32Array, id: number): number {
  let most = Number.NEGATIVE_INFINITY;
  for (const [i, logit] of logits.entries()) if (i !== id) most = Math.max(most, logit);
  let sum = 0;
  for (const [i, logit] of logits.entries()) if (i !== id) sum += Math.exp(logit - most);
  return (logits[id] as number) - most - Math.log(sum);
}

/** The tokens of a text, and its words as they were typed, each with its tokens. */
function wordsOf(tokenizer: Tokenizer, text: string): Pick<Read, "ids" | "words" | "tokens"> {
  const ids = [...tokenizer.encode(text)];
  const encode = (word: string) => tokenizer.encode(word, { addSpecial: false });
  const [unknown] = encode(tokenizer.specialTokens?.unk_token ?? "");
  const typed = text.match(WORDS) ?? [];
  if (typed.length === 0) throw new Error("Type a sentence.");
  if (typed.length > MOST_WORDS) throw new Error(`A sentence has at most ${MOST_WORDS} words here, and marks count.`);
  let end = ids.length - typed.reduce((sum, word) => sum + encode(word).length, 0);
  if (end !== 1) throw new Error("The story is told by a model whose words are tokens.");
  const tokens: (readonly [begin: number, end: number])[] = [];
  const words = typed.map((word): StoryWord => {
    const own = encode(word);
    tokens.push([end, end + own.length]);
    end += own.length;
    return { word, isKnown: !own.includes(unknown as number) };
  });
  return { ids, words, tokens };
}
