// How bundles contain `.wasm`: as base64 of its deflated bytes, which src/wasm/compile.ts decompresses. Base64 of plain wasm
// would be 40 % longer once the bundle is compressed for transfer.

import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { deflateRawSync } from "node:zlib";

/** The text of a `.wasm` file in a bundle; empty for simd.wasm, which src/wasm/lower-fma.ts makes from relaxed.wasm. */
export function inlineWasm(file) {
  if (basename(file) === "simd.wasm") return "";
  return deflateRawSync(readFileSync(file), { level: 9 }).toString("base64");
}

/** esbuild plugin: an import of `.wasm` gives that text. */
export const inlineWasmPlugin = {
  name: "inline-wasm",
  setup({ onLoad }) {
    onLoad({ filter: /\.wasm$/ }, ({ path }) => ({ contents: inlineWasm(path), loader: "text" }));
  },
};
