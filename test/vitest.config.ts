import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Files with a process of their own, since they replace modules. All others share processes, which have loaded the sources. */
const ALONE = ["test/unit/site/engine-tasks.test.ts"];

/** Short files that take long. A fresh checkout knows no durations, and takes the largest files first. */
const LONG = ["properties/mutants", "unit/tools/configure/measure-layer", "unit/docs", "unit/wasm/shared-memory"];

/** Begins with what takes long, so that no process ends with it while the others have nothing left. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification) => LONG.some((name) => moduleId.includes(`/${name}.`));
    return (await super.sort(files)).sort((a, b) => Number(isLong(b)) - Number(isLong(a)));
  }
}

/** The files whose sweeps `sampled` shortens, and what only the long run has. */
function longFiles(): string[] {
  const tests = globSync("test/**/*.test.ts", { cwd: root, exclude: ["**/node_modules"] });
  return [
    "test/**/*.long.ts",
    ...tests.filter((file) => readFileSync(join(root, file), "utf8").includes("support/sampled.ts")),
  ];
}

/** `--mode long` runs the sweeps as a whole, and the files named .long.ts: what takes too long for every change. */
export default defineConfig(({ mode }) => {
  const long = mode === "long";
  const sample = long ? "whole" : (process.env.HEADWISE_SAMPLE ?? "1");
  console.log(long ? "Whole sweeps." : `Sweeps by samples of seed ${sample} (HEADWISE_SAMPLE).`);
  const include = long ? longFiles() : ["test/**/*.test.ts"];
  return {
    root,
    test: {
      testTimeout: long ? 600_000 : 60_000,
      hookTimeout: 60_000,
      // The default leaves one core free, which of two is half of the machine.
      maxWorkers: "100%",
      // Node loads modules, not vite, whose wrapping of every imported name doubles the time of numeric loops.
      experimental: { viteModuleRunner: false },
      // Processes that run many files: a heap that has all sources is not collected while it is small.
      execArgv: ["--initial-old-space-size=600", "--import", join(root, "scripts/source-hooks.mjs")],
      setupFiles: ["test/support/setup.ts"],
      sequence: { sequencer: LongestFirst },
      env: { HEADWISE_SAMPLE: sample },
      projects: [
        { extends: true, test: { name: "sharing", include, exclude: [...ALONE, "**/node_modules"], isolate: false } },
        { extends: true, test: { name: "alone", include: long ? [] : ALONE } },
      ],
    },
  };
});
