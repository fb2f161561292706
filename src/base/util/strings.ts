// Texts in messages and markup: names that are near another, JSON, reasons of errors, escaped HTML.

import { describe, HeadwiseError, plainText, tagOf } from "./errors.ts";

/** A token as one sees it: a space before a word, tabs, line ends and an empty token have signs. */
export function visible(word: string): string {
  const shown = word.replace(/^ /, "·").replaceAll("\t", "⇥");
  return plainText(shown.replace(/\r\n?|\n/g, "⏎")) || "∅";
}

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

/** Of a text that is compared with names, at most this many characters count. */
const LONGEST = 40;
/** The most names in a message. */
const SHOWN = 5;
/** A near name has at most one wrong letter for this many of the text, and at most MOST_WRONG. */
const LETTERS_EACH = 3;
const MOST_WRONG = 2;
/** Letters that a common end has at least. */
const SHORTEST_END = 3;

const simplify = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, "");

/**
 * The names, those that are most like `wanted` first, with what they differ in: letters and digits count, in any case. A
 * letter of a common beginning counts for as much as two wrong letters.
 */
function rankNames(wanted: string, names: readonly string[]) {
  const ranked = names.map((name) => {
    const other = simplify(name);
    let common = 0;
    while (common < wanted.length && wanted[common] === other[common]) common++;
    const wrong = editDistance(wanted, other);
    const [short, long] = wanted.length < other.length ? [wanted, other] : [other, wanted];
    const isEnd = short.length >= SHORTEST_END && long.endsWith(short);
    return { name, wrong, isPart: common === short.length || isEnd, rank: wrong - 2 * common };
  });
  return ranked.sort((a, b) => a.rank - b.rank);
}

/**
 * The names that `text` may be meant to be, the nearest first: those that it begins or ends, that begin or end it, or that have
 * few wrong letters.
 */
function nearNames(text: string, names: readonly string[]): string[] {
  const wanted = simplify(text.slice(0, LONGEST));
  const most = Math.min(MOST_WRONG, Math.floor(wanted.length / LETTERS_EACH));
  return rankNames(wanted, names)
    .filter(({ wrong, isPart }) => wrong <= most || (isPart && wanted.length > 1))
    .map(({ name }) => name);
}

/** What an error says of the names that `given` may be meant to be, at most five, behind its rule: nothing if none is near. */
export function nearestNames(given: unknown, names: readonly string[]): string {
  const near = typeof given === "string" ? nearNames(given, names).slice(0, SHOWN) : [];
  return near.length > 0 ? ` (nearest: ${near.map(describe).join(", ")})` : "";
}

// Text in markup.

/** Text as content of an element, or as an attribute in double quotes. */
export function escapeHtml(text: string): string {
  const names: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return text.replace(/[&<>"]/g, (character) => names[character] as string);
}

/** The value of a JSON text, or `json` itself if it is an object already. */
export function parseJson(where: string, name: string, json: string | object): unknown {
  if (typeof json === "object" && json !== null && !ArrayBuffer.isView(json)) return json;
  if (typeof json !== "string")
    throw new TypeError(`${where}: ${name} expected JSON text or an object, got ${describe(json)}`);
  try {
    return JSON.parse(json);
  } catch (cause) {
    const hint = /^[^\s{["<]+$/.test(json) ? ": pass the text of the file, not its path" : "";
    const text = `${where}: ${name} expected valid JSON, got ${describe(json)}${hint}`;
    throw new HeadwiseError("BAD_FILE", text, { cause });
  }
}

/**
 * What was thrown, as text for a message. It may be any value, and making text of it may throw again. The TypeErrors of `fetch` may
 * say no more than that it failed: then their cause is part of the text.
 */
export function reasonOf(thrown: unknown): string {
  try {
    const isText = typeof thrown === "string" || ["Error", "DOMException"].includes(tagOf(thrown));
    if (!isText) return describe(thrown);
    const { name, cause } = Object(thrown);
    // Where a host has several addresses, the cause is a list of failures, with a code and no message.
    const { message, code } = Object(name === "TypeError" && tagOf(cause) === "Error" ? cause : undefined);
    return message || code ? `${thrown}: ${message || code}` : String(thrown);
  } catch {
    return "an error without a text";
  }
}
