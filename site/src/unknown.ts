// Words that a model does not know, in a sentence.

import type { Unknown } from "../worker/inspect-text.ts";

/** Which words the model does not know, and what it reads instead. */
export function sayUnknown(unknown: Unknown | undefined): string {
  if (!unknown) return "";
  const { words, token } = unknown;
  const shown = words.slice(0, MOST_WORDS).map((word) => `“${word}”`);
  const more = words.length > MOST_WORDS ? ` and ${words.length - MOST_WORDS} more` : "";
  return `The vocabulary lacks ${shown.join(", ")}${more}: the model reads ${token} instead.`;
}

/** Unknown words that are named. */
const MOST_WORDS = 4;
