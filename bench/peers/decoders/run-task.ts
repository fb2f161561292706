// Runs a task in a process or page of its own.

import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { peakLoopBytes } from "../../lib/peak-loops.ts";
import { root } from "../packages.ts";
import { runInPage } from "./chromium.ts";
import type { Outcome, Report, Task } from "./task.ts";
import type { Variant } from "./variants.ts";

/** Inside of this package, so that the peers' packages are found from there; its own, so that two commands may run at once. */
const folder = join(root, `bench/peers/build/${process.pid}`);
const loopsFile = join(folder, "loops.wasm");

/** Bundles the code of the variants, so that no process spends time on removing types. */
export async function prepareTasks(variants: readonly Variant[]): Promise<void> {
  mkdirSync(folder, { recursive: true });
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(loopsFile, await peakLoopBytes("relaxed"));
  for (const { file, inPage } of new Map(variants.map((variant) => [variant.file, variant])).values()) {
    const run = inPage ? "runPage" : "runChild";
    const contents = [
      `import { load } from "./peers/${file}";`,
      `import { ${run} } from "./${inPage ? "page" : "child"}.ts";`,
      `await ${run}(load);`,
    ].join("\n");
    await build({
      stdin: { contents, resolveDir: import.meta.dirname, loader: "ts" },
      ...{ outfile: bundleOf(file), bundle: true, format: "esm", logLevel: "error" },
      ...(inPage ? { platform: "browser" } : { platform: "node", packages: "external" }),
    });
  }
}

const bundleOf = (file: string) => join(folder, file.replace(".ts", ".mjs"));

/** Throws what the process or page threw. */
export async function runTask({ file, inPage }: Variant, task: Task): Promise<Outcome> {
  const { answer, logits, heldBytes } = inPage
    ? await runInPage({ script: bundleOf(file), loops: loopsFile, task })
    : await runInProcess(bundleOf(file), task);
  return { ...answer, logits, peakBytes: heldBytes - answer.loopBytes };
}

async function runInProcess(script: string, task: Task): Promise<Report> {
  const answerFile = join(folder, "answer.json");
  const child = spawn(process.execPath, [script, JSON.stringify(task), loopsFile, answerFile], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let printed = "";
  child.stderr.on("data", (chunk: Buffer) => {
    printed += chunk.toString();
  });
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const code = await new Promise((resolve, reject) => child.on("error", reject).on("close", resolve));
  process.off("exit", kill);
  if (code !== 0) throw new Error(/^\w*(?:Error|Exception).*$/m.exec(printed)?.[0] ?? `it ended with ${code}`);
  const { answer, heldBytes } = JSON.parse(readFileSync(answerFile, "utf8")) as Omit<Report, "logits">;
  const logits = new Float32Array(new Uint8Array(readFileSync(`${answerFile}.logits`)).buffer);
  return { answer, heldBytes, logits };
}
