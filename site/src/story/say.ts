// The story in words: where heads look, and what the model says with and without some.

import type { HeadPlace, Story, StoryGuess } from "../../worker/story-run.ts";

const NUMBERS = ["none", "one", "two", "three", "four", "five", "six", "seven"];

export const nameOf = ({ layer, head }: HeadPlace): string => `${layer}.${head}`;

/** Its parts stay on one line. */
export const percent = (share: number): string =>
  share < 0.001 ? "<\u00a00.1\u00a0%" : `${(100 * share).toFixed(1)}\u00a0%`;

/** −7.5, +12: numbers of log-odds, with the sign of minus. */
export const signed = (value: number): string => {
  const size = Math.abs(value);
  return `${value < 0 ? "−" : value > 0 ? "+" : ""}${size.toFixed(size < 9.95 ? 1 : 0)}`;
};

/** The word that a head gives most, if it is more than what is left for the beginning. */
export function targetOf(weights: readonly number[]): number | undefined {
  const most = Math.max(...weights);
  const beginning = 1 - weights.reduce((sum, weight) => sum + weight, 0);
  return most > Math.max(0.1, beginning) ? weights.indexOf(most) : undefined;
}

const likeliest = (next: readonly StoryGuess[], which: "all" | "without"): StoryGuess | undefined =>
  next.reduce<StoryGuess | undefined>((best, each) => (best && best[which] >= each[which] ? best : each), undefined);

export interface Answer {
  readonly word: string;
  readonly share: number;
}

/** What the model says next: with all heads, or without those that are off. */
export function answerOf({ next, off }: Pick<Story, "next" | "off">): Answer | undefined {
  const which = off.length > 0 ? "without" : "all";
  const found = likeliest(next, which);
  return found && { word: found.word, share: found[which] };
}

/** The word that the most heads look at, and how many. */
export function looked({ words, looks }: Pick<Story, "words" | "looks">): { word: string; heads: number } | undefined {
  const counts = new Map<number, number>();
  for (const weights of looks) {
    const target = targetOf(weights);
    if (target !== undefined) counts.set(target, (counts.get(target) ?? 0) + 1);
  }
  const [best] = [...counts].sort(([, a], [, b]) => b - a);
  return best && { word: words[best[0]]?.word as string, heads: best[1] };
}

/** The end of the text, as it was typed. */
function ending({ text }: Story): string {
  const words = text.trim().split(/\s+/);
  return words.slice(-4).join(" ");
}

/** The sentence above the words. `seven` are the heads that answer. */
export function sayStory(story: Story, seven: readonly HeadPlace[]): string {
  const answer = answerOf(story);
  if (!answer) return "";
  const { off } = story;
  const says = `“${answer.word}”, with ${percent(answer.share)}`;
  if (off.length === 0) {
    const look = looked(story);
    if (!look) return `After “${ending(story)}” none of the seven heads looks back at a word. The model says ${says}.`;
    const who = look.heads === seven.length ? "seven heads of layer 1" : `${NUMBERS[look.heads]} of seven heads`;
    const verb = look.heads === 1 ? "looks" : "look";
    return `After “${ending(story)}” ${who} ${verb} back at “${look.word}”. The model says ${says}.`;
  }
  const before = likeliest(story.next, "all");
  const isLost = before?.word !== answer.word;
  const others = off.map(nameOf).join(", ");
  const isSeven = off.length === seven.length && seven.every((place) => off.some((each) => isSame(each, place)));
  const without = isSeven ? "Without them" : `Without ${off.length === 1 ? "head" : "heads"} ${others}`;
  const first = isLost
    ? `${without} the model has forgotten: it guesses ${says}.`
    : `${without} it still says ${says}.`;
  const isShared = isSeven && isLost && seven.every(({ layer, head }) => (story.effects[layer]?.[head] ?? 0) > -1);
  return isShared ? `${first} Each of the seven alone can go: they cover for one another.` : first;
}

export const isSame = (a: HeadPlace, b: HeadPlace): boolean => a.layer === b.layer && a.head === b.head;
