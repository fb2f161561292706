// Files that commands read and write.

import { type FileHandle, open } from "node:fs/promises";
import { type ByteSource, fileSource, HeadwiseError } from "../entries/weights.ts";
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
function faultOf(error: unknown): string {
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
  const text = `${command}: ${path}: ${message.replace(/^\w+: /, "").replace("options.template", "--template")}`;
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

const MAGIC = "\u0093NUMPY";
/** Magic, version and the length of the header. */
const [HEAD_1, HEAD_2] = [10, 12];
const TYPES: Readonly<Record<string, (bytes: ArrayBuffer) => ArrayLike<number>>> = {
  "<f4": (bytes) => new Float32Array(bytes),
  "<f8": (bytes) => new Float64Array(bytes),
};

const ascii = (bytes: Uint8Array) => String.fromCharCode(...bytes);

/** A text as it stands in messages, cut where it is long. */
const quote = (text: string) => JSON.stringify(text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);
const LONGEST = 80;

/** Whether bytes may be those of a safetensors file: the length of a header within them, and the brace that it begins with. */
export function isSafetensors(bytes: Uint8Array): boolean {
  if (bytes[8] !== 0x7b) return false;
  return new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true) <= bytes.length - 8;
}

/** Whether bytes are those of a .npy file. */
export function isNpy(bytes: Uint8Array): boolean {
  return ascii(bytes.subarray(0, MAGIC.length)) === MAGIC;
}

/** The array of a .npy file as floats: <f4 or <f8, in C order. Throws BAD_FILE for others. */
export function readNpy(where: string, bytes: Uint8Array): { readonly data: Float32Array; readonly shape: number[] } {
  const fail = (rule: string, got: string): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${rule}, got ${got}`);
  };
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < HEAD_2) fail("a .npy file expected a header", `${bytes.length} bytes`);
  const begin = bytes[MAGIC.length] === 1 ? HEAD_1 : HEAD_2;
  const end = begin + (begin === HEAD_1 ? view.getUint16(8, true) : view.getUint32(8, true));
  if (end > bytes.length) fail(`a .npy header expected to end within ${bytes.length} bytes`, `${end}`);
  const header = ascii(bytes.subarray(begin, Math.min(end, begin + 4096)));
  const [, dtype = ""] = /'descr': *'([^']*)'/.exec(header) ?? [];
  const [, sides] = /'shape': *\(([\d, ]*)\)/.exec(header) ?? [];
  const type = Object.hasOwn(TYPES, dtype) ? TYPES[dtype] : undefined;
  if (type === undefined || sides === undefined || !/'fortran_order': *False/.test(header))
    return fail("a .npy file expected dtype <f4 or <f8 in C order", quote(header.trim()));
  const shape = sides.split(",").flatMap((side) => (side.trim() === "" ? [] : [Number(side)]));
  const length = shape.reduce((a, b) => a * b, 1) * Number(dtype.slice(2));
  if (bytes.length - end !== length)
    fail(`shape [${shape.join(", ")}] of ${dtype} expected ${length} bytes`, `${bytes.length - end}`);
  return { data: Float32Array.from(type(new Uint8Array(bytes.subarray(end)).buffer)), shape };
}
