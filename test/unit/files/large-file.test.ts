// Tensors beyond 2^31 and 2^32 bytes of a file.

import { openAsBlob } from "node:fs";
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type ByteSource,
  type BytesOrSource,
  blobSource,
  fileSource,
  openGguf,
  urlSource,
} from "../../../src/entries/weights.ts";
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
});
