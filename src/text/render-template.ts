import { describe, HeadwiseError } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";
import type { Jinja, JinjaInterpreter } from "./libraries.ts";

/**
 * Limits of a template, which comes with a model and is a program: its characters, those of any text that it makes, the elements of
 * any list, and its work. That of a thousand messages is some hundred thousand.
 */
const LONGEST_TEMPLATE = 2 ** 18;
/** Spaces and line ends in a row: the time to parse them grows with the square of their number. */
const MOST_SPACES = 1024;
const LONGEST_TEXT = 2 ** 24;
const LONGEST_LIST = 2 ** 16;
const MOST_WORK = 2 ** 20;
/** Characters, or elements that are not looped over, that are one unit of work. */
const WORK_LENGTH = 1024;

/** What the template said to refuse the messages. */
class Refusal {
  readonly reason: string;
  constructor(reason: string) {
    this.reason = reason;
  }
}

/** Renders a chat template. */
export function renderTemplate(
  where: string,
  library: Jinja,
  template: string,
  variables: Readonly<Record<string, unknown>>,
): string {
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
    const environment = new library.Environment();
    for (const [key, value] of Object.entries(globals)) environment.set(key, value);
    const interpreter = new library.Interpreter(environment);
    limits.watch(interpreter);
    const { value } = interpreter.run(new library.Template(template).parsed);
    return String(value);
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

/** A part of a parsed template, as far as it is looked at. */
interface Node {
  readonly type?: unknown;
  readonly iterable?: Node & { readonly lhs?: Node };
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
  const lengthOf = (value: unknown): number => {
    if (typeof value === "string") {
      expect(value.length, LONGEST_TEXT, "characters of text");
      return value.length;
    }
    if (!Array.isArray(value)) return 0;
    expectList(value.length);
    return value.length;
  };
  return {
    expectList,
    watch(interpreter) {
      const evaluate = interpreter.evaluate;
      // A loop takes time for each element, also where its body is empty.
      const looped = new WeakSet<object>();
      interpreter.evaluate = function (node, environment) {
        const { type, iterable } = Object(node) as Node;
        if (type === "For" && iterable) looped.add(iterable.lhs ?? iterable);
        const result = evaluate.call(this, node, environment);
        const length = lengthOf(result?.value);
        work += 1 + (looped.has(Object(node)) ? length : Math.floor(length / WORK_LENGTH));
        expect(work, MOST_WORK, "steps");
        return result;
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
