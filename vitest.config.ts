import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const hooks = fileURLToPath(new URL("scripts/source-hooks.mjs", import.meta.url));

/** Folders whose tests leave no global and no module changed: their files share processes, half a second of start each. */
const SHARING = [
  ...["conformance", "kernels", "properties"],
  ...["api", "attention", "cache", "files", "models", "reference", "tensor", "util", "wasm"].map(
    (name) => `unit/${name}`,
  ),
];

/** `--mode long` runs the files named .long.ts: what takes too long for every change. */
export default defineConfig(({ mode }) => {
  const under = (folder: string) => `test/${folder}/*.${mode === "long" ? "long" : "test"}.ts`;
  const sharing = SHARING.map((folder) => under(`${folder}/**`));
  return {
    test: {
      testTimeout: mode === "long" ? 600_000 : 60_000,
      // The default leaves one core free, which of two is half of the machine.
      maxWorkers: "100%",
      // Node loads modules, not vite, whose wrapping of every imported name doubles the time of numeric loops.
      experimental: { viteModuleRunner: false },
      execArgv: ["--import", hooks],
      projects: [
        { extends: true, test: { name: "sharing", include: sharing, isolate: false } },
        { extends: true, test: { name: "isolated", include: [under("**")], exclude: [...sharing, "**/node_modules"] } },
      ],
    },
  };
});
