// The whole example as CI runs it: installs the locked packages and the packed package, checks types, runs the tests and
// the load test. Options are passed to load.mjs: `node examples/cloudflare/run.mjs --sessions 20 --seconds 20`.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "../../test/runtimes/pack.mjs";

const folder = mkdtempSync(join(tmpdir(), "headwise-pack-"));
const LIMIT_MS = 600_000;
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

function run(command, ...args) {
  const { status, error } = spawnSync(command, args, { cwd: import.meta.dirname, stdio: "inherit", timeout: LIMIT_MS });
  if (status === 0) return;
  console.error(`FAILED  ${command} ${args.join(" ")}: ${error?.message ?? `exit ${status}`}`);
  process.exit(1);
}

run("npm", "ci", "--no-audit", "--no-fund");
run("npm", "install", "--no-save", "--no-audit", "--no-fund", pack({ into: folder }));
run(process.execPath, "node_modules/typescript/bin/tsc", "-p", ".");
run(process.execPath, "--test-reporter=spec", "--test", "test.mjs");
run(process.execPath, "load.mjs", ...process.argv.slice(2));
