// How bundles contain `.wasm`: as base64 of its deflated bytes, which src/platform/inflate.ts decompresses. Base64 of plain
// wasm would be 40 % longer once the bundle is compressed for transfer.

import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { deflate } from "./deflate.mjs";

/** The text of a `.wasm` file in a bundle; empty for simd.wasm, which src/wasm/lower-fma.ts makes from relaxed.wasm. */
export function inlineWasm(file, compress = deflateRawSync) {
  if (basename(file) === "simd.wasm") return "";
  return Buffer.from(compress(readFileSync(file))).toString("base64");
}

/** As small as it gets, which takes a second or two: of each file once. */
const smallest = new Map();
function smallestText(file) {
  if (!smallest.has(file)) smallest.set(file, inlineWasm(file, deflateChecked));
  return smallest.get(file);
}

function deflateChecked(bytes) {
  const deflated = deflate(bytes);
  if (!inflateRawSync(deflated).equals(bytes)) throw new Error("build: deflated bytes expected to inflate to the same");
  return deflated;
}

/** esbuild plugin: an import of `.wasm` gives that text. */
export const inlineWasmPlugin = {
  name: "inline-wasm",
  setup({ onLoad }) {
    onLoad({ filter: /\.wasm$/ }, ({ path }) => ({ contents: smallestText(path), loader: "text" }));
  },
};
