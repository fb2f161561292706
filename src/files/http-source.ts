// Files of servers, by range requests.

import { resolvePlace, wait } from "../base/platform/host.ts";
import { expectFields, expectFunction, expectSignal, type Global } from "../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../base/util/errors.ts";
import { reasonOf } from "../base/util/strings.ts";
import type { ByteSource } from "./byte-source.ts";

/** The part of `fetch` that is used. */
export type RangeFetch = (
  url: string,
  init: { readonly headers: Readonly<Record<string, string>>; readonly signal?: Global<"AbortSignal"> },
) => Promise<Global<"Response">>;

/** Bytes of the first request, which usually include the file's header besides its size. */
const FIRST = 2 ** 16;

/** What answers say without a file. */
const MEANINGS: Readonly<Record<number, string>> = {
  401: "it asks for credentials",
  403: "forbidden",
  404: "not found",
  410: "gone",
};

/** Bytes of the largest file that is taken as a whole, from a server that does not give ranges: it is held while it is read. */
const MOST_WHOLE: number = 2 ** 26;

/** How often in a row a range is asked for again in vain, before it is given up. */
const MOST_VAIN = 3;

/** An answer that breaks off before so many bytes, and before half of what is missing, was in vain. */
const LEAST = 2 ** 14;

/** Milliseconds before a range is asked for again; they double with each time in vain. */
const WAIT_MS = 200;

/** The longest time that a server may ask to wait for. */
const MOST_WAIT_MS = 10_000;

/** A source that reads ranges of a file of a server, with what must stay the same from one request to the next. */
export interface HttpSource extends ByteSource {
  /**
   * An ETag, or else the time of the last modification; null if the server sends neither, or hides it from this page.
   */
  readonly mark: string | null;
}

type Version = Pick<HttpSource, "size" | "mark">;

/** An answer, and all bytes of the file if it has them. */
interface Answer {
  readonly response: Response;
  readonly whole?: Uint8Array;
}

/** Why there is no answer, or not all of one, with the milliseconds after which the server wants to be asked again. */
interface Failure {
  readonly rule: string;
  readonly got: string;
  readonly cause: unknown;
  readonly after: number;
}

/** How a source asks. */
interface Patience {
  /** Ends waiting, and the requests that `request` makes. */
  readonly signal?: Global<"AbortSignal"> | undefined;
  /** How often the first request is made again. */
  readonly retries?: number;
}

const markOf = ({ headers }: Response) => headers.get("ETag") ?? headers.get("Last-Modified");

/** The error of a URL that was expected to give something, and gave something else. */
type Fail = (rule: string, got: string, cause?: unknown) => HeadwiseError;

/** Asks for bytes [offset, offset + length). */
async function connect(request: RangeFetch, url: string, offset: number, length: number): Promise<Answer | Failure> {
  let response: Response;
  try {
    // Only Range: CORS allows it without a preflight request, unlike If-Range.
    response = await request(url, { headers: { Range: `bytes=${offset}-${offset + length - 1}` } });
  } catch (cause) {
    return { rule: "an answer", got: reasonOf(cause), cause, after: 0 };
  }
  const { status } = Object(response);
  if (status !== 429 && !(status >= 500)) return { response };
  await response.body?.cancel().catch(() => {});
  return { rule: "206 for a range", got: `${status}`, cause: { status }, after: retryAfter(response) };
}

/** Checks that an answer is the asked range of the same file. Returns where it ends: at the end of the file at the latest. */
async function checkAnswer(
  fail: Fail,
  response: Response,
  offset: number,
  length: number,
  known?: Version,
): Promise<Version & { end: number }> {
  if (typeof response?.headers?.get !== "function") throw fail("a Response", describe(response));
  const { status, headers } = response;
  const refuse = async (rule: string, got: string): Promise<HeadwiseError> => {
    await response.body?.cancel().catch(() => {});
    return fail(rule, got, { status });
  };
  const whole = headers.get("Content-Length");
  const stated = headers.get("Content-Range");
  // An empty file has no range to read. Servers that answer nevertheless state 0 as its size.
  if (known === undefined && (status === 416 || stated?.endsWith("/0") || (status === 200 && whole === "0")))
    throw await refuse("a file with bytes in it", "an empty file");
  if (status === 200)
    throw await refuse(
      known === undefined ? `206 for a range, or at most ${MOST_WHOLE} bytes` : "206 for a range",
      `200 and all ${whole === null ? "" : `${whole} `}bytes`,
    );
  const meaning = MEANINGS[status];
  if (meaning !== undefined) throw await refuse("a file that may be read", `${status} (${meaning})`);
  if (status !== 206) throw await refuse("206 for a range", `${status}`);
  const [, first, last, total] = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(stated ?? "") ?? [];
  if (total === undefined) throw await refuse("Content-Range with the size of the file", describe(stated));
  const version = { size: Number(total), mark: markOf(response) };
  if (known !== undefined && (known.size !== version.size || known.mark !== version.mark))
    throw await refuse(
      `to stay as it was (${known.size} bytes, ${known.mark})`,
      `${version.size} bytes, ${version.mark}`,
    );
  const end = Math.min(offset + length, version.size);
  if (!Number.isSafeInteger(version.size) || Number(first) !== offset || Number(last) !== end - 1)
    throw await refuse(`bytes ${offset} to ${end - 1}`, stated ?? "");
  return { ...version, end };
}

/** An answer with all of its bytes if they are the whole file, not empty, and not too large; a failure if it breaks off. */
async function readWhole(fail: Fail, response: Response): Promise<Answer | Failure> {
  const stated = response?.headers?.get?.("Content-Length");
  if (response?.status !== 200 || stated === "0" || Number(stated) > MOST_WHOLE) return { response };
  // Servers of applications answer so for every name that they do not have.
  if (response.headers.get("Content-Type")?.startsWith("text/html")) {
    await response.body?.cancel().catch(() => {});
    throw fail("a file", "a page (text/html)", { status: 404 });
  }
  const { bytes, cause } = await collect(response);
  if (cause !== undefined)
    return { rule: "the whole file", got: `${bytes.length} bytes, then ${reasonOf(cause)}`, cause, after: 0 };
  if (bytes.length === 0) throw fail("a file with bytes in it", "an empty file");
  return bytes.length <= MOST_WHOLE ? { response, whole: bytes } : { response };
}

/**
 * A source that reads ranges of a resource over HTTP. Ranges that the first request covered are not requested again. A request
 * that fails, or is answered by 429 or by 500 and more, is made again, at most three times; an answer that breaks off is continued
 * by a request for the bytes that are missing. The cause of a refused answer has its `status`. A server that gives no ranges
 * answers the first request with the whole file, which is kept if it is not too large, and asked for again if it breaks off.
 */
async function createHttpSource(
  where: string,
  url: string,
  request: RangeFetch,
  { signal, retries = MOST_VAIN }: Patience = {},
): Promise<HttpSource> {
  const name = `${where}: url ${describe(url)}`;
  const fail: Fail = (rule, got, cause) =>
    new HeadwiseError("BAD_FILE", `${name} expected ${rule}, got ${got}`, { cause });

  /** The bytes [offset, offset + length), or up to the end of the file if its size is not `known` yet. */
  const readRange = async (
    offset: number,
    length: number,
    known?: Version,
    most = MOST_VAIN,
  ): Promise<Version & { bytes: Uint8Array }> => {
    let [version, bytes, at]: [Version | undefined, Uint8Array | undefined, number] = [known, undefined, 0];
    for (let requests = 1, vain = 0; ; requests++, vain++) {
      const [from, missing] = [offset + at, (bytes?.length ?? length) - at];
      const asked = await connect(request, url, from, missing);
      const answer = version === undefined && "response" in asked ? await readWhole(fail, asked.response) : asked;
      let [came, failure] = [0, answer as Failure];
      if ("response" in answer) {
        const { response, whole } = answer;
        if (whole) return { size: whole.length, mark: markOf(response), bytes: whole };
        const { end, ...stated } = await checkAnswer(fail, response, from, missing, version);
        version = stated;
        bytes ??= new Uint8Array(end - offset);
        const filled = await fill(bytes, at, response);
        if (filled.at === bytes.length) return { ...version, bytes };
        const { cause } = filled;
        if (filled.at > bytes.length) throw fail(`${bytes.length} bytes at ${offset}`, "more");
        failure = { rule: "", got: cause === undefined ? "" : reasonOf(cause), cause, after: 0 };
        came = filled.at - at;
        at = filled.at;
      }
      const { rule, got, cause, after } = failure;
      const isEnded = isAbort(cause);
      if (came >= Math.min(LEAST, missing / 2) && !isEnded) vain = -1;
      else if (vain < most && after <= MOST_WAIT_MS && !isEnded)
        await wait(Math.max(WAIT_MS * 2 ** vain, after), signal);
      else if (bytes === undefined) throw fail(rule, got, cause);
      else {
        const all = `${at} in ${requests} ${requests === 1 ? "request" : "requests"}${got && `, then ${got}`}`;
        throw fail(`${bytes.length} bytes at ${offset}`, all, cause);
      }
      if (signal?.aborted) throw fail("an answer", reasonOf(signal.reason), signal.reason);
    }
  };

  const { bytes: head, ...version } = await readRange(0, FIRST, undefined, retries);
  return {
    ...version,
    async read(offset, length) {
      if (offset + length <= head.length) return head.subarray(offset, offset + length);
      return (await readRange(offset, length, version)).bytes;
    },
  };
}

/** Milliseconds until a server wants to be asked again. */
function retryAfter({ headers }: Response): number {
  const stated = headers.get("Retry-After") ?? "";
  const ms = /^\d+$/.test(stated) ? 1000 * Number(stated) : Date.parse(stated) - Date.now();
  return Number.isNaN(ms) ? 0 : ms;
}

/**
 * Writes a body into `bytes`, from index `at` on. Returns where it ended, with the cause if it broke off. One that is too long
 * is cancelled, and ends behind `bytes`.
 */
async function fill(bytes: Uint8Array, at: number, { body }: Response): Promise<{ at: number; cause?: unknown }> {
  const reader = body?.getReader();
  let end = at;
  try {
    while (reader !== undefined) {
      const { done, value } = await reader.read();
      if (done) break;
      if (end + value.length > bytes.length) {
        await reader.cancel().catch(() => {});
        return { at: end + value.length };
      }
      bytes.set(value, end);
      end += value.length;
    }
  } catch (cause) {
    return { at: end, cause };
  }
  return { at: end };
}

/** The bytes of a body, with the cause if it broke off. One that is larger than MOST_WHOLE is cancelled. */
async function collect({ body }: Response): Promise<{ bytes: Uint8Array; cause?: unknown }> {
  const reader = body?.getReader();
  const pieces: Uint8Array[] = [];
  let [length, cause]: [number, unknown] = [0, undefined];
  try {
    while (reader !== undefined && length <= MOST_WHOLE) {
      const { done, value } = await reader.read();
      if (done) break;
      pieces.push(value);
      length += value.length;
    }
    if (length > MOST_WHOLE) await reader?.cancel().catch(() => {});
  } catch (failure) {
    cause = failure;
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return { bytes, cause };
}

/** Whether a signal ended a request. */
function isAbort(cause: unknown): boolean {
  return Object(cause).name === "AbortError";
}

/** Options of `urlSource`. */
export interface UrlSourceOptions {
  /** Called instead of the global `fetch`, for instance to add headers or a signal. */
  readonly fetch?: RangeFetch | undefined;
  /**
   * Ends requests, those of `read` too, and waiting for another one: they reject with `BAD_FILE`, whose cause is what `fetch`
   * rejects with. Without one, a server that sends nothing more and does not close the connection is waited for.
   */
  readonly signal?: Global<"AbortSignal"> | undefined;
}

/**
 * A source that reads a URL by HTTP range requests, so that one layer of a large file costs its own bytes only. In pages and
 * workers the URL may be relative to their address. The first request reads 64 KB. A page can read from other origins only if they
 * allow it by CORS and expose `Content-Range`.
 * @throws TypeError naming the argument. HeadwiseError `BAD_FILE`, here or when bytes are read, if the server cannot be
 * reached, answers with a status other than 206 or 200, or has an empty file; and if the file changes between two requests (size,
 * ETag or Last-Modified). Where an answer is refused, the cause has its `status`. A server that gives no ranges answers with the
 * whole file: of at most 64 MB it is kept, a larger one is refused; fetch it yourself and pass a Blob. A request that fails, or is
 * answered by 429 or by a status from 500 on, is made again up to three times, after 0.2, 0.4 and 0.8 seconds, or when the server
 * says (Retry-After) if that is within 10. An answer that breaks off is continued from the byte where it stopped, one with the whole
 * file from the beginning; after four in a row with the whole file, or of less than 16 KB and less than half of what was missing,
 * the error has the number of bytes that came.
 * @example
 * import { openSafetensors, urlSource, writeSafetensors } from "headwise/weights";
 * const bytes = writeSafetensors({ w: { data: Float32Array.of(1, 2), shape: [2] } });
 * const server = async (_url: string, { headers }: { headers: Readonly<Record<string, string>> }) => {
 *   const begin = Number(/\d+/.exec(headers.Range!));
 *   const range = `bytes ${begin}-${bytes.length - 1}/${bytes.length}`;
 *   return new Response(bytes.slice(begin), { status: 206, headers: { "Content-Range": range } });
 * };
 * const source = await urlSource("https://example.com/model.safetensors", { fetch: server }); // fetch: only for others
 * console.log((await openSafetensors(source)).tensors.get("w")?.shape); // [ 2 ]
 */
export async function urlSource(url: string | Global<"URL">, options: UrlSourceOptions = {}): Promise<ByteSource> {
  return connectUrl(url, options);
}

/** `urlSource`, with the version of the file. The first request is made again at most `retries` times. */
export async function connectUrl(
  url: string | Global<"URL">,
  options: UrlSourceOptions,
  retries?: number,
): Promise<HttpSource> {
  const where = "urlSource";
  if (typeof url !== "string" && tagOf(url) !== "URL")
    throw new TypeError(`${where}: url expected a string or a URL, got ${describe(url)}`);
  expectFields(where, "options", options, ["fetch", "signal"]);
  const { fetch: request = (to, init) => fetch(to, init), signal } = options;
  expectFunction(where, "options.fetch", request);
  if (signal !== undefined) expectSignal(where, signal);
  const ask: RangeFetch = signal ? (to, init) => request(to, { ...init, signal }) : request;
  return createHttpSource(where, String(resolvePlace(url as string | URL)), ask, { signal, retries });
}
