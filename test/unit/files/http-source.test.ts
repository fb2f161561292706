// Files on a server that gives ranges.

import { describe, expect, test } from "vitest";
import { urlSource } from "../../../src/entries/weights.ts";
import type { RangeFetch } from "../../../src/files/http-source.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { serve, urlOf } from "../../support/range-server.ts";

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
    expect(await badFileOf(() => read(lie))).toBe(`urlSource: url "https://example.com/m" expected ${said}`);
  });

  test("Last-Modified stands in for an ETag", async () => {
    const lie = (later: string) => (answer: { headers: Record<string, string> }, asked: number) => {
      delete answer.headers.ETag;
      answer.headers["Last-Modified"] = asked === 0 ? "Mon" : later;
    };
    expect(await read(lie("Mon"))).toEqual(bytes.slice(100_000, 100_050));
    expect(await badFileOf(() => read(lie("Tue")))).toMatch(/\(200000 bytes, Mon\), got 200000 bytes, Tue$/);
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

  test("a fetch that rejects with something other than an error is a bad file with what it rejected with", async () => {
    for (const [thrown, got] of [
      [undefined, "undefined"],
      [Object.create(null), "Object"],
    ] as const)
      expect(await badFileOf(() => urlSource(url, { fetch: () => Promise.reject(thrown) }))).toBe(
        `urlSource: url "${url}" expected an answer, got ${got}`,
      );
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
    expect(await badFileOf(() => urlSource(url, { fetch: async () => answer as never }))).toBe(
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
