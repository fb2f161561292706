// Which words of a story refer to which, by its questions and answers.

import type { ReferencePair } from "headwise/inspect";

/** A story of model/stories/heldout.json: its words, and places (behind <s>) where a word can be known, by the number of a probe. */
export interface Story {
  readonly text: string;
  readonly probes: readonly (readonly [place: number, probe: number])[];
}

/** Probes whose word was mentioned before: what was where, who had what, what "it" was. */
const MENTIONED = /^(container|it is|needed|repeated|what (did|he|the)|where|who)/;

/** From the place before each answer to all earlier mentions of the word that is the answer. */
export function answerPairs({ text, probes }: Story, names: readonly string[]): ReferencePair[] {
  const words = ["<s>", ...text.split(" ")];
  return probes.flatMap(([place, probe]) => {
    if (!MENTIONED.test(names[probe] as string)) return [];
    return mentions(words, words[place] as string, place).map((key) => ({ query: place - 1, key }));
  });
}

/** From pronouns to what they stand for: "because it was soft . what was soft ? the mat", "emma was cold , so she". */
export function pronounPairs({ text }: Story): ReferencePair[] {
  const words = ["<s>", ...text.split(" ")];
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

function mentions(words: readonly string[], word: string, before: number): number[] {
  return words.flatMap((each, place) => (each === word && place < before ? [place] : []));
}
