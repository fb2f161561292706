// Files of servers, kept in pieces where they were read once.

import { warnOnce } from "../platform/console.ts";
import { resolvePlace } from "../platform/page-url.ts";
import { browserPieces, folderPieces, type PieceStore } from "../platform/piece-stores.ts";
import { expectFlag, expectFunction, readFields } from "../util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import type { ByteSource } from "./byte-source.ts";
import type { HttpSource } from "./http-source.ts";
import { isSame, keptSource } from "./kept-source.ts";
import { MOST_KEPT, Shelf } from "./shelf.ts";
import { connectUrl, type UrlSourceOptions } from "./url-source.ts";

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
 * A store in a folder of the host's file system, for Node, Deno and Bun. The folder is made when something is written.
 * @throws TypeError for arguments of another type. HeadwiseError `NO_STORAGE` on hosts without a file system.
 * @example
 * import { createFolderStore } from "headwise/models";
 * const store = createFolderStore("models"); // for loadModel(kernels, "https://example.com/model.gguf", { store })
 * console.log(typeof store.open); // function
 */
export function createFolderStore(folder: string | Global<"URL">, options: StoreOptions = {}): ModelStore {
  const where = "createFolderStore";
  if (typeof folder !== "string" && tagOf(folder) !== "URL")
    throw new TypeError(`${where}: folder expected a path or a URL, got ${describe(folder)}`);
  const pieces = folderPieces(folder as string | URL);
  if (pieces === undefined) throw new HeadwiseError("NO_STORAGE", `${where}: this host has no file system`);
  return storeIn(where, pieces, options);
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
