// How bundles carry `.wasm`: base64 of its bytes deflated, which src/wasm/compile.ts unpacks. Base64 of plain wasm would be 40 %
// longer once the bundle is compressed on its way.

import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { deflateRawSync } from "node:zlib";

/** The text that stands for a `.wasm` file: none for simd.wasm, which src/wasm/lower-fma.ts makes from relaxed.wasm. */
export function carry(file) {
  if (basename(file) === "simd.wasm") return "";
  return deflateRawSync(readFileSync(file), { level: 9 }).toString("base64");
}

/** esbuild plugin: an import of `.wasm` is that text. */
export const carriesWasm = {
  name: "carries-wasm",
  setup({ onLoad }) {
    onLoad({ filter: /\.wasm$/ }, ({ path }) => ({ contents: carry(path), loader: "text" }));
  },
};
