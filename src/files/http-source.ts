import { describe, HeadwiseError } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import { reasonOf } from "../util/reason.ts";
import type { ByteSource } from "./byte-source.ts";

/** The part of `fetch` that is used. */
export type RangeFetch = (
  url: string,
  init: { readonly headers: Readonly<Record<string, string>>; readonly signal?: Global<"AbortSignal"> },
) => Promise<Global<"Response">>;

/** Bytes of the first request, which usually include the file's header besides its size. */
const FIRST = 2 ** 16;

/** Answers in a row that break off without a byte, before a range is given up. */
const MOST_VAIN = 3;

/** A source that reads ranges of a file of a server, with what must stay the same from one request to the next. */
export interface HttpSource extends ByteSource {
  /**
   * An ETag, or else the time of the last modification; null if the server sends neither, or hides it from this page.
   */
  readonly mark: string | null;
}

type Version = Pick<HttpSource, "size" | "mark">;

/**
 * A source that reads ranges of a resource over HTTP. Ranges that the first request covered are not requested again. An answer
 * that breaks off is continued by a request for the bytes that are missing. The cause of a refused answer has its `status`.
 */
export async function createHttpSource(where: string, url: string, request: RangeFetch): Promise<HttpSource> {
  const name = `${where}: url ${describe(url)}`;
  const fail = (rule: string, got: string, cause?: unknown): HeadwiseError =>
    new HeadwiseError("BAD_FILE", `${name} expected ${rule}, got ${got}`, { cause });

  const connect = async (offset: number, length: number): Promise<Response> => {
    try {
      // Only Range: CORS allows it without a preflight request, unlike If-Range.
      return await request(url, { headers: { Range: `bytes=${offset}-${offset + length - 1}` } });
    } catch (cause) {
      throw fail("an answer", reasonOf(cause), cause);
    }
  };

  /** Checks that an answer is the asked range of the same file. Returns where it ends: at the end of the file at the latest. */
  const checkAnswer = async (
    response: Response,
    offset: number,
    length: number,
    known?: Version,
  ): Promise<Version & { end: number }> => {
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
        "206 for a range, from a server that gives ranges",
        `200 and all ${whole === null ? "" : `${whole} `}bytes`,
      );
    if (status !== 206) throw await refuse("206 for a range", `${status}`);
    const [, first, last, total] = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(stated ?? "") ?? [];
    if (total === undefined) throw await refuse("Content-Range with the size of the file", describe(stated));
    const version = { size: Number(total), mark: headers.get("ETag") ?? headers.get("Last-Modified") };
    if (known !== undefined && (known.size !== version.size || known.mark !== version.mark))
      throw await refuse(
        `to stay as it was (${known.size} bytes, ${known.mark})`,
        `${version.size} bytes, ${version.mark}`,
      );
    const end = Math.min(offset + length, version.size);
    if (!Number.isSafeInteger(version.size) || Number(first) !== offset || Number(last) !== end - 1)
      throw await refuse(`bytes ${offset} to ${end - 1}`, stated ?? "");
    return { ...version, end };
  };

  /** The bytes [offset, offset + length), or up to the end of the file if its size is not `known` yet. */
  const readRange = async (
    offset: number,
    length: number,
    known?: Version,
  ): Promise<Version & { bytes: Uint8Array }> => {
    const first = await connect(offset, length);
    const { end, ...version } = await checkAnswer(first, offset, length, known);
    const bytes = new Uint8Array(end - offset);
    let { at, cause } = await fill(bytes, 0, first);
    for (let vain = 0; at < bytes.length && vain < MOST_VAIN && !isAbort(cause); ) {
      const [from, missing] = [offset + at, bytes.length - at];
      const next = await connect(from, missing).catch((failure: HeadwiseError) => failure);
      if (next instanceof HeadwiseError) cause = next.cause;
      else {
        await checkAnswer(next, from, missing, version);
        ({ at, cause } = await fill(bytes, at, next));
      }
      vain = offset + at > from ? 0 : vain + 1;
    }
    const got = at > bytes.length ? "more" : cause === undefined ? `${at}` : `${at}, then ${reasonOf(cause)}`;
    if (at !== bytes.length) throw fail(`${bytes.length} bytes at ${offset}`, got, cause);
    return { ...version, bytes };
  };

  const { bytes: head, ...version } = await readRange(0, FIRST);
  return {
    ...version,
    async read(offset, length) {
      if (offset + length <= head.length) return head.subarray(offset, offset + length);
      return (await readRange(offset, length, version)).bytes;
    },
  };
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

/** Whether a signal ended a request. */
function isAbort(cause: unknown): boolean {
  return Object(cause).name === "AbortError";
}
