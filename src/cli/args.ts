import { type FileHandle, open } from "node:fs/promises";
import { type ParseArgsConfig, parseArgs, styleText } from "node:util";

/** What is wrong with the command line, rather than with the world. */
export class UsageError extends Error {}

/** What a command was told. Throws UsageError for an option that it has not, or that has a value too many or too few. */
export function readArguments<const Options extends NonNullable<ParseArgsConfig["options"]>>(
  command: string,
  args: string[],
  options: Options,
): ReturnType<typeof parseArgs<{ args: string[]; allowPositionals: true; options: Options }>> {
  try {
    return parseArgs({ args, allowPositionals: true, options });
  } catch (error) {
    // The first sentence says what; the next ones how parseArgs could be told otherwise.
    throw new UsageError(`${command}: ${(error as Error).message.split(/\.\s/)[0]}`);
  }
}

/** Throws unless there are none. */
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

/** Reads a text file. */
export async function readText(command: string, name: string, path: string): Promise<string> {
  const handle = await openFile(command, name, path);
  try {
    return await handle.readFile("utf8");
  } catch (error) {
    throw new Error(`${command}: ${name} expected a file that can be read, got ${(error as Error).message}`);
  } finally {
    await handle.close();
  }
}

/** An error of the library about the file at `path`, in the words of a command; any other as it is. */
export function aboutFile(command: string, path: string, error: unknown): unknown {
  // By name, since dist/core.js has a class of its own.
  if (!(error instanceof Error) || error.name !== "HeadwiseError") return error;
  return new Error(`${command}: ${path}: ${error.message.replace(/^\w+: /, "")}`);
}

/** Opens a file to read it. */
export async function openFile(command: string, name: string, path: string): Promise<FileHandle> {
  try {
    return await open(path);
  } catch (error) {
    throw new Error(`${command}: ${name} expected a file that can be read, got ${(error as Error).message}`);
  }
}

/** Colours a text for a terminal. */
export function paint(colour: "green" | "red", text: string): string {
  return process.stdout.isTTY ? styleText(colour, text) : text;
}
