// Files that are read through ranges: what a source is, what is read of it, and what it may not do.

import { openAsBlob, readFileSync } from "node:fs";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HeadwiseError } from "../../../src/entries/core.ts";
import {
  type ByteSource,
  type BytesOrSource,
  blobSource,
  fileSource,
  openGguf,
  openSafetensors,
  readAttentionWeights,
  readSafetensors,
  urlSource,
  writeSafetensors,
} from "../../../src/entries/weights.ts";
import { readRange, readRanges } from "../../../src/files/byte-source.ts";
import type { RangeFetch } from "../../../src/files/http-source.ts";
import { bytesOf, writeGguf } from "../../support/gguf-writer.ts";

const model = new URL("../../../model/induction.safetensors", import.meta.url);
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

async function refusalOf(run: () => Promise<unknown>): Promise<string> {
  try {
    await run();
  } catch (error) {
    expect(error).toBeInstanceOf(HeadwiseError);
    expect((error as HeadwiseError).code).toBe("BAD_FILE");
    return (error as Error).message;
  }
  throw new Error("expected BAD_FILE, but it was read");
}

/** Serves bytes by range, from memory or a file. */
function serve(size: number, read: (begin: number, end: number) => Promise<Uint8Array>): Promise<Server> {
  const server = createServer(async (request, response) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    if (begin === undefined) return void response.writeHead(200, { "Content-Length": size }).end();
    const end = Math.min(Number(last) + 1, size);
    const bytes = await read(Number(begin), end);
    response.writeHead(206, { "Content-Range": `bytes ${begin}-${end - 1}/${size}`, ETag: '"1"' }).end(bytes);
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

const urlOf = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}/model`;

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

  test("a layer costs its own bytes and the header, in three reads", async () => {
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
      await expect(fileSource(wrong as never)).rejects.toThrow(/^fileSource: file expected an open file with stat and/);
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
    expect(await refusalOf(() => read(() => new Uint8Array(3)))).toBe("f: source expected 4 bytes at 2, got 3");
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
      new TypeError("f: source.read expected to give Uint8Array, got Array"),
    );
  });

  test("a file that is shortened while it is read is refused", async () => {
    const path = join(folder, "shortened");
    await writeFile(path, stored);
    const handle = await open(path, "r+");
    const file = await openSafetensors(await fileSource(handle));
    await handle.truncate(5000);
    const { offset } = file.tensors.get("a") as { offset: number };
    expect(await refusalOf(() => file.read("a"))).toBe(
      `read: source expected 280000 bytes at ${offset}, got ${5000 - offset}`,
    );
    await handle.close();
  });

  test.each([
    ["no bytes", 0, "bytes expected an 8-byte header length, got 0 bytes"],
    ["less than a header", 40, /header length expected <= 32/],
    ["less than its data", 1000, /data_offsets expected to end within/],
  ])("a safetensors file of %s is refused as readSafetensors refuses it", async (_name, length, text) => {
    const cut = stored.slice(0, length);
    const said = await refusalOf(() => openSafetensors(cut));
    expect(said).toMatch(text);
    expect(() => readSafetensors(cut, "openSafetensors")).toThrow(said);
  });
});

describe("urlSource", () => {
  const bytes = Uint8Array.from({ length: 200_000 }, (_, i) => i % 251);
  /** A server of these bytes that may lie; `asked` is how many requests there were before. */
  const server = (
    lie: (answer: { status: number; headers: Record<string, string>; body: Uint8Array }, asked: number) => void,
  ): RangeFetch =>
    (() => {
      let asked = 0;
      return async (_url: string, { headers }: { headers: Readonly<Record<string, string>> }) => {
        const [, begin, last] = (/^bytes=(\d+)-(\d+)$/.exec(headers.Range ?? "") ?? []).map(Number) as number[];
        const end = Math.min((last as number) + 1, bytes.length);
        const stated = { "Content-Range": `bytes ${begin}-${end - 1}/${bytes.length}`, ETag: '"a"' };
        const answer = { status: 206, headers: { ...stated } as Record<string, string>, body: bytes.slice(begin, end) };
        lie(answer, asked++);
        return new Response(answer.body as Uint8Array<ArrayBuffer>, answer);
      };
    })();
  const url = "https://example.com/m";
  const EMPTY = "a file with bytes in it, got an empty file";
  const read = async (lie: Parameters<typeof server>[0]) =>
    (await urlSource(url, { fetch: server(lie) })).read(100_000, 50);

  test("reads the first 64 KB once, and every range where it lies", async () => {
    let requests = 0;
    const source = await urlSource(url, { fetch: server(() => void requests++) });
    expect(source.size).toBe(bytes.length);
    expect(await source.read(0, 8)).toEqual(bytes.slice(0, 8));
    expect(await source.read(65_000, 536)).toEqual(bytes.slice(65_000, 65_536));
    expect(requests).toBe(1);
    expect(await source.read(65_000, 537)).toEqual(bytes.slice(65_000, 65_537));
    expect(await source.read(199_999, 1)).toEqual(bytes.slice(199_999));
    expect(requests).toBe(3);
  });

  test.each<[string, Parameters<typeof server>[0], string]>([
    [
      "ignores ranges",
      (answer) => Object.assign(answer, { status: 200, headers: { "Content-Length": "8030261248" } }),
      "206 for a range, from a server that gives ranges, got 200 and all 8030261248 bytes",
    ],
    [
      "ignores ranges and does not say how much it sends",
      (answer) => Object.assign(answer, { status: 200, headers: {} }),
      "206 for a range, from a server that gives ranges, got 200 and all bytes",
    ],
    [
      "ignores them later",
      (answer, asked) => asked === 1 && Object.assign(answer, { status: 200, headers: { "Content-Length": "7" } }),
      "206 for a range, from a server that gives ranges, got 200 and all 7 bytes",
    ],
    ["has no such file", (answer) => Object.assign(answer, { status: 404 }), "206 for a range, got 404"],
    ["has an empty one", (answer) => Object.assign(answer, { status: 416 }), EMPTY],
    [
      "has an empty one and sends all of it",
      (answer) => Object.assign(answer, { status: 200, headers: { "Content-Length": "0" } }),
      EMPTY,
    ],
    [
      "has an empty one and names a range of it",
      (answer) => Object.assign(answer, { headers: { "Content-Range": "bytes 0-0/0" }, body: new Uint8Array() }),
      EMPTY,
    ],
    [
      "has an empty one later",
      (answer, asked) => asked === 1 && Object.assign(answer, { status: 416 }),
      "206 for a range, got 416",
    ],
    [
      "hides Content-Range",
      (answer) => Object.assign(answer, { headers: {} }),
      "Content-Range with the size of the file, got null",
    ],
    [
      "does not know its size",
      (answer) => Object.assign(answer.headers, { "Content-Range": "bytes 0-65535/*" }),
      'Content-Range with the size of the file, got "bytes 0-65535/*"',
    ],
    [
      "gives another range",
      (answer, asked) =>
        asked === 1 && Object.assign(answer.headers, { "Content-Range": "bytes 100001-100050/200000" }),
      "bytes 100000 to 100049, got bytes 100001-100050/200000",
    ],
    [
      "gives a shorter one",
      (answer, asked) =>
        asked === 1 && Object.assign(answer.headers, { "Content-Range": "bytes 100000-100040/200000" }),
      "bytes 100000 to 100049, got bytes 100000-100040/200000",
    ],
    [
      "gives a size beyond 2^53",
      (answer) => Object.assign(answer.headers, { "Content-Range": `bytes 0-65535/${2n ** 53n}` }),
      "bytes 0 to 65535, got bytes 0-65535/9007199254740992",
    ],
    [
      "has another size now",
      (answer, asked) =>
        asked === 1 && Object.assign(answer.headers, { "Content-Range": "bytes 100000-100049/200001" }),
      'to stay as it was (200000 bytes, "a"), got 200001 bytes, "a"',
    ],
    [
      "has another version now",
      (answer, asked) => asked === 1 && Object.assign(answer.headers, { ETag: '"b"' }),
      'to stay as it was (200000 bytes, "a"), got 200000 bytes, "b"',
    ],
    [
      "sends too much",
      (answer, asked) => asked === 1 && Object.assign(answer, { body: bytes }),
      "50 bytes at 100000, got another number",
    ],
    [
      "sends too little",
      (answer, asked) => asked === 1 && Object.assign(answer, { body: bytes.slice(0, 49) }),
      "50 bytes at 100000, got another number",
    ],
  ])("a server that %s is refused", async (_name, lie, said) => {
    expect(await refusalOf(() => read(lie))).toBe(`urlSource: url "https://example.com/m" expected ${said}`);
  });

  test("Last-Modified stands in for an ETag", async () => {
    const lie = (later: string) => (answer: { headers: Record<string, string> }, asked: number) => {
      delete answer.headers.ETag;
      answer.headers["Last-Modified"] = asked === 0 ? "Mon" : later;
    };
    expect(await read(lie("Mon"))).toEqual(bytes.slice(100_000, 100_050));
    expect(await refusalOf(() => read(lie("Tue")))).toMatch(/\(200000 bytes, Mon\), got 200000 bytes, Tue$/);
  });

  test("a server that cannot be reached is named, with the cause", async () => {
    const closed = await serve(1, async () => bytes);
    const gone = urlOf(closed);
    await new Promise((resolve) => closed.close(resolve));
    await expect(urlSource(gone)).rejects.toMatchObject({
      code: "BAD_FILE",
      message: `urlSource: url "${gone}" expected an answer, got TypeError: fetch failed`,
      cause: expect.any(TypeError),
    });
  });

  test("a connection that breaks is a bad file with its cause, in the first answer too", async () => {
    for (const breaks of [0, 1]) {
      let asked = 0;
      const lost = new TypeError("terminated");
      const fetch: RangeFetch = async (to, init) => {
        const answer = await server(() => {})(to, init);
        const body = new ReadableStream({ start: (controller) => controller.error(lost) });
        return asked++ === breaks ? new Response(body, answer) : answer;
      };
      await expect(urlSource(url, { fetch }).then((source) => source.read(100_000, 50))).rejects.toMatchObject({
        code: "BAD_FILE",
        message: `urlSource: url "${url}" expected ${["65536 bytes at 0", "50 bytes at 100000"][breaks]}, got ${lost}`,
        cause: lost,
      });
    }
  });

  test.each([
    [undefined, "undefined"],
    [{ status: 206 }, "Object"],
  ])("a fetch that gives %o is refused", async (answer, got) => {
    expect(await refusalOf(() => urlSource(url, { fetch: async () => answer as never }))).toBe(
      `urlSource: url "${url}" expected a Response, got ${got}`,
    );
  });

  test("wrong arguments are named", async () => {
    await expect(urlSource(7 as never)).rejects.toThrow("urlSource: url expected a string or a URL, got 7");
    await expect(urlSource(url, { fetch: 7 as never })).rejects.toThrow(
      "urlSource: options.fetch expected a function, got 7",
    );
    await expect(urlSource(url, { fetsh: 7 } as never)).rejects.toThrow(
      'urlSource: options expected only fetch, got "fetsh"',
    );
  });
});

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
