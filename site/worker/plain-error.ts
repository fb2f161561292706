// What went wrong, in the words of one who gave a file or a URL: the package's own message names ranges and its functions.

import { HeadwiseError } from "headwise";

/** The message of an error; where its meaning is known, that is the first line, and the message the second. */
export function plainMessage({ message, cause }: Error): string {
  const meaning = message.includes(" expected an answer, got ")
    ? "The server could not be reached, or lets no other site read its files (CORS)."
    : meaningOf(cause);
  return meaning ? `${meaning}\n${message}` : message;
}

/** How files begin that are no models, and what they are. */
const BEGINNINGS: readonly [beginning: string | RegExp, what: string][] = [
  ["\x89PNG", "a PNG picture"],
  ["\xff\xd8\xff", "a JPEG picture"],
  ["GIF8", "a GIF picture"],
  ["%PDF", "a PDF document"],
  ["PK\x03\x04", "a ZIP archive, as PyTorch’s .bin and .pt files are, too"],
  ["\x1f\x8b", "a file that gzip has compressed: unpack it first"],
  ["version https://git-lfs", "a pointer of Git LFS to a file, not the file itself"],
  [/^\s*<(?:!doctype|html)/i, "a web page"],
  [/^\s*[{[]/, "a JSON file"],
  [/^[\s!-~]{12}/, "a text"],
];

/** An error of loading a model, with a sentence on what its file is instead, from its first bytes. */
export async function plainLoadError(error: Error, begin: () => Promise<Uint8Array>): Promise<Error> {
  const code = error instanceof HeadwiseError ? error.code : undefined;
  const isOfFile = error instanceof TypeError || error instanceof RangeError || code === "BAD_FILE";
  if (!(isOfFile || code === "OUT_OF_MEMORY") || plainMessage(error) !== error.message) return error;
  const bytes = await begin().catch(() => new Uint8Array());
  const text = String.fromCharCode(...bytes.subarray(0, 64));
  const isBegin = (start: string | RegExp) => (typeof start === "string" ? text.startsWith(start) : start.test(text));
  const what = BEGINNINGS.find(([start]) => isBegin(start))?.[1];
  const sentence =
    code === "OUT_OF_MEMORY"
      ? "This model takes more memory than this browser gives a page."
      : what
        ? `This is ${what}, not a model.`
        : "This is no model that the page can read.";
  return new Error(`${sentence}\n${error.message}`, { cause: error });
}

/** What the status of an answer means; it is the cause of an error of its URL, or of the error that this one names. */
function meaningOf(cause: unknown): string | undefined {
  if (cause instanceof HeadwiseError) return meaningOf(cause.cause);
  const { status } = Object(cause) as { readonly status?: unknown };
  if (typeof status !== "number") return undefined;
  if (status === 404 || status === 410) return "The server has no model file at this address.";
  if (status === 401 || status === 403) return "The server does not give this file to everyone.";
  if (status === 429) return "The server had too many requests: try again later.";
  if (status >= 500) return "The server failed: try again later.";
  return undefined;
}
