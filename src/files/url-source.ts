import { resolvePlace } from "../platform/page-url.ts";
import { expectFields, expectFunction, expectSignal } from "../util/arguments.ts";
import { describe, tagOf } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import type { ByteSource } from "./byte-source.ts";
import { createHttpSource, type HttpSource, type RangeFetch } from "./http-source.ts";

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
