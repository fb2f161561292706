import { describe, expectBytes, expectFunction, expectInt, HeadwiseError, tagOf } from "../util/errors.ts";
import type { Global } from "../util/global.ts";

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
  /** Reads the bytes from `offset` to `offset + length`, which is at most `size`. The result may be a view: it is only read. */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/** A file to open: its bytes, a `Blob` or `File`, or a source that reads ranges. */
export type BytesOrSource = Uint8Array | ArrayBuffer | Global<"Blob"> | ByteSource;

/** Bytes [begin, end) of a source. */
export interface Range {
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
    size: blob.size,
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
 * @throws TypeError unless `file` has `stat` and `read`.
 * @example
 * import { open } from "node:fs/promises";
 * import { fileSource, openSafetensors } from "headwise/weights";
 * const handle = await open("model/induction.safetensors");
 * const file = await openSafetensors(await fileSource(handle));
 * const { shape } = await file.read("model.layers.1.self_attn.q_proj.weight"); // of 181 KB, reads 17
 * await handle.close();
 * console.log(shape); // [ 64, 64 ]
 */
export async function fileSource(file: ReadableFile): Promise<ByteSource> {
  if (file === null || typeof file !== "object" || typeof file.stat !== "function" || typeof file.read !== "function")
    throw new TypeError(`fileSource: file expected an open file with stat and read, got ${describe(file)}`);
  const { size } = await file.stat();
  return {
    size,
    async read(offset, length) {
      const bytes = new Uint8Array(length);
      let at = 0;
      while (at < length) {
        const { bytesRead } = await file.read(bytes, at, length - at, offset + at);
        if (bytesRead === 0) break;
        at += bytesRead;
      }
      return bytes.subarray(0, at);
    },
  };
}

/** Anything that a file can be opened from, as a source. */
export function toSource(where: string, source: BytesOrSource): ByteSource {
  if (["ArrayBuffer", "SharedArrayBuffer", "Uint8Array"].includes(tagOf(source))) {
    const bytes = expectBytes(where, "source", source);
    return { size: bytes.length, read: async (offset, length) => bytes.subarray(offset, offset + length) };
  }
  if (isBlob(source)) return blobSource(source);
  const { size, read } = Object(source) as Partial<ByteSource>;
  if (size === undefined)
    throw new TypeError(
      `${where}: source expected bytes, a Blob, or a source (of fileSource or urlSource), got ${describe(source)}`,
    );
  expectFunction(where, "source.read", read);
  expectInt(where, "source.size", size, 0, Number.MAX_SAFE_INTEGER);
  return source as ByteSource;
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
  const bytes = createBytes(where, length);
  for (let at = 0; at < length; at += PIECE)
    bytes.set(await readPiece(where, source, offset + at, Math.min(PIECE, length - at)), at);
  return bytes;
}

async function readPiece(where: string, source: ByteSource, offset: number, length: number): Promise<Uint8Array> {
  const rule = `${where}: source expected ${length} bytes at ${offset}`;
  let bytes: unknown;
  try {
    bytes = await source.read(offset, length);
  } catch (cause) {
    if (cause instanceof HeadwiseError) throw cause;
    throw new HeadwiseError("BAD_FILE", `${rule}, got ${String(cause)}`, { cause });
  }
  if (!ArrayBuffer.isView(bytes) || tagOf(bytes) !== "Uint8Array")
    throw new TypeError(`${where}: source.read expected to give Uint8Array, got ${describe(bytes)}`);
  if (bytes.byteLength !== length) throw new HeadwiseError("BAD_FILE", `${rule}, got ${bytes.byteLength}`);
  return bytes as Uint8Array;
}

/** Memory for bytes. Throws OUT_OF_MEMORY if the engine cannot allocate it. */
function createBytes(where: string, length: number): Uint8Array {
  try {
    return new Uint8Array(length);
  } catch (cause) {
    throw new HeadwiseError("OUT_OF_MEMORY", `${where}: ${length} bytes do not fit, the engine refused`, { cause });
  }
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
