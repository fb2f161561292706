// Builds the package again, in a folder of another name, and compares the SHA-256 of every .wasm with wasm.sha256 and with
// what was built here. `--update` writes wasm.sha256 anew; `sha256sum -c test/packaging/wasm.sha256` reads it too.

import { createHash } from "node:crypto";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "./children.ts";

const root = join(import.meta.dirname, "..", "..");
const list = join(import.meta.dirname, "wasm.sha256");
/** Everything that the build reads. */
const SOURCES = ["assembly", "src", "scripts", "package.json", "asconfig.json", "tsconfig.json"];

const folder = mkdtempSync(join(tmpdir(), "headwise-wasm-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const source of SOURCES) cpSync(join(root, source), join(folder, source), { recursive: true });
symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
await run(process.execPath, [join("scripts", "build.mjs")], { folder, limit: 600 });

const rebuilt = sumsOf(folder);
if (process.argv.includes("--update")) writeFileSync(list, rebuilt);
const failures = [...compare("wasm.sha256", readFileSync(list, "utf8")), ...compare("dist/", sumsOf(root))];
for (const failure of failures) console.log(`FAIL  ${failure}`);
console.log(`${rebuilt.split("\n").length - 1} .wasm files built again, ${failures.length} differences`);
process.exit(failures.length === 0 ? 0 : 1);

/** In the form of sha256sum: a line a file of dist/. */
function sumsOf(folder: string): string {
  const files = readdirSync(join(folder, "dist")).filter((file) => file.endsWith(".wasm"));
  if (files.length === 0) throw new Error(`no .wasm in ${join(folder, "dist")}`);
  const sum = (file: string) =>
    createHash("sha256")
      .update(readFileSync(join(folder, "dist", file)))
      .digest("hex");
  return files
    .sort()
    .map((file) => `${sum(file)}  dist/${file}\n`)
    .join("");
}

/** The lines that one has and the other lacks. */
function compare(name: string, sums: string): string[] {
  const [here, there] = [rebuilt, sums].map((text) => text.split("\n").filter((line) => line !== "")) as [
    string[],
    string[],
  ];
  return [
    ...here.filter((line) => !there.includes(line)).map((line) => `${line} was built, not in ${name}`),
    ...there.filter((line) => !here.includes(line)).map((line) => `${line} in ${name}, was not built`),
  ];
}
