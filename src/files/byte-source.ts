// Where bytes of files come from: bytes, a Blob, an open file or a server.

import { orRefuse } from "../base/tensor/tensor.ts";
import {
  expectBytes,
  expectFunction,
  expectInt,
  expectRecord,
  expectUint8Array,
  type Global,
} from "../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../base/util/errors.ts";
import { reasonOf } from "../base/util/strings.ts";

/**
 * Bytes that are read by range, so that a file may be larger than memory. `blobSource`, `fileSource` and `urlSource` make
 * one, and so can you.
 * @example
 * import { type ByteSource, openSafetensors, writeSafetensors } from "headwise/weights";
 * const file = writeSafetensors({ w: { data: new Float32Array(2), shape: [2] } });
 * const source: ByteSource = {
 *   size: file.length,
 *   read: async (offset, length) => file.subarray(offset, offset + length),
 * };
 * console.log((await openSafetensors(source)).tensors.size); // 1
 */
export interface ByteSource {
  /** Size in bytes. */
  readonly size: number;
  /**
   * Reads the bytes from `offset` to `offset + length`, which is at most `size`. The result may be a view: it is only read, and later reads must
   * leave it as it is, since the next piece is read while one is packed.
   */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/** A file to open: its bytes, a `Blob` or `File`, or a source that reads ranges. */
export type BytesOrSource = Uint8Array | ArrayBuffer | Global<"Blob"> | ByteSource;

/** Bytes [begin, end) of a source. */
interface Range {
  readonly begin: number;
  readonly end: number;
}

/** If at most this many bytes lie between two ranges, both are read together: another request would cost more. */
const GAP = 2 ** 18;
/** The most bytes of joined ranges. */
const MOST_JOINED = 2 ** 28;
/** The most bytes of one read: files and Blobs of some hosts allow less than 2^31. */
const PIECE = 2 ** 28;

/**
 * A source that reads a `Blob`, such as a file that a user chose in a page. Blobs of Node are limited to 4 GiB: use
 * `fileSource` there.
 * @throws TypeError unless `blob` is a Blob.
 * @example
 * import { blobSource } from "headwise/weights";
 * const source = blobSource(new Blob(["headwise"]));
 * console.log(source.size, (await source.read(4, 2)).join(" ")); // 8 119 105
 */
export function blobSource(blob: Global<"Blob">): ByteSource {
  if (!isBlob(blob)) throw new TypeError(`blobSource: blob expected a Blob, got ${describe(blob)}`);
  return {
    size: expectSize("blobSource", "blob.size", blob.size),
    read: async (offset, length) => new Uint8Array(await blob.slice(offset, offset + length).arrayBuffer()),
  };
}

/** An open file, as `open` of `node:fs/promises` gives it in Node, Deno and Bun. */
export interface ReadableFile {
  /** Resolves with the size in bytes. */
  stat(): Promise<{
    /** Size in bytes. */
    readonly size: number;
  }>;
  /** Reads up to `length` bytes at `position` of the file into `into`, from index `at` on. */
  read(
    into: Uint8Array,
    at: number,
    length: number,
    position: number,
  ): Promise<{
    /** How many bytes were read; 0 at the end of the file. */
    readonly bytesRead: number;
  }>;
}

/**
 * A source that reads an open file. It does not close the file.
 * @throws TypeError unless `file` has `stat` and `read`. TypeError or RangeError if `stat` gives no size. HeadwiseError
 * `BAD_FILE` if `stat` fails.
 * @example
 * import { open } from "node:fs/promises";
 * import { fileSource, openSafetensors } from "headwise/weights";
 * const handle = await open("model/model.safetensors");
 * const file = await openSafetensors(await fileSource(handle));
 * const { shape } = await file.read("model.layers.1.self_attn.q_proj.weight"); // of 181 KB, reads 17
 * await handle.close();
 * console.log(shape); // [ 64, 64 ]
 */
export async function fileSource(file: ReadableFile): Promise<ByteSource> {
  return sourceOfFile(file, createArray);
}

/** `fileSource` whose reads return what `take` gives them to fill. */
export async function sourceOfFile(file: ReadableFile, take: typeof createArray): Promise<ByteSource> {
  const where = "fileSource";
  if (file === null || typeof file !== "object" || typeof file.stat !== "function" || typeof file.read !== "function")
    throw new TypeError(`${where}: file expected an open file, as of await open(path), got ${describe(file)}`);
  const stat = await attempt(`${where}: file.stat expected the size`, () => file.stat());
  expectRecord(where, "the result of file.stat", stat);
  const size = expectSize(where, "size of file.stat", stat.size);
  return {
    size,
    async read(offset, length) {
      const bytes = take(where, length);
      let at = 0;
      while (at < length) {
        const result = await file.read(bytes, at, length - at, offset + at);
        expectRecord(where, "the result of file.read", result);
        const { bytesRead } = result;
        expectInt(where, "bytesRead of file.read", bytesRead, 0, length - at);
        if (bytesRead === 0) break;
        at += bytesRead;
      }
      return bytes.subarray(0, at);
    },
  };
}

/** A source to open a file from. */
export interface OpenSource extends ByteSource {
  /** Why `size` may be less than that of the file, for messages. */
  readonly note?: string;
}

/** The size of a Blob of Node has 32 bits. */
const BLOB_NOTE = " (Blobs of Node hold less than 4 GiB: fileSource reads larger files)";

/** Anything that a file can be opened from, as a source. Its size and its functions are read once. */
export function toSource(where: string, source: BytesOrSource): OpenSource {
  if (isBytes(source)) {
    const bytes = expectBytes(where, "source", source);
    // Checked again, since the bytes may be transferred elsewhere before a tensor is read.
    const read = async (offset: number, length: number) =>
      expectBytes(where, "source", bytes).subarray(offset, offset + length);
    return { size: bytes.length, read };
  }
  if (isBlob(source)) return { ...blobSource(source), note: BLOB_NOTE };
  const { size, read } = Object(source) as Partial<ByteSource>;
  if (size === undefined)
    throw new TypeError(
      `${where}: source expected bytes, a Blob, or a source (of fileSource or urlSource), got ${describe(source)}`,
    );
  expectFunction(where, "source.read", read);
  return {
    size: expectSize(where, "source.size", size),
    read: (offset, length) => (read as ByteSource["read"]).call(source, offset, length),
  };
}

function expectSize(where: string, name: string, size: unknown): number {
  return expectInt(where, name, size, 0, Number.MAX_SAFE_INTEGER);
}

/** The result of `run`. Throws BAD_FILE with the rule if it throws, except for errors of the package. */
async function attempt<T>(rule: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (cause) {
    if (cause instanceof HeadwiseError) throw cause;
    throw new HeadwiseError("BAD_FILE", `${rule}, got ${reasonOf(cause)}`, { cause });
  }
}

/** Whether what is read of a source lies in memory already. */
export function isBytes(source: unknown): source is Uint8Array | ArrayBuffer {
  return ["ArrayBuffer", "SharedArrayBuffer", "Uint8Array"].includes(tagOf(source));
}

function isBlob(value: unknown): value is Blob {
  return ["Blob", "File"].includes(tagOf(value));
}

/** Reads [offset, offset + length) into one array. Throws BAD_FILE if the source returns fewer bytes. */
export async function readRange(
  where: string,
  source: ByteSource,
  offset: number,
  length: number,
): Promise<Uint8Array> {
  if (length <= PIECE) return readPiece(where, source, offset, length);
  const bytes = createArray(where, length);
  for (let at = 0; at < length; at += PIECE)
    bytes.set(await readPiece(where, source, offset + at, Math.min(PIECE, length - at)), at);
  return bytes;
}

async function readPiece(where: string, source: ByteSource, offset: number, length: number): Promise<Uint8Array> {
  const rule = `${where}: source expected ${length} bytes at ${offset}`;
  const read = await attempt(rule, () => source.read(offset, length));
  const bytes = expectUint8Array(where, "the result of source.read", read);
  if (bytes.length !== length) throw new HeadwiseError("BAD_FILE", `${rule}, got ${bytes.length}`);
  return bytes;
}

/** Memory for bytes; `way` is what takes less. Throws OUT_OF_MEMORY if the engine cannot allocate it. */
export function createArray(where: string, length: number, way = "source.read"): Uint8Array {
  const what = `an array of ${length} bytes (${way} reads parts of a tensor)`;
  return orRefuse(where, what, () => new Uint8Array(length));
}

/** Reads several ranges, nearby ones with one request. The results are in the order of `ranges`. */
export async function readRanges(
  where: string,
  source: ByteSource,
  ranges: readonly Range[],
): Promise<readonly Uint8Array[]> {
  const order = Array.from(ranges.keys()).sort((a, b) => ranges[a]!.begin - ranges[b]!.begin);
  const joined: { begin: number; end: number; members: number[] }[] = [];
  for (const member of order) {
    const { begin, end } = ranges[member]!;
    const last = joined.at(-1);
    if (last !== undefined && begin <= last.end + GAP && Math.max(end, last.end) - last.begin <= MOST_JOINED) {
      last.end = Math.max(last.end, end);
      last.members.push(member);
    } else joined.push({ begin, end, members: [member] });
  }
  const found = new Array<Uint8Array>(ranges.length);
  const read = async ({ begin, end, members }: (typeof joined)[number]) => {
    const bytes = begin === end ? new Uint8Array() : await readRange(where, source, begin, end - begin);
    for (const member of members)
      found[member] = bytes.subarray(ranges[member]!.begin - begin, ranges[member]!.end - begin);
  };
  await Promise.all(joined.map(read));
  return found;
}
