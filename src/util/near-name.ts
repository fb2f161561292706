import { describe } from "./errors.ts";

/** The fewest letters that must be inserted, removed, replaced or swapped with the next one to make `a` of `b`. */
function editDistance(a: string, b: string): number {
  // Rows i - 2, i - 1 and i of the table of distances between beginnings of a and of b.
  let [before, last] = [[] as number[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = last[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row[j] = Math.min(replaced, last[j]! + 1, row[j - 1]! + 1, swapped ? before[j - 2]! + 1 : Infinity);
    }
    [before, last] = [last, row];
  }
  return last[b.length] as number;
}

/** Two letters are a mistake in a name of six, not in one of three. */
const LETTERS_EACH = 3;

/** The name that `text` is probably meant to be: one that it begins or that begins it, or the nearest by letters. */
export function findNearName(text: string, names: readonly string[]): string | undefined {
  const begun = names.find((name) => text.length > 1 && (name.startsWith(text) || text.startsWith(name)));
  if (begun !== undefined) return begun;
  const most = Math.min(2, Math.floor(text.length / LETTERS_EACH));
  const near = names
    .map((name) => ({ name, distance: editDistance(text, name) }))
    .filter((each) => each.distance <= most);
  return near.sort((a, b) => a.distance - b.distance)[0]?.name;
}

/** Names that are compared with a given one have at most this many characters; what is longer is cut. */
const LONGEST = 40;
const SHOWN = 5;

const simplify = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, "");

/** The five of `names` that are most like `given`, as text. A common beginning counts for more than an equal length. */
export function nearestNames(given: unknown, names: readonly string[]): string {
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
