import { describe, HeadwiseError } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import { reasonOf } from "../util/reason.ts";
import type { ByteSource } from "./byte-source.ts";

/** The part of `fetch` that is used. */
export type RangeFetch = (
  url: string,
  init: { readonly headers: Readonly<Record<string, string>> },
) => Promise<Global<"Response">>;

/** Bytes of the first request, which usually include the file's header besides its size. */
const FIRST = 2 ** 16;

/** What must stay the same from one request to the next. */
interface Version {
  readonly size: number;
  /**
   * An ETag, or else the time of the last modification; null if the server sends neither, or hides it from this page.
   */
  readonly mark: string | null;
}

/**
 * A source that reads ranges of a resource over HTTP. Ranges that the first request covered are not requested again.
 */
export async function createHttpSource(where: string, url: string, request: RangeFetch): Promise<ByteSource> {
  const name = `${where}: url ${describe(url)}`;
  const fail = (rule: string, got: string, cause?: unknown): HeadwiseError =>
    new HeadwiseError("BAD_FILE", `${name} expected ${rule}, got ${got}`, { cause });

  /** Reads [offset, offset + length), or up to the end of the file if its size is not `known` yet. */
  const requestRange = async (
    offset: number,
    length: number,
    known?: Version,
  ): Promise<Version & { bytes: Uint8Array }> => {
    let response: Response;
    try {
      // Only Range: CORS allows it without a preflight request, unlike If-Range.
      response = await request(url, { headers: { Range: `bytes=${offset}-${offset + length - 1}` } });
    } catch (cause) {
      throw fail("an answer", reasonOf(cause), cause);
    }
    if (typeof response?.headers?.get !== "function") throw fail("a Response", describe(response));
    const { status, headers } = response;
    const refuse = async (rule: string, got: string): Promise<HeadwiseError> => {
      await response.body?.cancel().catch(() => {});
      return fail(rule, got);
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
    const rule = `${end - offset} bytes at ${offset}`;
    const bytes = await readBody(response, end - offset).catch((cause) => {
      throw fail(rule, reasonOf(cause), cause);
    });
    if (bytes === undefined) throw fail(rule, "another number");
    return { ...version, bytes };
  };

  const { bytes: head, ...version } = await requestRange(0, FIRST);
  return {
    size: version.size,
    async read(offset, length) {
      if (offset + length <= head.length) return head.subarray(offset, offset + length);
      return (await requestRange(offset, length, version)).bytes;
    },
  };
}

/** The body, or undefined if its length is not `length`. */
async function readBody(response: Response, length: number): Promise<Uint8Array | undefined> {
  const reader = response.body?.getReader();
  const bytes = new Uint8Array(length);
  let at = 0;
  while (reader !== undefined) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > length) {
      await reader.cancel().catch(() => {});
      return undefined;
    }
    bytes.set(value, at);
    at += value.length;
  }
  return at === length ? bytes : undefined;
}
