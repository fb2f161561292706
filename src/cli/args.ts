// Arguments of commands: parsed and checked.

import { type ParseArgsConfig, parseArgs } from "node:util";

/** An error in the command line. It is shown with the command that prints the help, and the exit code is 2. */
export class UsageError extends Error {
  /** Lines that follow the message. */
  readonly details: readonly string[];
  constructor(message: string, details: readonly string[] = []) {
    super(message);
    this.details = details;
  }
}

/** An error in a file that the command line names: it is missing or not what the command needs. The exit code is 2. */
export class FileError extends Error {}

type Options = NonNullable<ParseArgsConfig["options"]>;

/** An option as it was given: `rawName` with its dashes. */
interface GivenOption {
  readonly name: string;
  readonly rawName: string;
  readonly value: string | undefined;
  readonly inlineValue: boolean | undefined;
}

/** Parses the arguments of a command. Throws UsageError for an unknown option, a missing value or one too many. */
export function readArguments<const Known extends Options>(
  command: string,
  args: string[],
  options: Known,
): ReturnType<typeof parseArgs<{ args: string[]; allowPositionals: true; options: Known }>> {
  // Its strict mode has other messages in each runtime, and does not name near options.
  const parsed = parseArgs({ args, options, allowPositionals: true, strict: false, tokens: true });
  for (const token of parsed.tokens) if (token.kind === "option") checkOption(command, token, options);
  return parsed as never;
}

function checkOption(command: string, { name, rawName, value, inlineValue }: GivenOption, options: Options): void {
  const type = Object.hasOwn(options, name) ? options[name]?.type : undefined;
  if (type === undefined)
    throw new UsageError(`${command}: unknown option ${rawName}${suggestionOf(name, Object.keys(options), "--")}`);
  if (type === "boolean" && value !== undefined)
    throw new UsageError(`${command}: ${rawName} expected no value, got ${value}`);
  // The next option is not a value. What begins with a dash is given as --keep=-x.
  if (type === "string" && (value === undefined || (!inlineValue && /^--?[a-z]/i.test(value))))
    throw new UsageError(`${command}: ${rawName} expected a value, got ${value ?? "none"}`);
}

/** What is behind an unknown name in a message: the name that was probably meant. */
export function suggestionOf(text: string, names: readonly string[], dashes = ""): string {
  const name = nearName(text, names);
  return name === undefined ? "" : `, did you mean ${dashes}${name}?`;
}

/** Of a text that is compared with names, at most this many characters count. */
const LONGEST = 40;
/** A near name has at most one wrong letter for this many of the text, and at most MOST_WRONG. */
const [LETTERS_EACH, MOST_WRONG] = [3, 2];
/** Letters that a common end has at least. */
const SHORTEST_END = 3;

const simplify = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]/g, "");

/**
 * The name that `text` is probably meant to be: one that it begins or ends, that begins or ends it, or that has few wrong letters.
 * Letters and digits count, in any case; a letter of a common beginning counts for as much as two wrong letters.
 */
function nearName(text: string, names: readonly string[]): string | undefined {
  const wanted = simplify(text.slice(0, LONGEST));
  const most = Math.min(MOST_WRONG, Math.floor(wanted.length / LETTERS_EACH));
  const near = names.flatMap((name) => {
    const other = simplify(name);
    const wrong = wrongLetters(wanted, other);
    const [short = "", long = ""] = [wanted, other].sort((a, b) => a.length - b.length);
    const common = [...short].findIndex((letter, i) => letter !== long[i]);
    const isPart = common < 0 || (short.length >= SHORTEST_END && long.endsWith(short));
    if (wrong > most && !(isPart && wanted.length > 1)) return [];
    return [{ name, rank: wrong - 2 * (common < 0 ? short.length : common) }];
  });
  return near.sort((a, b) => a.rank - b.rank)[0]?.name;
}

/** The fewest letters that must be inserted, removed, replaced or swapped with the next one to make `a` of `b`. */
function wrongLetters(a: string, b: string): number {
  /** Of the first i letters of a and the first j of b. */
  const known: number[] = [];
  const between = (i: number, j: number): number => {
    if (i === 0 || j === 0) return i + j;
    const at = i * (b.length + 1) + j;
    known[at] ??= Math.min(
      between(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1),
      between(i - 1, j) + 1,
      between(i, j - 1) + 1,
      i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? between(i - 2, j - 2) + 1 : Infinity,
    );
    return known[at];
  };
  return between(a.length, b.length);
}

/** Throws for a command that takes options only. */
export function refusePositionals(command: string, positionals: readonly string[]): void {
  if (positionals.length > 0) throw new UsageError(`${command}: expected options alone, got ${positionals[0]}`);
}

/** An integer from `least` to `most`. */
export function readCount(command: string, name: string, text: string, least: number, most: number): number {
  const count = Number(text);
  if (/^\d+$/.test(text) && count >= least && count <= most) return count;
  throw new UsageError(`${command}: ${name} expected an integer from ${least} to ${most}, got ${text}`);
}

/** Threads as `loadKernels` takes them. */
export function readThreads(command: string, text: string): number | "auto" {
  if (text === "auto") return text;
  if (/^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= 64) return Number(text);
  throw new UsageError(`${command}: --threads expected auto or an integer from 1 to 64, got ${text}`);
}

/** One of `choices`, or undefined where the option is not given. */
export function readChoice<const Choice extends string>(
  command: string,
  name: string,
  text: string | undefined,
  choices: readonly Choice[],
): Choice | undefined {
  const choice = choices.find((each) => each === text);
  if (text === undefined || choice !== undefined) return choice;
  throw new UsageError(`${command}: ${name} expected ${choices.join(", ")}, got ${text}`);
}
