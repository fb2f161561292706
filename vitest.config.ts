import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const hooks = fileURLToPath(new URL("scripts/source-hooks.mjs", import.meta.url));

/** Files with a process of their own, since they replace modules. All others share processes, which have loaded the sources. */
const ALONE = ["test/unit/site/engine-tasks.test.ts"];

/** The files whose sweeps `sampled` shortens, and what only the long run has. */
function longFiles(): string[] {
  const tests = globSync("test/**/*.test.ts", { exclude: ["**/node_modules"] });
  return ["test/**/*.long.ts", ...tests.filter((file) => readFileSync(file, "utf8").includes("support/sampled.ts"))];
}

/** `--mode long` runs the sweeps as a whole, and the files named .long.ts: what takes too long for every change. */
export default defineConfig(({ mode }) => {
  const long = mode === "long";
  const sample = long ? "whole" : (process.env.HEADWISE_SAMPLE ?? "1");
  console.log(long ? "Whole sweeps." : `Sweeps by samples of seed ${sample} (HEADWISE_SAMPLE).`);
  const include = long ? longFiles() : ["test/**/*.test.ts"];
  return {
    test: {
      testTimeout: long ? 600_000 : 60_000,
      // The default leaves one core free, which of two is half of the machine.
      maxWorkers: "100%",
      // Node loads modules, not vite, whose wrapping of every imported name doubles the time of numeric loops.
      experimental: { viteModuleRunner: false },
      execArgv: ["--import", hooks],
      // Children that are Node keep what they compiled of the sources and the bundles.
      env: {
        HEADWISE_SAMPLE: sample,
        NODE_COMPILE_CACHE: fileURLToPath(new URL("build/compile-cache", import.meta.url)),
      },
      setupFiles: ["test/support/setup.ts"],
      projects: [
        {
          extends: true,
          test: { name: "sharing", include, exclude: [...ALONE, "**/node_modules"], isolate: false },
        },
        { extends: true, test: { name: "alone", include: long ? [] : ALONE } },
      ],
    },
  };
});
