// Module hooks that let Node run the sources as they lie in src/: names of the package are their entries, and imports of
// `.wasm` and `.txt` are the text that bundles hold. For `node --import`; vitest starts its workers with it.

import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";
import { sourceFiles } from "./entries.mjs";
import { inlineWasm } from "./inline-wasm.mjs";

const urls = Object.fromEntries(
  Object.entries(sourceFiles()).map(([name, source]) => [name, new URL(`../${source}`, import.meta.url).href]),
);
const textOf = { wasm: inlineWasm, txt: (file) => readFileSync(file, "utf8") };

registerHooks({
  resolve: (specifier, context, next) =>
    specifier in urls ? { url: urls[specifier], shortCircuit: true } : next(specifier, context),
  load(url, context, next) {
    const text = textOf[/\.(wasm|txt)$/.exec(url)?.[1] ?? ""];
    if (!text) return next(url, context);
    return {
      format: "module",
      source: `export default ${JSON.stringify(text(fileURLToPath(url)))};`,
      shortCircuit: true,
    };
  },
});
