// Tensors beyond 2^31 and 2^32 bytes of a file.

import { openAsBlob, readFileSync } from "node:fs";
import { type FileHandle, mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type ByteSource,
  type BytesOrSource,
  blobSource,
  fileSource,
  openGguf,
  openSafetensors,
  openSafetensorsIndex,
  readSafetensorsIndex,
  urlSource,
} from "../../../src/entries/weights.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { bytesOf, writeGguf } from "../../support/gguf-writer.ts";
import { serve, urlOf } from "../../support/range-server.ts";

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "headwise-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe("a large file", () => {
  const last = Float32Array.from({ length: 1000 }, (_, i) => Math.fround(i / 3));

  /** Writes a file with so many GiB of zeros before its last tensor; they take no room on the disk. */
  async function writeLarge(gib: number): Promise<string> {
    const path = join(folder, `${gib}.gguf`);
    const length = gib * 2 ** 30;
    const filler = { name: "token_embd.weight", type: 0, shape: [length / 4096, 1024], bytes: new Uint8Array() };
    const tensors = [filler, { name: "last", type: 0, shape: [1000], bytes: bytesOf(last), offset: length }];
    const file = writeGguf({ tensors });
    const header = file.length - last.byteLength;
    const handle = await open(path, "w");
    await handle.write(file, 0, header, 0);
    await handle.write(file, header, last.byteLength, header + length);
    await handle.close();
    return path;
  }

  const check = async (source: BytesOrSource, from: number, bytesRead: () => number) => {
    const file = await openGguf(source);
    expect(file.tensors.get("last")?.offset).toBeGreaterThan(from);
    expect((await file.read("last")).bytes).toEqual(bytesOf(last));
    expect(bytesRead()).toBeLessThan(2 ** 17);
  };

  test("is read behind 2^32 through a file handle", async () => {
    await using handle = await open(await writeLarge(5));
    let bytes = 0;
    const source = await fileSource({
      stat: () => handle.stat(),
      read(into, at, length, position) {
        bytes += length;
        return handle.read(into, at, length, position);
      },
    });
    await check(source, 2 ** 32, () => bytes);
  });

  // Node's own Blobs end at 2^32.
  test("is read behind 2^31 as a Blob", async () => {
    const blob = await openAsBlob(await writeLarge(3));
    const source = blobSource(blob);
    let bytes = 0;
    const counted: ByteSource = {
      size: source.size,
      read(offset, length) {
        bytes += length;
        return source.read(offset, length);
      },
    };
    await check(counted, 2 ** 31, () => bytes);
    expect((await (await openGguf(blob)).read("last")).bytes).toEqual(bytesOf(last));
  });

  test("is read behind 2^32 from a server", async () => {
    await using handle = await open(await writeLarge(5));
    let bytes = 0;
    const server = await serve((await handle.stat()).size, async (begin, end) => {
      bytes += end - begin;
      const into = new Uint8Array(end - begin);
      await handle.read(into, 0, into.length, begin);
      return into;
    });
    await check(await urlSource(urlOf(server)), 2 ** 32, () => bytes);
    server.close();
  });

  /** Writes a safetensors file with so many GiB of zeros before its last tensor. */
  async function writeLargeSafetensors(name: string, gib: number): Promise<string> {
    const path = join(folder, name);
    const zeros = gib * 2 ** 30;
    const tensors = {
      zeros: { dtype: "F32", shape: [zeros / 4096, 1024], data_offsets: [0, zeros] },
      [name]: { dtype: "F32", shape: [1000], data_offsets: [zeros, zeros + last.byteLength] },
    };
    const header = new TextEncoder().encode(JSON.stringify(tensors));
    const handle = await open(path, "w");
    await handle.write(Uint8Array.of(header.length & 255, header.length >> 8, 0, 0, 0, 0, 0, 0), 0, 8, 0);
    await handle.write(header, 0, header.length, 8);
    await handle.write(bytesOf(last), 0, last.byteLength, 8 + header.length + zeros);
    await handle.close();
    return path;
  }

  test("of safetensors is read behind 2^32, and so are the files of an index, of which no other byte is read", async () => {
    const names = ["a.safetensors", "b.safetensors", "c.safetensors"];
    for (const name of names) await writeLargeSafetensors(name, 5);
    const handles: FileHandle[] = [];
    let bytes = 0;
    const openPart = async (name: string) => {
      const handle = await open(join(folder, name));
      handles.push(handle);
      return fileSource({
        stat: () => handle.stat(),
        read(into, at, length, position) {
          bytes += length;
          return handle.read(into, at, length, position);
        },
      });
    };
    const file = await openSafetensors(await openPart("a.safetensors"));
    expect((await file.read("a.safetensors")).bytes).toEqual(bytesOf(last));
    const weight_map = Object.fromEntries(names.map((name) => [name, name]));
    const index = await openSafetensorsIndex({ weight_map }, openPart);
    const read = await index.readAll(["c.safetensors", "b.safetensors"]);
    expect(Array.from(read, ([name, tensor]) => [name, tensor.bytes])).toEqual([
      ["c.safetensors", bytesOf(last)],
      ["b.safetensors", bytesOf(last)],
    ]);
    expect(handles.length).toBe(3);
    expect(bytes).toBeLessThan(3 * (last.byteLength + 2 ** 10));
    for (const handle of handles) await handle.close();
  });

  test("as a Blob of Node, which loses 4 GiB of its size, is refused with the function that reads it", async () => {
    const note = /bytes\)? \(Blobs of Node hold less than 4 GiB: fileSource reads larger files\), got /;
    expect(await badFileOf(async () => openGguf(await openAsBlob(await writeLarge(5))))).toMatch(note);
    const path = await writeLargeSafetensors("blob.safetensors", 5);
    expect(await badFileOf(async () => openSafetensors(await openAsBlob(path)))).toMatch(note);
  });

  test("given whole to readSafetensorsIndex is refused by Node, and the error names the function that reads parts", async () => {
    await writeLargeSafetensors("whole.safetensors", 5);
    const index = { weight_map: { "whole.safetensors": "whole.safetensors" } };
    const { tensors } = readSafetensorsIndex(index, (name) => readFileSync(join(folder, name)));
    expect(await badFileOf(() => tensors.get("whole.safetensors")?.bytes)).toMatch(
      /^readSafetensorsIndex: shard "whole.safetensors" expected bytes, got RangeError.*2 GiB: openSafetensorsIndex reads files of any size in parts$/,
    );
  });
});
