// Files of servers that are kept: what is asked for again, and what is kept after whatever went wrong.

import { createHash } from "node:crypto";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { browserPieces, folderPieces } from "../../../src/base/platform/piece-stores.ts";
import type { Kernels } from "../../../src/entries/core.ts";
import {
  createBrowserStore,
  createFolderStore,
  createStore,
  HeadwiseError,
  type ModelStore,
  type PieceStore,
  type StoreOptions,
} from "../../../src/entries/models.ts";
import { forward } from "../../../src/models/decoder/forward.ts";
import { createSession } from "../../../src/models/decoder/session.ts";
import { loadModel } from "../../../src/models/load/load-model.ts";
import { gguf as ggufReader } from "../../../src/models/spec/read-gguf.ts";
import { fakeCaches, fakeOpfs } from "../../support/browser-storage.ts";
import { kernelsOf } from "../../support/layers.ts";
import { shortenWaits } from "../../support/short-waits.ts";
import { tinyGguf } from "../../support/tiny-gguf.ts";
import { TINY, tinyFolder, tinyTensors } from "../../support/tiny-models.ts";

shortenWaits();

const PIECE = 2 ** 22;
const URL_OF = "https://example.com/model.gguf";

/** Pieces in memory, whose writes fail beyond so many bytes. */
function memoryPieces(room = Number.POSITIVE_INFINITY): PieceStore & { readonly kept: Map<string, Uint8Array> } {
  const kept = new Map<string, Uint8Array>();
  return {
    kept,
    read: async (key) => kept.get(key),
    async write(key, bytes) {
      expect(key).toMatch(/^[0-9a-z-]{1,64}$/);
      if ([...kept.values()].reduce((sum, { length }) => sum + length, bytes.length) > room)
        throw new Error("no space left");
      kept.set(key, bytes.slice());
    },
    remove: async (key) => void kept.delete(key),
  };
}

/** Bytes that have a SHA-256 of their own. */
const BLOCK = 2 ** 16;
const digestOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest();
/** What a store keeps: the bytes, the SHA-256 of each block behind them, and that of these. */
function sealed(bytes: Uint8Array): Buffer {
  const digests = Buffer.concat(
    Array.from({ length: Math.ceil(bytes.length / BLOCK) }, (_, i) =>
      digestOf(bytes.subarray(i * BLOCK, (i + 1) * BLOCK)),
    ),
  );
  return Buffer.concat([bytes, digests, digestOf(digests)]);
}
/** Bytes of a whole piece in a store. */
const KEPT = PIECE + 32 * 65;

const PATTERN = Uint8Array.from({ length: 4 * PIECE }, (_, i) => i * 31 + (i >> 12));
const patterned = (size: number): Uint8Array<ArrayBuffer> => PATTERN.slice(0, size);

/** A server of one file in memory: its requests are counted, and it may be away, change, or break off. */
function fileServer(size: number) {
  const state = {
    bytes: patterned(size),
    mark: '"1"' as string | undefined,
    status: 206,
    isAway: false,
    requests: 0,
    sent: 0,
    /** Answers with more bytes than this break off. */
    breaksAt: Number.POSITIVE_INFINITY,
  };
  const fetch = async (_url: string, { headers }: { headers: Readonly<Record<string, string>> }) => {
    state.requests++;
    if (state.isAway) throw new TypeError("fetch failed");
    if (state.status !== 206) return new Response("", { status: state.status });
    const [begin = 0, last = 0] = Array.from((headers.Range as string).matchAll(/\d+/g), Number);
    const end = Math.min(last + 1, state.bytes.length);
    const own: Record<string, string> = { "Content-Range": `bytes ${begin}-${end - 1}/${state.bytes.length}` };
    if (state.mark) own.ETag = state.mark;
    const body = state.bytes.slice(begin, Math.min(end, begin + state.breaksAt));
    state.sent += body.length;
    return new Response(body, { status: 206, headers: own });
  };
  return Object.assign(state, { fetch });
}

/** Opens the server's file through the store, as a source. */
const open = (store: ModelStore, { fetch }: ReturnType<typeof fileServer>) => store.open(URL_OF, { fetch });

/** A store whose failures are listed. */
function listening(pieces: PieceStore, options: StoreOptions = {}) {
  const failures: HeadwiseError[] = [];
  return { failures, store: createStore(pieces, { onFailure: (error) => failures.push(error), ...options }) };
}

afterEach(() => vi.restoreAllMocks());

describe("a source of a store", () => {
  test("gives every range of the file, and requests each piece once", async () => {
    const server = fileServer(3 * PIECE + 1000);
    const { store, failures } = listening(memoryPieces());
    const source = await open(store, server);
    expect(source.size).toBe(server.bytes.length);
    const ranges = [
      ...[
        [0, 8],
        [PIECE - 4, 8],
        [5, 3 * PIECE],
        [0, 3 * PIECE + 1000],
        [PIECE, PIECE],
        [3 * PIECE + 999, 1],
        [7, 0],
      ],
    ] as const;
    const check = async (from: typeof source) => {
      for (const [at, length] of ranges)
        expect(Buffer.compare(await from.read(at!, length!), server.bytes.subarray(at, at! + length!))).toBe(0);
    };
    await check(source);
    expect(server.requests).toBe(5);
    await check(await open(store, server));
    expect(server.requests).toBe(6);
    expect(failures).toEqual([]);
  });

  test("reads of the same pieces at once request them once, and two sources at once give the same bytes", async () => {
    const server = fileServer(2 * PIECE);
    const { store } = listening(memoryPieces());
    const [a, b] = await Promise.all([open(store, server), open(store, server)]);
    const read = await Promise.all([a.read(0, 2 * PIECE), a.read(5, PIECE), b.read(0, 2 * PIECE), a.read(9, 9)]);
    expect(read.map(({ length }) => length)).toEqual([2 * PIECE, PIECE, 2 * PIECE, 9]);
    expect(Buffer.compare(read[2] as Uint8Array, server.bytes)).toBe(0);
    // Both sources compare versions, and each may ask for both pieces before the other has kept them.
    expect(server.requests).toBeLessThanOrEqual(6);
  });

  test("a start without a network reads what is kept, and names the server where a piece is missing", async () => {
    const server = fileServer(3 * PIECE);
    const { store } = listening(memoryPieces());
    await (await open(store, server)).read(0, 2 * PIECE);
    server.isAway = true;
    const { requests } = server;
    const again = await open(store, server);
    // At once: what is kept need not wait for a server that may come back.
    expect(server.requests).toBe(requests + 1);
    expect(Buffer.compare(await again.read(9, 2 * PIECE - 9), server.bytes.subarray(9, 2 * PIECE))).toBe(0);
    await expect(again.read(2 * PIECE, 1)).rejects.toMatchObject({
      code: "BAD_FILE",
      message: `urlSource: url "${URL_OF}" expected an answer, got TypeError: fetch failed`,
    });
    server.isAway = false;
    expect(await again.read(2 * PIECE, 1)).toEqual(server.bytes.slice(2 * PIECE, 2 * PIECE + 1));
  });

  test("an answer of 429, or of 500 or more, leaves what is kept, and 404 is an error", async () => {
    const server = fileServer(1000);
    const { store } = listening(memoryPieces());
    await (await open(store, server)).read(0, 1000);
    for (const status of [429, 500, 503]) {
      server.status = status;
      expect((await (await open(store, server)).read(0, 1000)).length).toBe(1000);
    }
    server.status = 404;
    await expect(open(store, server)).rejects.toThrow("expected a file that may be read, got 404 (not found)");
    server.status = 206;
    const before = server.sent;
    expect((await (await open(store, server)).read(0, 1000)).length).toBe(1000);
    expect(server.sent - before).toBe(1000);
  });

  test("that a file does not exist is kept too, until it does", async () => {
    const server = fileServer(1000);
    const pieces = memoryPieces();
    const { store } = listening(pieces);
    server.status = 404;
    await expect(open(store, server)).rejects.toMatchObject({ cause: { status: 404 } });
    server.isAway = true;
    await expect(open(store, server)).rejects.toMatchObject({ cause: { status: 404 } });
    await expect(store.open("https://example.com/other", { fetch: server.fetch })).rejects.toThrow("fetch failed");
    Object.assign(server, { isAway: false, status: 206 });
    const { requests } = server;
    expect((await open(createStore(pieces, { validate: false }), server)).size).toBe(1000);
    expect(server.requests).toBe(requests + 1);
  });

  test("without comparing versions, the server is asked for what is not kept only, and must have the same file", async () => {
    const server = fileServer(2 * PIECE);
    const pieces = memoryPieces();
    await (await open(listening(pieces).store, server)).read(0, PIECE);
    const { store } = listening(pieces, { validate: false });
    const before = server.requests;
    const source = await open(store, server);
    await source.read(0, PIECE);
    expect(server.requests).toBe(before);
    server.mark = '"2"';
    const changed = /expected to stay as it was \(8388608 bytes, "1"\), got 8388608 bytes, "2"$/;
    await expect(source.read(PIECE, 1)).rejects.toThrow(changed);
    await expect(source.read(PIECE, 1)).rejects.toThrow(changed);
    expect([...pieces.kept.keys()]).toEqual([]);
    expect((await (await open(store, server)).read(PIECE, 9)).length).toBe(9);
  });

  test.each([
    ["another ETag", (server: ReturnType<typeof fileServer>) => Object.assign(server, { mark: '"2"' })],
    ["no ETag any more", (server: ReturnType<typeof fileServer>) => Object.assign(server, { mark: undefined })],
    [
      "another size",
      (server: ReturnType<typeof fileServer>) => Object.assign(server, { bytes: server.bytes.slice(0, PIECE + 5) }),
    ],
  ] as const)("a file that has %s is read anew, and nothing of the old one stays", async (_, change) => {
    const server = fileServer(2 * PIECE);
    const { kept, ...pieces } = memoryPieces();
    const { store } = listening({ ...pieces });
    await (await open(store, server)).read(0, 2 * PIECE);
    const old = [...kept.keys()].filter((key) => !key.endsWith("-entry"));
    change(server);
    server.bytes = server.bytes.map((byte) => byte ^ 255);
    const source = await open(store, server);
    expect([...kept.keys()].filter((key) => old.includes(key))).toEqual([]);
    expect(Buffer.compare(await source.read(0, source.size), server.bytes)).toBe(0);
    expect(kept.size).toBe(3);
  });

  test("a download that breaks off goes on with the piece that is missing", async () => {
    const server = fileServer(4 * PIECE);
    const pieces = memoryPieces();
    const { store } = listening(pieces);
    const source = await open(store, server);
    await source.read(0, PIECE);
    server.breaksAt = 0;
    await expect(source.read(0, 4 * PIECE)).rejects.toMatchObject({ code: "BAD_FILE" });
    // Each of the three others is asked for four times.
    await vi.waitFor(() => expect(server.requests).toBe(2 + 3 * 4));
    // Nothing of the pieces that broke off is kept.
    expect([...pieces.kept.values()].filter(({ length }) => length > 1000).map(({ length }) => length)).toEqual([KEPT]);
    server.breaksAt = Number.POSITIVE_INFINITY;
    server.sent = 0;
    const again = await open(store, server);
    expect(Buffer.compare(await again.read(0, 4 * PIECE), server.bytes)).toBe(0);
    expect(server.sent).toBe(2 ** 16 + 3 * PIECE);
  });

  test("a signal ends a read, of which nothing is kept, and an aborted start is not taken for one without a network", async () => {
    const server = fileServer(2 * PIECE);
    const pieces = memoryPieces();
    const { store } = listening(pieces);
    const stop = new AbortController();
    const fetch: typeof server.fetch = async (...given) => {
      stop.signal.throwIfAborted();
      return server.fetch(...given);
    };
    const source = await store.open(URL_OF, { fetch, signal: stop.signal });
    stop.abort(new Error("enough"));
    await expect(source.read(0, 9)).rejects.toMatchObject({ code: "BAD_FILE" });
    await expect(store.open(URL_OF, { fetch, signal: stop.signal })).rejects.toMatchObject({ code: "BAD_FILE" });
    expect(pieces.kept.size).toBe(1);
  });

  test.each([
    [0, 0],
    [2 * KEPT, 2],
  ])(
    "storage that is full after %i bytes: reading goes on, it is reported once, %i entries stay",
    async (room, count) => {
      const server = fileServer(3 * PIECE);
      const pieces = memoryPieces(room);
      const { store, failures } = listening(pieces);
      for (let start = 0; start < 2; start++) {
        const source = await open(store, server);
        expect(Buffer.compare(await source.read(0, 3 * PIECE), server.bytes)).toBe(0);
      }
      expect(failures.map(({ code, message }) => [code, message])).toEqual([
        [
          "NO_STORAGE",
          expect.stringMatching(/cannot be kept, and reading goes on from the server: Error: no space left$/),
        ],
      ]);
      expect(pieces.kept.size).toBe(count);
    },
  );

  test("a store that cannot be read is reported once, on the console by default", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    const fail = async (): Promise<never> => {
      throw new Error("denied");
    };
    const server = fileServer(1000);
    const store = createStore({ read: fail, write: fail, remove: fail });
    expect((await (await open(store, server)).read(0, 1000)).length).toBe(1000);
    await store.remove(URL_OF);
    expect(warn.mock.calls).toEqual([[expect.stringMatching(/^headwise: store: .* Error: denied$/)]]);
  });

  test("pieces that are short, gone or no bytes are requested again, and entries that are none are replaced", async () => {
    const server = fileServer(3 * PIECE);
    const { kept, ...pieces } = memoryPieces();
    const { store } = listening(pieces);
    const whole = async () => {
      const source = await open(store, server);
      expect(Buffer.compare(await source.read(0, 3 * PIECE), server.bytes)).toBe(0);
    };
    await whole();
    const [entry, ...keys] = kept.keys() as Iterable<string> as never as string[];
    expect(entry).toMatch(/-entry$/);
    kept.set(keys[0] as string, new Uint8Array(PIECE - 1));
    kept.set(keys[1] as string, "text" as never);
    kept.delete(keys[2] as string);
    server.sent = 0;
    await whole();
    expect(server.sent).toBe(2 ** 16 + 3 * PIECE);
    for (const text of ["", "{", "null", "5", '{"url":"x"}', `{"url":"${URL_OF}","size":1e300,"mark":null}`]) {
      kept.set(entry as string, sealed(new TextEncoder().encode(text)));
      server.sent = 0;
      await whole();
      expect(server.sent).toBe(2 ** 16);
    }
  });

  test.each<[string, (record: Uint8Array) => void]>([
    ["with one bit changed", (record) => record.set([record[1_000_000]! ^ 8], 1_000_000)],
    ["with a changed checksum", (record) => record.set([record.at(-1)! ^ 1], record.length - 1)],
    ["of zeros", (record) => record.fill(0)],
  ])("a piece %s is never given out: it is requested and kept anew, and reported once", async (_, damage) => {
    const server = fileServer(2 * PIECE);
    const pieces = memoryPieces();
    await (await open(listening(pieces).store, server)).read(0, 2 * PIECE);
    const [, first, second] = pieces.kept.values();
    damage(first as Uint8Array);
    damage(second as Uint8Array);
    const { store, failures } = listening(pieces, { validate: false });
    const read = async () => (await open(store, server)).read(0, 2 * PIECE);
    server.sent = 0;
    expect(Buffer.compare(await read(), server.bytes)).toBe(0);
    expect(server.sent).toBe(2 ** 16 + 2 * PIECE);
    expect(failures.map(({ code, message }) => [code, message])).toEqual([
      [
        "NO_STORAGE",
        "store: a piece of a file cannot be read back, and reading goes on from the server: Error: its bytes have changed since they were written",
      ],
    ]);
    server.isAway = true;
    expect(Buffer.compare(await read(), server.bytes)).toBe(0);
  });

  test.each<[string, () => Promise<PieceStore>]>([
    ["a folder", async () => folderPieces(await mkdtemp(join(tmpdir(), "headwise-parts-"))) as PieceStore],
    ["a private file system", async () => browserPieces("models", fakeOpfs()) as PieceStore],
  ])(
    "of a piece in %s that is kept, a short read takes the blocks it lies in, and a second one the piece",
    async (_, make) => {
      const server = fileServer(3 * PIECE - 9);
      const pieces = await make();
      await (await open(listening(pieces).store, server)).read(0, server.bytes.length);
      const read: string[] = [];
      const counted: PieceStore = {
        write: pieces.write,
        remove: pieces.remove,
        async read(key) {
          read.push(key.endsWith("entry") ? "entry" : "piece");
          return pieces.read(key);
        },
        async readRange(key, begin, end) {
          read.push(`${begin} to ${end}`);
          return pieces.readRange?.(key, begin, end);
        },
      };
      const { store, failures } = listening(counted, { validate: false });
      const source = await open(store, server);
      const expectAt = async (at: number, length: number, ...calls: readonly string[]) => {
        read.length = 0;
        expect(Buffer.compare(await source.read(at, length), server.bytes.subarray(at, at + length))).toBe(0);
        expect(read).toEqual(calls);
      };
      const seal = `${PIECE} to ${PIECE + 32 * 65}`;
      await expectAt(BLOCK - 3, 9, seal, `0 to ${2 * BLOCK}`);
      await expectAt(PIECE + 5 * BLOCK, 100, seal, `${5 * BLOCK} to ${6 * BLOCK}`);
      // The last piece ends early.
      const last = server.bytes.length - 7;
      await expectAt(last, 7, `${PIECE - 9} to ${PIECE - 9 + 32 * 65}`, `${PIECE - BLOCK} to ${PIECE - 9}`);
      await expectAt(last - 9000, 7, "piece");
      await expectAt(last - 5000, 70);
      await expectAt(0, 2 ** 18 + 1, "piece");
      expect(failures).toEqual([]);
    },
  );

  test.each([
    ["in the block", 5 * BLOCK + 9],
    ["in a digest of a block", PIECE + 70],
    ["in the last digest", PIECE + 32 * 64 + 3],
  ])("a piece with a bit changed %s gives no part: it is requested and kept anew, and reported once", async (_, at) => {
    const server = fileServer(2 * PIECE);
    const kept = memoryPieces();
    await (await open(listening(kept).store, server)).read(0, 2 * PIECE);
    const pieces = {
      ...kept,
      readRange: async (key: string, begin: number, end: number) => kept.kept.get(key)?.slice(begin, end),
    };
    // Pieces are kept in the order in which they come.
    const [, record] = [...kept.kept].find(([key]) => key.endsWith("-0")) as [string, Uint8Array];
    record[at]! ^= 16;
    const { store, failures } = listening(pieces, { validate: false });
    const source = await open(store, server);
    server.sent = 0;
    const want = server.bytes.subarray(5 * BLOCK, 5 * BLOCK + 50);
    expect(Buffer.compare(await source.read(5 * BLOCK, 50), want)).toBe(0);
    expect(server.sent).toBe(2 ** 16 + PIECE);
    expect(failures).toHaveLength(1);
    server.isAway = true;
    const again = await open(listening(pieces, { validate: false }).store, server);
    expect(Buffer.compare(await again.read(5 * BLOCK, 50), want)).toBe(0);
  });

  test("two URLs with the same 64-bit digest, by which an older version kept pieces, share none", async () => {
    const [victim, other] = ["https://example.com/@A@CAC@CB@AC@@A", "https://example.com/@@@@ABBC@AC@BB@"];
    const server = fileServer(1000);
    const { store } = listening(memoryPieces());
    await (await store.open(other as string, { fetch: server.fetch })).read(0, 1000);
    server.bytes = server.bytes.map((byte) => byte ^ 255);
    const source = await store.open(victim as string, { fetch: server.fetch });
    expect(Buffer.compare(await source.read(0, 1000), server.bytes)).toBe(0);
  });

  test("what an older version kept of a URL is removed when it is opened, and of no other URL", async () => {
    const pieces = memoryPieces();
    const [own, version] = ["309ec7940da4ee58", "c7575f3a5ad265fe"]; // of the URL, and of size and ETag
    const keys = [`${own}-entry`, `${own}-${version}-0`, `${own}-${version}-1`] as const;
    for (const key of keys) pieces.kept.set(key, Uint8Array.of(1));
    const keep = (url: string) => {
      const entry = { url, size: PIECE + 1, mark: '"1"' };
      pieces.kept.set(keys[0], new TextEncoder().encode(JSON.stringify(entry)));
    };
    const left = () => keys.filter((key) => pieces.kept.has(key)).length;
    keep("https://example.com/other");
    await open(listening(pieces).store, fileServer(1000));
    expect(left()).toBe(3);
    keep(URL_OF);
    const { store, failures } = listening(pieces);
    await store.remove(URL_OF);
    await open(store, fileServer(1000));
    expect([left(), failures]).toEqual([0, []]);
  });

  test("of an older entry with a size that is never kept, nothing else is removed", async () => {
    const pieces = memoryPieces();
    const key = "309ec7940da4ee58-entry";
    const entry = { url: URL_OF, size: 2 ** 36 + 1, mark: '"1"' };
    pieces.kept.set(key, new TextEncoder().encode(JSON.stringify(entry)));
    const remove = vi.spyOn(pieces, "remove");
    await open(listening(pieces).store, fileServer(1000));
    expect(remove.mock.calls).toEqual([[key]]);
  });

  test("remove forgets a URL and no other", async () => {
    const server = fileServer(PIECE + 1);
    const pieces = memoryPieces();
    const { store } = listening(pieces);
    await (await open(store, server)).read(0, PIECE + 1);
    await (await store.open(new URL("https://example.com/b"), { fetch: server.fetch })).read(0, 1);
    await store.remove(new URL(URL_OF));
    expect(pieces.kept.size).toBe(2);
    await store.remove("https://example.com/b");
    expect(pieces.kept.size).toBe(0);
  });
});

describe("a file that says it is larger than any model", () => {
  const huge = 2 ** 50;
  test("is read from the server, and nothing is kept of it", async () => {
    const server = fileServer(1000);
    const fetch: typeof server.fetch = async (_url, { headers }) => {
      const [begin = 0, last = 0] = Array.from((headers.Range as string).matchAll(/\d+/g), Number);
      return new Response(new Uint8Array(last + 1 - begin), {
        status: 206,
        headers: { "Content-Range": `bytes ${begin}-${last}/${huge}` },
      });
    };
    const pieces = memoryPieces();
    const { store } = listening(pieces);
    await (await open(store, server)).read(0, 9);
    const source = await store.open(URL_OF, { fetch });
    expect([source.size, (await source.read(2 ** 40, 100_000)).length]).toEqual([huge, 100_000]);
    expect([...pieces.kept.keys()]).toEqual([]);
  });

  test.each([huge, -1, 0.5, "9", null])("is no entry, and replaced at once: %o", async (size) => {
    const server = fileServer(1000);
    const pieces = memoryPieces();
    const { store } = listening(pieces);
    await open(store, server);
    const [key] = pieces.kept.keys();
    const entry = JSON.stringify({ url: URL_OF, size, mark: '"1"' });
    pieces.kept.set(key as string, sealed(new TextEncoder().encode(entry)));
    expect((await (await open(store, server)).read(0, 1000)).length).toBe(1000);
    await store.remove(URL_OF);
    expect(pieces.kept.size).toBe(0);
  });
});

describe("a file that is forgotten while it is read", () => {
  test("goes on from the server, and nothing more is kept of it, also what was being written", async () => {
    const server = fileServer(4 * PIECE);
    const { kept, ...pieces } = memoryPieces();
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let holds = false;
    const write: PieceStore["write"] = async (key, bytes) => {
      if (holds) await held;
      await pieces.write(key, bytes);
    };
    const { store, failures } = listening({ ...pieces, write });
    const source = await open(store, server);
    await source.read(0, PIECE);
    holds = true;
    const reading = source.read(PIECE, PIECE);
    await vi.waitFor(() => expect(server.requests).toBe(3));
    await store.remove(URL_OF);
    expect(kept.size).toBe(0);
    release();
    expect(Buffer.compare(await reading, server.bytes.subarray(PIECE, 2 * PIECE))).toBe(0);
    expect(Buffer.compare(await source.read(2 * PIECE, PIECE), server.bytes.subarray(2 * PIECE, 3 * PIECE))).toBe(0);
    expect(kept.size).toBe(0);
    // Opened again, it is kept again, by either source.
    await (await open(store, server)).read(3 * PIECE, 1);
    await source.read(0, 1);
    expect(kept.size).toBe(3);
    expect(failures).toEqual([]);
  });

  test("leaves nothing of an old version that is still read while the new one is kept", async () => {
    const server = fileServer(3 * PIECE);
    const { kept, ...pieces } = memoryPieces();
    const { store } = listening({ ...pieces });
    const old = server.fetch;
    const source = await store.open(URL_OF, { fetch: old });
    await source.read(0, 1);
    server.mark = '"2"';
    await (await open(store, server)).read(0, 1);
    const names = [...kept.keys()];
    server.mark = '"1"';
    await source.read(PIECE, 1);
    expect([...kept.keys()]).toEqual(names);
  });
});

describe("arguments", () => {
  test("stores are refused by name", () => {
    expect(() => createStore({ read: async () => undefined } as never)).toThrow(
      "createStore: pieces.write expected a function, got undefined",
    );
    expect(() => createStore(memoryPieces(), { check: true } as never)).toThrow("createStore: options expected ");
    expect(() => createStore(memoryPieces(), { validate: 1 } as never)).toThrow("createStore: options.validate");
    expect(() => createFolderStore(5 as never)).toThrow("createFolderStore: folder expected a path or a URL, got 5");
    expect(() => createBrowserStore(5 as never)).toThrow("createBrowserStore: name expected a string, got 5");
    expect(() => createBrowserStore()).toThrow(
      new HeadwiseError("NO_STORAGE", "createBrowserStore: this host has neither a private file system nor caches"),
    );
  });

  test("a URL and its options are those of urlSource", async () => {
    const { store } = listening(memoryPieces());
    await expect(store.open(5 as never)).rejects.toThrow("urlSource: url expected a string or a URL, got 5");
    await expect(store.open(URL_OF, { get: 1 } as never)).rejects.toThrow("urlSource: options expected");
  });
});

describe("loadModel with a store", () => {
  let kernels: Kernels;
  let folder = "";
  beforeAll(async () => {
    kernels = await kernelsOf("relaxed");
    folder = await mkdtemp(join(tmpdir(), "headwise-store-"));
  });
  afterAll(async () => {
    kernels.release();
    await rm(folder, { recursive: true });
  });

  const wide = { ...TINY.llama, vocab_size: 100_003, rms_norm_eps: 2 ** -14 };
  const tensors = tinyTensors(wide);
  const parts = tinyFolder(wide, tensors);
  const gguf = tinyGguf(wide, tensors);
  const files = (name: string) => (name === "model.gguf" ? gguf : parts(name));

  /** A server that breaks off after so many bytes of bodies. */
  async function serveUpTo(limit: { bytes: number; requests: number }): Promise<Server> {
    const server = createServer((request, response) => {
      limit.requests++;
      const bytes = files((request.url ?? "").slice(1));
      if (!bytes) return void response.writeHead(404).end();
      const [begin = 0, last = 0] = Array.from((request.headers.range ?? "").matchAll(/\d+/g), Number);
      const end = Math.min(last + 1, bytes.length);
      const range = `bytes ${begin}-${end - 1}/${bytes.length}`;
      if (limit.bytes < end - begin) return void request.socket.destroy();
      limit.bytes -= end - begin;
      response.writeHead(206, { "Content-Range": range, ETag: '"1"' }).end(bytes.subarray(begin, end));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return server;
  }

  const addressOf = (server: Server) => `http://127.0.0.1:${(server.address() as { port: number }).port}`;

  function end(server: Server): Promise<void> {
    const ended = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    return ended;
  }

  async function logitsOf(
    source: Parameters<typeof loadModel>[1],
    store?: ModelStore,
    signal?: AbortSignal,
  ): Promise<Float32Array> {
    using model = await loadModel(kernels, source, { gguf: ggufReader, store, signal });
    using session = createSession(model, { maxSeqLen: 9 });
    return forward(session, [5, 6, 7]).logits;
  }

  const PLACES: readonly (readonly [what: string, make: () => PieceStore])[] = [
    ["a folder", () => folderPieces(join(folder, "a")) as PieceStore],
    ["a private file system", () => browserPieces("x", fakeOpfs()) as PieceStore],
    ["a cache", () => browserPieces("x", fakeCaches()) as PieceStore],
  ];

  describe.each(["", "model.gguf"])("/%s", (name) => {
    test.each(PLACES)("an interrupted load goes on, and the next start needs no network: %s", async (_, make) => {
      let kept = 0;
      const place = make();
      const write = async (key: string, bytes: Uint8Array) => {
        await place.write(key, bytes);
        if (bytes.length === KEPT) kept += PIECE;
      };
      const store = () => createStore({ ...place, write });
      const limit = { bytes: 2 ** 20 + 2 * PIECE, requests: 0 };
      const server = await serveUpTo(limit);
      const url = `${addressOf(server)}/${name}`;
      const used = kernels.usedBytes;
      const stop = new AbortController();
      await expect(logitsOf(url, store(), stop.signal)).rejects.toMatchObject({ code: "BAD_FILE" });
      expect(kernels.usedBytes).toBe(used);
      // Reads of other pieces went on.
      await vi.waitFor(() => expect(kept).toBe(2 * PIECE));
      stop.abort();
      // All of it once, with the beginnings of the three files, but for what was kept; and a piece that was asked for before.
      limit.bytes = gguf.length + 3 * 2 ** 16 - kept + PIECE;
      const want = await logitsOf(files(name) ?? files);
      expect(await logitsOf(url, store())).toEqual(want);
      await end(server);
      const { requests } = limit;
      expect(await logitsOf(url, store())).toEqual(want);
      expect(limit.requests).toBe(requests);
    });
  });

  test("two loads at once into the same folder give the same bits, and leave whole pieces only", async () => {
    const limit = { bytes: Number.POSITIVE_INFINITY, requests: 0 };
    const server = await serveUpTo(limit);
    const url = `${addressOf(server)}/model.gguf`;
    const own = join(folder, "two");
    const loads = [createFolderStore(own), createFolderStore(own)].map((store) => logitsOf(url, store));
    const want = await logitsOf(gguf);
    for (const got of await Promise.all(loads)) expect(got).toEqual(want);
    expect((await readdir(own)).filter((file) => !/^[0-9a-f]{48}-(entry|\d+)$/.test(file))).toEqual([]);
    await end(server);
    expect(await logitsOf(url, createFolderStore(own))).toEqual(want);
  });

  test("a store without open is refused", async () => {
    await expect(loadModel(kernels, gguf, { store: {} as never })).rejects.toThrow(
      "loadModel: options.store.open expected a function, got undefined",
    );
  });
});
