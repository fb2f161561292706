import { type ParseArgsConfig, parseArgs } from "node:util";
import { findNearName } from "../util/near-name.ts";

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
  const name = findNearName(text, names);
  return name === undefined ? "" : `, did you mean ${dashes}${name}?`;
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
