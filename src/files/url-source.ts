import { describe, expectFields, tagOf } from "../util/errors.ts";
import type { ByteSource } from "./byte-source.ts";
import { createHttpSource, type RangeFetch } from "./http-source.ts";

/** How a URL is read. */
export interface UrlSourceOptions {
  /** Used in place of the host's `fetch`, e.g. to add headers or a signal. */
  readonly fetch?: RangeFetch;
}

/**
 * The bytes of a URL, by HTTP range requests: a layer of a large file costs its own bytes. The first request brings
 * 64 KB and the size; a file that changes while it is read is noticed (size, ETag or Last-Modified) and refused. A page
 * reads other origins only where their answers allow it and expose `Content-Range`.
 * @throws TypeError for another argument, HeadwiseError `BAD_FILE` for a server that cannot be reached, breaks off, has an
 * empty file, answers with another status than 206, or ignores ranges (with how many bytes it would have sent; they are not read).
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
export async function urlSource(url: string | URL, options: UrlSourceOptions = {}): Promise<ByteSource> {
  const where = "urlSource";
  if (typeof url !== "string" && tagOf(url) !== "URL")
    throw new TypeError(`${where}: url expected a string or a URL, got ${describe(url)}`);
  expectFields(where, "options", options, ["fetch"]);
  const { fetch: request = (to, init) => fetch(to, init) } = options;
  if (typeof request !== "function")
    throw new TypeError(`${where}: options.fetch expected a function, got ${describe(request)}`);
  return createHttpSource(where, String(url), request);
}
