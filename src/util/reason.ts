import { describe, tagOf } from "./errors.ts";

/**
 * What was thrown, as text for a message. It may be any value, and making text of it may throw again. The TypeErrors of `fetch` may
 * say no more than that it failed: then their cause is part of the text.
 */
export function reasonOf(thrown: unknown): string {
  try {
    const isText = typeof thrown === "string" || ["Error", "DOMException"].includes(tagOf(thrown));
    if (!isText) return describe(thrown);
    const { name, cause } = Object(thrown);
    // Where a host has several addresses, the cause is a list of failures, with a code and no message.
    const { message, code } = Object(name === "TypeError" && tagOf(cause) === "Error" ? cause : undefined);
    return message || code ? `${thrown}: ${message || code}` : String(thrown);
  } catch {
    return "an error without a text";
  }
}
