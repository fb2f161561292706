// Files on a server that gives ranges.

import { createServer } from "node:http";
import { afterEach, describe, expect, test, vi } from "vitest";
import { type UrlSourceOptions, urlSource } from "../../../src/entries/weights.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { serve, urlOf } from "../../support/range-server.ts";
import { shortenWaits } from "../../support/short-waits.ts";

type RangeFetch = NonNullable<UrlSourceOptions["fetch"]>;

shortenWaits();

afterEach(() => {
  vi.useRealTimers();
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

  test.each([{ "Content-Length": "200000", ETag: '"a"' }, {}])(
    "keeps a file of a server that sends all of it, with %o",
    async (headers) => {
      let requests = 0;
      const whole = server((answer) =>
        Object.assign(answer, { status: 200, headers, body: bytes, requests: requests++ }),
      );
      const source = await urlSource(url, { fetch: whole });
      expect(source.size).toBe(bytes.length);
      expect(await source.read(0, 8)).toEqual(bytes.slice(0, 8));
      expect(await source.read(199_990, 10)).toEqual(bytes.slice(199_990));
      expect(requests).toBe(1);
    },
  );

  test("cancels an endless answer behind 64 MB", async () => {
    let sent = 0;
    let isCancelled = false;
    const piece = new Uint8Array(2 ** 20);
    const body = new ReadableStream({
      pull(controller) {
        controller.enqueue(piece);
        sent++;
      },
      cancel() {
        isCancelled = true;
      },
    });
    const endless: RangeFetch = async () => new Response(body);
    expect(await badFileOf(() => urlSource(url, { fetch: endless }))).toContain(
      "206 for a range, or at most 67108864 bytes, got 200 and all bytes",
    );
    expect(isCancelled).toBe(true);
    expect(sent).toBeLessThan(70);
  });

  /** A server of whole files, whose first `breaks` answers break off. */
  const breaking = (breaks: number) => {
    const state = { requests: 0, fetch: undefined as unknown as RangeFetch };
    state.fetch = async () => {
      if (state.requests++ >= breaks) return new Response(bytes);
      let pulls = 0;
      const body = new ReadableStream({
        pull(controller) {
          if (pulls++ === 0) controller.enqueue(bytes.slice(0, 1000));
          else controller.error(new TypeError("connection lost"));
        },
      });
      return new Response(body);
    };
    return state;
  };

  test("an answer with the whole file that breaks off is asked for again, up to three times", async () => {
    const state = breaking(3);
    const source = await urlSource(url, { fetch: state.fetch });
    expect(await source.read(100_000, 50)).toEqual(bytes.slice(100_000, 100_050));
    expect(state.requests).toBe(4);
  });

  test("one that breaks off once more says how much came", async () => {
    const state = breaking(9);
    expect(await badFileOf(() => urlSource(url, { fetch: state.fetch }))).toBe(
      `urlSource: url "${url}" expected the whole file, got 1000 bytes, then TypeError: connection lost`,
    );
    expect(state.requests).toBe(4);
  });

  test("a page instead of a file is refused, as servers of applications answer for every missing name", async () => {
    const page: RangeFetch = async () =>
      new Response("<!doctype html>", { headers: { "Content-Type": "text/html; charset=utf-8" } });
    expect(await badFileOf(() => urlSource(url, { fetch: page }))).toContain("expected a file, got a page (text/html)");
  });

  test.each<[string, Parameters<typeof server>[0], string]>([
    [
      "ignores ranges",
      (answer) => Object.assign(answer, { status: 200, headers: { "Content-Length": "8030261248" } }),
      "206 for a range, or at most 67108864 bytes, got 200 and all 8030261248 bytes",
    ],
    [
      "ignores ranges and does not say that it sends nothing",
      (answer) => Object.assign(answer, { status: 200, headers: {}, body: new Uint8Array() }),
      EMPTY,
    ],
    [
      "ignores them later",
      (answer, asked) => asked === 1 && Object.assign(answer, { status: 200, headers: { "Content-Length": "7" } }),
      "206 for a range, got 200 and all 7 bytes",
    ],
    [
      "has no such file",
      (answer) => Object.assign(answer, { status: 404 }),
      "a file that may be read, got 404 (not found)",
    ],
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
      "50 bytes at 100000, got more",
    ],
    [
      "ends too early, again and again",
      (answer, asked) => asked > 0 && Object.assign(answer, { body: answer.body.slice(0, asked === 1 ? 49 : 0) }),
      "50 bytes at 100000, got 49 in 5 requests",
    ],
    [
      "ends too early, and has another version when asked for the rest",
      (answer, asked) => {
        if (asked === 1) answer.body = answer.body.slice(0, 20);
        if (asked === 2) answer.headers.ETag = '"b"';
      },
      'to stay as it was (200000 bytes, "a"), got 200000 bytes, "b"',
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
      message: expect.stringMatching(
        new RegExp(`^urlSource: url "${gone}" expected an answer, got TypeError: fetch failed: .*ECONNREFUSED`),
      ),
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

  /** A server that breaks off behind `kept(asked)` bytes of an answer; undefined sends all. `ranges` are those it was asked for. */
  const cutting = (kept: (asked: number) => number | undefined, cause: unknown = new TypeError("terminated")) => {
    const ranges: (string | undefined)[] = [];
    const fetch: RangeFetch = async (to, init) => {
      const most = kept(ranges.push(init.headers.Range) - 1);
      const answer = await server(() => {})(to, init);
      const body = new Uint8Array(await answer.arrayBuffer());
      const cut = new ReadableStream({
        start(controller) {
          if (most !== 0) controller.enqueue(body.slice(0, most));
        },
        pull: (controller) => (most === undefined ? controller.close() : controller.error(cause)),
      });
      return new Response(cut, answer);
    };
    return { fetch, ranges };
  };

  test("an answer that breaks off is continued from the byte where it stopped, as long as some come", async () => {
    const { fetch, ranges } = cutting((asked) => (asked === 0 ? 60_000 : asked === 1 ? undefined : 7));
    const source = await urlSource(url, { fetch });
    expect(await source.read(0, 65_536)).toEqual(bytes.slice(0, 65_536));
    expect(await source.read(100_000, 20)).toEqual(bytes.slice(100_000, 100_020));
    expect(ranges).toEqual([
      ...["bytes=0-65535", "bytes=60000-65535"],
      ...["bytes=100000-100019", "bytes=100007-100019", "bytes=100014-100019"],
    ]);
  });

  test("one that breaks off three times more without a byte is a bad file with the number that came", async () => {
    for (const [first, rule] of [
      [0, "65536 bytes at 0, got 9 in 4 requests, then TypeError: terminated"],
      [1, "50 bytes at 100000, got 9 in 4 requests, then TypeError: terminated"],
    ] as const) {
      const { fetch, ranges } = cutting((asked) => (asked < first ? undefined : asked === first ? 9 : 0));
      await expect(urlSource(url, { fetch }).then((source) => source.read(100_000, 50))).rejects.toMatchObject({
        ...{ code: "BAD_FILE", message: `urlSource: url "${url}" expected ${rule}`, cause: expect.any(TypeError) },
      });
      expect(ranges).toHaveLength(first + 4);
    }
  });

  test("a server that is gone when asked for the rest is asked three times", async () => {
    const { fetch, ranges } = cutting((asked) => {
      if (asked > 1) throw new TypeError("fetch failed");
      return asked === 0 ? undefined : 9;
    });
    expect(await badFileOf(async () => (await urlSource(url, { fetch })).read(100_000, 50))).toBe(
      `urlSource: url "${url}" expected 50 bytes at 100000, got 9 in 4 requests, then TypeError: fetch failed`,
    );
    expect(ranges).toHaveLength(5);
  });

  /** What the server does before it answers: a status, or an error that fetch rejects with; undefined answers. */
  type Trouble = { readonly status: number; readonly after?: string } | Error | undefined;
  /** A server whose request number i, from 0 on, meets `troubles[i]`. */
  const troubled = (troubles: readonly Trouble[]) => {
    const state = { requests: 0, fetch: undefined as unknown as RangeFetch };
    const range = server(() => {});
    state.fetch = async (...given) => {
      const trouble = troubles[state.requests++];
      if (trouble instanceof Error) throw trouble;
      if (trouble === undefined) return range(...given);
      const answer = new Response("busy", { status: trouble.status });
      if (trouble.after !== undefined) answer.headers.set("Retry-After", trouble.after);
      return answer;
    };
    return state;
  };
  const dropped = new TypeError("fetch failed");

  test.each<[string, readonly Trouble[]]>([
    ["503 once", [{ status: 503 }]],
    ["429, 500 and a dropped line", [{ status: 429 }, { status: 500 }, dropped]],
    ["502 later", [undefined, { status: 502 }, dropped, { status: 504 }]],
  ])("a server that gives %s is asked again", async (_, troubles) => {
    vi.useFakeTimers();
    const state = troubled(troubles);
    const reading = urlSource(url, { fetch: state.fetch }).then((source) => source.read(100_000, 50));
    await vi.advanceTimersByTimeAsync(200 + 400 + 800);
    expect(await reading).toEqual(bytes.slice(100_000, 100_050));
    expect(state.requests).toBe(2 + troubles.filter(Boolean).length);
  });

  test("one that does not recover is given up after three times more, with the last status or error", async () => {
    vi.useFakeTimers();
    for (const [trouble, said] of [
      [{ status: 503 }, "206 for a range, got 503"],
      [dropped, "an answer, got TypeError: fetch failed"],
    ] as const)
      for (const first of [[], [undefined]]) {
        const state = troubled([...first, ...Array<Trouble>(9).fill(trouble)]);
        const failing = badFileOf(async () => (await urlSource(url, { fetch: state.fetch })).read(100_000, 50));
        await vi.advanceTimersByTimeAsync(200 + 400 + 800);
        expect(await failing).toBe(`urlSource: url "${url}" expected ${said}`);
        expect(state.requests).toBe(first.length + 4);
      }
  });

  test("Retry-After is waited for up to 10 seconds, in seconds or as a date, and more is an error at once", async () => {
    vi.useFakeTimers({ now: Date.UTC(2026, 0, 1) });
    for (const after of ["10", new Date(Date.UTC(2026, 0, 1, 0, 0, 10)).toUTCString()]) {
      vi.setSystemTime(Date.UTC(2026, 0, 1));
      const state = troubled([{ status: 503, after }]);
      const opening = urlSource(url, { fetch: state.fetch });
      await vi.advanceTimersByTimeAsync(9_999);
      expect(state.requests).toBe(1);
      await vi.advanceTimersByTimeAsync(1);
      expect((await opening).size).toBe(bytes.length);
    }
    const state = troubled([{ status: 503, after: "11" }]);
    expect(await badFileOf(() => urlSource(url, { fetch: state.fetch }))).toContain("206 for a range, got 503");
    expect(state.requests).toBe(1);
  });

  test("a signal ends waiting at once, with its reason, and nothing more is requested", async () => {
    const stop = new AbortController();
    const state = troubled([{ status: 503, after: "10" }]);
    const opening = urlSource(url, { fetch: state.fetch, signal: stop.signal });
    await vi.waitFor(() => expect(state.requests).toBe(1));
    const reason = new Error("enough");
    stop.abort(reason);
    await expect(opening).rejects.toMatchObject({ code: "BAD_FILE", cause: reason });
    expect(state.requests).toBe(1);
  });

  test("a server that breaks off after 1 KB each time is given up after four requests, one that gives 16 KB is not", async () => {
    vi.useFakeTimers();
    const little = cutting((asked) => (asked === 0 ? undefined : 1024));
    const failing = badFileOf(async () => (await urlSource(url, { fetch: little.fetch })).read(70_000, 130_000));
    await vi.advanceTimersByTimeAsync(200 + 400 + 800);
    expect(await failing).toBe(
      `urlSource: url "${url}" expected 130000 bytes at 70000, got 4096 in 4 requests, then TypeError: terminated`,
    );
    expect(little.ranges).toHaveLength(5);
    const enough = cutting((asked) => (asked === 0 ? undefined : 16_384));
    const source = await urlSource(url, { fetch: enough.fetch });
    expect(await source.read(70_000, 130_000)).toEqual(bytes.slice(70_000));
    expect(enough.ranges).toHaveLength(9);
  });

  test("an aborted answer is not continued", async () => {
    const aborted = new DOMException("no", "AbortError");
    const { fetch, ranges } = cutting((asked) => (asked === 0 ? undefined : 40), aborted);
    expect(await badFileOf(async () => (await urlSource(url, { fetch })).read(100_000, 50))).toContain(
      "got 40 in 1 request, then",
    );
    expect(ranges).toHaveLength(2);
  });

  test("a real connection that breaks is continued", async () => {
    const cuts: number[] = [];
    const local = createServer((request, response) => {
      const [begin, last] = (/^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? []).slice(1).map(Number);
      const end = Math.min((last as number) + 1, bytes.length);
      const range = `bytes ${begin}-${end - 1}/${bytes.length}`;
      response.writeHead(206, { "Content-Range": range, "Content-Length": end - (begin as number), ETag: '"1"' });
      response.write(bytes.subarray(begin, Math.min(end, (begin as number) + 40_000)), () => {
        cuts.push(begin as number);
        if (end - (begin as number) > 40_000) setTimeout(() => response.destroy(), 20);
        else response.end();
      });
    });
    await new Promise<void>((resolve) => local.listen(0, "127.0.0.1", resolve));
    const source = await urlSource(urlOf(local));
    expect(await source.read(70_000, 130_000)).toEqual(bytes.slice(70_000));
    expect(cuts.length).toBeGreaterThanOrEqual(6);
    local.close();
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
      'urlSource: options expected only fetch, signal, got "fetsh"',
    );
    await expect(urlSource(url, { signal: 7 as never })).rejects.toThrow("urlSource: signal expected an AbortSignal");
  });
});
