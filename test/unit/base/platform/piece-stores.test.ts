// Folders, private file systems and caches as places for pieces.

import files, { mkdtemp, open, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { browserPieces, folderPieces, type PieceStore } from "../../../../src/base/platform/piece-stores.ts";
import { fakeCaches, fakeOpfs } from "../../../support/browser-storage.ts";

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "headwise-pieces-"));
});
afterAll(() => rm(folder, { recursive: true }));

const bytes = Uint8Array.from({ length: 300 }, (_, i) => i);

const STORES: readonly (readonly [what: string, make: () => PieceStore])[] = [
  ["a folder by path", () => folderPieces(join(folder, "a", "b")) as PieceStore],
  ["a folder by URL", () => folderPieces(pathToFileURL(join(folder, "c d"))) as PieceStore],
  ["a private file system", () => browserPieces("x", fakeOpfs()) as PieceStore],
  ["a cache", () => browserPieces("x", fakeCaches()) as PieceStore],
];

describe.each(STORES)("%s", (_, make) => {
  test("keeps what is written under its key, whole, until it is removed", async () => {
    const pieces = make();
    expect(await pieces.read("a-1")).toBe(undefined);
    await pieces.remove("a-1");
    const given = bytes.slice();
    await pieces.write("a-1", given);
    given.fill(0);
    await pieces.write("a-2", bytes.subarray(7, 9));
    expect(new Uint8Array((await pieces.read("a-1")) as Uint8Array)).toEqual(bytes);
    expect(await pieces.read("a-2")).toEqual(Uint8Array.of(7, 8));
    await pieces.write("a-2", bytes.subarray(0, 4));
    expect(await pieces.read("a-2")).toEqual(Uint8Array.of(0, 1, 2, 3));
    await pieces.remove("a-1");
    expect([await pieces.read("a-1"), (await pieces.read("a-2"))?.length]).toEqual([undefined, 4]);
  });

  test("two writes of the same piece at once leave one of them", async () => {
    const pieces = make();
    await Promise.all([pieces.write("b-1", bytes), pieces.write("b-1", bytes)]);
    expect(await pieces.read("b-1")).toEqual(bytes);
  });
});

test("a folder has nothing of a piece that could not be written, and a file that is no folder is an error", async () => {
  const own = join(folder, "full");
  const pieces = folderPieces(own) as PieceStore;
  await pieces.write("d-1", bytes);
  // A folder in the way of the name: the last step fails.
  const blocked = folderPieces(folder) as PieceStore;
  await expect(blocked.write("full", bytes)).rejects.toThrow();
  expect(await readdir(own)).toEqual(["d-1"]);
  expect((await readdir(folder)).filter((name) => name.endsWith(".part"))).toEqual([]);
  await writeFile(join(folder, "file"), "");
  const wrong = folderPieces(join(folder, "file")) as PieceStore;
  await expect(wrong.read("d-1")).rejects.toThrow();
  await expect(wrong.write("d-1", bytes)).rejects.toThrow();
});

test("a folder's piece is on the disk before it has its name", async () => {
  const handle = await open(join(folder, "any"), "w");
  await handle.close();
  const sync = vi.spyOn(Object.getPrototypeOf(handle), "sync");
  const rename = vi.spyOn(files, "rename");
  await folderPieces(folder)?.write("e-1", bytes);
  expect(sync).toHaveBeenCalledOnce();
  expect(sync.mock.invocationCallOrder[0]).toBeLessThan(rename.mock.invocationCallOrder[0] as number);
  vi.restoreAllMocks();
});

test("the first write into a folder removes parts of pieces that were left more than a day ago, and nothing else", async () => {
  const own = await mkdtemp(join(folder, "parts-"));
  const part = (key: string) => `${key}.${crypto.randomUUID()}.part`;
  const [stale, young, ...others] = [part("a-1"), part("a-2"), "a-3", "mine.part", `${part("a-4")}.txt`];
  const age = async (name: string, hours: number) => {
    await writeFile(join(own, name), bytes);
    const then = Date.now() / 1000 - 3600 * hours;
    await utimes(join(own, name), then, then);
  };
  for (const name of [stale as string, ...others]) await age(name, 25);
  await age(young as string, 23);
  const pieces = folderPieces(own) as PieceStore;
  expect(await pieces.read("a-3")).toEqual(bytes);
  expect(await readdir(own)).toHaveLength(5);
  await pieces.write("b-1", bytes);
  expect((await readdir(own)).sort()).toEqual([young as string, ...others, "b-1"].sort());
});

test("a folder that cannot be listed may be written", async () => {
  vi.spyOn(files, "readdir").mockRejectedValueOnce(new Error("no permission"));
  const pieces = folderPieces(join(folder, "unlisted")) as PieceStore;
  await pieces.write("a-1", bytes);
  expect(await pieces.read("a-1")).toEqual(bytes);
  vi.restoreAllMocks();
});

test("a private file system shows nothing of a piece that was not written to its end", async () => {
  const scope = fakeOpfs({ room: 300 });
  const pieces = browserPieces("x", scope) as PieceStore;
  await pieces.write("a", bytes.subarray(0, 200));
  await expect(pieces.write("b", bytes.subarray(0, 200))).rejects.toThrow("Quota");
  expect((await pieces.read("b"))?.length ?? 0).toBe(0);
  expect((await pieces.read("a"))?.length).toBe(200);
});

test("a browser has its private file system where that can be written, else a cache, else nothing", async () => {
  const both = { ...fakeOpfs(), ...fakeCaches() };
  const kept = async (scope: Parameters<typeof browserPieces>[1]) => {
    const pieces = browserPieces("x", scope);
    await pieces?.write("a", bytes);
    return [both.files.size, both.entries.size];
  };
  expect(await kept(both)).toEqual([1, 0]);
  class Handle {}
  expect(await kept({ ...both, FileSystemFileHandle: Handle })).toEqual([1, 1]);
  expect(browserPieces("x", {})).toBe(undefined);
});
