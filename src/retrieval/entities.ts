// Entities of a text: the labels of its tokens, joined to words and groups.

import { continuationOf, type PlacedToken, placeIds, unknownOf, writeTokens } from "../text/token-places.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { softmax } from "./scores.ts";
import type { FramedTokens } from "./texts.ts";

/** How labels of tokens become one: those of tokens alone, or of whole words by the first, the largest or the mean of scores. */
export type Aggregation = "simple" | "first" | "average" | "max";

/** A part of a text that a label was found for. */
export interface Entity {
  /** The label, without what says where in an entity a token is ("B-", "I-"). */
  readonly entity: string;
  /** The mean share of the label over its tokens, or words. */
  readonly score: number;
  /** The text as the tokens write it. */
  readonly word: string;
  /** Where it begins in the text (UTF-16 units). */
  readonly start: number;
  /** Where it ends: the unit behind it. */
  readonly end: number;
}

/** A token or a word, and the shares of all labels. */
interface Part {
  readonly words: readonly string[];
  readonly shares: readonly number[];
  readonly start: number;
  readonly end: number;
  readonly continues: boolean;
}

/** The label of tokens outside of entities. */
const OUTSIDE = "O";

/** Joins the labels of a text's tokens, of which `logits` are [tokens, labels]. */
export function groupEntities(
  tokenizer: Tokenizer,
  text: string,
  { ids, texts }: FramedTokens,
  logits: Float32Array,
  labels: readonly string[],
  aggregation: Aggregation,
): Entity[] {
  const { made } = tokenizer;
  if (made === undefined) return [];
  const [prefix, unknown] = [continuationOf(made), made.library.token_to_id(unknownOf(made) ?? "")];
  const width = logits.length / ids.length;
  const write = (words: readonly string[]) => writeTokens(made, words);
  const own = Array.from(texts.keys()).filter((at) => texts[at] !== undefined);
  const ownIds = own.map((at) => ids[at] as number);
  const placed = placeIds("entities", made, text, ownIds);
  const parts = own.map((at, i): Part => {
    const place = placed[i] as PlacedToken;
    const shares = softmax(logits.subarray(at * width, (at + 1) * width));
    const written = text.slice(place.begin, place.end);
    const isUnknown = ids[at] === unknown;
    // With a prefix for continuations a token that is longer than its text has it; else a word begins with a space.
    const continues = prefix
      ? place.token.length !== written.length
      : place.begin > 0 && !text.slice(place.begin - 1, place.begin + 1).includes(" ");
    return {
      ...{ words: [isUnknown ? written : place.token], shares, start: place.begin, end: place.end },
      continues: continues && !isUnknown,
    };
  });
  const units = aggregation === "simple" ? parts : wordsOf(parts).map((word) => joined(word, aggregation, write));
  return groupsOf(units, labels, write);
}

/** Tokens that belong to one word. */
function wordsOf(parts: readonly Part[]): Part[][] {
  const words: Part[][] = [];
  for (const part of parts) {
    const last = words.at(-1);
    if (part.continues && last) last.push(part);
    else words.push([part]);
  }
  return words;
}

const largestOf = (shares: readonly number[]) => shares.reduce((most, x) => Math.max(most, x), 0);

/** A word as a part. */
function joined(word: readonly Part[], aggregation: Aggregation, write: (words: readonly string[]) => string): Part {
  const [first] = word as readonly [Part];
  const largest = word.reduce((best, part) => (largestOf(part.shares) > largestOf(best.shares) ? part : best), first);
  const mean = () =>
    first.shares.map((_, i) => word.reduce((sum, { shares }) => sum + (shares[i] as number), 0) / word.length);
  const shares = aggregation === "first" ? first.shares : aggregation === "max" ? largest.shares : mean();
  const words = [write(word.flatMap(({ words }) => words))];
  return { words, shares, start: first.start, end: (word.at(-1) as Part).end, continues: false };
}

/** Neighbours of one label. A label that begins with "B-" begins another entity. */
function groupsOf(
  parts: readonly Part[],
  labels: readonly string[],
  write: (words: readonly string[]) => string,
): Entity[] {
  const groups: { tag: string; parts: { part: Part; score: number }[] }[] = [];
  for (const part of parts) {
    const score = largestOf(part.shares);
    const label = labels[part.shares.indexOf(score)] ?? `LABEL_${part.shares.indexOf(score)}`;
    const [, place = "I", tag = label] = /^([BI])-(.*)$/s.exec(label) ?? [];
    const last = groups.at(-1);
    if (last && last.tag === tag && place !== "B") last.parts.push({ part, score });
    else groups.push({ tag, parts: [{ part, score }] });
  }
  return groups
    .filter(({ tag }) => tag !== OUTSIDE)
    .map(({ tag, parts }) => ({
      entity: tag,
      score: parts.reduce((sum, { score }) => sum + score, 0) / parts.length,
      word: write(parts.flatMap(({ part }) => part.words)),
      start: (parts[0] as (typeof parts)[number]).part.start,
      end: (parts.at(-1) as (typeof parts)[number]).part.end,
    }));
}
