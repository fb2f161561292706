// Sources of bytes: what they are, what is read of them, and what they may not do.

import { readFileSync } from "node:fs";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { StoredTensor } from "../../../src/base/tensor/dtypes.ts";
import { HeadwiseError } from "../../../src/base/util/errors.ts";
import {
  type ByteSource,
  type BytesOrSource,
  blobSource,
  fileSource,
  openGguf,
  openSafetensors,
  readAttentionWeights,
  readSafetensors,
  toFloats,
  urlSource,
  writeSafetensors,
} from "../../../src/entries/weights.ts";
import { readRange, readRanges } from "../../../src/files/byte-source.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { randomCases } from "../../support/random-cases.ts";
import { serve, urlOf } from "../../support/range-server.ts";

const model = new URL("../../../model/model.safetensors", import.meta.url);
const prefix = "model.layers.1.self_attn.";

/** A source that keeps account of what is read. */
function counting(bytes: Uint8Array, log: [offset: number, length: number][]): ByteSource {
  return {
    size: bytes.length,
    read: async (offset, length) => {
      log.push([offset, length]);
      return bytes.slice(offset, offset + length);
    },
  };
}

/** Bytes whose memory was transferred elsewhere. */
function detached(length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  structuredClone(bytes, { transfer: [bytes.buffer] });
  return bytes;
}

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "headwise-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe("what is read", () => {
  test("ranges that lie close together are one read, others are not, and their order stays", async () => {
    const bytes = Uint8Array.from({ length: 2 ** 20 }, (_, i) => (i * 7919) >> 8);
    const log: [number, number][] = [];
    const ranges = [
      { begin: 900_000, end: 900_100 },
      { begin: 10, end: 20 },
      { begin: 15, end: 18 }, // within the one before
      { begin: 20, end: 20 },
      { begin: 500, end: 700 },
    ];
    const read = await readRanges("f", counting(bytes, log), ranges);
    expect(read.map((each) => [...each])).toEqual(ranges.map(({ begin, end }) => [...bytes.subarray(begin, end)]));
    expect(log).toEqual([
      [10, 690],
      [900_000, 100],
    ]);
  });

  test("a layer is read in three reads of its own bytes and the header", async () => {
    const bytes = readFileSync(model);
    const log: [number, number][] = [];
    const file = await openSafetensors(counting(bytes, log));
    const header = log.reduce((sum, [, length]) => sum + length, 0);
    const names = [...file.tensors.keys()].filter((name) => name.startsWith(prefix));
    const tensors = await file.readAll(names);
    const wanted = names.reduce((sum, name) => sum + (file.tensors.get(name)?.bytes ?? 0), 0);
    expect(wanted).toBe(4 * 64 * 64 * 4);
    expect(log.length).toBe(3);
    expect(log.reduce((sum, [, length]) => sum + length, 0)).toBe(header + wanted);
    expect(header + wanted).toBeLessThan(0.4 * bytes.length);
    const { metadata } = file;
    expect(readAttentionWeights({ metadata, tensors }, prefix)).toEqual(readAttentionWeights(bytes, prefix));
  });

  test("one read is cut where it is longer than 2^28 bytes", async () => {
    const log: [number, number][] = [];
    const source: ByteSource = {
      size: 2 ** 29,
      async read(offset, length) {
        log.push([offset, length]);
        return new Uint8Array(length).fill(offset === 5 ? 1 : 2);
      },
    };
    const bytes = await readRange("f", source, 5, 2 ** 28 + 3);
    expect(log).toEqual([
      [5, 2 ** 28],
      [5 + 2 ** 28, 3],
    ]);
    expect([bytes[0], bytes[2 ** 28 - 1], bytes[2 ** 28], bytes.length]).toEqual([1, 1, 2, 2 ** 28 + 3]);
  });
});

describe("every source", () => {
  const stored = writeSafetensors({
    a: { data: Float32Array.from({ length: 70_000 }, (_, i) => i / 7), shape: [70, 1000] },
    b: { dtype: "BF16", shape: [3], bytes: Uint8Array.of(1, 2, 3, 4, 5, 6) },
    none: { data: new Float32Array(0), shape: [0, 5] },
  });

  test.each<[string, () => Promise<{ source: BytesOrSource; close?: () => unknown }>]>([
    ["bytes", async () => ({ source: stored })],
    ["a Buffer", async () => ({ source: Buffer.from(stored) })],
    ["an ArrayBuffer", async () => ({ source: stored.slice().buffer })],
    ["a Blob", async () => ({ source: new Blob([stored.slice()]) })],
    ["a File", async () => ({ source: new File([stored.slice()], "model.safetensors") })],
    ["blobSource", async () => ({ source: blobSource(new Blob([stored.slice()])) })],
    [
      "fileSource",
      async () => {
        await writeFile(join(folder, "small"), stored);
        const handle = await open(join(folder, "small"));
        return { source: await fileSource(handle), close: () => handle.close() };
      },
    ],
    [
      "urlSource",
      async () => {
        const server = await serve(stored.length, async (begin, end) => stored.subarray(begin, end));
        return { source: await urlSource(new URL(urlOf(server))), close: () => server.close() };
      },
    ],
  ])("%s gives the tensors that lie in the file", async (_name, make) => {
    const { source, close } = await make();
    const file = await openSafetensors(source);
    const { metadata, tensors } = readSafetensors(stored);
    expect(file.metadata).toEqual(metadata);
    expect([...file.tensors.keys()]).toEqual([...tensors.keys()]);
    const read = await file.readAll(tensors.keys());
    for (const [name, tensor] of tensors) {
      expect(await file.read(name)).toEqual(tensor);
      expect(read.get(name)).toEqual(tensor);
    }
    await close?.();
  });

  test("what is no source, and what is no name, is refused", async () => {
    for (const [wrong, got] of [
      [undefined, "undefined"],
      [{}, "Object"],
      ["https://example.com", '"https://example.com"'],
      [new Float32Array(2), "Float32Array"],
    ] as const)
      await expect(openSafetensors(wrong as never)).rejects.toThrow(
        new TypeError(
          `openSafetensors: source expected bytes, a Blob, or a source (of fileSource or urlSource), got ${got}`,
        ),
      );
    const endless = { size: Infinity, read: async () => new Uint8Array() };
    await expect(openSafetensors(endless)).rejects.toThrow(
      "openSafetensors: source.size expected an integer from 0 to",
    );
    expect(() => blobSource(new Uint8Array(3) as never)).toThrow(
      new TypeError("blobSource: blob expected a Blob, got Uint8Array"),
    );
    for (const wrong of [null, 3, "model.gguf", { read() {} }])
      await expect(fileSource(wrong as never)).rejects.toThrow(
        /^fileSource: file expected an open file, as of await open\(path\), got /,
      );
    const file = await openSafetensors(stored);
    await expect(file.read("c")).rejects.toThrow(
      new RangeError(`read: name expected one of the file's 3 tensors, got "c"`),
    );
    await expect(file.readAll("a" as never)).rejects.toThrow(
      new TypeError(`readAll: names expected a list of names, got "a"`),
    );
    await expect(file.readAll(7 as never)).rejects.toThrow("readAll: names expected a list of names, got 7");
  });

  test("a source that gives less, or fails, or gives something else, is named", async () => {
    const read = (give: () => unknown) => readRange("f", { size: 9, read: async () => give() } as never, 2, 4);
    expect(await badFileOf(() => read(() => new Uint8Array(3)))).toBe("f: source expected 4 bytes at 2, got 3");
    const lost = new Error("the disk is gone");
    const failed = read(() => {
      throw lost;
    });
    await expect(failed).rejects.toMatchObject({
      code: "BAD_FILE",
      cause: lost,
      message: "f: source expected 4 bytes at 2, got Error: the disk is gone",
    });
    await expect(read(() => [1, 2, 3, 4])).rejects.toThrow(
      new TypeError("f: the result of source.read expected Uint8Array, got Array"),
    );
    await expect(read(() => new ArrayBuffer(4))).rejects.toThrow("expected Uint8Array, got ArrayBuffer");
    await expect(read(() => undefined)).rejects.toThrow("expected Uint8Array, got undefined");
    await expect(read(() => detached(4))).rejects.toThrow(/^f: the result of source.read expected .* detached/);
    expect(await badFileOf(() => read(() => new Uint8Array(5)))).toBe("f: source expected 4 bytes at 2, got 5");
    // What is thrown may be anything, also synchronously.
    for (const [thrown, got] of [
      [undefined, "undefined"],
      ["gone", "gone"],
      [Symbol("s"), "Symbol(s)"],
      [Object.create(null), "Object"],
      [{ toString: () => ({}) }, "Object"],
      [new DOMException("no", "NotReadableError"), "NotReadableError: no"],
    ] as const) {
      const failing = () => {
        throw thrown;
      };
      for (const source of [
        { size: 9, read: failing },
        { size: 9, read: async () => failing() },
      ])
        expect(await badFileOf(() => readRange("f", source, 2, 4))).toBe(`f: source expected 4 bytes at 2, got ${got}`);
    }
  });

  test("bytes whose memory was transferred elsewhere are refused by name, before and after a file is opened", async () => {
    const names = [readSafetensors, readAttentionWeights].map(
      (read) => [read.name, async (b: never) => read(b)] as const,
    );
    for (const [name, read] of [
      ...names,
      ["openSafetensors", openSafetensors] as const,
      ["openGguf", openGguf] as const,
    ])
      for (const bytes of [detached(9), detached(9).buffer])
        await expect((read as (bytes: unknown) => Promise<unknown>)(bytes), name).rejects.toThrow(
          new RegExp(`^${name}: (bytes|source) expected .*detached`),
        );
    const moved = stored.slice();
    const file = await openSafetensors(moved);
    const inMemory = readSafetensors(moved);
    structuredClone(moved, { transfer: [moved.buffer] });
    expect(await badFileOf(() => file.read("a"))).toMatch(/^read: source expected 280000 bytes at \d+, got .*detached/);
    expect(() => toFloats(inMemory.tensors.get("a") as StoredTensor)).toThrow(/^toFloats: tensor.bytes .*detached/);
  });

  test("an open file whose stat or read gives something else is refused by name", async () => {
    const sizes: [unknown, string][] = [
      [undefined, "the result of file.stat expected an object, got undefined"],
      [null, "the result of file.stat expected an object, got null"],
      [7, "the result of file.stat expected an object, got 7"],
      ...(
        [
          [{}, "undefined"],
          [{ size: "7" }, '"7"'],
          [{ size: 7n }, "7n"],
          [{ size: Number.NaN }, "NaN"],
          [{ size: -1 }, "-1"],
          [{ size: 1.5 }, "1.5"],
          [{ size: Infinity }, "Infinity"],
          [{ size: 2 ** 53 }, "9007199254740992"],
        ] as const
      ).map(([stat, got]): [unknown, string] => [
        stat,
        `size of file.stat expected an integer from 0 to 9007199254740991, got ${got}`,
      ]),
    ];
    const read = async () => ({ bytesRead: 0 });
    for (const [stat, text] of sizes)
      await expect(fileSource({ stat: async () => stat, read } as never)).rejects.toThrow(`fileSource: ${text}`);
    for (const stat of [
      () => Promise.reject(undefined),
      () => {
        throw undefined;
      },
    ])
      expect(await badFileOf(() => fileSource({ stat, read } as never))).toBe(
        "fileSource: file.stat expected the size, got undefined",
      );
    const closed = await open(new URL(model));
    await closed.close();
    expect(await badFileOf(() => fileSource(closed))).toMatch(/^fileSource: file.stat expected the size, got Error: /);
    for (const [result, got] of [
      [undefined, "the result of file.read expected an object, got undefined"],
      [{}, "bytesRead of file.read expected an integer from 0 to 4, got undefined"],
      [{ bytesRead: 5 }, "bytesRead of file.read expected an integer from 0 to 4, got 5"],
      [{ bytesRead: -1 }, "bytesRead of file.read expected an integer from 0 to 4, got -1"],
      [{ bytesRead: 0.5 }, "bytesRead of file.read expected an integer from 0 to 4, got 0.5"],
      [{ bytesRead: Number.NaN }, "bytesRead of file.read expected an integer from 0 to 4, got NaN"],
    ] as const) {
      const source = await fileSource({ stat: async () => ({ size: 9 }), read: async () => result } as never);
      expect(await badFileOf(() => readRange("f", source, 2, 4))).toMatch(
        new RegExp(`^f: source expected 4 bytes at 2, got (Type|Range)Error: fileSource: ${got}$`),
      );
    }
  });

  test("whatever a source gives, a file is opened or refused with an error that names the function", async () => {
    const results: readonly ((bytes: Uint8Array) => unknown)[] = [
      (bytes) => bytes.subarray(1),
      (bytes) => Uint8Array.of(...bytes, 0),
      (bytes) => bytes.map((byte) => byte ^ 1),
      (bytes) => Array.from(bytes),
      (bytes) => bytes.slice().buffer,
      (bytes) => new Float32Array(bytes.length),
      () => undefined,
      () => detached(8),
      () => Promise.reject(undefined),
      () => {
        throw Object.create(null);
      },
    ];
    const sizes = [-1, 0.5, 7n, "9", null, Number.NaN, 2 ** 53, stored.length - 1, stored.length + 1, 2 ** 52];
    let [opened, refused] = [0, 0];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...results),
        fc.nat(3),
        fc.constantFrom(undefined, ...sizes),
        async (give, from, size) => {
          let reads = 0;
          const source = {
            size: size ?? stored.length,
            read(offset: number, length: number) {
              const bytes = stored.subarray(offset, offset + length);
              return reads++ < from ? Promise.resolve(bytes) : give(bytes);
            },
          };
          try {
            const file = await openSafetensors(source as never);
            await file.readAll(file.tensors.keys());
            opened++;
          } catch (error) {
            refused++;
            expect((error as Error).message).toMatch(/^(openSafetensors|readAll): .* expected .*, got /s);
            expect([TypeError, RangeError, HeadwiseError]).toContain((error as Error).constructor);
          }
        },
      ),
      randomCases(500, 13),
    );
    expect([opened > 5, refused > 100]).toEqual([true, true]);
  });

  test("a tensor that no array can hold is OUT_OF_MEMORY, with the way to read a part of it", async () => {
    const size = 2 ** 47;
    const header = `{"w":{"dtype":"F32","shape":[${size / 4}],"data_offsets":[0,${size}]}}`;
    const head = new Uint8Array(8 + header.length);
    new DataView(head.buffer).setUint32(0, header.length, true);
    head.set(new TextEncoder().encode(header), 8);
    const read = async (offset: number, length: number) => head.slice(offset, offset + length);
    const file = await openSafetensors({ size: head.length + size, read });
    await expect(file.read("w")).rejects.toMatchObject({
      code: "OUT_OF_MEMORY",
      message:
        "read: an array of 140737488355328 bytes (source.read reads parts of a tensor) does not fit, the engine refused",
    });
  });

  test("a file that is shortened while it is read is refused", async () => {
    const path = join(folder, "shortened");
    await writeFile(path, stored);
    const handle = await open(path, "r+");
    const file = await openSafetensors(await fileSource(handle));
    await handle.truncate(5000);
    const { offset } = file.tensors.get("a") as { offset: number };
    expect(await badFileOf(() => file.read("a"))).toBe(
      `read: source expected 280000 bytes at ${offset}, got ${5000 - offset}`,
    );
    await handle.close();
  });

  test.each([
    ["no bytes", 0, /expected an 8-byte header length, got 0 bytes/],
    ["less than a header", 40, /header length expected <= 32/],
    ["less than its data", 1000, /data_offsets expected to end within/],
  ])("a safetensors file of %s is refused as readSafetensors refuses it", async (_name, length, text) => {
    const cut = stored.slice(0, length);
    const said = await badFileOf(() => openSafetensors(cut));
    expect(said).toMatch(text);
    expect(() => readSafetensors(cut, "openSafetensors")).toThrow(said.replace("source", "bytes"));
  });
});
