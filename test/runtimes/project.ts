// A project of somebody's, with the package installed from its tarball.

import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bundleSuite } from "./bundle.ts";
import { pack } from "./pack.mjs";
import { run } from "./processes.ts";

const here = import.meta.dirname;
/** Where the runtimes are installed. */
export const tools: string = join(here, "node_modules");

const QUIET = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];

/** Installs the runtimes as the lock file has them, unless they are there. */
export async function installTools(): Promise<void> {
  const lock = join(here, "package-lock.json");
  const installed = join(tools, ".package-lock.json");
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  await run({ file: "npm", args: ["ci", "--ignore-scripts", ...QUIET], cwd: here }, 600);
}

/** A fresh folder with the installed package, the suite and the entries. `remove` takes it away. */
export async function createProject(): Promise<{ readonly folder: string; remove(): void }> {
  const folder = mkdtempSync(join(tmpdir(), "headwise-runtimes-"));
  const remove = () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  try {
    const tarball = pack({ into: folder });
    writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
    await run({ file: "npm", args: ["install", tarball, ...QUIET], cwd: folder }, 120);
    cpSync(join(here, "entries"), folder, { recursive: true });
    writeFileSync(join(folder, "suite.mjs"), await bundleSuite());
    return { folder, remove };
  } catch (error) {
    remove();
    throw error;
  }
}

/** `name@version` of an installed tool. */
export function versionOf(tool: string): string {
  return JSON.parse(readFileSync(join(tools, tool, "package.json"), "utf8")).version;
}
