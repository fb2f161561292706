// Why a head looked at a token: bars of the parts of its score.

import type { Source, Why } from "../../worker/inspect-why.ts";
import { make } from "../dom.ts";
import { barRows } from "./bars.ts";

const signed = (value: number): string => value.toFixed(2).replace("-", "−");
/** Smaller parts would be written as 0.00. */
const LEAST = 0.005;

/** A score as two lists of bars, of the same scale; `notes` stand first. */
export function whyView(
  { score, byQuery, byKey, more, pairs }: Why,
  query: string,
  key: string,
  notes: readonly string[],
): HTMLElement {
  const most = Math.max(1e-9, ...[...byQuery, ...byKey, ...more].map(({ part }) => Math.abs(part)));
  const list = (sources: readonly Source[]) =>
    make(
      "ol",
      { className: "guesses" },
      ...barRows(
        sources
          .filter(({ part }) => Math.abs(part) >= LEAST)
          .map(({ name, part }) => ({ word: name, share: part / most, value: signed(part) })),
      ),
    );
  const title = (textContent: string) => make("h3", { textContent });
  const largest = pairs.map(({ name, part }) => `${name}: ${signed(part)}`).join("; ");
  return make(
    "div",
    { className: "why" },
    ...notes.map((textContent) => make("p", { className: "quiet small", textContent })),
    make(
      "p",
      { className: "small" },
      `The score before the softmax is ${signed(score)}. It is a sum, split in two ways:`,
    ),
    title(`by what wrote to the key “${key}”`),
    list([...byKey, ...more]),
    title(`by what wrote to the query “${query}”`),
    list(byQuery),
    ...(largest ? [make("p", { className: "quiet small" }, `The largest parts, query × key: ${largest}.`)] : []),
  );
}
