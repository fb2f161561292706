import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const hooks = fileURLToPath(new URL("scripts/source-hooks.mjs", import.meta.url));

export default defineConfig(({ mode }) => ({
  test: {
    include: [mode === "long" ? "test/**/*.long.ts" : "test/**/*.test.ts"],
    testTimeout: 60_000,
    // The runner's default leaves one core free, which of two is half of the machine.
    maxWorkers: "100%",
    // Modules are loaded by Node, not by vite, whose wrapping of every imported name doubles the time of numeric loops.
    experimental: { viteModuleRunner: false },
    execArgv: ["--import", hooks],
  },
}));
