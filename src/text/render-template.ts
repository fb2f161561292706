import { describe, HeadwiseError } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";
import { createMarks, type MarkedText } from "./given-text.ts";
import type { Jinja, JinjaInterpreter } from "./libraries.ts";
import { evaluateMeasured, type Node, type Size, type Value } from "./template-sizes.ts";

/**
 * Limits of a template, which comes with a model and is a program: its characters, those of any text that it makes, the elements of
 * any list, what a list holds in all, and its work. That of a thousand messages is some hundred thousand.
 */
const LONGEST_TEMPLATE = 2 ** 18;
/** Spaces and line ends in a row: the time to parse them grows with the square of their number. */
const MOST_SPACES = 1024;
const LONGEST_TEXT = 2 ** 22;
const LONGEST_LIST = 2 ** 16;
/** Values within a list or a record, each counted wherever it stands: as text, those that share a part have it again and again. */
const MOST_HELD = 2 ** 19;
/** Characters that count as one more of these values. */
const VALUE_LENGTH = 16;
const MOST_WORK = 2 ** 20;
/** How much is one unit of work: characters of a text, elements of a known list, values of a list or record that is new. */
const WORK_TEXT = 64;
const WORK_KNOWN = 256;
const WORK_NEW = 8;

/** The reason for which the template refuses the messages. */
class Refusal {
  readonly reason: string;
  constructor(reason: string) {
    this.reason = reason;
  }
}

/** Renders a chat template with variables, `given` among them, in which the texts of `specials` are to be told from the template's. */
export function renderTemplate(
  where: string,
  library: Jinja,
  template: string,
  variables: Readonly<Record<string, unknown>>,
  given: Readonly<Record<string, unknown>>,
  specials: readonly string[],
): MarkedText {
  const { length } = template;
  if (length > LONGEST_TEMPLATE)
    throw badTemplate(`${where}: chat template expected at most ${LONGEST_TEMPLATE} characters, got ${length}`);
  if (new RegExp(`\\s{${MOST_SPACES + 1}}`).test(template))
    throw badTemplate(`${where}: chat template expected at most ${MOST_SPACES} spaces in a row, got more`);
  const limits = limit(where);
  const globals = {
    ...{ true: true, True: true, false: false, False: false, none: null, None: null },
    raise_exception(reason: unknown) {
      throw new Refusal(String(reason));
    },
    range: (...bounds: unknown[]) => rangeOf(limits, bounds),
    strftime_now: (format: unknown) => formatTime(new Date(), String(format)),
    ...variables,
  };
  try {
    const { parsed } = new library.Template(template);
    const marks = specials.length > 0 ? createMarks(where, specials, literalsOf(parsed), given) : undefined;
    const marked = Object.entries(given).map(([key, value]) => [key, marks ? marks.mark(value) : value]);
    const environment = new library.Environment();
    const all = { ...globals, ...Object.fromEntries(marked) };
    for (const [key, value] of Object.entries(all)) environment.set(key, value);
    const interpreter = new library.Interpreter(environment);
    limits.watch(interpreter);
    const text = String(interpreter.run(parsed).value);
    return marks ? marks.restore(text) : { text, plain: [] };
  } catch (cause) {
    if (cause instanceof HeadwiseError) throw cause;
    if (cause instanceof Refusal)
      throw new RangeError(`${where}: messages expected what the chat template allows, got ${describe(cause.reason)}`);
    throw badTemplate(
      `${where}: chat template expected one that renders these messages, got ${reasonOf(cause)}`,
      cause,
    );
  }
}

const badTemplate = (text: string, cause?: unknown) => new HeadwiseError("BAD_FILE", text, { cause });

/** The strings that a parsed template has in its expressions. */
function literalsOf(node: unknown): string[] {
  if (typeof node !== "object" || node === null) return [];
  const { type, value } = node as Value;
  if (type === "StringLiteral" && typeof value === "string") return [value];
  const parts = node instanceof Map ? [...node].flat() : Object.values(node);
  return [...new Set(parts.flatMap(literalsOf))];
}

/** Limits of one rendering. */
interface Limits {
  /** Counts the work of whatever the interpreter evaluates. */
  watch(interpreter: JinjaInterpreter): void;
  expectList(length: number): void;
}

function limit(where: string): Limits {
  let work = 0;
  const expect = (value: number, most: number, what: string) => {
    if (!(value <= most)) throw badTemplate(`${where}: chat template expected at most ${most} ${what}, got more`);
  };
  const expectList = (length: number) => expect(length, LONGEST_LIST, "elements of a list");
  const expectText = (length: number) => expect(length, LONGEST_TEXT, "characters of text");
  const expectSize = ({ text, list }: Size) => {
    expectText(text);
    expectList(list);
  };
  const known = new WeakMap<object, number>();
  /** Values that one holds, itself among them, and whether that cannot change. */
  const measure = (given: unknown): readonly [held: number, isFixed: boolean] => {
    const { type, value } = Object(given) as Value;
    if (typeof value === "string") return [1 + value.length / VALUE_LENGTH, true];
    if (!(Array.isArray(value) || value instanceof Map)) return [1, true];
    const before = known.get(Object(given));
    if (before !== undefined) return [before, true];
    let [held, isFixed] = [1, type !== "NamespaceValue"];
    for (const each of value.values()) {
      const [own, isOwnFixed] = measure(each);
      held += own;
      isFixed &&= isOwnFixed;
      work += 1 / WORK_NEW;
      expect(held, MOST_HELD, "values within a list or record");
    }
    if (isFixed) known.set(Object(given), held);
    return [held, isFixed];
  };
  /** Counts the work of a value that was evaluated. */
  const count = (given: Value | undefined, isLooped: boolean): void => {
    const { value } = Object(given) as Value;
    work++;
    if (typeof value === "string") {
      expectText(value.length);
      work += value.length / WORK_TEXT;
    } else if (Array.isArray(value)) {
      expectList(value.length);
      work += isLooped ? value.length : value.length / WORK_KNOWN;
    }
    measure(given);
    expect(work, MOST_WORK, "steps");
  };
  return {
    expectList,
    watch(interpreter) {
      const evaluate = interpreter.evaluate;
      // A loop takes time for each element, also where its body is empty.
      const looped = new WeakSet<object>();
      interpreter.evaluate = function (node, environment) {
        // What a slice does not have.
        if (node === undefined) return evaluate.call(this, node, environment);
        const part = node as Node;
        if (part.known) return part.known as ReturnType<typeof evaluate>;
        const { type, iterable } = part;
        if (type === "For" && iterable) looped.add(iterable.lhs ?? iterable);
        const inner = (own: Node) => evaluate.call(this, own, environment);
        const result = evaluateMeasured(part, (own) => this.evaluate(own, environment), inner, expectSize);
        count(result, looped.has(part));
        return result as ReturnType<typeof evaluate>;
      };
    },
  };
}

/** Python's `range`, of at most as many numbers as a list may have. */
function rangeOf(limits: Limits, bounds: readonly unknown[]): number[] {
  const numbers = bounds.filter((bound) => typeof bound === "number");
  const [start = 0, stop = 0, step = 1] = numbers.length === 1 ? [0, ...numbers] : numbers;
  const length = Math.max(0, Math.ceil((stop - start) / step));
  limits.expectList(length);
  return Array.from({ length }, (_, i) => start + i * step);
}

const MONTHS = "January February March April May June July August September October November December".split(" ");
const DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

/** Python's `strftime` with the directives that templates have, in English and local time. */
function formatTime(date: Date, format: string): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const [month, day] = [MONTHS[date.getMonth()] as string, DAYS[date.getDay()] as string];
  const hours = date.getHours();
  const values: Readonly<Record<string, string>> = {
    ...{
      Y: String(date.getFullYear()),
      y: two(date.getFullYear() % 100),
      m: two(date.getMonth() + 1),
      d: two(date.getDate()),
    },
    ...{ B: month, b: month.slice(0, 3), A: day, a: day.slice(0, 3), H: two(hours), I: two(((hours + 11) % 12) + 1) },
    ...{ M: two(date.getMinutes()), S: two(date.getSeconds()), p: hours < 12 ? "AM" : "PM", "%": "%" },
  };
  return format.replace(/%([A-Za-z%])/g, (directive, letter: string) => values[letter] ?? directive);
}
