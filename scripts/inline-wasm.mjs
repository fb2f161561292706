// How bundles contain `.wasm`: as base64 of its deflated bytes, which src/platform/inflate.ts decompresses. Base64 of plain
// wasm would be 40 % longer once the bundle is compressed for transfer.

import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { promisify } from "node:util";
import { deflateRawSync } from "node:zlib";
import zopfli from "@gfx/zopfli";

/** Raw deflate some 4 % smaller than that of zlib, in half a second. */
const deflateSmallest = promisify(zopfli.deflate);
// Those that its Emscripten runtime added would print all of its source with any error of the build.
for (const event of ["uncaughtException", "unhandledRejection"]) process.removeAllListeners(event);

/** simd.wasm is not contained: src/wasm/lower-fma.ts makes it from relaxed.wasm. */
const isContained = (file) => basename(file) !== "simd.wasm";

const textOf = (deflated) => Buffer.from(deflated).toString("base64");

/** The text of a `.wasm` file in a bundle, deflated quickly: for sources that run without a bundle. */
export function inlineWasm(file) {
  return isContained(file) ? textOf(deflateRawSync(readFileSync(file))) : "";
}

/** The texts of files, each made once for all bundles. */
const smallest = new Map();

async function smallestText(file) {
  return isContained(file) ? textOf(await deflateSmallest(readFileSync(file), { numiterations: 100 })) : "";
}

/** esbuild plugin: an import of `.wasm` gives that text, as small as it gets. */
export const inlineWasmPlugin = {
  name: "inline-wasm",
  setup({ onLoad }) {
    onLoad({ filter: /\.wasm$/ }, async ({ path }) => {
      if (!smallest.has(path)) smallest.set(path, smallestText(path));
      return { contents: await smallest.get(path), loader: "text" };
    });
  },
};
