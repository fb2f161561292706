// The storage of browsers, in memory: as much of it as stores of pieces use.

import type { browserPieces } from "../../src/base/platform/piece-stores.ts";

type StorageScope = NonNullable<Parameters<typeof browserPieces>[1]>;

const notFound = (): never => {
  throw new DOMException("no such file", "NotFoundError");
};

/** A private file system whose files, by name, have room for so many bytes. A file shows what was written once it is closed. */
export function fakeOpfs({ room = Number.POSITIVE_INFINITY } = {}): StorageScope & {
  readonly files: Map<string, Uint8Array>;
} {
  const files = new Map<string, Uint8Array>();
  class FileSystemFileHandle {
    readonly name: string;
    constructor(name: string) {
      this.name = name;
    }
    async getFile() {
      const bytes = files.get(this.name) ?? notFound();
      return new Blob([bytes.slice()]);
    }
    async createWritable() {
      let written = new Uint8Array();
      return {
        write: async (bytes: Uint8Array) => {
          written = bytes.slice();
          const used = [...files].reduce((sum, [name, own]) => sum + (name === this.name ? 0 : own.length), 0);
          if (used + written.length > room) throw new DOMException("Quota exceeded", "QuotaExceededError");
        },
        close: async () => void files.set(this.name, written),
        abort: async () => {},
      };
    }
  }
  const directory = {
    getDirectoryHandle: async () => directory,
    async getFileHandle(name: string, { create = false } = {}) {
      if (!files.has(name) && !create) notFound();
      if (!files.has(name)) files.set(name, new Uint8Array());
      return new FileSystemFileHandle(name);
    },
    async removeEntry(name: string) {
      if (!files.delete(name)) notFound();
    },
  };
  return { files, FileSystemFileHandle, navigator: { storage: { getDirectory: async () => directory } } };
}

/** Caches, whose entries are by URL. */
export function fakeCaches(): StorageScope & { readonly entries: Map<string, Response> } {
  const entries = new Map<string, Response>();
  const cache = {
    match: async (url: string) => entries.get(url)?.clone(),
    put: async (url: string, response: Response) => void entries.set(url, response),
    delete: async (url: string) => entries.delete(url),
  };
  return { entries, caches: { open: async () => cache } };
}
