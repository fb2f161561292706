// Values of chat templates as Python has them: how they print and compare, and what their methods, Jinja's filters and tests give.
// Texts are strings, whole numbers are numbers, lists are arrays, dicts are maps; what JavaScript has no type for has a class here.

/** What was not given: its text is empty, and its use an error with this reason. */
export class Undefined {
  readonly reason: string;
  constructor(reason: string) {
    this.reason = reason;
  }
}

/** A number with a fraction, which may be zero. */
export class Float {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

/** A text that is markup: what joins it is escaped. */
export class Markup {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** A list that prints in parentheses. */
export class Tuple extends Array<unknown> {}

/** What a template keeps by names. */
export class Namespace {
  readonly fields: Map<string, unknown>;
  /** What calling it does: of a loop, that it runs again for other items. */
  readonly call: Call | undefined;
  constructor(fields: Map<string, unknown>, call?: Call) {
    this.fields = fields;
    this.call = call;
  }
}

/** Items that are gone through once. */
export class Stream {
  items: readonly unknown[];
  constructor(items: readonly unknown[]) {
    this.items = items;
  }
}

/** The keys, values or items of a dict, or a range: `name` is what it prints as, and of those that have places, `bounds`. */
export class View {
  readonly name: string;
  readonly items: readonly unknown[];
  readonly bounds: string | undefined;
  constructor(name: string, items: readonly unknown[], bounds?: string) {
    this.name = name;
    this.items = items;
    this.bounds = bounds;
  }
}

/** The values of arguments by name. */
export type Named = ReadonlyMap<string, unknown>;
/** A function of templates. */
export type Call = (args: readonly unknown[], named: Named) => unknown;

/** What one rendering counts, each of which throws beyond its limit. */
export interface Limits {
  /** Counts work, in steps. */
  step(work: number): void;
  /** Takes the number of characters of a text that is to be made. */
  text(length: number): void;
  /** Takes the number of elements of a list that is to be made. */
  list(length: number): void;
  /** The character that one of a message stands for while the template runs: most often itself. */
  original: (character: string) => string;
}

// Types and their names.

export const isText = (value: unknown): value is string | Markup =>
  typeof value === "string" || value instanceof Markup;
export const isNumber = (value: unknown): value is number | boolean | Float =>
  typeof value === "number" || typeof value === "boolean" || value instanceof Float;
export const isWhole = (value: unknown): value is number | boolean =>
  typeof value === "number" || typeof value === "boolean";
export const characters = (text: string | Markup): string => (typeof text === "string" ? text : text.text);
export const numberOf = (value: number | boolean | Float): number =>
  value instanceof Float ? value.value : Number(value);

/** Python's name of a value's type. */
export function typeOf(value: unknown): string {
  if (typeof value === "string") return "str";
  if (typeof value === "number") return "int";
  if (typeof value === "boolean") return "bool";
  if (value === null) return "NoneType";
  if (typeof value === "function") return "function";
  if (value instanceof Map) return "dict";
  if (value instanceof View) return value.name;
  if (Array.isArray(value)) return value instanceof Tuple ? "tuple" : "list";
  if (value instanceof Float) return "float";
  if (value instanceof Markup) return "Markup";
  if (value instanceof Namespace) return value.call ? "LoopContext" : "Namespace";
  return value instanceof Stream ? "generator" : "Undefined";
}

/** Throws that `value` cannot be used so; the reason of what was not given is the error of its own. */
export function fail(value: unknown, rule: string): never {
  throw new Error(value instanceof Undefined ? value.reason : rule);
}

export const expectText = (value: unknown): string =>
  isText(value) ? characters(value) : fail(value, `expected a text, got a ${typeOf(value)}`);

/** A value of a program, as templates have it. Its functions are given what JSON has. */
export function fromHost(limits: Limits, value: unknown): unknown {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return Number.isInteger(value) ? value : new Float(value);
  if (typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "function") {
    const plain = (each: unknown) => (each instanceof Undefined ? undefined : JSON.parse(jsonOf(limits, each, [])));
    return (args: readonly unknown[]) => fromHost(limits, value(...args.map(plain)));
  }
  if (Array.isArray(value)) return value.map((each) => fromHost(limits, each));
  if (typeof value !== "object") throw new Error(`a value of the type ${typeof value} is none of templates`);
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  return new Map(entries.map(([key, each]) => [key, fromHost(limits, each)]));
}

/** Whether a value counts as true. */
export function isTrue(value: unknown): boolean {
  if (isText(value)) return characters(value) !== "";
  if (isNumber(value)) return numberOf(value) !== 0;
  if (value === null || value === undefined || value instanceof Undefined) return false;
  if (value instanceof View) return value.items.length > 0;
  if (value instanceof Map) return value.size > 0;
  return Array.isArray(value) ? value.length > 0 : true;
}

/** The items that a loop over a value has. */
export function itemsOf(limits: Limits, value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  if (value instanceof Map) return [...value.keys()];
  if (value instanceof View) return value.items;
  if (value instanceof Stream) {
    const { items } = value;
    value.items = [];
    return items;
  }
  if (value instanceof Undefined) return [];
  if (!isText(value)) return fail(value, `'${typeOf(value)}' object is not iterable`);
  const text = characters(value);
  limits.list(text.length);
  return Array.from(text);
}

export function lengthOf(value: unknown): number {
  if (isText(value)) return pointsOf(characters(value));
  if (Array.isArray(value)) return value.length;
  if (value instanceof Map) return value.size;
  if (value instanceof View) return value.items.length;
  return value instanceof Undefined ? 0 : fail(value, `object of type '${typeOf(value)}' has no len()`);
}

export const isPaired = (text: string): boolean => /[\uD800-\uDBFF]/.test(text);

/** The number of characters of a text, which Python counts whole. */
export function pointsOf(text: string): number {
  return isPaired(text) ? text.length - (text.match(/[\uD800-\uDBFF][\uDC00-\uDFFF]/g) ?? []).length : text.length;
}

// Printing.

/** Python's text of a number with a fraction. */
function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const [mantissa = "", power = ""] = value.toExponential().split("e");
  const exponent = Number(power);
  const sign = Object.is(value, -0) ? "-" : "";
  if (exponent >= -4 && exponent < 16) {
    if (exponent < 0) return value.toFixed(Math.max(0, mantissa.replace(/[-.]/g, "").length - 1 - exponent));
    return sign + (Number.isInteger(value) ? `${value}.0` : String(value));
  }
  return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

const ESCAPES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

/** A text as Python writes it in code. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const written = text.replace(/[\\'\p{C}\p{Z}]/gu, (character) => {
    if (character === " " || character === "'") return character === quote ? "\\'" : character;
    const [code, known] = [character.codePointAt(0) as number, ESCAPES[character]];
    if (known !== undefined) return known;
    const [letter, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${letter}${code.toString(16).padStart(width as number, "0")}`;
  });
  return quote + written + quote;
}

/** Collects the pieces of a text that is being written, within the limits. */
export function createWriter(limits: Limits): { put(piece: string): void; text(): string } {
  const pieces: string[] = [];
  let length = 0;
  const put = (piece: string) => {
    length += piece.length;
    limits.text(length);
    limits.step(1 / 8);
    pieces.push(piece);
  };
  return { put, text: () => pieces.join("") };
}

/** How values are written: as code, or as JSON. */
interface Style {
  readonly words: readonly [none: string, true: string, false: string];
  readonly string: (text: string) => string;
  readonly float: (value: number) => string;
  readonly comma: string;
  readonly colon: string;
  /** What a line begins with for each list that it is in; undefined for a single line. */
  readonly indent?: string | undefined;
  readonly isSorted?: boolean;
}

const CODE: Style = { words: ["None", "True", "False"], string: quoted, float: floatText, comma: ", ", colon: ": " };

function write(limits: Limits, value: unknown, style: Style): string {
  const { put, text } = createWriter(limits);
  const isCode = style === CODE;
  const line = (depth: number) => {
    if (style.indent === undefined) return;
    limits.text(depth * style.indent.length);
    put(`\n${style.indent.repeat(depth)}`);
  };
  const list = (open: string, items: readonly unknown[], close: string, depth: number, item = walk) => {
    put(open);
    for (const [i, each] of items.entries()) {
      if (i > 0) put(style.comma);
      line(depth + 1);
      item(each, depth + 1);
    }
    if (items.length > 0) line(depth);
    put(close);
  };
  const entry = (pair: unknown, depth: number) => {
    const [key, each] = pair as readonly unknown[];
    if (isCode) walk(key, depth);
    else if (isText(key)) put(style.string(characters(key)));
    else put(style.string(write(limits, key, style)));
    put(style.colon);
    walk(each, depth);
  };
  const dict = (map: ReadonlyMap<unknown, unknown>) => {
    const entries = [...map];
    return style.isSorted ? entries.sort(([a], [b]) => compare(limits, a, b)) : entries;
  };
  const walk = (each: unknown, depth: number): void => {
    if (each === null) put(style.words[0]);
    else if (typeof each === "boolean") put(style.words[each ? 1 : 2]);
    else if (typeof each === "number") put(Math.abs(each) < 1e21 ? String(each) : BigInt(each).toString());
    else if (each instanceof Float) put(style.float(each.value));
    else if (typeof each === "string" || (each instanceof Markup && !isCode)) put(style.string(characters(each)));
    else if (each instanceof Map) list("{", dict(each), "}", depth, entry);
    else if (each instanceof Tuple && isCode) list("(", each, each.length === 1 ? ",)" : ")", depth);
    else if (Array.isArray(each)) list("[", each, "]", depth);
    else if (!isCode) throw new Error(`Object of type ${typeOf(each)} is not JSON serializable`);
    else if (each instanceof Undefined) put("Undefined");
    else if (each instanceof Markup) put(`Markup(${quoted(each.text)})`);
    else if (each instanceof View && each.bounds !== undefined) put(each.bounds);
    else if (each instanceof View) list(`${each.name}([`, each.items, "])", depth);
    else if (each instanceof Namespace && !each.call) list("<Namespace {", dict(each.fields), "}>", depth, entry);
    else throw new Error(`expected a value that has a text, got a ${typeOf(each)}`);
  };
  walk(value, 0);
  return text();
}

/** The text of a value. */
export function textOf(limits: Limits, value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  return value instanceof Undefined ? "" : write(limits, value, CODE);
}

/** Python's `json.dumps`, with its options `ensure_ascii`, `indent`, `separators` and `sort_keys`. */
export function jsonOf(limits: Limits, value: unknown, options: readonly unknown[]): string {
  const [isAscii, indent = null, separators = null, isSorted] = options;
  const isIndented = indent !== null;
  const [comma = isIndented ? "," : ", ", colon = ": "] =
    separators === null ? [] : itemsOf(limits, separators).map((each) => textOf(limits, each));
  const code = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return write(limits, value, {
    words: ["null", "true", "false"],
    string: (text) => JSON.stringify(text).replace(isTrue(isAscii) ? /[^ -~]/g : /(?!)/, code),
    float: (number) => floatText(number).replace("inf", "Infinity").replace("nan", "NaN"),
    ...{ comma, colon, isSorted: isTrue(isSorted) },
    indent: !isIndented ? undefined : isText(indent) ? characters(indent) : " ".repeat(sizeOf(limits, indent)),
  });
}

/** A number of characters or elements that something is to have. */
export function sizeOf(limits: Limits, value: unknown): number {
  if (!isWhole(value)) return fail(value, `'${typeOf(value)}' object cannot be interpreted as an integer`);
  limits.text(Number(value));
  return Math.max(0, Number(value));
}

/** Python's `text % values`, with %s and %d. */
function percent(limits: Limits, text: string, given: unknown): string {
  const values = given instanceof Tuple ? [...given] : [given];
  let next = 0;
  const written = text.replace(/%([\s\S]?)/g, (found, type: string) => {
    if (type === "%") return "%";
    if (type !== "s" && type !== "d") throw new Error(`the format ${found} is not supported`);
    if (next >= values.length) throw new Error("not enough arguments for format string");
    const value = values[next++];
    if (type === "s") return textOf(limits, value);
    return isNumber(value) ? String(Math.trunc(numberOf(value)) + 0) : fail(value, "%d format: a number is required");
  });
  limits.text(written.length);
  // Python takes a dict or a list for a mapping, of which nothing needs to be used.
  const isMapping = given instanceof Map || (Array.isArray(given) && !(given instanceof Tuple));
  if (next < values.length && !isMapping) throw new Error("not all arguments converted during string formatting");
  return written;
}

const ENTITIES: Readonly<Record<string, string>> = {
  ...{ "&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;" },
};

/** A value as markup: what is none yet is escaped. */
export function escaped(limits: Limits, value: unknown): Markup {
  if (value instanceof Markup) return value;
  const entity = (each: string) => ENTITIES[limits.original(each)] ?? each;
  const text = textOf(limits, value).replace(/[&<>'"\uE000-\uF8FF]/g, entity);
  limits.text(text.length);
  return new Markup(text);
}

export const likeText = (like: string | Markup, text: string): string | Markup =>
  like instanceof Markup ? new Markup(text) : text;

// Comparing and computing.

/** Whether two values are equal. */
export function equal(limits: Limits, a: unknown, b: unknown): boolean {
  limits.step(1 / 8);
  if (isText(a) && isText(b)) return characters(a) === characters(b);
  if (isNumber(a) && isNumber(b)) return numberOf(a) === numberOf(b);
  if (a instanceof Undefined) return b instanceof Undefined;
  if (Array.isArray(a) && Array.isArray(b))
    return (
      a instanceof Tuple === b instanceof Tuple &&
      a.length === b.length &&
      a.every((each, i) => equal(limits, each, b[i]))
    );
  if (a instanceof Map && b instanceof Map)
    return a.size === b.size && [...a].every(([key, each]) => b.has(key) && equal(limits, each, b.get(key)));
  if (a instanceof View && b instanceof View && a.name === b.name)
    return a.items.length === b.items.length && a.items.every((each, i) => equal(limits, each, b.items[i]));
  return a === b;
}

/** Which of two values comes first: below 0, 0, above 0. */
export function compare(limits: Limits, a: unknown, b: unknown, operator = "<"): number {
  limits.step(1 / 8);
  if (isNumber(a) && isNumber(b)) return numberOf(a) - numberOf(b);
  if (isText(a) && isText(b)) {
    const [left, right] = [characters(a), characters(b)];
    if (!isPaired(left) && !isPaired(right)) return left < right ? -1 : Number(left > right);
    return compare(limits, pointCodes(left), pointCodes(right));
  }
  if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) {
    const i = a.findIndex((each, at) => at >= b.length || !equal(limits, each, b[at]));
    return i < 0 ? a.length - b.length : i >= b.length ? 1 : compare(limits, a[i], b[i], operator);
  }
  const rule = `'${operator}' not supported between instances of '${typeOf(a)}' and '${typeOf(b)}'`;
  return fail(a instanceof Undefined ? a : b, rule);
}

const pointCodes = (text: string) => Array.from(text, (character) => character.codePointAt(0));

/** A key as dicts are asked for it: equal numbers are one. */
export function keyOf(value: unknown): unknown {
  if (value instanceof Markup) return value.text;
  if (value instanceof Float && Number.isInteger(value.value)) return value.value;
  if (typeof value === "boolean") return Number(value);
  if (typeof value === "string" || typeof value === "number" || value === null || value instanceof Undefined)
    return value;
  return fail(value, `keys of dicts expected texts, whole numbers or None, got a ${typeOf(value)}`);
}

function has(limits: Limits, list: unknown, value: unknown): boolean {
  if (isText(list)) {
    if (!isText(value)) return fail(value, `'in <string>' requires string as left operand, not ${typeOf(value)}`);
    return characters(list).includes(characters(value));
  }
  if (list instanceof Map) return list.has(keyOf(value));
  if (list === null || isNumber(list) || list instanceof Namespace || typeof list === "function")
    throw new Error(`argument of type '${typeOf(list)}' is not iterable`);
  return itemsOf(limits, list).some((each) => equal(limits, each, value));
}

/** The result of an operator for two values, besides `and`, `or` and `~`. */
export function operate(limits: Limits, operator: string, a: unknown, b: unknown): unknown {
  switch (operator) {
    case "==":
      return equal(limits, a, b);
    case "!=":
      return !equal(limits, a, b);
    case "in":
      return has(limits, b, a);
    case "not in":
      return !has(limits, b, a);
    case "<":
      return compare(limits, a, b, operator) < 0;
    case "<=":
      return compare(limits, a, b, operator) <= 0;
    case ">":
      return compare(limits, a, b, operator) > 0;
    case ">=":
      return compare(limits, a, b, operator) >= 0;
  }
  if (operator === "%" && typeof a === "string") return percent(limits, a, b);
  if (operator === "%" && a instanceof Markup) {
    const safe = (each: unknown) => (isText(each) ? escaped(limits, each) : each);
    const list = b instanceof Tuple ? Tuple.from(b, safe) : safe(b);
    return new Markup(percent(limits, a.text, list));
  }
  if (isNumber(a) && isNumber(b)) return compute(operator, a, b);
  const [list, times] = isWhole(a) ? [b, a] : [a, b];
  if (operator === "*" && isWhole(times) && (isText(list) || Array.isArray(list))) {
    const count = Math.max(0, Number(times));
    if (isText(list)) {
      limits.text(characters(list).length * count);
      return likeText(list, characters(list).repeat(count));
    }
    limits.list(list.length * count);
    const all = Array.from({ length: count }, () => Array.from(list)).flat();
    return list instanceof Tuple ? Tuple.from(all) : all;
  }
  if (operator === "+") {
    if (typeof a === "string" && typeof b === "string") return a + b;
    if (isText(a) && isText(b)) return new Markup(escaped(limits, a).text + escaped(limits, b).text);
    if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) {
      limits.list(a.length + b.length);
      return a.concat(Array.from(b));
    }
    if (isText(a)) fail(b, `can only concatenate str (not "${typeOf(b)}") to str`);
  }
  const rule = `unsupported operand type(s) for ${operator}: '${typeOf(a)}' and '${typeOf(b)}'`;
  return fail(a instanceof Undefined ? a : b, rule);
}

function compute(operator: string, left: number | boolean | Float, right: number | boolean | Float): number | Float {
  const [a, b] = [numberOf(left), numberOf(right)];
  const isFraction = left instanceof Float || right instanceof Float;
  if (b === 0 && ["/", "//", "%"].includes(operator)) throw new Error("division by zero");
  const results: Readonly<Record<string, () => number>> = {
    ...{ "+": () => a + b, "-": () => a - b, "*": () => a * b, "/": () => a / b },
    ...{ "//": () => Math.floor(a / b), "%": () => a - b * Math.floor(a / b) },
  };
  const result = results[operator] ? results[operator]() : power(a, b, isFraction);
  if (isFraction || operator === "/" || !(operator in results || b >= 0)) return new Float(result);
  if (!Number.isSafeInteger(result)) throw new Error(`${operator} expected a result below 2^53, got ${result}`);
  return result + 0;
}

/** A power of whole numbers: that of others has other bits on other engines. */
function power(base: number, exponent: number, isFraction: boolean): number {
  if (isFraction || Math.abs(exponent) > 64)
    throw new Error("powers of numbers with a fraction, or above 64, are not supported");
  if (base === 0 && exponent < 0) throw new Error("0.0 cannot be raised to a negative power");
  let result = 1;
  for (let i = 0; i < Math.abs(exponent); i++) result *= base;
  return exponent < 0 ? 1 / result : result;
}

/** The number with another sign, or the same. */
export function signed(operator: string, value: unknown): unknown {
  if (!isNumber(value)) return fail(value, `bad operand type for unary ${operator}: '${typeOf(value)}'`);
  const number = operator === "-" ? -numberOf(value) : numberOf(value);
  return value instanceof Float ? new Float(number) : number + 0;
}
