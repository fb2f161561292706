// Files by pieces that come ahead: which are read, how many at once, and how many are held.

import { describe, expect, test } from "vitest";
import type { ByteSource } from "../../../src/files/byte-source.ts";
import { HeldPieces, readAhead } from "../../../src/files/read-ahead.ts";
import { loadModel } from "../../../src/models/load/load-model.ts";
import { gguf } from "../../../src/models/spec/read-gguf.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { kernelsOf } from "../../support/layers.ts";
import { serveFolder } from "../../support/range-server.ts";
import { tinyGguf } from "../../support/tiny-gguf.ts";
import { TINY, tinyFolder, tinyTensors } from "../../support/tiny-models.ts";

const PIECE = 2 ** 22;

const PATTERN = new Uint32Array((30 * PIECE) / 4);
for (let i = 0; i < PATTERN.length; i++) PATTERN[i] = i;

/** A file whose reads are listed, as numbers of pieces. */
function sourceOf(size: number) {
  const bytes = new Uint8Array(PATTERN.slice(0, Math.ceil(size / 4)).buffer, 0, size);
  const state = { bytes, reads: [] as number[], running: 0, mostRunning: 0, isAway: false };
  const source: ByteSource = {
    size,
    async read(offset, length) {
      expect([offset % PIECE, length]).toEqual([0, Math.min(PIECE, size - offset)]);
      state.reads.push(offset / PIECE);
      state.mostRunning = Math.max(state.mostRunning, ++state.running);
      await new Promise((resolve) => setTimeout(resolve));
      state.running--;
      if (state.isAway) throw new Error("away");
      return bytes.subarray(offset, offset + length);
    },
  };
  return Object.assign(state, { source });
}

const numbers = (count: number) => Array.from({ length: count }, (_, i) => i);

describe("a source by pieces that come ahead", () => {
  test("gives every range of the file, whichever are read at once", async () => {
    const file = sourceOf(20 * PIECE + 1000);
    const { read } = readAhead("read", file.source, new HeldPieces(true));
    const random = createRandom(3).floats(120);
    const ranges = numbers(60).map((i) => {
      const [place, share] = [Math.abs(random[2 * i]!) % 1, Math.abs(random[2 * i + 1]!) % 1];
      const begin = Math.floor(place * file.bytes.length);
      return [begin, Math.floor(share ** 8 * (file.bytes.length - begin))] as const;
    });
    ranges.push([0, file.bytes.length], [PIECE, PIECE], [file.bytes.length, 0]);
    const check = async ([begin, length]: readonly [number, number]) =>
      expect(Buffer.compare(await read(begin, length), file.bytes.subarray(begin, begin + length))).toBe(0);
    for (let i = 0; i < ranges.length; i += 3) await Promise.all(ranges.slice(i, i + 3).map(check));
  });

  test("reads each piece once in order, four at once, and the three behind the one that is needed", async () => {
    const file = sourceOf(10 * PIECE + 5);
    const { read } = readAhead("read", file.source, new HeldPieces(true));
    await read(0, 10);
    expect(file.reads).toEqual([0, 1, 2, 3]);
    for (let at = 10; at < file.bytes.length; at += 500_000) await read(at, Math.min(500_000, file.bytes.length - at));
    expect(file.reads).toEqual(numbers(11));
    expect(file.mostRunning).toBe(4);
  });

  test("reads only what is needed until pieces are to come ahead", async () => {
    const file = sourceOf(10 * PIECE);
    const held = new HeldPieces();
    const { read } = readAhead("read", file.source, held);
    await read(PIECE - 1, 2);
    expect(file.reads).toEqual([0, 1]);
    held.ahead = true;
    await read(PIECE + 9, 1);
    expect(file.reads).toEqual([0, 1, 2, 3, 4]);
  });

  test("holds sixteen pieces for all files together, those longest that were not given out", async () => {
    const held = new HeldPieces(true);
    const [a, b] = [sourceOf(4 * PIECE), sourceOf(30 * PIECE)];
    const [readA, readB] = [readAhead("read", a.source, held).read, readAhead("read", b.source, held).read];
    await readA(0, 2 * PIECE + 1);
    expect(a.reads).toEqual([0, 1, 2, 3]);
    // Of the first file two pieces wait that were not given out whole; thirty of the second go through what is left.
    await readB(0, 26 * PIECE);
    await readA(2 * PIECE, PIECE);
    expect(a.reads).toEqual([0, 1, 2, 3]);
    await readA(0, 1);
    expect(a.reads).toEqual([0, 1, 2, 3, 0]);
    // Parts of more pieces than there is room for: the first are read again.
    const c = sourceOf(30 * PIECE);
    const { read } = readAhead("read", c.source, new HeldPieces(true));
    for (let i = 0; i < 20; i++) await read(i * PIECE, 1);
    expect(c.reads).toEqual(numbers(23));
    await read(19 * PIECE, 2);
    expect(c.reads).toEqual(numbers(23));
    await read(0, 2);
    expect(c.reads).toEqual([...numbers(23), 0, 1, 2, 3]);
  });

  test("a piece that comes ahead and fails is no failure until it is needed, and is read again then", async () => {
    const file = sourceOf(3 * PIECE);
    const { read } = readAhead("read", file.source, new HeldPieces(true));
    const reading = read(0, 1);
    file.isAway = true;
    await expect(reading).rejects.toThrow("read: source expected 4194304 bytes at 0, got Error: away");
    file.isAway = false;
    expect(await read(2 * PIECE, 1)).toEqual(file.bytes.slice(2 * PIECE, 2 * PIECE + 1));
    expect(await read(0, 1)).toEqual(file.bytes.slice(0, 1));
  });

  test("a source that gives too little is refused, also within a range of several pieces", async () => {
    const source: ByteSource = { size: 2 * PIECE, read: async () => new Uint8Array(7) };
    const { read } = readAhead("read", source, new HeldPieces(true));
    expect(await badFileOf(() => read(0, PIECE + 1))).toBe("read: source expected 4194304 bytes at 0, got 7");
  });
});

describe("loadModel of a URL without a store", () => {
  const config = { ...TINY.llama, vocab_size: 100_003, rms_norm_eps: 2 ** -14 };
  const tensors = tinyTensors(config);
  const [parts, whole] = [tinyFolder(config, tensors), tinyGguf(config, tensors)];

  test.each([
    // The beginning of the file, and its pieces.
    ["model.gguf", 1],
    // Besides, config.json and the index that is not there.
    ["", 3],
  ])("requests the beginning of a file and each of its pieces once: /%s", async (name, others) => {
    using kernels = await kernelsOf("relaxed");
    let requests = 0;
    const server = await serveFolder((file) => {
      requests++;
      return file === "model.gguf" ? whole : parts(file);
    });
    const url = `http://127.0.0.1:${(server.address() as { port: number }).port}/${name}`;
    using model = await loadModel(kernels, url, { gguf });
    const size = (name === "" ? parts("model.safetensors") : whole)?.length as number;
    expect(size).toBeGreaterThan(PIECE);
    expect(requests).toBe(others + Math.ceil(size / PIECE));
    expect(model.layers).toBeGreaterThan(0);
    requests = 0;
    await expect(loadModel(kernels, url, { gguf, maxBytes: 1000 })).rejects.toMatchObject({ code: "OUT_OF_MEMORY" });
    expect(requests).toBe(others + 1);
    server.closeAllConnections();
    server.close();
  });
});
