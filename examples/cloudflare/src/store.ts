// The SQLite database of a conversation's object: the text in one row, and the pages of the caches. The text is authoritative;
// pages only save computing them again. They may hold fewer tokens than the text, whose last tokens are then replayed, but
// never others: both are written in one transaction.

import type { Cache } from "headwise";
import { exportPages, importPages } from "headwise/sessions";

export interface Stored {
  text: string;
  /** Tokens that the pages hold. */
  held: number;
  /** When it was made and when it was written last, in milliseconds since 1970. */
  created: number;
  used: number;
}

/** More pages than a layer can have. */
const PAGES = 2 ** 24;

export class Store {
  readonly #storage: DurableObjectStorage;

  constructor(storage: DurableObjectStorage) {
    this.#storage = storage;
  }

  /** The stored conversation; undefined if none was created. Writes nothing, because an empty database has a cost too. */
  read(): Stored | undefined {
    const { sql } = this.#storage;
    if (sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'conversation'").toArray().length === 0) return undefined;
    const columns = "text, held, created, used";
    return sql.exec<Record<keyof Stored, SqlStorageValue>>(`SELECT ${columns} FROM conversation`).one() as Stored;
  }

  create(): Stored {
    const { sql } = this.#storage;
    const now = Date.now();
    this.#storage.transactionSync(() => {
      sql.exec(
        "CREATE TABLE conversation (id INTEGER PRIMARY KEY, text TEXT, held INTEGER, created INTEGER, used INTEGER)",
      );
      // One key for layer and page, because a second index would write one more row.
      sql.exec("CREATE TABLE pages (key INTEGER PRIMARY KEY, bytes BLOB)");
      sql.exec("INSERT INTO conversation VALUES (1, '', 0, ?, ?)", now, now);
    });
    return { text: "", held: 0, created: now, used: now };
  }

  /** Writes a longer text. */
  saveText(stored: Stored, text: string): void {
    const used = Date.now();
    this.#storage.sql.exec("UPDATE conversation SET text = ?, used = ?", text, used);
    Object.assign(stored, { text, used });
  }

  /** Writes a longer text and the pages that have changed since the last write, in one transaction. */
  savePages(stored: Stored, text: string, caches: readonly Cache[]): void {
    const { sql } = this.#storage;
    const held = caches[0]?.length ?? 0;
    const used = Date.now();
    this.#storage.transactionSync(() => {
      for (const [layer, cache] of caches.entries())
        for (const { index, bytes } of exportPages(cache, stored.held))
          sql.exec("INSERT OR REPLACE INTO pages VALUES (?, ?)", layer * PAGES + index, bytes);
      sql.exec("UPDATE conversation SET text = ?, held = ?, used = ?", text, held, used);
    });
    Object.assign(stored, { text, held, used });
  }

  /** Fills empty caches with the pages, one at a time. */
  restore({ held }: Stored, caches: readonly Cache[]): void {
    const { sql } = this.#storage;
    for (const [layer, cache] of caches.entries()) {
      const rows = sql.exec<{ key: number; bytes: ArrayBuffer }>(
        "SELECT key, bytes FROM pages WHERE key >= ? AND key < ? ORDER BY key",
        layer * PAGES,
        (layer + 1) * PAGES,
      );
      const pages = function* () {
        for (const { key, bytes } of rows) yield { index: key % PAGES, bytes: new Uint8Array(bytes) };
      };
      importPages(cache, pages(), held);
    }
  }

  async clear(): Promise<void> {
    await this.#storage.deleteAlarm();
    await this.#storage.deleteAll();
  }
}
