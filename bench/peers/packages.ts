import { readFileSync } from "node:fs";
import { findPackageJSON } from "node:module";
import { dirname, join } from "node:path";

/** The root of the repository. */
export const root = join(dirname(findPackageJSON(import.meta.url)!), "../..");

/** A file of an installed package. */
export function fileOf(packageName: string, path: string): string {
  return join(dirname(findPackageJSON(packageName, import.meta.url)!), path);
}

/** The version in a package.json. */
export function versionIn(path: string): string {
  return (JSON.parse(readFileSync(path, "utf8")) as { version: string }).version;
}

/** The installed version of a package. */
export function versionOf(packageName: string): string {
  return versionIn(fileOf(packageName, "package.json"));
}
