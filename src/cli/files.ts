import { type FileHandle, open } from "node:fs/promises";
import { type ByteSource, fileSource } from "../files/byte-source.ts";
import { FileError } from "./args.ts";

/** Reads a text file. */
export async function readText(command: string, name: string, path: string): Promise<string> {
  return new TextDecoder().decode(await readBytes(command, name, path));
}

/** Reads a whole file. */
export async function readBytes(command: string, name: string, path: string): Promise<Uint8Array> {
  const handle = await openFile(command, name, path);
  try {
    return await handle.readFile();
  } catch (error) {
    throw unreadable(command, name, path, faultOf(error));
  } finally {
    await handle.close();
  }
}

/** What is wrong with a path, by the code of the system's error. */
const FAULTS: Readonly<Record<string, string>> = {
  ENOENT: "which does not exist",
  ENOTDIR: "which does not exist",
  EACCES: "which may not be read",
  EISDIR: "which is a folder",
};

/** What is wrong with a path, by the error of the system. */
export function faultOf(error: unknown): string {
  const { code = "", message } = error as NodeJS.ErrnoException;
  return (Object.hasOwn(FAULTS, code) && FAULTS[code]) || message;
}

function unreadable(command: string, name: string, path: string, fault: string): FileError {
  return new FileError(`${command}: ${name} expected a file that can be read, got ${path}, ${fault}`);
}

/**
 * An error about what is in the file at `path`, with the command and the file in its message: one of the library, which
 * found its bytes or the numbers in it wrong. Others are returned as they are.
 */
export function aboutFile(command: string, path: string, error: unknown): unknown {
  // By name: errors may come from another copy of the library.
  const { name, code, message = "" } = Object(error) as { name?: string; code?: string; message?: string };
  if (name === undefined || !["HeadwiseError", "RangeError", "TypeError"].includes(name)) return error;
  const text = `${command}: ${path}: ${message.replace(/^\w+: /, "")}`;
  return code === undefined || code === "BAD_FILE"
    ? new FileError(text, { cause: error })
    : new Error(text, { cause: error });
}

/** What `interpret` makes of the content of the file at `path`. Errors of the library get the path. */
export function interpretFile<T>(command: string, path: string, interpret: () => T): T {
  try {
    return interpret();
  } catch (error) {
    throw aboutFile(command, path, error);
  }
}

/** Opens a file to read it: one that has content. */
export async function openFile(command: string, name: string, path: string): Promise<FileHandle> {
  const handle = await open(path).catch((error: unknown) => {
    throw unreadable(command, name, path, faultOf(error));
  });
  const stats = await handle.stat();
  if (!stats.isDirectory() && (stats.size > 0 || !stats.isFile())) return handle;
  await handle.close();
  throw unreadable(command, name, path, stats.isDirectory() ? "which is a folder" : "which is empty");
}

/** Runs `read` on an open file. Errors of the library get the file's path. */
export async function withFile<T>(
  command: string,
  name: string,
  path: string,
  read: (source: ByteSource) => Promise<T>,
): Promise<T> {
  const handle = await openFile(command, name, path);
  try {
    return await read(await fileSource(handle));
  } catch (error) {
    throw aboutFile(command, path, error);
  } finally {
    await handle.close();
  }
}

/** Whether a shape is [tokens, dModel] or [1, tokens, dModel], with one token or more. */
export function isRows(shape: readonly number[], dModel: number): boolean {
  const [d, tokens = 0, batch = 1] = shape.toReversed();
  return d === dModel && tokens > 0 && batch === 1 && shape.length <= 3;
}
