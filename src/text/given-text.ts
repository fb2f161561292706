// Where a rendered text has characters that came with the messages, and not from the template.

/** A text, and the places (UTF-16 units, ascending) of those of its characters that are no part of a special token. */
export interface MarkedText {
  readonly text: string;
  readonly plain: readonly number[];
}

/** What marks given values before they are rendered, and finds the marks in the text. */
export interface Marks {
  mark(value: unknown): unknown;
  restore(rendered: string): MarkedText;
}

/**
 * Marks for values that a template renders. Special tokens begin and end with few characters, such as "<" and ">". Wherever these
 * occur in a string that was given, a private character stands for them while the template runs, which may trim the string, divide
 * it or write it as JSON. So a special token that has a given character at its beginning or end can be told from one that the
 * template wrote, also if it comes from two strings that the template joins.
 *
 * What the template itself looks for in strings (`literals`, such as "</think>") stays as it is, unless it could be a part of a
 * special token.
 */
export function createMarks(
  where: string,
  specials: readonly string[],
  literals: readonly string[],
  given: unknown,
): Marks {
  const keys = new Set(specials.flatMap(keysOf));
  // Special tokens of letters alone are marked where they stand as a whole.
  const words = specials.filter((special) => keysOf(special).length === 0);
  const hasKey = (text: string) => Array.from(text).some((character) => keys.has(character));
  const strings = textsOf(given);
  const looked = literals.filter(
    (text) =>
      hasKey(text) &&
      strings.some((each) => each.includes(text)) &&
      !specials.some((special) => overlap(text, special)),
  );
  const firsts = words.map((word) => Array.from(word)[0] as string);
  const all = [...new Set([...keys, ...firsts])];
  const free = findFree(where, [...strings, ...literals].join(""), all.length);
  const marks = new Map(all.map((character, i) => [character, free[i] as string]));
  const originals = new Map(all.map((character, i) => [free[i] as string, character]));
  const markText = (text: string): string => {
    const isLeft = new Set<number>();
    for (const literal of looked)
      for (const at of placesOf(text, literal)) for (let i = 0; i < literal.length; i++) isLeft.add(at + i);
    const isWord = new Set(words.flatMap((word) => placesOf(text, word)));
    let [marked, at] = ["", 0];
    for (const character of text) {
      const isMarked = (keys.has(character) && !isLeft.has(at)) || isWord.has(at);
      marked += isMarked ? marks.get(character) : character;
      at += character.length;
    }
    return marked;
  };
  const isConcerned = (text: string) => hasKey(text) || words.some((word) => text.includes(word));
  const mark = (value: unknown): unknown => {
    if (typeof value === "string") return isConcerned(value) ? markText(value) : value;
    if (Array.isArray(value)) return value.map(mark);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [mark(key), mark(each)]));
  };
  // JSON in ASCII has a mark as the number of its character.
  const escaped = (character: string) => `\\\\u${character.charCodeAt(0).toString(16)}`;
  const pattern = new RegExp([...originals.keys()].flatMap((each) => [each, escaped(each)]).join("|") || "(?!)", "g");
  return {
    mark,
    restore(rendered) {
      const plain: number[] = [];
      let [text, end] = ["", 0];
      for (const { 0: found, index } of rendered.matchAll(pattern)) {
        text += rendered.slice(end, index);
        plain.push(text.length);
        const character = found.length === 1 ? found : String.fromCharCode(Number.parseInt(found.slice(2), 16));
        text += originals.get(character);
        end = index + found.length;
      }
      return { text: text + rendered.slice(end), plain };
    },
  };
}

/** The first and last character of a special token unless it is a letter, digit or space; if both are, those within that are none. */
function keysOf(special: string): string[] {
  const isKey = (character: string) => !/[\p{L}\p{M}\p{N}\s_]/u.test(character);
  const characters = Array.from(special);
  const ends = [characters[0], characters.at(-1)].filter((each) => each !== undefined).filter(isKey);
  return ends.length > 0 ? ends : characters.filter(isKey);
}

/** Whether two texts can have characters in common where both stand in one. */
function overlap(a: string, b: string): boolean {
  if (a.includes(b) || b.includes(a)) return true;
  for (let n = 1; n < Math.min(a.length, b.length); n++)
    if (a.endsWith(b.slice(0, n)) || a.startsWith(b.slice(-n))) return true;
  return false;
}

/** Where a text has another, also where these overlap. */
function placesOf(text: string, part: string): number[] {
  const places: number[] = [];
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + 1)) places.push(at);
  return places;
}

/** All strings of a value. */
function textsOf(value: unknown): string[] {
  if (typeof value === "string") return [value];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => [key, ...textsOf(each)]);
}

/** Characters for private use that `text` has neither as they are nor as an escape of JSON, such as "\ue000": `count` of them. */
export function findFree(where: string, text: string, count: number): [string, ...string[]] {
  // Templates may change the case of an escape, or join its parts: what is behind the backslash counts.
  const escaped = text.match(/u(e[\da-f]{3}|f[0-8][\da-f]{2})/gi) ?? [];
  const used = new Set([
    ...(text.match(/[\uE000-\uF8FF]/g) ?? []),
    ...escaped.map((found) => String.fromCharCode(Number.parseInt(found.slice(1), 16))),
  ]);
  const free: string[] = [];
  for (let code = 0xe000; code <= 0xf8ff && free.length < count; code++)
    if (!used.has(String.fromCharCode(code))) free.push(String.fromCharCode(code));
  if (free.length === count) return free as [string, ...string[]];
  const rule = `at most ${6400 - count} of the 6400 characters for private use, as they are or as escapes`;
  throw new RangeError(`${where}: text expected ${rule}, got ${used.size}`);
}
