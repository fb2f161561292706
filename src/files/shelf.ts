// What is kept of files of servers: for each URL an entry, which says of which version of the file pieces are kept.

import type { PieceStore } from "../platform/piece-stores.ts";
import { HeadwiseError } from "../util/errors.ts";
import { reasonOf } from "../util/reason.ts";
import type { HttpSource } from "./http-source.ts";

/** Bytes of a piece, but of a file's last one: what an interrupted download loses of each that is requested. */
export const PIECE: number = 2 ** 22;

/** The largest file that is kept: all of its pieces are removed one by one, whichever of them there are. */
export const MOST_KEPT: number = 2 ** 36;

/** A version of a file. */
export type KeptFile = { readonly url: string } & Pick<HttpSource, "size" | "mark">;
/** What is kept of a URL: a version of the file, or the status of an answer without one. */
export type Entry = KeptFile | { readonly url: string; readonly status: number };

/**
 * Pieces by file, version and number. Nothing here throws: the first failure is reported, and after the first one to write
 * nothing more is written, so that no piece is kept without its entry.
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

  /** What is kept of a URL. */
  async entry(url: string): Promise<Entry | undefined> {
    const bytes = await this.#attempt("read back", () => this.#pieces.read(entryKey(url)));
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
    return this.#attempt("read back", () => this.#pieces.read(pieceKey(file, index)));
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
    if ("size" in entry)
      for (let index = 0; index * PIECE < entry.size; index++) await this.#remove(pieceKey(entry, index));
  }

  #remove(key: string): Promise<void> {
    return this.#attempt("removed", () => this.#pieces.remove(key));
  }

  async #write(key: string, bytes: Uint8Array): Promise<void> {
    if (!this.#writes) return;
    await this.#attempt("kept", async () => {
      try {
        await this.#pieces.write(key, bytes);
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
const entryKey = (url: string) => `${digest(url)}-entry`;
const versionOf = ({ size, mark }: KeptFile) => digest(`${size} ${mark}`);
const pieceKey = (file: KeptFile, index: number) => `${digest(file.url)}-${versionOf(file)}-${index}`;

/** 64 bits of a text, as 16 hex digits: FNV-1a from two starts. An entry states its URL, so that no file is taken for another. */
function digest(text: string): string {
  const half = (start: number) => {
    let hash = start;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return (hash >>> 0).toString(16).padStart(8, "0");
  };
  return half(0x811c9dc5) + half(0x9e3779b9);
}
