import { type FileHandle, open } from "node:fs/promises";
import { type ParseArgsConfig, parseArgs } from "node:util";

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
