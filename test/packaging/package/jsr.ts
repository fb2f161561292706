// What JSR would take: the files of the tarball, under jsr.json.

import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../children.ts";
import type { Project } from "../project.ts";
import { entriesOf, type JsrManifest, type Manifest } from "./manifest.ts";

const root = join(import.meta.dirname, "..", "..", "..");

/** Throws unless jsr.json says what package.json says, and JSR and Deno take the package with its types. */
export async function checkJsr({ folder }: Project, unpacked: string, manifest: Manifest): Promise<string> {
  const jsr: JsrManifest = JSON.parse(readFileSync(join(root, "jsr.json"), "utf8"));
  expectSame("version", jsr.version, manifest.version);
  expectSame("name", jsr.name, `@${manifest.name}/${manifest.name}`);
  const entries = entriesOf(manifest).map(({ subpath, files }) => [subpath, files.default]);
  expectSame("exports", jsr.exports, Object.fromEntries(entries));

  const stage = join(folder, "jsr");
  rmSync(stage, { recursive: true, force: true });
  cpSync(unpacked, stage, { recursive: true });
  for (const file of ["jsr.json", ".gitignore"]) cpSync(join(root, file), join(stage, file));
  const deno = (...args: string[]) =>
    run(join(folder, "node_modules", ".bin", "deno"), args, {
      folder: stage,
      limit: 120,
      env: { DENO_DIR: join(folder, ".deno") },
    });
  const printed = await deno("publish", "--dry-run", "--allow-dirty");
  if (/warning|slow type/i.test(printed.replace("Checking for slow types", ""))) throw new Error(printed);

  writeFileSync(join(stage, "right.ts"), `${consumer("boolean")}console.log(answer);\n`);
  await deno("check", "right.ts");
  const answer = await deno("run", "--no-check", "right.ts");
  expectSame("the self-test under Deno", answer.trim(), "true");
  writeFileSync(join(stage, "wrong.ts"), consumer("number"));
  await deno("check", "wrong.ts").then(
    () => {
      throw new Error("deno check expected to refuse a wrong type, so the package has types there, got none");
    },
    (error: Error) => {
      if (!error.message.includes("TS2322")) throw error;
    },
  );
  const files = printed.match(/^ *file:/gm)?.length;
  return `${jsr.name}@${jsr.version}: ${files} files, ${entries.length} entries, whose types Deno knows`;
}

/** A program whose answer is a boolean, typed as something. */
function consumer(type: string): string {
  return `
import { type Kernels, loadKernels } from "./dist/index.js";
import { loadKernels as loadThreads } from "./dist/threads.js";
import * as headwise from "./dist/index.js";
import { selfTest } from "./dist/doctor.js";
import { quantized } from "./dist/quantized.js";
import { readAttentionWeights } from "./dist/weights.js";
const kernels: Kernels = await loadThreads({ threads: 1, deterministic: true });
const answer: ${type} = selfTest(headwise, kernels).ok && selfTest(headwise, await loadKernels({ quantized })).ok && readAttentionWeights.length > 0;
`;
}

function expectSame(what: string, found: unknown, expected: unknown): void {
  const [got, want] = [found, expected].map((value) => JSON.stringify(value));
  if (got !== want) throw new Error(`jsr.json: ${what} expected ${want}, got ${got}`);
}
