// A user's project: a folder with tools of its own, in which the packed package is installed.

import { cpSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pack } from "../runtimes/pack.mjs";
import { run } from "./children.ts";

export interface Project {
  readonly folder: string;
  /** The packed package. */
  readonly tarball: string;
}

/**
 * Copies `template` to `folder`, installs what its lock file names and then the tarball. A folder that has its tools already
 * gets the template and the tarball anew.
 */
export async function makeProject(template: string, folder: string): Promise<Project> {
  cpSync(template, folder, { recursive: true, filter: (file) => !file.endsWith("node_modules") });
  const tarball = pack({ into: folder });
  const npm = (...args: string[]) => run("npm", [...args, "--no-audit", "--no-fund"], { folder, limit: 300 });
  if (!existsSync(join(folder, "node_modules"))) await npm("ci");
  await npm("install", "--no-save", "--no-package-lock", tarball);
  return { folder, tarball };
}

/** The version of a tool that the project has. */
export function versionOf({ folder }: Project, tool: string): string {
  return JSON.parse(readFileSync(join(folder, "node_modules", tool, "package.json"), "utf8")).version;
}
