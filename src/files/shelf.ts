// What is kept of files of servers: for each URL an entry, which says of which version of the file pieces are kept.

import type { PieceStore } from "../platform/piece-stores.ts";
import { hostSha256 } from "../platform/sha256.ts";
import { expectUint8Array } from "../util/arguments.ts";
import { joinBytes, toHex } from "../util/bytes.ts";
import { HeadwiseError } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";
import { sha256 } from "../util/sha256.ts";
import type { HttpSource } from "./http-source.ts";
import { removeOlder } from "./older-shelf.ts";

/** Bytes of a piece, but of a file's last one: what an interrupted download loses of each that is requested. */
export const PIECE: number = 2 ** 22;

/** The largest file that is kept: all of its pieces are removed one by one, whichever of them there are. */
export const MOST_KEPT: number = 2 ** 36;

/** Bytes of the SHA-256 that is kept behind each piece and each entry. */
const DIGEST = 32;

/** A version of a file. */
export type KeptFile = { readonly url: string } & Pick<HttpSource, "size" | "mark">;
/** What is kept of a URL: a version of the file, or the status of an answer without one. */
export type Entry = KeptFile | { readonly url: string; readonly status: number };

/**
 * Pieces by file, version and number, each with its SHA-256: one that has changed counts as one that is not kept. Nothing here
 * throws: the first failure is reported, and after the first one to write nothing more is written, so that no piece is kept
 * without its entry.
 */
export class Shelf {
  readonly #pieces: PieceStore;
  readonly #onFailure: (error: HeadwiseError) => void;
  #reported = false;
  #writes = true;
  /** The version that is kept of a URL, by whose sources pieces may be written. */
  readonly #current = new Map<string, string>();

  constructor(pieces: PieceStore, onFailure: (error: HeadwiseError) => void) {
    this.#pieces = pieces;
    this.#onFailure = onFailure;
  }

  /** What is kept of a URL. What an older version of the package kept of it is removed. */
  async entry(url: string): Promise<Entry | undefined> {
    const bytes = await this.#read(entryKey(url));
    if (bytes === undefined) await this.#attempt("removed", () => removeOlder(this.#pieces, url, PIECE, MOST_KEPT));
    try {
      const entry = JSON.parse(new TextDecoder().decode(bytes)) as Entry;
      const isEntry = "size" in entry ? isSize(entry.size) : Number.isSafeInteger(entry.status);
      return isEntry && entry.url === url ? entry : undefined;
    } catch {
      return undefined;
    }
  }

  /** From now on, pieces of this version are kept, and of no other of its URL. */
  admit(file: KeptFile): void {
    this.#current.set(file.url, versionOf(file));
  }

  setEntry(entry: Entry): Promise<void> {
    if ("size" in entry) this.admit(entry);
    return this.#write(entryKey(entry.url), new TextEncoder().encode(JSON.stringify(entry)));
  }

  piece(file: KeptFile, index: number): Promise<Uint8Array | undefined> {
    return this.#read(pieceKey(file, index));
  }

  /** Keeps a piece, unless the file was forgotten since it was opened, or is while the piece is written. */
  async keep(file: KeptFile, index: number, bytes: Uint8Array): Promise<void> {
    const isCurrent = () => this.#current.get(file.url) === versionOf(file);
    if (!isCurrent()) return;
    const key = pieceKey(file, index);
    await this.#write(key, bytes);
    if (!isCurrent()) await this.#remove(key);
  }

  /** Forgets a file: first that it is kept, then its pieces. */
  async clear(entry: Entry): Promise<void> {
    if ("size" in entry && this.#current.get(entry.url) === versionOf(entry)) this.#current.delete(entry.url);
    await this.#remove(entryKey(entry.url));
    if (!("size" in entry)) return;
    const keyAt = pieceKeys(entry);
    for (let index = 0; index * PIECE < entry.size; index++) await this.#remove(keyAt(index));
  }

  /** The bytes under a key; undefined if there are none, or if they are not those that were written. */
  #read(key: string): Promise<Uint8Array | undefined> {
    return this.#attempt("read back", async () => {
      const record = await this.#pieces.read(key);
      if (record === undefined) return undefined;
      const bytes = expectUint8Array("store", "the result of read", record).subarray(0, -DIGEST);
      if (await isDigest(record.subarray(bytes.length), bytes)) return bytes;
      throw new Error("its bytes have changed since they were written");
    });
  }

  #remove(key: string): Promise<void> {
    return this.#attempt("removed", () => this.#pieces.remove(key));
  }

  async #write(key: string, bytes: Uint8Array): Promise<void> {
    if (!this.#writes) return;
    await this.#attempt("kept", async () => {
      try {
        await this.#pieces.write(key, joinBytes([bytes, await digestOf(bytes)]));
      } catch (error) {
        this.#writes = false;
        await this.#pieces.remove(key).catch(() => {});
        throw error;
      }
    });
  }

  async #attempt<T>(done: string, run: () => Promise<T>): Promise<T | undefined> {
    try {
      return await run();
    } catch (cause) {
      if (this.#reported) return undefined;
      this.#reported = true;
      const text = `store: a piece of a file cannot be ${done}, and reading goes on from the server: ${reasonOf(cause)}`;
      this.#onFailure(new HeadwiseError("NO_STORAGE", text, { cause }));
      return undefined;
    }
  }
}

const isSize = (size: unknown) => Number.isSafeInteger(size) && (size as number) >= 0 && (size as number) <= MOST_KEPT;
const versionOf = ({ size, mark }: KeptFile) => `${size} ${mark}`;

/** 192 bits of the SHA-256 of texts, so that no other URL or version has the same key. */
const keyOf = (...texts: readonly string[]) =>
  toHex(sha256(new TextEncoder().encode(JSON.stringify(texts))).subarray(0, 24));
const entryKey = (url: string) => `${keyOf(url)}-entry`;
/** The keys of a file's pieces by number. */
function pieceKeys(file: KeptFile): (index: number) => string {
  const own = keyOf(file.url, versionOf(file));
  return (index) => `${own}-${index}`;
}
const pieceKey = (file: KeptFile, index: number) => pieceKeys(file)(index);

const digestOf = (bytes: Uint8Array) => hostSha256(bytes as Uint8Array<ArrayBuffer>);

/** Whether `digest` is the SHA-256 of the bytes. */
async function isDigest(digest: Uint8Array, bytes: Uint8Array): Promise<boolean> {
  return toHex(digest) === toHex(await digestOf(bytes));
}
