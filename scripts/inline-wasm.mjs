// How bundles contain `.wasm`: as base64 of its deflated bytes, which src/base/platform/host.ts decompresses. Base64 of plain
// wasm would be 40 % longer once the bundle is compressed for transfer.

import { readFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { deflateRawSync } from "node:zlib";
import zopfli from "@gfx/zopfli";

/** Raw deflate some 4 % smaller than that of zlib, in half a second. More iterations save some 12 bytes in all. */
const deflateSmallest = promisify(zopfli.deflate);
// Those that its Emscripten runtime added would print all of its source with any error of the build.
for (const event of ["uncaughtException", "unhandledRejection"]) process.removeAllListeners(event);

/** Relaxed modules only are contained: src/wasm/rewrite.ts makes those of simd from them. */
const containedOf = (file) => join(dirname(file), basename(file).replace("simd.wasm", "relaxed.wasm"));

const textOf = (deflated) => Buffer.from(deflated).toString("base64");

/** The text of a `.wasm` file in a bundle, deflated quickly: for sources that run without a bundle. */
export function inlineWasm(file) {
  return textOf(deflateRawSync(readFileSync(containedOf(file))));
}

/** The text of a `.wasm` file in a bundle, as small as it gets. */
export async function smallestText(file) {
  return textOf(await deflateSmallest(readFileSync(file), { numiterations: 50 }));
}

/** esbuild plugin: an import of `.wasm` gives its text in `texts`, by its path. Imports of both builds are one file. */
export const inlineWasmPlugin = (texts) => ({
  name: "inline-wasm",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /simd\.wasm$/ }, ({ path, resolveDir }) => ({ path: containedOf(join(resolveDir, path)) }));
    onLoad({ filter: /\.wasm$/ }, ({ path }) => ({ contents: texts.get(resolve(path)), loader: "text" }));
  },
});
