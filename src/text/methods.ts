// What the values of chat templates have in Python: items, attributes and methods.

import {
  type Call,
  characters,
  createWriter,
  equal,
  escaped,
  expectText,
  fail,
  isPaired,
  isText,
  isTrue,
  isWhole,
  itemsOf,
  keyOf,
  type Limits,
  likeText,
  Markup,
  type Named,
  Namespace,
  pointsOf,
  Tuple,
  textOf,
  typeOf,
  Undefined,
  View,
} from "./values.ts";

/** The value that `value[key]` is. */
export function getItem(limits: Limits, value: unknown, key: unknown): unknown {
  if (value instanceof Undefined) return fail(value, "");
  // What cannot be a key is none that the dict has.
  if (value instanceof Map && !Array.isArray(key) && !(key instanceof Map) && value.has(keyOf(key)))
    return value.get(keyOf(key));
  if (isWhole(key)) {
    const at = Number(key);
    const items = value instanceof View && value.bounds !== undefined ? value.items : value;
    if (Array.isArray(items)) {
      const item = items.at(at);
      return item === undefined ? missing(value, key) : item;
    }
    if (isText(value)) {
      const text = characters(value);
      const found = isPaired(text) ? Array.from(text).at(at) : text.at(at);
      return found === undefined ? missing(value, key) : likeText(value, found);
    }
  }
  const found = isText(key) ? attributeOf(limits, value, characters(key)) : undefined;
  return found === undefined ? missing(value, key) : found;
}

const missing = (value: unknown, key: unknown) =>
  new Undefined(`'${typeOf(value)} object' has no attribute '${isText(key) ? characters(key) : String(key)}'`);

/** The value that `value.name` is: methods come before keys. */
export function getAttribute(limits: Limits, value: unknown, name: string): unknown {
  if (value instanceof Undefined) return fail(value, "");
  const found = attributeOf(limits, value, name);
  if (found !== undefined) return found;
  return value instanceof Map && value.has(name) ? value.get(name) : missing(value, name);
}

/** The part of a text, list or range between two places. */
export function slice(limits: Limits, value: unknown, bounds: readonly unknown[]): unknown {
  const isSliced = isText(value) || Array.isArray(value) || (value instanceof View && value.bounds !== undefined);
  if (!isSliced) return fail(value, `'${typeOf(value)}' object is not subscriptable by a slice`);
  const text = isText(value) ? characters(value) : "";
  const items: ArrayLike<unknown> = !isText(value) ? itemsOf(limits, value) : isPaired(text) ? Array.from(text) : text;
  const [from, to, by] = bounds.map((bound) => {
    if (bound === null) return undefined;
    if (!isWhole(bound)) throw new Error("slice indices must be integers or None or have an __index__ method");
    return Number(bound);
  });
  const step = by ?? 1;
  if (step === 0) throw new Error("slice step cannot be zero");
  const { length } = items;
  const clamp = (at: number, low: number, high: number) => Math.min(Math.max(at < 0 ? at + length : at, low), high);
  const [low, high] = step > 0 ? [0, length] : [-1, length - 1];
  const begin = from === undefined ? (step > 0 ? 0 : length - 1) : clamp(from, low, high);
  const end = to === undefined ? (step > 0 ? length : -1) : clamp(to, low, high);
  if (isText(value) && typeof items === "string" && step === 1) return likeText(value, items.slice(begin, end));
  const count = Math.max(0, Math.ceil((end - begin) / step));
  if (!isText(value)) limits.list(count);
  const part = Array.from({ length: count }, (_, i) => items[begin + i * step]);
  if (isText(value)) return likeText(value, part.join(""));
  return value instanceof Tuple ? Tuple.from(part) : part;
}

/** An attribute of a value besides keys. */
function attributeOf(limits: Limits, value: unknown, name: string): unknown {
  const unsafe = () => new Undefined(`access to attribute '${name}' of '${typeOf(value)}' object is unsafe.`);
  if (name.startsWith("__")) return unsafe();
  if (value instanceof Namespace) return value.fields.get(name);
  if (isText(value)) {
    const method = Object.hasOwn(TEXT_METHODS, name) ? TEXT_METHODS[name] : undefined;
    if (method) return bound(limits, value, method);
    return OTHER_TEXT_METHODS.split(" ").includes(name) ? refused(`the method ${name} of texts`) : undefined;
  }
  if (value instanceof Map) {
    const method = Object.hasOwn(DICT_METHODS, name) ? DICT_METHODS[name] : undefined;
    if (method) return bound(limits, value, method);
    if (["clear", "pop", "popitem", "setdefault", "update"].includes(name)) return unsafe();
    return name === "fromkeys" ? refused("the method fromkeys of dicts") : undefined;
  }
  if (!Array.isArray(value)) return undefined;
  const ofList = Object.hasOwn(LIST_METHODS, name) ? LIST_METHODS[name] : undefined;
  if (ofList) return bound(limits, value, ofList);
  if (value instanceof Tuple) return (value as Tuple & Record<"grouper" | "list", unknown>)[name as "list"];
  if (name === "copy") return () => Array.from(value);
  return ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"].includes(name)
    ? unsafe()
    : undefined;
}

const refused = (what: string) => () => {
  throw new Error(`${what} is not supported`);
};

/** A function of a value and its arguments; without an argument, undefined. `names` are those of the arguments. */
interface Method {
  readonly names: readonly string[];
  readonly run: (limits: Limits, value: never, ...args: unknown[]) => unknown;
}

export const method = <Value>(
  names: string,
  run: (limits: Limits, value: Value, ...args: unknown[]) => unknown,
): Method => ({
  names: names === "" ? [] : names.split(" "),
  run: run as Method["run"],
});

const bound =
  (limits: Limits, value: unknown, { names, run }: Method): Call =>
  (args, named) =>
    run(limits, value as never, ...(names[0] === "*" ? [args, named] : readArguments(names, args, named)));

/** Arguments in the order of their names, those that are missing as undefined. */
export function readArguments(names: readonly string[], args: readonly unknown[], named: Named): unknown[] {
  if (args.length > names.length) throw new Error(`expected at most ${names.length} arguments, got ${args.length}`);
  for (const name of named.keys())
    if (names.indexOf(name) < args.length) throw new Error(`got an unexpected argument '${name}'`);
  return names.map((name, i) => (i < args.length ? args[i] : named.get(name)));
}

const SPACES = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SPACE = new RegExp(`[${SPACES}]`);

/** A text without characters at its ends: those given, or spaces. */
export function strip(text: string, given: unknown, isLeft: boolean, isRight: boolean): string {
  const characters = (given ?? null) === null ? undefined : new Set(expectText(given));
  const isLost = (character: string) => (characters ? characters.has(character) : SPACE.test(character));
  let [begin, end] = [0, text.length];
  while (isLeft && begin < end) {
    const first = String.fromCodePoint(text.codePointAt(begin) as number);
    if (!isLost(first)) break;
    begin += first.length;
  }
  while (isRight && end > begin) {
    const isPair = /[\uDC00-\uDFFF]/.test(text[end - 1] as string) && end - begin > 1;
    const last = text.slice(end - (isPair ? 2 : 1), end);
    if (!isLost(last)) break;
    end -= last.length;
  }
  return text.slice(begin, end);
}

function split(limits: Limits, text: string, separator: unknown, most: unknown, isRight: boolean): string[] {
  const count = (most ?? null) === null || Number(most) < 0 ? Infinity : Number(most);
  const parts: string[] = [];
  const add = (part: string) => {
    parts.push(part);
    limits.list(parts.length);
  };
  if ((separator ?? null) === null) {
    if (isRight && Number.isFinite(count)) throw new Error("rsplit of spaces with a number is not supported");
    const rest = strip(text, null, true, false);
    let end = 0;
    for (const { 0: word, index } of rest.matchAll(new RegExp(`[^${SPACES}]+`, "g"))) {
      if (parts.length >= count) {
        end = index;
        break;
      }
      add(word);
      end = rest.length;
    }
    if (end < rest.length) add(rest.slice(end));
    return parts;
  }
  const by = expectText(separator);
  if (by === "") throw new Error("empty separator");
  if (isRight) {
    let end = text.length;
    while (parts.length < count) {
      const at = end >= by.length ? text.lastIndexOf(by, end - by.length) : -1;
      if (at < 0) break;
      add(text.slice(at + by.length, end));
      end = at;
    }
    add(text.slice(0, end));
    return parts.reverse();
  }
  let begin = 0;
  while (parts.length < count) {
    const at = text.indexOf(by, begin);
    if (at < 0) break;
    add(text.slice(begin, at));
    begin = at + by.length;
  }
  add(text.slice(begin));
  return parts;
}

/** How often a text has another. */
function countOf(text: string, part: string): number {
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count++;
  return count;
}

export function replace(limits: Limits, text: string, given: unknown, replacement: unknown, most: unknown): string {
  const [old, by] = [expectText(given), expectText(replacement)];
  const count = (most ?? null) === null || Number(most) < 0 ? Infinity : Number(most);
  if (old === "") {
    const points = Array.from(text);
    limits.text(text.length + Math.min(count, points.length + 1) * by.length);
    const before = points.map((point, i) => (i < count ? by + point : point)).join("");
    return points.length < count ? before + by : before;
  }
  const { put, text: all } = createWriter(limits);
  let [begin, done] = [0, 0];
  for (; done < count; done++) {
    const at = text.indexOf(old, begin);
    if (at < 0) break;
    put(text.slice(begin, at));
    put(by);
    begin = at + old.length;
  }
  put(text.slice(begin));
  return all();
}

export function join(
  limits: Limits,
  separator: string,
  items: readonly unknown[],
  write: (item: unknown) => string,
): string {
  const { put, text } = createWriter(limits);
  for (const [i, item] of items.entries()) {
    if (i > 0) put(separator);
    put(write(item));
  }
  return text();
}

const LINE_ENDS = "\\n-\\r\\x1c-\\x1e\\x85\\u2028\\u2029";
const LINE_END = new RegExp(`\\r\\n|[${LINE_ENDS}]`, "g");

export function linesOf(limits: Limits, text: string, keep: unknown = false): string[] {
  const lines: string[] = [];
  let begin = 0;
  for (const { 0: end, index } of text.matchAll(LINE_END)) {
    lines.push(text.slice(begin, index + (isTrue(keep) ? end.length : 0)));
    limits.list(lines.length);
    begin = index + end.length;
  }
  return begin < text.length ? [...lines, text.slice(begin)] : lines;
}

export const capitalized = (text: string): string => {
  const first = Array.from(text.slice(0, 2))[0] ?? "";
  return first.toUpperCase() + text.slice(first.length).toLowerCase();
};

/** Python's `text.format(...)`, with places and names alone. */
function braces(limits: Limits, text: string, args: readonly unknown[], named: Named, isMarkup: boolean): string {
  let [next, isNumbered] = [0, false];
  const { put, text: all } = createWriter(limits);
  for (const [found, name] of text.matchAll(/\{\{|\}\}|\{(\w*)\}|[^{}]+|[\s\S]/g)) {
    if (name === undefined) {
      if (found === "{" || found === "}") throw new Error("a format in braces expected a place or a name alone");
      put(found === "{{" || found === "}}" ? found.slice(1) : found);
      continue;
    }
    isNumbered ||= /^\d/.test(name);
    if (isNumbered && (next > 0 || name === ""))
      throw new Error("format expected either numbers in its braces or none");
    const value = /^\d*$/.test(name) ? args[name === "" ? next++ : Number(name)] : named.get(name);
    if (value === undefined) throw new Error(`format expected the argument ${name || next - 1}, got none`);
    put(isMarkup ? escaped(limits, value).text : textOf(limits, value));
  }
  return all();
}

const isAffix = (has: (text: string, affix: string) => boolean) =>
  method<string>("affix", (_, text, affix) =>
    (affix instanceof Tuple ? [...affix] : [affix]).some((each) => has(text, expectText(each))),
  );

const finder = (find: (text: string, part: string) => number) =>
  method<string>("sub", (_, text, part) => {
    const at = find(text, expectText(part));
    return at < 0 ? -1 : pointsOf(text.slice(0, at));
  });

const cased = (text: string) => text.toLowerCase() !== text.toUpperCase();
const isLower = (text: string) => cased(text) && text === text.toLowerCase();
const isUpper = (text: string) => cased(text) && text === text.toUpperCase();

/** Methods of texts that give texts, lists of texts and others; of markup, the texts are markup. */
const PLAIN_METHODS: Readonly<Record<string, Method>> = {
  capitalize: method<string>("", (_, text) => capitalized(text)),
  count: method<string>("sub", (_, text, part) => {
    const sub = expectText(part);
    return sub === "" ? pointsOf(text) + 1 : countOf(text, sub);
  }),
  endswith: isAffix((text, affix) => text.endsWith(affix)),
  find: finder((text, part) => text.indexOf(part)),
  isdigit: method<string>("", (_, text) => /^[\p{Nd}\u00b2\u00b3\u00b9\u2070-\u2089]+$/u.test(text)),
  islower: method<string>("", (_, text) => isLower(text)),
  isupper: method<string>("", (_, text) => isUpper(text)),
  lower: method<string>("", (_, text) => text.toLowerCase()),
  lstrip: method<string>("chars", (_, text, chars) => strip(text, chars, true, false)),
  removeprefix: method<string>("prefix", (_, text, prefix) =>
    text.startsWith(expectText(prefix)) ? text.slice(expectText(prefix).length) : text,
  ),
  removesuffix: method<string>("suffix", (_, text, suffix) =>
    text.endsWith(expectText(suffix)) ? text.slice(0, text.length - expectText(suffix).length) : text,
  ),
  replace: method<string>("old new count", replace),
  rfind: finder((text, part) => text.lastIndexOf(part)),
  rsplit: method<string>("sep maxsplit", (limits, text, by, most) => split(limits, text, by, most, true)),
  rstrip: method<string>("chars", (_, text, chars) => strip(text, chars, false, true)),
  split: method<string>("sep maxsplit", (limits, text, by, most) => split(limits, text, by, most, false)),
  splitlines: method<string>("keepends", linesOf),
  startswith: isAffix((text, affix) => text.startsWith(affix)),
  strip: method<string>("chars", (_, text, chars) => strip(text, chars, true, true)),
  title: method<string>("", (_, text) => text.replace(/\p{L}+/gu, capitalized)),
  upper: method<string>("", (_, text) => text.toUpperCase()),
};

const OTHER_TEXT_METHODS =
  "casefold center encode expandtabs format_map index isalnum isalpha isascii isdecimal isidentifier isnumeric isprintable isspace " +
  "istitle ljust maketrans partition rindex rjust rpartition swapcase translate zfill";

const TEXT_METHODS: Readonly<Record<string, Method>> = {
  ...Object.fromEntries(
    Object.entries(PLAIN_METHODS).map(([name, { names, run }]) => {
      const ofEither = (limits: Limits, value: string | Markup, ...args: unknown[]) => {
        if (typeof value === "string") return run(limits, value as never, ...args);
        const isEscaped = name === "replace" && args[1] !== undefined;
        const given = isEscaped ? [args[0], escaped(limits, args[1]), args[2]] : args;
        const result = run(limits, value.text as never, ...given);
        if (!Array.isArray(result)) return typeof result === "string" ? new Markup(result) : result;
        const texts = Array.from(result, (each) => new Markup(String(each)));
        return result instanceof Tuple ? Tuple.from(texts) : texts;
      };
      return [name, { names, run: ofEither as Method["run"] }];
    }),
  ),
  format: method<string | Markup>("*", (limits, text, args, named) =>
    likeText(text, braces(limits, characters(text), args as unknown[], named as Named, text instanceof Markup)),
  ),
  join: method<string | Markup>("iterable", (limits, text, list) => {
    const isMarkup = text instanceof Markup;
    const write = (item: unknown) => (isMarkup ? escaped(limits, item).text : expectText(item));
    return likeText(text, join(limits, characters(text), itemsOf(limits, list), write));
  }),
};

export const pairsOf = (dict: ReadonlyMap<unknown, unknown>): Tuple[] =>
  Array.from(dict, ([key, value]) => Tuple.of(key, value));

const DICT_METHODS: Readonly<Record<string, Method>> = {
  copy: method<Map<unknown, unknown>>("", (_, dict) => new Map(dict)),
  get: method<Map<unknown, unknown>>("key default", (_, dict, key, other) => {
    if (key === undefined) throw new Error("get expected at least 1 argument, got 0");
    const found = dict.get(keyOf(key));
    return found === undefined ? (other ?? null) : found;
  }),
  items: method<Map<unknown, unknown>>("", (_, dict) => new View("dict_items", pairsOf(dict))),
  keys: method<Map<unknown, unknown>>("", (_, dict) => new View("dict_keys", [...dict.keys()])),
  values: method<Map<unknown, unknown>>("", (_, dict) => new View("dict_values", [...dict.values()])),
};

const LIST_METHODS: Readonly<Record<string, Method>> = {
  count: method<unknown[]>("value", (limits, list, value) => list.filter((each) => equal(limits, each, value)).length),
  index: method<unknown[]>("value", (limits, list, value) => {
    const at = list.findIndex((each) => equal(limits, each, value));
    if (at < 0) throw new Error("the value is not in the list");
    return at;
  }),
};
