// Saving what the page made as a file.

import { make } from "./dom.ts";

/** Has the browser save a file under a name; `type` is its media type. */
export function saveFile(name: string, type: string, content: BlobPart): void {
  const href = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000); // the browser reads it after the click
}

/** Rows as CSV. Text that could be read as several cells or rows has quotes around it, and those in it twice. */
export function csvOf(rows: readonly (readonly (string | number)[])[]): string {
  const quoted = (cell: string) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  return rows.map((row) => `${row.map((cell) => quoted(String(cell))).join(",")}\r\n`).join("");
}
