// Installs the locked packages, and the package as `npm pack` packs it: what both Workers are built and tested with.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "../../../test/runtimes/pack.mjs";

const LIMIT_MS = 600_000;
const here = join(import.meta.dirname, "..");

/** Runs a command in the folder of the example to its end, and ends with it if it fails. */
export function run(command, ...args) {
  const { status, error } = spawnSync(command, args, { cwd: here, stdio: "inherit", timeout: LIMIT_MS });
  if (status === 0) return;
  console.error(`FAILED  ${command} ${args.join(" ")}: ${error?.message ?? `exit ${status}`}`);
  process.exit(1);
}

export function install() {
  const folder = mkdtempSync(join(tmpdir(), "headwise-pack-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  run("npm", "ci", "--no-audit", "--no-fund");
  run("npm", "install", "--no-save", "--no-audit", "--no-fund", pack({ into: folder }));
  run(process.execPath, "node_modules/typescript/bin/tsc", "-p", ".");
}
