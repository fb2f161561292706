// Which words of a story refer to which, by its questions and answers.

import type { ReferencePair } from "headwise/inspect";

/** A story of model/stories/heldout.json: its words, and places (behind <s>) of words that can be known, by the number of a probe. */
export interface Story {
  readonly text: string;
  readonly probes: readonly (readonly [place: number, probe: number])[];
}

/** Probes whose word was mentioned before: what was where, who had what, what "it" was, lists that are repeated. */
const MENTIONED = /^(container|it is|needed|repeated|what (did|he|the)|where|who)/;

/** From the place before each such word, where it is predicted, to all of its earlier mentions. `words` begins with that of <s>. */
export function answerPairs(
  words: readonly string[],
  probes: Story["probes"],
  names: readonly string[],
): ReferencePair[] {
  return probes.flatMap(([place, probe]) =>
    MENTIONED.test(names[probe] as string)
      ? mentions(words, words[place] as string, place).map((key) => ({ query: place - 1, key }))
      : [],
  );
}

/** From pronouns to what they stand for, in "tom was cold , so he" and "because it was soft . what was soft ? the mat". */
export function pronounPairs(words: readonly string[]): ReferencePair[] {
  return words.flatMap((word, query) => {
    if (!/^(it|he|she)$/.test(word)) return [];
    if (words[query - 1] === "so") return [{ query, key: words.lastIndexOf("was", query) - 1 }];
    if (words[query - 1] !== "because") return [];
    const mark = words.indexOf("?", query);
    const answer = words[mark + 1] === "the" ? words[mark + 2] : words[mark + 1];
    return mentions(words, answer as string, query)
      .slice(-1)
      .map((key) => ({ query, key }));
  });
}

/** From the word before a verb to the noun that it agrees with, past a nearer one, in "the keys to the box were new". */
export function agreementPairs(words: readonly string[]): ReferencePair[] {
  return words.flatMap((word, place) => {
    const isVerb = /^(was|were)$/.test(word) && words[place - 2] === "the" && words[place - 5] === "the";
    return isVerb ? [{ query: place - 1, key: place - 4 }] : [];
  });
}

function mentions(words: readonly string[], word: string, before: number): number[] {
  return words.flatMap((each, place) => (each === word && place < before ? [place] : []));
}
