import { plainText } from "../util/errors.ts";

/** A token as one sees it: a space before a word, tabs, line ends and an empty token have signs. */
export function visible(word: string): string {
  const shown = word.replace(/^ /, "·").replaceAll("\t", "⇥");
  return plainText(shown.replace(/\r\n?|\n/g, "⏎")) || "∅";
}
