import { describe } from "../util/errors.ts";

/** Names that are compared with a given one have at most this many characters; what is longer is cut. */
const LONGEST = 40;
const SHOWN = 5;

const simplify = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, "");

/** Characters to insert, remove or replace to turn one name into the other. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    row = next;
  }
  return row[b.length]!;
}

/** The five of `names` that are most like `given`, as text. A common beginning counts for more than an equal length. */
export function nearest(given: unknown, names: readonly string[]): string {
  const wanted = typeof given === "string" ? simplify(given.slice(0, LONGEST)) : "";
  const distanceOf = (name: string): number => {
    const other = simplify(name);
    let common = 0;
    while (common < wanted.length && wanted[common] === other[common]) common++;
    return editDistance(wanted, other) - 2 * common;
  };
  const ranked = names.map((name) => [distanceOf(name), name] as const).sort(([a], [b]) => a - b);
  return ranked
    .slice(0, SHOWN)
    .map(([, name]) => describe(name))
    .join(", ");
}
