// Files of servers, kept in pieces where they were read once.

import { cacheFolder, hostSha256, resolvePlace, warnOnce } from "../base/platform/host.ts";
import { browserPieces, folderPieces, type ListedPieces, type PieceStore } from "../base/platform/piece-stores.ts";
import { expectFlag, expectFunction, expectUint8Array, type Global, readFields } from "../base/util/arguments.ts";
import { joinBytes, sha256, toHex } from "../base/util/bytes.ts";
import { describe, HeadwiseError, tagOf } from "../base/util/errors.ts";
import { chunksOf } from "../base/util/rows.ts";
import { reasonOf } from "../base/util/strings.ts";
import { type ByteSource, createArray } from "./byte-source.ts";
import { connectUrl, type HttpSource, type UrlSourceOptions } from "./http-source.ts";

// What an older version of the package kept of a URL: under keys that other URLs may have too, and without checksums.

/** Removes what was kept of a URL, in pieces of so many bytes, if the file had at most `most`. */
async function removeOlder(pieces: PieceStore, url: string, pieceBytes: number, most: number): Promise<void> {
  const key = `${digest(url)}-entry`;
  const entry = fieldsOf(await pieces.read(key));
  if (entry.url !== url) return;
  await pieces.remove(key);
  if (!Number.isSafeInteger(entry.size) || (entry.size as number) > most) return;
  const version = digest(`${entry.size} ${entry.mark}`);
  for (let index = 0; index * pieceBytes < (entry.size as number); index++)
    await pieces.remove(`${digest(url)}-${version}-${index}`);
}

function fieldsOf(bytes: Uint8Array | undefined): { url?: unknown; size?: unknown; mark?: unknown } {
  try {
    return Object(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    return {};
  }
}

/** 64 bits of a text, as 16 hex digits: FNV-1a from two starts. */
function digest(text: string): string {
  const half = (start: number) => {
    let hash = start;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return (hash >>> 0).toString(16).padStart(8, "0");
  };
  return half(0x811c9dc5) + half(0x9e3779b9);
}

/**
 * Keeps what was read of files of servers, so that it is not requested again: what `loadModel` takes as `store`. Files are known
 * by their whole URL, which is kept too: one whose query changes each time is never found again. Each piece is kept with its
 * SHA-256: one that has changed since is requested again, and reported.
 */
export interface ModelStore {
  /**
   * A source that reads a URL as `urlSource` does, and what is kept of it from the store. Of a file that the server says it does
   * not have, that is kept. Nothing is kept of files of more than 64 GiB. Throws as `urlSource` does.
   */
  open(url: string | Global<"URL">, options?: UrlSourceOptions): Promise<ByteSource>;
  /** Forgets all that is kept of a URL. */
  remove(url: string | Global<"URL">): Promise<void>;
}

/** What a store has of a URL. */
export interface KeptUrl {
  /** The URL of the file. */
  readonly url: string;
  /** Bytes of the file; 0 where it is kept that the server does not have it. */
  readonly size: number;
  /** Bytes of it that are kept. */
  readonly bytes: number;
  /** With `check`: pieces whose bytes have changed since they were written, which the next reader requests again. */
  readonly damaged: number | undefined;
}

/** Options of stores. */
export interface StoreOptions {
  /**
   * Whether the size and the ETag (or else Last-Modified) of a kept file are compared with the server's when it is opened: one
   * request of 64 KB, or of the whole file from a server that gives no ranges. A file that has changed is read anew; if the server
   * sends neither ETag nor Last-Modified, only the size tells. If it does not answer, or with 429 or a status from 500 on, what is
   * kept is used. False: the server is asked only for what is not kept, and again for a file that it did not have, such as
   * model.safetensors.index.json: it may have come since. Default true.
   */
  readonly validate?: boolean | undefined;
  /**
   * Called with the first failure to keep a piece or to read one back, for instance because storage is full or a piece was damaged.
   * Reading goes on from the server. Default: a warning on the console.
   */
  readonly onFailure?: ((error: HeadwiseError) => void) | undefined;
}

/**
 * The folder in which `openModel` and the command line keep what they read of URLs: that of headwise among the caches of the user, by
 * the conventions of the system; undefined on hosts without files.
 * @example
 * import { defaultStoreFolder } from "headwise/models";
 * console.log(/headwise$/.test(defaultStoreFolder() ?? "headwise")); // true
 */
export const defaultStoreFolder = (): string | undefined => cacheFolder();

/**
 * A store in a folder of the host's file system, for Node, Deno and Bun. The folder is made when something is written.
 * @throws TypeError for arguments of another type. HeadwiseError `NO_STORAGE` on hosts without a file system.
 * @example
 * import { createFolderStore } from "headwise/models";
 * const store = createFolderStore("models"); // for loadModel(kernels, "https://example.com/model.gguf", { store })
 * console.log(typeof store.open); // function
 */
export function createFolderStore(folder: string | Global<"URL">, options: StoreOptions = {}): ModelStore {
  const where = "createFolderStore";
  return storeIn(where, openFolder(where, folder), options);
}

function openFolder(where: string, folder: string | Global<"URL">): ListedPieces {
  if (typeof folder !== "string" && tagOf(folder) !== "URL")
    throw new TypeError(`${where}: folder expected a path or a URL, got ${describe(folder)}`);
  const pieces = folderPieces(folder as string | URL);
  if (pieces === undefined) throw new HeadwiseError("NO_STORAGE", `${where}: this host has no file system`);
  return pieces;
}

/**
 * A store of a page or a worker: the folder `name` of the origin's private file system (OPFS), or the cache of that name where
 * that cannot be written. Browsers may clear both when space runs short, unless `navigator.storage.persist()` was granted.
 * @throws TypeError for arguments of another type. HeadwiseError `NO_STORAGE` on hosts without either.
 * @example
 * import { createBrowserStore } from "headwise/models";
 * const isPage = "document" in globalThis;
 * const store = isPage ? createBrowserStore("models") : undefined; // for loadModel(kernels, "https://example.com/model.gguf", { store })
 * console.log(store); // undefined: this host is no browser
 */
export function createBrowserStore(name = "headwise", options: StoreOptions = {}): ModelStore {
  const where = "createBrowserStore";
  if (typeof name !== "string") throw new TypeError(`${where}: name expected a string, got ${describe(name)}`);
  const pieces = browserPieces(name);
  if (pieces === undefined)
    throw new HeadwiseError("NO_STORAGE", `${where}: this host has neither a private file system nor caches`);
  return storeIn(where, pieces, options);
}

/**
 * A store that keeps pieces where you say. A file is kept in pieces of 4 MiB, each written once it is complete, so that a
 * download that was interrupted goes on where it stopped.
 * @throws TypeError unless `pieces` has `read`, `write` and `remove`, and for options of another type.
 * @example
 * import { createStore } from "headwise/models";
 * const kept = new Map<string, Uint8Array>();
 * const store = createStore({
 *   read: async (key) => kept.get(key),
 *   write: async (key, bytes) => void kept.set(key, bytes.slice()),
 *   remove: async (key) => void kept.delete(key),
 * });
 * const file = new Uint8Array(100_000).fill(7);
 * let requests = 0;
 * const server = async (_url: string, { headers }: { headers: Readonly<Record<string, string>> }) => {
 *   requests++;
 *   const [begin = 0, last = 0] = Array.from(headers.Range!.matchAll(/\d+/g), Number);
 *   const end = Math.min(last + 1, file.length);
 *   const range = `bytes ${begin}-${end - 1}/${file.length}`;
 *   return new Response(file.slice(begin, end), { status: 206, headers: { "Content-Range": range } });
 * };
 * const first = await store.open("https://example.com/model.gguf", { fetch: server });
 * await first.read(70_000, 9);
 * const again = await store.open("https://example.com/model.gguf", { fetch: server });
 * await again.read(80_000, 9);
 * console.log(requests); // 3: two to compare versions, and one for the piece
 */
export function createStore(pieces: PieceStore, options: StoreOptions = {}): ModelStore {
  return storeIn("createStore", pieces, options);
}

function storeIn(where: string, pieces: PieceStore, options: StoreOptions): ModelStore {
  for (const name of ["read", "write", "remove"] as const)
    expectFunction(where, `pieces.${name}`, (Object(pieces) as Partial<PieceStore>)[name]);
  if (pieces.readRange !== undefined) expectFunction(where, "pieces.readRange", pieces.readRange);
  const given = readFields(where, "options", options, ["validate", "onFailure"]);
  const { onFailure = (error: HeadwiseError) => warnOnce(error.message) } = given;
  expectFunction(where, "options.onFailure", onFailure);
  const validate = given.validate === undefined || expectFlag(where, "options.validate", given.validate);
  const shelf = new Shelf(pieces, onFailure);

  const open: ModelStore["open"] = async (url, urlOptions = {}) => {
    const text = String(resolvePlace(url as string | URL));
    const kept = await shelf.entry(text);
    const connect = () => connectUrl(url, urlOptions);
    if (kept && "size" in kept && !validate) return keptSource(shelf, kept, connect);
    let live: HttpSource;
    try {
      // What is kept is used at once if the server does not answer.
      live = await connectUrl(url, urlOptions, kept && 0);
    } catch (error) {
      const status = (Object(Object(error).cause) as { status?: number }).status;
      const isBusy = status === undefined || status === 429 || status >= 500;
      const isAway = isBusy && !(Object(urlOptions) as UrlSourceOptions).signal?.aborted;
      if (!(error instanceof HeadwiseError) || !kept || !isAway) {
        if ((status === 403 || status === 404) && !kept) await shelf.setEntry({ url: text, status });
        throw error;
      }
      if ("size" in kept) return keptSource(shelf, kept, connect);
      throw new HeadwiseError("BAD_FILE", error.message, { cause: { status: kept.status } });
    }
    const { size, mark } = live;
    const entry = { url: text, size, mark };
    if (size > MOST_KEPT) {
      if (kept) await shelf.clear(kept);
      return live;
    }
    if (!isSame(kept, live)) {
      if (kept) await shelf.clear(kept);
      await shelf.setEntry(entry);
    }
    return keptSource(shelf, entry, connect, live);
  };
  return Object.freeze({
    open,
    async remove(url: string | Global<"URL">) {
      const kept = await shelf.entry(String(resolvePlace(url as string | URL)));
      if (kept) await shelf.clear(kept);
    },
  });
}

// A file of a server, by the pieces that are kept.

/** Pieces that are requested at once. */
const TOGETHER = 4;

/** Whether pieces of this version of the file are kept. */
function isSame(kept: Entry | undefined, { size, mark }: Pick<HttpSource, "size" | "mark">): boolean {
  return kept !== undefined && "size" in kept && kept.size === size && kept.mark === mark;
}

/** A file by pieces: those that are kept, and others from the server, which are kept then. `live` is the connected server. */
function keptSource(shelf: Shelf, entry: KeptFile, connect: () => Promise<HttpSource>, live?: HttpSource): ByteSource {
  const { size, url } = entry;
  shelf.admit(entry);
  let server = live && Promise.resolve(live);
  const ask = (): Promise<HttpSource> => {
    server ??= connect().then(async (found) => {
      if (isSame(entry, found)) return found;
      await shelf.clear(entry);
      throw new HeadwiseError(
        "BAD_FILE",
        `urlSource: url ${describe(url)} expected to stay as it was (${size} bytes, ${entry.mark}), got ${found.size} bytes, ${found.mark}`,
      );
    });
    // Another read tries again.
    server.catch(() => {
      server = undefined;
    });
    return server;
  };
  const load = async (index: number): Promise<Uint8Array> => {
    const length = Math.min(PIECE, size - index * PIECE);
    const kept = await shelf.piece(entry, index);
    if (kept?.length === length) return kept;
    const bytes = await (await ask()).read(index * PIECE, length);
    await shelf.keep(entry, index, bytes);
    return bytes;
  };
  const loading = new Map<number, Promise<Uint8Array>>();
  /** The last one that came, since reads that follow each other often share one. */
  let last: { readonly index: number; readonly bytes: Uint8Array } | undefined;
  /** The piece of which blocks were read last: one that is asked for again is read as a whole. */
  let partly: number | undefined;
  /** A part of a piece that is kept, without the rest of it. */
  const partAt = async (index: number, begin: number, end: number): Promise<Uint8Array | undefined> => {
    if (last?.index === index || loading.has(index) || partly === index || end - begin > MOST_PART) return undefined;
    partly = index;
    return shelf.part(entry, index, begin, end);
  };
  const pieceAt = (index: number): Uint8Array | Promise<Uint8Array> => {
    if (last?.index === index) return last.bytes;
    const begun = loading.get(index);
    if (begun) return begun;
    const found = load(index)
      .then((bytes) => {
        last = { index, bytes };
        return bytes;
      })
      .finally(() => loading.delete(index));
    loading.set(index, found);
    return found;
  };
  return {
    size,
    async read(offset, length) {
      const [first, end] = [Math.floor(offset / PIECE), Math.ceil((offset + length) / PIECE)];
      if (end - first <= 1) {
        if (length === 0) return new Uint8Array();
        const [begin, stop] = [offset - first * PIECE, offset - first * PIECE + length];
        return (await partAt(first, begin, stop)) ?? (await pieceAt(first)).subarray(begin, stop);
      }
      const bytes = createArray("urlSource", length);
      const copy = async (index: number) => {
        const [piece, at] = [await pieceAt(index), index * PIECE - offset];
        const from = Math.max(0, -at);
        bytes.set(piece.subarray(from, Math.min(piece.length, length - at)), at + from);
      };
      for (let begin = first; begin < end; begin += TOGETHER)
        await Promise.all(Array.from({ length: Math.min(TOGETHER, end - begin) }, (_, i) => copy(begin + i)));
      return bytes;
    },
  };
}

// What is kept of files of servers: for each URL an entry, which says of which version of the file pieces are kept.

/** Bytes of a piece, but of a file's last one: what an interrupted download loses of each that is requested. */
export const PIECE: number = 2 ** 22;

/** The largest file that is kept: all of its pieces are removed one by one, whichever of them there are. */
const MOST_KEPT: number = 2 ** 36;

/** Bytes of a SHA-256. Behind each piece and each entry, those of its blocks are kept, and that of these. */
const DIGEST = 32;
/** Bytes that have a digest of their own, so that a part of a piece can be read by itself. */
const BLOCK = 2 ** 16;
/** Reads up to this length take blocks; longer ones, which others follow, whole pieces. */
const MOST_PART = 2 ** 18;

/** A version of a file. */
type KeptFile = { readonly url: string } & Pick<HttpSource, "size" | "mark">;
/** What is kept of a URL: a version of the file, or the status of an answer without one. */
type Entry = KeptFile | { readonly url: string; readonly status: number };

/**
 * Pieces by file, version and number, each with its SHA-256: one that has changed counts as one that is not kept. Nothing here
 * throws: the first failure is reported, and after the first one to write nothing more is written, so that no piece is kept
 * without its entry.
 */
class Shelf {
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
    const entry = parseEntry(bytes);
    return entry?.url === url ? entry : undefined;
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

  /** Bytes begin..end of a piece that is kept, if the store gives parts; undefined if it is not kept, or has changed. */
  async part(file: KeptFile, index: number, begin: number, end: number): Promise<Uint8Array | undefined> {
    const { readRange } = this.#pieces;
    if (readRange === undefined) return undefined;
    const key = pieceKey(file, index);
    const length = Math.min(PIECE, file.size - index * PIECE);
    const [first, stop] = [Math.floor(begin / BLOCK), Math.ceil(end / BLOCK)];
    return this.#attempt("read back", async () => {
      const range = (from: number, to: number) => readRange.call(this.#pieces, key, from, to);
      const seal = await range(length, length + sealBytes(length));
      if (seal === undefined) return undefined;
      const bytes = await range(first * BLOCK, Math.min(length, stop * BLOCK));
      if (bytes && (await isSealed(bytes, seal, first, length)))
        return bytes.subarray(begin - first * BLOCK, end - first * BLOCK);
      throw new Error(CHANGED);
    });
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
      const bytes = await unsealed(expectUint8Array("store", "the result of read", record));
      if (bytes) return bytes;
      throw new Error(CHANGED);
    });
  }

  #remove(key: string): Promise<void> {
    return this.#attempt("removed", () => this.#pieces.remove(key));
  }

  async #write(key: string, bytes: Uint8Array): Promise<void> {
    if (!this.#writes) return;
    await this.#attempt("kept", async () => {
      try {
        await this.#pieces.write(key, joinBytes([bytes, await sealOf(bytes)]));
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

/** Options of `listStore`. */
export interface ListStoreOptions {
  /** Whether all pieces are read and compared with their SHA-256. Default false. */
  readonly check?: boolean | undefined;
}

/**
 * What the store in a folder keeps, by URL: of `createFolderStore(folder)`, whose `remove` forgets it.
 * @throws TypeError for arguments of another type. HeadwiseError `NO_STORAGE` on hosts without a file system.
 * @example
 * import { listStore } from "headwise/models";
 * const hasFolders = "process" in globalThis; // browsers have none
 * console.log(hasFolders ? await listStore("no-such-folder") : []); // []
 */
export async function listStore(
  folder: string | Global<"URL">,
  options: ListStoreOptions = {},
): Promise<readonly KeptUrl[]> {
  const where = "listStore";
  const pieces = openFolder(where, folder);
  const isChecked = expectFlag(where, "options.check", readFields(where, "options", options, ["check"]).check);
  const keys = new Set(await pieces.keys());
  /** The bytes under a key; undefined if they are not those that were written. */
  const read = async (key: string): Promise<Uint8Array | undefined> => {
    const record = await pieces.read(key);
    return record && unsealed(record);
  };
  const found: KeptUrl[] = [];
  for (const key of keys) {
    const entry = key.endsWith("-entry") ? parseEntry(await read(key)) : undefined;
    if (entry === undefined || entryKey(entry.url) !== key) continue;
    const file = "size" in entry ? entry : undefined;
    let [bytes, damaged] = [0, 0];
    for (let index = 0; file && index * PIECE < file.size; index++) {
      const piece = pieceKey(file, index);
      if (!keys.has(piece)) continue;
      bytes += Math.min(PIECE, file.size - index * PIECE);
      if (isChecked && !(await read(piece))) damaged++;
    }
    found.push({ url: entry.url, size: file?.size ?? 0, bytes, damaged: isChecked ? damaged : undefined });
  }
  return found.sort((a, b) => (a.url < b.url ? -1 : 1));
}

/** An entry as it is kept; undefined for other bytes. */
function parseEntry(bytes: Uint8Array | undefined): Entry | undefined {
  try {
    const entry = JSON.parse(new TextDecoder().decode(bytes)) as Entry;
    const isEntry = "size" in entry ? isSize(entry.size) : Number.isSafeInteger(entry.status);
    return isEntry && typeof entry.url === "string" ? entry : undefined;
  } catch {
    return undefined;
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

const CHANGED = "its bytes have changed since they were written";

/** Bytes of the digests behind so many others. */
const sealBytes = (length: number) => DIGEST * (Math.ceil(length / BLOCK) + 1);

/** The digest of each block, one after the other. */
async function blockDigests(bytes: Uint8Array): Promise<Uint8Array> {
  const blocks = Array.from(chunksOf(bytes.length, BLOCK), ([begin, end]) => digestOf(bytes.subarray(begin, end)));
  return joinBytes(await Promise.all(blocks));
}

/** The digests of blocks, and that of these. */
async function sealOf(bytes: Uint8Array): Promise<Uint8Array> {
  const digests = await blockDigests(bytes);
  return joinBytes([digests, await digestOf(digests)]);
}

/** Whether `bytes`, from block `first` of `length` bytes on, are those of the digests. */
async function isSealed(bytes: Uint8Array, seal: Uint8Array, first: number, length: number): Promise<boolean> {
  if (seal.length !== sealBytes(length)) return false;
  const [digests, own] = [seal.subarray(0, -DIGEST), await blockDigests(bytes)];
  if (toHex(seal.subarray(digests.length)) !== toHex(await digestOf(digests))) return false;
  return toHex(own) === toHex(digests.subarray(DIGEST * first, DIGEST * first + own.length));
}

/** The bytes of what was kept; undefined if they are not those that were written. */
async function unsealed(record: Uint8Array): Promise<Uint8Array | undefined> {
  const blocks = Math.ceil((record.length - DIGEST) / (BLOCK + DIGEST));
  const length = record.length - DIGEST * (blocks + 1);
  if (length < 0) return undefined;
  const bytes = record.subarray(0, length);
  return (await isSealed(bytes, record.subarray(length), 0, length)) ? bytes : undefined;
}
