import { type ParseArgsConfig, parseArgs } from "node:util";

/** An error in the command line, not in a file or the environment: the exit code is 2. */
export class UsageError extends Error {}

/** Parses the arguments of a command. Throws UsageError for an unknown option, a missing value or one too many. */
export function readArguments<const Options extends NonNullable<ParseArgsConfig["options"]>>(
  command: string,
  args: string[],
  options: Options,
): ReturnType<typeof parseArgs<{ args: string[]; allowPositionals: true; options: Options }>> {
  try {
    return parseArgs({ args, allowPositionals: true, options });
  } catch (error) {
    // The first sentence is the error. The others explain how to escape arguments.
    throw new UsageError(`${command}: ${(error as Error).message.split(/\.\s/)[0]}`);
  }
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
