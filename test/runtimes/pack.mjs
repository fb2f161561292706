// The package as users get it. All tests of the package install this, never the source tree.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import { basename, join, resolve } from "node:path";

const root = join(import.meta.dirname, "..", "..");

/**
 * Packs what was built into the folder `into`; HEADWISE_TARBALL names a tarball to take instead. Returns the tarball's path.
 */
export function pack({ into }) {
  mkdirSync(into, { recursive: true });
  const given = process.env.HEADWISE_TARBALL;
  if (given) {
    const copy = join(into, basename(given));
    copyFileSync(resolve(given), copy);
    return copy;
  }
  const options = { cwd: root, encoding: "utf8", shell: process.platform === "win32" };
  const printed = execFileSync(
    "npm",
    ["pack", "--ignore-scripts", "--json", "--pack-destination", resolve(into)],
    options,
  );
  return join(resolve(into), JSON.parse(printed)[0].filename);
}
