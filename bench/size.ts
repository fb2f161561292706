// What a download of each entry costs.

import { readdirSync, readFileSync } from "node:fs";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { type Column, part } from "./part.ts";

interface SizeRow {
  readonly file: string;
  readonly bytes: number;
  /** Level 9. */
  readonly gzip: number;
  /** Quality 11. */
  readonly brotli: number;
}

const dist = new URL("../dist/", import.meta.url);
const kb = (bytes: number) => (bytes / 1000).toFixed(1);
const columns: readonly Column<SizeRow>[] = [
  ["file", 22, (row) => row.file],
  ["kB", 7, (row) => kb(row.bytes)],
  ["gzip", 7, (row) => kb(row.gzip)],
  ["brotli", 7, (row) => kb(row.brotli)],
];

export const size = part("size", columns, async function* rows({ wants }) {
  for (const file of readdirSync(dist).sort()) {
    if (!/\.(js|wasm)$/.test(file) || !wants(file)) continue;
    const data = readFileSync(new URL(file, dist));
    const gzip = gzipSync(data, { level: 9 }).length;
    yield { file, bytes: data.length, gzip, brotli: brotliCompressSync(data).length };
  }
});
