import { type FileHandle, open } from "node:fs/promises";
import { type ByteSource, fileSource } from "../files/byte-source.ts";

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

/** An error of the library about the file at `path`, with the command and the file in its message. Others are returned as they are. */
export function aboutFile(command: string, path: string, error: unknown): unknown {
  // By name: errors may come from another copy of the library.
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
