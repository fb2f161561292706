// The SQLite database of a conversation's object: the text and its tokens in one row, and the pages of the session. Text and
// tokens are authoritative; pages only save computing them again. They may hold fewer tokens than the text, whose last tokens are
// then read again, but never others: all are written in one transaction.

import type { Session } from "headwise/models";
import { type CachePage, exportSession, importSession } from "headwise/models";

/** What an answer adds to with each slice. */
export interface Written {
  /** All that was said. */
  text: string;
  /** Its tokens. */
  ids: readonly number[];
  /** Tokens that the last answer may still have: it was interrupted. */
  left: number;
}

export interface Stored extends Written {
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
    const { ids, ...row } = sql.exec("SELECT text, ids, left, held, created, used FROM conversation").one();
    return { ...row, ids: JSON.parse(ids as string) } as unknown as Stored;
  }

  create(): Stored {
    const { sql } = this.#storage;
    const now = Date.now();
    this.#storage.transactionSync(() => {
      const columns = "text TEXT, ids TEXT, left INTEGER, held INTEGER, created INTEGER, used INTEGER";
      sql.exec(`CREATE TABLE conversation (id INTEGER PRIMARY KEY, ${columns})`);
      // One key for layer and page, because a second index would write one more row.
      sql.exec("CREATE TABLE pages (key INTEGER PRIMARY KEY, bytes BLOB)");
      sql.exec("INSERT INTO conversation VALUES (1, '', '[]', 0, 0, ?, ?)", now, now);
    });
    return { text: "", ids: [], left: 0, held: 0, created: now, used: now };
  }

  /** Writes a longer text; with a session also its pages that have changed since the last such write, in one transaction. */
  save(stored: Stored, written: Written, session?: Session): void {
    const { sql } = this.#storage;
    const next = { ...stored, ...written, held: session?.length ?? stored.held, used: Date.now() };
    this.#storage.transactionSync(() => {
      for (const [layer, pages] of session ? exportSession(session, stored.held).entries() : [])
        for (const { index, bytes } of pages)
          sql.exec("INSERT OR REPLACE INTO pages VALUES (?, ?)", layer * PAGES + index, bytes);
      const { text, ids, left, held, used } = next;
      const columns = "text = ?, ids = ?, left = ?, held = ?, used = ?";
      sql.exec(`UPDATE conversation SET ${columns}`, text, JSON.stringify(ids), left, held, used);
    });
    Object.assign(stored, next);
  }

  /** Fills an empty session with the pages, one at a time. Leaves it empty if another version wrote them. */
  restore(stored: Stored, session: Session): void {
    const layers = Array.from({ length: session.model.layers }, (_, layer) => this.#pagesOf(layer));
    try {
      importSession(session, layers, stored.ids.slice(0, stored.held));
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      stored.held = 0;
    }
  }

  *#pagesOf(layer: number): Generator<CachePage, void> {
    const rows = this.#storage.sql.exec<{ key: number; bytes: ArrayBuffer }>(
      "SELECT key, bytes FROM pages WHERE key >= ? AND key < ? ORDER BY key",
      layer * PAGES,
      (layer + 1) * PAGES,
    );
    for (const { key, bytes } of rows) yield { index: key % PAGES, bytes: new Uint8Array(bytes) };
  }

  async clear(): Promise<void> {
    await this.#storage.deleteAlarm();
    await this.#storage.deleteAll();
  }
}
