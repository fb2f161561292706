// How .ci/run runs parts, with others than its own.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";

const [runner] = readFileSync(join(import.meta.dirname, "../../.ci/run"), "utf8").split("\nneeded ") as [string];
const folder = mkdtempSync(join(tmpdir(), "ci-"));
mkdirSync(join(folder, "checkout/.ci"), { recursive: true });
afterAll(() => rmSync(folder, { recursive: true }));

/** What the script prints and its exit code, if these are its parts. */
function runParts(parts: string, limit: string) {
  const script = join(folder, "checkout/.ci/run");
  writeFileSync(script, `${runner}\n${parts}\n[ "$failed" -eq 0 ]\n`);
  const { stdout, status } = spawnSync("bash", [script], {
    encoding: "utf8",
    env: { ...process.env, CI_LIMIT: limit },
  });
  return { stdout, status };
}

test("parts that fail are counted, and so is one that is not over at the limit, with what it printed", () => {
  const { stdout, status } = runParts(
    `alone 'echo alone'
     side_by_side 'echo first' 'echo second; exit 3' 'echo third; sleep 60; echo over'`,
    "3s",
  );
  expect(status).toBe(1);
  expect(stdout).toContain("alone\n== passed in");
  expect(stdout).toContain("first\n== passed in");
  expect(stdout).toContain("second\n== FAILED with exit code 3");
  expect(stdout).toContain("third\n== ended at the limit of 3s\n== FAILED with exit code 124");
  expect(stdout).not.toContain("\nover\n");
  expect(stdout).toMatch(/\nparts: 2 passed, 2 failed\n$/);
});

test("folders of conformance cases that are absent are named before the last line, and those that are there are run", () => {
  const parts = `alone 'true'\nprintf '%s\\n' "\${conformance[@]}"`;
  const none = runParts(parts, "60s");
  expect(none.status).toBe(0);
  expect(none.stdout).toMatch(
    /\n\nnot run, .* cases of .*shared\/conformance\n(not run, .*\n){5}\nparts: 1 passed, 0 failed\n$/,
  );
  mkdirSync(join(folder, "shared/models"), { recursive: true });
  writeFileSync(join(folder, "shared/models/README.md"), "");
  const one = runParts(parts, "60s");
  expect(one.stdout).toMatch(/CONFORMANCE_DIR='.*shared\/models' npm run conformance\n/);
  expect(one.stdout).toMatch(/\n\nnot run, .*shared\/conformance\n(not run, .*\n){4}\nparts: 1 passed, 0 failed\n$/);
});
