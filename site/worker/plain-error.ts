// What went wrong with a URL, in the words of one who gave it: the package's own message names ranges and its functions.

import { HeadwiseError } from "headwise";

/** The message of an error, with what it means before it where a server is the reason. */
export function plainMessage({ message, cause }: Error): string {
  const meaning = message.includes(" expected an answer, got ")
    ? "The server could not be reached, or lets no other site read its files (CORS)."
    : meaningOf(cause);
  return meaning ? `${meaning} (${message})` : message;
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
