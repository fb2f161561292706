// How bundles carry `.wasm`: the two builds of a module are so alike that together they deflate to two thirds of what they
// take apart, so one text, in base64, holds both in halves, relaxed's and simd's in turn: close enough to each other for
// deflate's window of 32 KB. src/compile.ts unpacks it. Base64 of plain wasm would not compress on its way.

import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { deflateRawSync } from "node:zlib";

const HALVES = 2;

/** The two builds of a module, by the file of either. */
function pairOf(file) {
  const part = basename(file).replace(/(relaxed|simd)\.wasm$/, "");
  return ["relaxed", "simd"].map((build) => join(dirname(file), `${part}${build}.wasm`));
}

/** The text that stands for both builds, and where in it those bytes are that are the file's. */
export function carry(file) {
  const pair = pairOf(file).map((name) => ({ name, bytes: readFileSync(name) }));
  const parts = [];
  const spans = [];
  let at = 0;
  for (let half = 0; half < HALVES; half++)
    for (const { name, bytes } of pair) {
      const part = bytes.subarray((bytes.length * half) / HALVES, (bytes.length * (half + 1)) / HALVES);
      if (basename(name) === basename(file)) spans.push([at, at + part.length]);
      parts.push(part);
      at += part.length;
    }
  const text = deflateRawSync(Buffer.concat(parts), { level: 9, memLevel: 9 }).toString("base64");
  return { text, spans };
}

/** esbuild plugin: an import of `.wasm` is a CarriedBytes of src/compile.ts; both builds share the text. */
export const carriesWasm = {
  name: "carries-wasm",
  setup({ onLoad, onResolve }) {
    onLoad({ filter: /\.wasm$/, namespace: "file" }, ({ path }) => ({
      contents: `import text from ${JSON.stringify(`carried:${pairOf(path)[0]}`)};
        export default { text, spans: ${JSON.stringify(carry(path).spans)} };`,
      loader: "js",
    }));
    onResolve({ filter: /^carried:/ }, ({ path }) => ({ path: path.replace("carried:", ""), namespace: "carried" }));
    onLoad({ filter: /.*/, namespace: "carried" }, ({ path }) => ({ contents: carry(path).text, loader: "text" }));
  },
};
