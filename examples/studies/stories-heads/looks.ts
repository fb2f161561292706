// The held-out stories of model/stories, and what a head would have to look at to know their words.

import { readFileSync } from "node:fs";
import { readWords } from "../../stories/text.ts";

export const MODEL = new URL("../../../model/stories/", import.meta.url);

/** A story, with the places of the words that what came before decides. */
export interface Story {
  /** The words behind <s>, which is words[0]. */
  readonly words: readonly string[];
  readonly ids: readonly number[];
  readonly probes: readonly { readonly name: string; readonly at: number; readonly chance: number }[];
}

/** A kind of word that is known by looking back. */
export interface Look {
  readonly name: string;
  /** The probes of model/training/stories/grammar.py whose words depend on it. */
  readonly probes: readonly string[];
  /** The place that looks, for the word at `at`, which at - 1 predicts. */
  from(words: readonly string[], at: number): number;
  /** The places that it has to look at, before `from`. */
  to(words: readonly string[], at: number): number[];
}

interface HeldOut {
  readonly probes: readonly { readonly name: string; readonly chance: number }[];
  readonly stories: readonly { readonly text: string; readonly probes: readonly (readonly [number, number])[] }[];
}

const read = (file: string) => readFileSync(new URL(file, MODEL), "utf8");

export function readStories(): Story[] {
  const { encode } = readWords(read("tokenizer.json"));
  const { probes, stories } = JSON.parse(read("heldout.json")) as HeldOut;
  return stories.map(({ text, probes: places }) => ({
    words: ["<s>", ...text.split(" ")],
    ids: encode(text),
    probes: places.map(([at, i]) => ({ ...probes[i]!, at })),
  }));
}

export const LOOKS: readonly Look[] = createLooks();

function createLooks(): Look[] {
  const source = readFileSync(new URL("../../../model/training/stories/words.py", import.meta.url), "utf8");
  const listOf = (name: string) => new RegExp(`^${name} = "(.*)"\\.split`, "m").exec(source)![1]!.split(" ");
  const [men, women] = [listOf("MALE"), listOf("FEMALE")];
  const predicting = (_: readonly string[], at: number) => at - 1;
  const placesOf = (words: readonly string[], before: number, is: (word: string) => boolean) =>
    words.flatMap((word, place) => (place < before && is(word) ? [place] : []));
  const lastOf = (words: readonly string[], at: number) => [words.lastIndexOf(words[at]!, at - 1)];
  const pronounOf = (words: readonly string[], at: number) =>
    Math.max(words.lastIndexOf("he", at - 1), words.lastIndexOf("she", at - 1));
  const namesLike = (pronoun: string) => (word: string) =>
    (pronoun === "she" || pronoun === "her" ? women : men).includes(word);
  return [
    {
      name: "it: answer to its noun",
      probes: ["it is the surface", "it is the animal", "what did not fit"],
      from: predicting,
      to: lastOf,
    },
    {
      name: "he, she: answer to the thing",
      probes: ["what he or she had"],
      from: predicting,
      to: lastOf,
    },
    {
      name: "he, she: pronoun to its name",
      probes: ["what he or she had"],
      from: pronounOf,
      to: (words, at) => {
        const pronoun = pronounOf(words, at);
        return placesOf(words, pronoun, namesLike(words[pronoun]!));
      },
    },
    {
      name: "he or she: pronoun's place to names",
      probes: ["he or she"],
      from: predicting,
      to: (words, at) => placesOf(words, at, namesLike(words[at]!)),
    },
    {
      name: "was or were: verb's place to its noun",
      probes: ["was or were, nouns differ", "was or were, nouns agree"],
      from: predicting,
      // The keys to the box were: a preposition, an article and another noun lie between.
      to: (_, at) => [at - 4],
    },
    {
      name: "names: answer to the name",
      probes: [
        "who had the thing",
        "who it was, one he and one she",
        "who it was, both he or both she",
        "who was more, who was less",
      ],
      from: predicting,
      to: (words, at) => placesOf(words, at, (word) => word === words[at]),
    },
    {
      name: "lists: word to what followed it",
      probes: ["repeated word"],
      from: predicting,
      to: (words, at) => [words.indexOf(words[at]!, words.lastIndexOf("whispered", at) + 1)],
    },
  ];
}

/** The words of a look, from those that are looked at on: *these* are in italics, the one that looks is **bold**. */
export function describeLook(look: Look, { words }: Story, at: number): string {
  const [from, to] = [look.from(words, at), look.to(words, at)];
  const begin = Math.max(1, to.at(-1)! - 2);
  const marked = words.slice(begin, at + 1).map((word, i) => {
    if (begin + i === from) return `**${word}**`;
    return to.includes(begin + i) ? `*${word}*` : word;
  });
  return marked.join(" ");
}
