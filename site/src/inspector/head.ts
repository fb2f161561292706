// What a view says about the head that is large.

import { visible } from "../../../src/base/util/strings.ts";
import type { Attended } from "../../worker/inspect.ts";
import type { Cell } from "../heatmap.ts";
import type { Place } from "./heads-grid.ts";

/** Beside what is shown of the pass without changes, while there are some. */
export const UNCHANGED = "Your changes are left out here: this is the pass of the model as it is.";

/** Which heads share keys and values with the one that is large. */
export function sayGroup({ heads, kvHeads, layer, head }: Attended): string {
  const [queries, keys] = [heads[layer] as number, kvHeads[layer] as number];
  if (keys === queries || keys === 0) return "";
  const size = queries / keys;
  const first = Math.floor(head / size) * size;
  return `It shares its keys and values with heads ${first} to ${first + size - 1}: ${keys} heads of them serve ${queries} heads of queries.`;
}

/** The number of a head among those of all layers, which have `heads` each. */
export const headAt = (heads: readonly number[], { layer, head }: Place): number =>
  heads.slice(0, layer).reduce((sum, count) => sum + count, head);

/** What the large head shows of the changes, where the view is the difference that they make. */
export function sayDifference({ weights, before }: Attended): string {
  if (!before) return "Nothing is changed yet, so nothing differs: change the head, or use a switch.";
  if (weights.some((weight, i) => weight !== before[i])) return "";
  return "The changes leave the weights of this head as they are: they show in the next token, and in the heads of later layers.";
}

/** A row in words: what its token gives to one and to which it gives most, and that it gives all. */
export function saySum({ words, weights }: Pick<Attended, "words" | "weights">, { query, key }: Cell): string {
  const row = weights.subarray(query * words.length, (query + 1) * words.length);
  const named = (i: number) =>
    `“${visible(words[i] as string)}”${words.indexOf(words[i] as string) < i ? ` at ${i}` : ""}`;
  const share = (i: number) => `${(100 * (row[i] as number)).toFixed(1)}\u00a0% of its attention to ${named(i)}`;
  const which =
    query === words.length - 1 ? `The last ${named(query).replace(/ at \d+$/, "")}` : `The token ${named(query)}`;
  const most = row.indexOf(row.reduce((a, b) => Math.max(a, b)));
  const rest = most === key || key > query ? "" : `, and the most, ${share(most).replace(" of its attention", "")}`;
  const total = `${(100 * row.reduce((a, b) => a + b, 0)).toFixed(0)}\u00a0%`;
  if (key > query)
    return `${which} sees none that come later. It gives the most, ${share(most)}; its row sums to ${total}.`;
  return `${which} gives ${share(key)}${rest}. Its row sums to ${total}.`;
}

/** The cell of the address; -1 is the last token, and the key that it looks at most. */
export function cellOf({ words, weights }: Pick<Attended, "words" | "weights">, { query: q, key: k }: Cell): Cell {
  const query = q < 0 ? words.length - 1 : Math.min(q, words.length - 1);
  if (k >= 0) return { query, key: Math.min(k, words.length - 1) };
  const row = weights.subarray(query * words.length, (query + 1) * words.length);
  return { query, key: row.indexOf(row.reduce((a, b) => Math.max(a, b))) };
}
