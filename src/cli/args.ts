// Arguments of commands, and the options that several of them have.

import { type ParseArgsConfig, parseArgs } from "node:util";
import { findNearName } from "../base/util/strings.ts";
import type { WeightFormat } from "../layers/linear/formats/format.ts";
import { WEIGHT_FORMATS } from "../layers/linear/formats/formats.ts";
import { CACHE_FORMATS, type CacheFormat } from "../layers/state/pages.ts";

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

// Options that several commands have: what they are, their lines of help, and what they are checked for.

/** Formats of a model. */
export const FORMAT_OPTIONS = {
  weights: { type: "string" },
  activations: { type: "string" },
  cache: { type: "string" },
} as const;

/** Of all commands that start kernels. */
export const KERNEL_OPTIONS = {
  threads: { type: "string", default: "1" },
  deterministic: { type: "boolean", default: false },
} as const;

/** Of all commands that read models at URLs. */
export const STORE_OPTIONS = { "no-store": { type: "boolean", default: false } } as const;

/** Of all commands that load whole models. */
export const LOAD_OPTIONS = {
  ...STORE_OPTIONS,
  quiet: { type: "boolean", default: false },
} as const;

export const OUTPUT_OPTIONS = {
  json: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

const LINES = {
  weights: "  --weights FORMAT    f32, f16, bf16, q8, q8-row, q4 (default: the formats of the file)",
  activations: "  --activations KIND  exact or fast: how rows are rounded for integer weights (default exact)",
  cache: "  --cache FORMAT      f32, f16, q8, q4 (default f32)",
  threads: "  --threads N|auto    number of threads, 1 to 64 (default 1)",
  deterministic: "  --deterministic     use the build that gives the same bits on every engine",
  "no-store": "  --no-store          do not keep what is read of URLs, nor use what is kept",
  quiet: "  --quiet             nothing on stderr but errors and warnings",
  json: "  --json              print JSON",
} as const;

/** The lines of help of some of these options. */
export const helpOf = (...names: (keyof typeof LINES)[]): string => names.map((name) => LINES[name]).join("\n");

interface CommonValues {
  readonly weights?: string | undefined;
  readonly activations?: string | undefined;
  readonly cache?: string | undefined;
  readonly threads: string;
}

/** What is asked for; undefined where a default holds. */
export interface CommonChoices {
  readonly weights: WeightFormat | undefined;
  readonly activations: "exact" | "fast" | undefined;
  readonly cache: CacheFormat | undefined;
  readonly threads: number | "auto";
}

/** Reads the formats and threads that a command was given. */
export function readCommon(command: string, values: CommonValues): CommonChoices {
  return {
    weights: readChoice(command, "--weights", values.weights, WEIGHT_FORMATS),
    activations: readChoice(command, "--activations", values.activations, ["exact", "fast"]),
    cache: readChoice(command, "--cache", values.cache, CACHE_FORMATS),
    threads: readThreads(command, values.threads),
  };
}
