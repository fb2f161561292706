import { readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";
import { viteAliases } from "./scripts/entries.mjs";
import { inlineWasm } from "./scripts/inline-wasm.mjs";

/** `import source from "x.wasm"` is text, as it is in the bundle. */
const wasmSources = {
  name: "wasm-sources",
  enforce: "pre" as const,
  load(id: string) {
    return id.endsWith(".wasm") ? `export default "${inlineWasm(id)}";` : null;
  },
};

/** `import text from "x.txt"` is a string, as it is in the bundle. */
const texts = {
  name: "texts",
  enforce: "pre" as const,
  load(id: string) {
    return id.endsWith(".txt") ? `export default ${JSON.stringify(readFileSync(id, "utf8"))};` : null;
  },
};

export default defineConfig({
  plugins: [wasmSources, texts],
  resolve: {
    alias: viteAliases(),
  },
  test: { include: ["test/**/*.test.ts"], testTimeout: 60_000 },
});
