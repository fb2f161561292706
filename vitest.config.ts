import { readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";

/** `import bytes from "x.wasm"` is a Uint8Array, as it is in the bundle. */
const wasmBytes = {
  name: "wasm-bytes",
  enforce: "pre" as const,
  load(id: string) {
    if (!id.endsWith(".wasm")) return null;
    const base64 = readFileSync(id).toString("base64");
    return `export default Uint8Array.from(Buffer.from(${JSON.stringify(base64)}, "base64"));`;
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
  plugins: [wasmBytes, texts],
  resolve: {
    alias: {
      "headwise/reference": "/src/reference/index.ts",
      "headwise/threads": "/src/threads.ts",
      "headwise/core": "/src/core.ts",
      headwise: "/src/index.ts",
    },
  },
  test: { include: ["test/**/*.test.ts"], testTimeout: 60_000 },
});
