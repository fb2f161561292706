// Where hosts keep pieces of files: a folder, the private file system of an origin (OPFS), or its Cache API.

import { builtinModule } from "./host.ts";

/**
 * Keeps pieces of files by key. Keys consist of letters, digits and "-", and are at most 64 characters long. What is kept has up
 * to 4 MiB and 2,080 bytes: a piece, and the SHA-256 of each 64 KiB by which damage is noticed when it is read. Two programs may use the
 * same store at once: they write the same bytes under the same key.
 * @example
 * import { createStore, type PieceStore } from "headwise/models";
 * const kept = new Map<string, Uint8Array>();
 * const pieces: PieceStore = {
 *   read: async (key) => kept.get(key),
 *   write: async (key, bytes) => void kept.set(key, bytes.slice()),
 *   remove: async (key) => void kept.delete(key),
 * };
 * console.log(typeof createStore(pieces).open); // function
 */
export interface PieceStore {
  /** The bytes under `key`; undefined if there are none. */
  read(key: string): Promise<Uint8Array | undefined>;
  /** Of them, bytes begin..end; fewer where there are fewer. Without it, those who need a part of a piece read all of it. */
  readRange?(key: string, begin: number, end: number): Promise<Uint8Array | undefined>;
  /** Keeps all of `bytes` under `key`, or rejects. The bytes may be overwritten once the promise has settled. */
  write(key: string, bytes: Uint8Array): Promise<void>;
  /** Forgets what is under `key`, if anything is. */
  remove(key: string): Promise<void>;
}

/** Pieces that can be listed. */
export interface ListedPieces extends PieceStore {
  keys(): Promise<readonly string[]>;
}

/** The part of `node:fs/promises` that is used. */
interface FileSystem {
  mkdir(path: string | URL, options: { readonly recursive: true }): Promise<unknown>;
  readFile(path: string | URL): Promise<Uint8Array>;
  open(path: string | URL): Promise<{
    read(into: Uint8Array, offset: number, length: number, at: number): Promise<{ readonly bytesRead: number }>;
    close(): Promise<void>;
  }>;
  writeFile(path: string | URL, bytes: Uint8Array, options: { readonly flush: true }): Promise<void>;
  rename(from: string | URL, to: string | URL): Promise<void>;
  rm(path: string | URL, options: { readonly force: true }): Promise<void>;
  readdir(path: string | URL): Promise<readonly string[]>;
  stat(path: string | URL): Promise<{ readonly mtimeMs: number }>;
}

/** The name of a file that did not become a piece yet. */
const PART = /^[\da-z-]+\.[\da-f-]{36}\.part$/i;
const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * Files of a folder; undefined on hosts without a file system. A file gets its name once it is whole; the first write removes
 * those that programs which were killed left unfinished more than a day ago.
 */
export function folderPieces(folder: string | URL): ListedPieces | undefined {
  const system = builtinModule<FileSystem>("node:fs/promises");
  if (system === undefined) return undefined;
  const base = typeof folder === "string" ? folder.replace(/[/\\]?$/, "/") : new URL(folder);
  if (base instanceof URL) base.pathname = base.pathname.replace(/\/?$/, "/");
  const pathOf = (name: string) => (typeof base === "string" ? base + name : new URL(name, base));
  const remove = (name: string) => system.rm(pathOf(name), { force: true });
  const removeStale = async () => {
    for (const name of await system.readdir(base))
      if (PART.test(name) && Date.now() - (await system.stat(pathOf(name))).mtimeMs > DAY_MS) await remove(name);
  };
  let removed: Promise<void> | undefined;
  return {
    async read(key) {
      const { buffer, byteOffset, length } = (await system.readFile(pathOf(key)).catch(orNone)) ?? {};
      return buffer && new Uint8Array(buffer, byteOffset, length);
    },
    async readRange(key, begin, end) {
      const file = await system.open(pathOf(key)).catch(orNone);
      if (file === undefined) return undefined;
      try {
        const bytes = new Uint8Array(end - begin);
        const { bytesRead } = await file.read(bytes, 0, bytes.length, begin);
        return bytes.subarray(0, bytesRead);
      } finally {
        await file.close();
      }
    },
    async write(key, bytes) {
      await system.mkdir(base, { recursive: true });
      // A folder that cannot be listed may be written nevertheless, and another program may remove the same files.
      removed ??= removeStale().catch(() => {});
      await removed;
      const part = `${key}.${crypto.randomUUID()}.part`;
      try {
        // Flushed, since a file system may rename a file before its bytes are on the disk, and then lose power.
        await system.writeFile(pathOf(part), bytes, { flush: true });
        await system.rename(pathOf(part), pathOf(key));
      } catch (error) {
        await remove(part);
        throw error;
      }
    },
    remove,
    async keys() {
      const names = (await system.readdir(base).catch(orNone)) ?? [];
      return names.filter((name) => !PART.test(name));
    },
  };
}

/** Undefined for the error of a file that does not exist; throws others. */
function orNone(error: unknown): undefined {
  const { code, name } = Object(error);
  if (code !== "ENOENT" && name !== "NotFoundError") throw error;
}

interface Blob {
  arrayBuffer(): Promise<ArrayBuffer>;
}

interface FileHandle {
  getFile(): Promise<Blob & { slice(begin: number, end: number): Blob }>;
  createWritable(): Promise<{
    write(bytes: Uint8Array): Promise<void>;
    close(): Promise<void>;
    abort(): Promise<void>;
  }>;
}

interface Directory {
  getDirectoryHandle(name: string, options: { readonly create: true }): Promise<Directory>;
  getFileHandle(name: string, options?: { readonly create: boolean }): Promise<FileHandle>;
  removeEntry(name: string): Promise<void>;
}

/** What a page or a worker may have. */
interface StorageScope {
  readonly navigator?: { readonly storage?: { getDirectory?(): Promise<Directory> } };
  readonly FileSystemFileHandle?: { readonly prototype: object };
  readonly caches?: {
    open(name: string): Promise<{
      match(url: string): Promise<{ arrayBuffer(): Promise<ArrayBuffer> } | undefined>;
      put(url: string, response: Response): Promise<void>;
      delete(url: string): Promise<boolean>;
    }>;
  };
}

/**
 * The folder `name` of the origin's private file system, or else its cache of that name; undefined on hosts without either. Some
 * browsers let only workers write to the file system, and not by this way: these have the cache.
 */
export function browserPieces(name: string, scope: StorageScope = globalThis as StorageScope): PieceStore | undefined {
  const { navigator, FileSystemFileHandle: Handle, caches } = scope;
  if (navigator?.storage?.getDirectory && Handle && "createWritable" in Handle.prototype) {
    const { storage } = navigator;
    return opfsPieces(async () => {
      const root = (await storage.getDirectory?.()) as Directory;
      return root.getDirectoryHandle(name, { create: true });
    });
  }
  return caches && cachePieces(() => caches.open(name));
}

/** A file shows what was written to it once it is closed. */
function opfsPieces(open: () => Promise<Directory>): PieceStore {
  return {
    async read(key) {
      const handle = await (await open()).getFileHandle(key).catch(orNone);
      return handle && new Uint8Array(await (await handle.getFile()).arrayBuffer());
    },
    async readRange(key, begin, end) {
      const handle = await (await open()).getFileHandle(key).catch(orNone);
      return handle && new Uint8Array(await (await handle.getFile()).slice(begin, end).arrayBuffer());
    },
    async write(key, bytes) {
      const handle = await (await open()).getFileHandle(key, { create: true });
      const writable = await handle.createWritable();
      try {
        await writable.write(bytes);
        await writable.close();
      } catch (error) {
        await writable.abort().catch(() => {});
        throw error;
      }
    },
    remove: async (key) => (await open()).removeEntry(key).catch(orNone),
  };
}

type Cache = Awaited<ReturnType<NonNullable<StorageScope["caches"]>["open"]>>;

/** Entries need a URL; nothing is ever requested from this one. */
const urlOf = (key: string) => `https://headwise.invalid/${key}`;

function cachePieces(open: () => Promise<Cache>): PieceStore {
  return {
    async read(key) {
      const found = await (await open()).match(urlOf(key));
      return found && new Uint8Array(await found.arrayBuffer());
    },
    write: async (key, bytes) => (await open()).put(urlOf(key), new Response(bytes.slice())),
    async remove(key) {
      await (await open()).delete(urlOf(key));
    },
  };
}
