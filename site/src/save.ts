// Saving what the page made as a file.

import { make } from "./dom.ts";

/** Has the browser save a text under a name; `type` is its media type. */
export function saveText(name: string, type: string, text: string): void {
  const href = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000); // the browser reads it after the click
}
