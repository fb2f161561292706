import { describe, tagOf } from "./errors.ts";

/** What was thrown, as text for a message. It may be any value, and making text of it may throw again. */
export function reasonOf(thrown: unknown): string {
  try {
    const isText = typeof thrown === "string" || ["Error", "DOMException"].includes(tagOf(thrown));
    return isText ? String(thrown) : describe(thrown);
  } catch {
    return "an error without a text";
  }
}
