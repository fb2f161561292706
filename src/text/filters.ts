// Jinja's filters and tests.

import {
  capitalized,
  getAttribute,
  getItem,
  join,
  linesOf,
  method,
  pairsOf,
  readArguments,
  replace,
  strip,
} from "./methods.ts";
import {
  type Call,
  characters,
  compare,
  equal,
  escaped,
  expectText,
  Float,
  fail,
  isNumber,
  isText,
  isTrue,
  isWhole,
  itemsOf,
  jsonOf,
  keyOf,
  type Limits,
  lengthOf,
  likeText,
  Markup,
  type Named,
  Namespace,
  numberOf,
  operate,
  Stream,
  signed,
  sizeOf,
  Tuple,
  textOf,
  typeOf,
  Undefined,
  View,
} from "./values.ts";

/** Calls a filter, or a test where it is called "is name" or "is not name". */
export function applyFilter(
  limits: Limits,
  name: string,
  value: unknown,
  args: readonly unknown[],
  named: Named,
): unknown {
  const test = /^ is (not )?(.+)$/s.exec(name);
  if (test) return applyTest(limits, test[2] as string, value, args) !== (test[1] !== undefined);
  const filter = Object.hasOwn(FILTERS, name) ? FILTERS[name] : undefined;
  if (!filter) throw new Error(`the filter ${name} is unknown or not supported`);
  const { names, run } = filter;
  return run(limits, value as never, ...(names[0] === "*" ? [args, named] : readArguments(names, args, named)));
}

function applyTest(limits: Limits, name: string, value: unknown, args: readonly unknown[]): boolean {
  const test = Object.hasOwn(TESTS, name) ? TESTS[name] : undefined;
  if (!test) throw new Error(`the test ${name} is unknown or not supported`);
  if (args.length !== test.length - 2)
    throw new Error(`the test ${name} expected ${test.length - 2} arguments, got ${args.length}`);
  return test(limits, value, ...args);
}

type Test = (limits: Limits, value: unknown, ...args: unknown[]) => boolean;

const isMapping = (value: unknown): value is Map<unknown, unknown> => value instanceof Map;
const remainder = (limits: Limits, value: unknown, by: unknown) => operate(limits, "%", value, by);
const cased = (limits: Limits, value: unknown, name: "islower" | "isupper") =>
  (getAttribute(limits, textOf(limits, value), name) as Call)([], new Map()) === true;
const operator =
  (sign: string) =>
  (limits: Limits, value: unknown, other: unknown): boolean =>
    operate(limits, sign, value, other) === true;

/** What each test says of a value; the number of its further arguments is that of the function. */
const TESTS: Readonly<Record<string, Test>> = {
  boolean: (_, value) => typeof value === "boolean",
  callable: (_, value) => typeof value === "function",
  defined: (_, value) => !(value instanceof Undefined),
  divisibleby: (limits, value, by) => equal(limits, remainder(limits, value, by), 0),
  eq: operator("=="),
  equalto: operator("=="),
  escaped: (_, value) => value instanceof Markup,
  even: (limits, value) => equal(limits, remainder(limits, value, 2), 0),
  false: (_, value) => value === false,
  float: (_, value) => value instanceof Float,
  ge: operator(">="),
  greaterthan: operator(">"),
  gt: operator(">"),
  in: operator("in"),
  integer: (_, value) => typeof value === "number",
  iterable: (_, value) => Array.isArray(value) || isText(value) || isMapping(value) || isFlow(value),
  le: operator("<="),
  lessthan: operator("<"),
  lower: (limits, value) => cased(limits, value, "islower"),
  lt: operator("<"),
  mapping: (_, value) => isMapping(value),
  ne: operator("!="),
  none: (_, value) => value === null,
  number: (_, value) => isNumber(value),
  odd: (limits, value) => equal(limits, remainder(limits, value, 2), 1),
  sameas: (_, value, other) => value === other,
  sequence: (_, value) =>
    Array.isArray(value) ||
    isText(value) ||
    isMapping(value) ||
    value instanceof Undefined ||
    (value instanceof View && value.bounds !== undefined),
  string: (_, value) => isText(value),
  true: (_, value) => value === true,
  undefined: (_, value) => value instanceof Undefined,
  upper: (limits, value) => cased(limits, value, "isupper"),
};

const isFlow = (value: unknown) => value instanceof View || value instanceof Stream || value instanceof Undefined;

/** What reads an attribute of items, by a path such as "function.name". */
function getter(limits: Limits, path: unknown, other?: unknown): (item: unknown) => unknown {
  const parts = isText(path) ? characters(path).split(".") : [path];
  return (item) => {
    let value = item;
    for (const part of parts) {
      const isPlace = typeof part === "string" && /^\d+$/.test(part);
      value = getItem(limits, value, isPlace ? Number(part) : part);
      if (value instanceof Undefined && other !== undefined) value = other;
    }
    return value;
  };
}

/** What items are compared by: an attribute, or themselves; texts in lower case unless `isCased`. */
function sortKey(limits: Limits, path: unknown, isCased: unknown): (item: unknown) => unknown {
  if (isText(path) && characters(path).includes(","))
    throw new Error("several attributes to sort by are not supported");
  const get = (path ?? null) === null ? (item: unknown) => item : getter(limits, path);
  return (item) => {
    const value = get(item);
    return isText(value) && !isTrue(isCased) ? characters(value).toLowerCase() : value;
  };
}

function sorted(limits: Limits, items: readonly unknown[], key: (item: unknown) => unknown, isReversed: unknown) {
  const keyed = items.map((item) => [key(item), item] as const);
  const sign = isTrue(isReversed) ? -1 : 1;
  keyed.sort(([a], [b]) => sign * compare(limits, a, b));
  return keyed.map(([, item]) => item);
}

const extreme =
  (sign: number) =>
  (limits: Limits, value: unknown, isCased: unknown, path: unknown): unknown => {
    const key = sortKey(limits, path, isCased);
    const [first, ...rest] = itemsOf(limits, value);
    if (first === undefined) return new Undefined("No aggregated item, sequence was empty.");
    return rest.reduce((best, each) => (sign * compare(limits, key(each), key(best)) > 0 ? each : best), first);
  };

/** The function that `map`, `select` and their kin apply to each item. */
function applied(
  limits: Limits,
  args: readonly unknown[],
  named: Named,
  run: typeof applyFilter,
): (item: unknown) => unknown {
  const [name, ...rest] = args;
  return (item) => run(limits, expectText(name), item, rest, named);
}

const chosen = (isKept: boolean, isByAttribute: boolean) =>
  method<unknown>("*", (limits, value, given, named) => {
    const args = [...(given as readonly unknown[])];
    if (isByAttribute && args.length === 0) throw new Error("Missing parameter for attribute name");
    const get = isByAttribute ? getter(limits, args.shift()) : (item: unknown) => item;
    const test = applied(limits, args, named as Named, (_, name, item, rest) => applyTest(limits, name, item, rest));
    const isChosen = args.length > 0 ? test : isTrue;
    if (!isTrue(value)) return new Stream([]);
    return new Stream(itemsOf(limits, value).filter((item) => isChosen(get(item)) === isKept));
  });

/** The whole number that a value is, or is the text of. */
function wholeOf(value: unknown): number | undefined {
  if (isNumber(value)) return Number.isFinite(numberOf(value)) ? Math.trunc(numberOf(value)) + 0 : undefined;
  if (!isText(value)) return value instanceof Undefined ? fail(value, "") : undefined;
  const text = strip(characters(value), null, true, true).replace(/(?<=\d)_(?=\d)/g, "");
  const number = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Math.trunc(Number(text)) + 0 : undefined;
  if (number !== undefined && !Number.isSafeInteger(number)) throw new Error("int expected a number below 2^53");
  return number;
}

/** Items in groups of an equal attribute, by which they are sorted. */
function groupsOf(limits: Limits, value: unknown, path: unknown, other: unknown, isCased: unknown): unknown[] {
  const get = getter(limits, path, other);
  const key = (item: unknown) => sortKey(limits, null, isCased)(get(item));
  const groups: (Tuple & { grouper?: unknown; list?: unknown[] })[] = [];
  let last: unknown;
  for (const item of sorted(limits, itemsOf(limits, value), key, false)) {
    const group = groups.at(-1);
    if (group && equal(limits, key(item), last)) (group[1] as unknown[]).push(item);
    else {
      const [grouper, list] = [get(item), [item]];
      groups.push(Object.assign(Tuple.of(grouper, list), { grouper, list }));
    }
    last = key(item);
  }
  return groups;
}

function indented(limits: Limits, value: unknown, width: unknown, isFirst: unknown, isBlank: unknown): unknown {
  const text = expectText(value);
  const by = isText(width) ? characters(width) : " ".repeat(width === undefined ? 4 : sizeOf(limits, width));
  const lines = linesOf(limits, `${text}\n`);
  limits.text(text.length + lines.length * by.length);
  const isBegun = (line: string, i: number) => (i === 0 ? isTrue(isFirst) : line !== "" || isTrue(isBlank));
  return likeText(value as string, lines.map((line, i) => (isBegun(line, i) ? by + line : line)).join("\n"));
}

const titled = (text: string) => text.replace(/[^-\s({[<]+/g, capitalized);
const softText = (limits: Limits, value: unknown) => (isText(value) ? value : textOf(limits, value));
/** A filter of the text of any value; that of markup is markup. */
const ofText = (run: (text: string, ...args: unknown[]) => string, names = "") =>
  method<unknown>(names, (limits, value, ...args) => {
    const text = softText(limits, value);
    return likeText(text, run(characters(text), ...args));
  });

const orUndefined = (value: unknown, reason: string) => (value === undefined ? new Undefined(reason) : value);
const length = method<unknown>("", (_, value) => lengthOf(value));
const markup = method<unknown>("", (limits, value) => escaped(limits, value));
const other = method<unknown>("default_value boolean", (_, value, instead, isBroad) =>
  value instanceof Undefined || (isTrue(isBroad) && !isTrue(value)) ? (instead === undefined ? "" : instead) : value,
);

const FILTERS: Readonly<Record<string, ReturnType<typeof method>>> = {
  abs: method<unknown>("", (_, value) =>
    isNumber(value) && numberOf(value) >= 0 ? signed("+", value) : signed("-", value),
  ),
  capitalize: ofText(capitalized),
  count: length,
  d: other,
  default: other,
  dictsort: method<unknown>("case_sensitive by reverse", (limits, value, isCased, by = "key", isReversed) => {
    const place = { key: 0, value: 1 }[expectText(by)];
    if (place === undefined) throw new Error('You can only sort by either "key" or "value"');
    if (!isMapping(value)) return fail(value, `'${typeOf(value)} object' has no attribute 'items'`);
    return sorted(limits, pairsOf(value), sortKey(limits, place, isCased), isReversed);
  }),
  e: markup,
  escape: markup,
  first: method<unknown>("", (limits, value) =>
    orUndefined(itemsOf(limits, value)[0], "No first item, sequence was empty."),
  ),
  format: method<unknown>("*", (limits, value, args, named) => {
    const [list, byName] = [args as readonly unknown[], named as Named];
    if (list.length > 0 && byName.size > 0) throw new Error("can't handle positional and keyword arguments together");
    const given = byName.size > 0 ? new Map(byName) : Tuple.from(list);
    return operate(limits, "%", softText(limits, value), given);
  }),
  groupby: method<unknown>("attribute default case_sensitive", (limits, value, path, instead, isCased) =>
    groupsOf(limits, value, path, instead, isCased),
  ),
  indent: method<unknown>("width first blank", indented),
  int: method<unknown>("default base", (_, value, instead = 0, base = 10) => {
    if (base !== 10) throw new Error("the filter int is supported for the base 10 alone");
    return wholeOf(value) ?? instead;
  }),
  items: method<unknown>("", (_, value) => {
    if (value instanceof Undefined) return new Stream([]);
    if (!isMapping(value)) throw new Error("Can only get item pairs from a mapping.");
    return new Stream(pairsOf(value));
  }),
  join: method<unknown>("d attribute", (limits, value, separator = "", path = undefined) => {
    const get = (path ?? null) === null ? (item: unknown) => item : getter(limits, path);
    const by = textOf(limits, separator);
    return join(limits, by, itemsOf(limits, value), (item) => textOf(limits, get(item)));
  }),
  last: method<unknown>("", (limits, value) => {
    if (value instanceof Stream) throw new Error("'generator' object is not reversible");
    return orUndefined(itemsOf(limits, value).at(-1), "No last item, sequence was empty.");
  }),
  length,
  list: method<unknown>("", (limits, value) => Array.from(itemsOf(limits, value))),
  lower: ofText((text) => text.toLowerCase()),
  map: method<unknown>("*", (limits, value, given, named) => {
    const [args, options] = [given as readonly unknown[], named as Named];
    const isByAttribute = args.length === 0 && options.has("attribute");
    if (args.length === 0 && !isByAttribute) throw new Error("map requires a filter argument");
    const run = isByAttribute
      ? getter(limits, options.get("attribute"), options.get("default") ?? undefined)
      : applied(limits, args, options, (_, name, ...rest) => applyFilter(limits, name.trim(), ...rest));
    return new Stream(isTrue(value) ? itemsOf(limits, value).map(run) : []);
  }),
  max: method<unknown>("case_sensitive attribute", extreme(1)),
  min: method<unknown>("case_sensitive attribute", extreme(-1)),
  reject: chosen(false, false),
  rejectattr: chosen(false, true),
  replace: method<unknown>("old new count", (limits, value, old, by, count) =>
    replace(limits, textOf(limits, value), textOf(limits, old), textOf(limits, by), count),
  ),
  reverse: method<unknown>("", (limits, value) => {
    if (isText(value)) return likeText(value, Array.from(characters(value)).reverse().join(""));
    return new Stream(Array.from(itemsOf(limits, value)).reverse());
  }),
  safe: method<unknown>("", (limits, value) => new Markup(textOf(limits, value))),
  select: chosen(true, false),
  selectattr: chosen(true, true),
  sort: method<unknown>("reverse case_sensitive attribute", (limits, value, isReversed, isCased, path) =>
    sorted(limits, itemsOf(limits, value), sortKey(limits, path, isCased), isReversed),
  ),
  string: method<unknown>("", (limits, value) => softText(limits, value)),
  sum: method<unknown>("attribute start", (limits, value, path, start = 0) => {
    const get = (path ?? null) === null ? (item: unknown) => item : getter(limits, path);
    return itemsOf(limits, value).reduce((total: unknown, item) => operate(limits, "+", total, get(item)), start);
  }),
  title: ofText(titled),
  tojson: method<unknown>("ensure_ascii indent separators sort_keys", (limits, value, ...options) =>
    jsonOf(limits, value, options),
  ),
  trim: ofText((text, chars) => strip(text, chars, true, true), "chars"),
  unique: method<unknown>("case_sensitive attribute", (limits, value, isCased, path) => {
    const key = sortKey(limits, path, isCased);
    const seen = new Set<unknown>();
    const isNew = (item: unknown) => {
      const own = key(item);
      const known = typeof own === "boolean" ? Number(own) : keyOf(own);
      return !seen.has(known) && seen.add(known) !== undefined;
    };
    return new Stream(itemsOf(limits, value).filter(isNew));
  }),
  upper: ofText((text) => text.toUpperCase()),
};

/** Functions that every template has. */
export function globalsOf(limits: Limits): Readonly<Record<string, unknown>> {
  const unsupported = (name: string) => () => {
    throw new Error(`the function ${name} is not supported`);
  };
  const dict: Call = ([from, ...more], named) => {
    if (more.length > 0) throw new Error("dict expected at most 1 argument");
    const entries = from === undefined ? [] : isMapping(from) ? [...from] : itemsOf(limits, from);
    const pairs = entries.map((entry) => itemsOf(limits, entry));
    if (pairs.some((pair) => pair.length !== 2)) throw new Error("dict expected pairs of a key and a value");
    return new Map([...pairs.map(([key, value]) => [keyOf(key), value] as const), ...named]);
  };
  return {
    dict,
    namespace: (args: readonly unknown[], named: Named) => {
      const fields = dict(args, named) as Map<string, unknown>;
      for (const key of fields.keys())
        if (String(key).startsWith("_")) throw new Error(`a namespace expected names without _, got ${key}`);
      return new Namespace(fields);
    },
    range: (bounds: readonly unknown[]) => {
      const numbers = bounds.map((bound) =>
        isWhole(bound) ? Number(bound) : fail(bound, `'${typeOf(bound)}' object cannot be interpreted as an integer`),
      );
      if (numbers.length < 1 || numbers.length > 3) throw new Error("range expected 1 to 3 arguments");
      const [start = 0, stop = 0, step = 1] = numbers.length === 1 ? [0, ...numbers] : numbers;
      const count = Math.max(0, Math.ceil((stop - start) / step));
      limits.list(count);
      const items = Array.from({ length: count }, (_, i) => start + i * step);
      return new View("range", items, `range(${start}, ${stop}${step === 1 ? "" : `, ${step}`})`);
    },
    joiner: unsupported("joiner"),
    cycler: unsupported("cycler"),
    lipsum: unsupported("lipsum"),
  };
}
