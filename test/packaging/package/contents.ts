// What lies in the tarball: nothing but what its entries reach, within budgets, and nothing of the machine that packed it.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { OLD } from "../../../scripts/entries.mjs";
import type { CodeFile } from "./code.ts";
import { entriesOf, type Manifest } from "./manifest.ts";

/** Files that are there for their own sake. */
const OWN = ["package.json", "README.md", "LICENSE", "CHANGELOG.md"];
/** The only names that files may have. */
const ALLOWED = [
  /^dist\/[a-z-]+(\.workerd|\.edge-light|\.parcel)?\.js$/,
  /^dist\/cli-[a-z-]+-[A-Z0-9]{8}\.js$/,
  /^dist\/shared\/(?:host|[A-Z0-9]{8})\.js$/,
  /^dist\/([a-z]+-)?(simd|relaxed)(-threads)?\.wasm$/,
  /^dist\/[a-z-]+\.d\.ts$/,
  /^dist\/[a-z]+\.(html|css)$/,
];
/** Code is not minified, so most of the unpacked bytes are white space and names. */
const BUDGET = { packed: 1_305_000, unpacked: 4_070_000, files: 145 };

/** Of a source map, and of folders that machines have. */
const STRAYS = [
  /sourceMappingURL/,
  /\/(?:home|root|tmp|work|Users|var|workspace|builds?)\/[\w.-]+\//,
  /[A-Z]:\\\\?Users/,
  /file:\/\/\/[a-z]/,
];

export interface Contents {
  readonly files: readonly string[];
  readonly folder: string;
  readonly tarball: string;
}

export function filesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort();
}

/** Throws for what is missing, too much or astray. Returns the sizes. */
export function checkContents(
  { files, folder, tarball }: Contents,
  manifest: Manifest,
  code: readonly CodeFile[],
): string {
  const wrong: string[] = [];
  const targets = targetsOf(manifest);
  for (const file of [...OWN, ...targets])
    if (!files.includes(file)) wrong.push(`${file} expected in the tarball, is missing`);

  const pages = targets.filter((file) => file.endsWith(".html")).flatMap((file) => partsOf(folder, file));
  const aliases = Object.values(manifest.alias ?? {}).map((file) => join(file));
  const used = new Set([
    ...OWN,
    ...aliases,
    ...targets,
    ...pages,
    ...code.flatMap(importsOf),
    ...declarations(folder, targets),
  ]);
  for (const file of files) {
    if (!OWN.includes(file) && !ALLOWED.some((name) => name.test(file)))
      wrong.push(`${file} is none of the files that are shipped`);
    else if (!used.has(file)) wrong.push(`${file} is used by no entry`);
    const text = readFileSync(join(folder, file), "latin1");
    for (const stray of STRAYS) {
      const found = text.match(stray)?.[0];
      if (found !== undefined) wrong.push(`${file} holds ${JSON.stringify(found)}`);
    }
  }

  const sizes = {
    packed: statSync(tarball).size,
    unpacked: files.reduce((sum, file) => sum + statSync(join(folder, file)).size, 0),
    files: files.length,
  };
  for (const name of ["packed", "unpacked", "files"] as const)
    if (sizes[name] > BUDGET[name]) wrong.push(`${name} expected at most ${BUDGET[name]}, got ${sizes[name]}`);
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  return `${sizes.files} files, ${sizes.packed} bytes packed, ${sizes.unpacked} unpacked`;
}

function importsOf({ file, imports }: CodeFile): string[] {
  return imports.map((path) => join(dirname(file), path));
}

/** The scripts and style sheets that a page loads. */
function partsOf(folder: string, page: string): string[] {
  const text = readFileSync(join(folder, page), "utf8");
  const parts = text.matchAll(/<(?:script[^>]* src|link rel="stylesheet" href)="([^"]+)"/g);
  return Array.from(parts, ([, path = ""]) => join(dirname(page), path));
}

/** The declarations that those of `targets` need, themselves included. */
function declarations(folder: string, targets: readonly string[]): Set<string> {
  const reached = new Set<string>();
  const add = (file: string) => {
    if (!file.endsWith(".d.ts") || reached.has(file)) return;
    reached.add(file);
    const text = readFileSync(join(folder, file), "utf8");
    for (const [, path = ""] of text.matchAll(/\b(?:from |import\()"(\.[^"]+)"/g))
      add(join(dirname(file), path).replace(/(\.d)?\.[jt]s$/, ".d.ts"));
  };
  for (const target of targets) add(target);
  return reached;
}

/** Every file that package.json points at. */
function targetsOf(manifest: Manifest): string[] {
  const exported = Object.values(manifest.exports).flatMap((target) =>
    typeof target === "string" ? [target] : Object.values(target),
  );
  const others = [
    manifest.main,
    manifest.types,
    ...Object.values(manifest.bin),
    ...Object.values(manifest.alias ?? {}),
  ];
  return [...exported, ...others].map((path) => path.replace(/^\.\//, ""));
}

/** Throws unless package.json is that of a package without dependencies, except optional peers, and install scripts, which Parcel resolves too. */
export function checkManifest(manifest: Manifest): string {
  const wrong: string[] = [];
  for (const field of ["dependencies", "optionalDependencies"] as const)
    if (manifest[field] !== undefined) wrong.push(`${field} expected none`);
  for (const name of Object.keys(manifest.peerDependencies ?? {}))
    if (!manifest.peerDependenciesMeta?.[name]?.optional)
      wrong.push(`peerDependencies.${name} expected to be optional`);
  for (const script of ["preinstall", "install", "postinstall", "prepare"])
    if (script in manifest.scripts)
      wrong.push(`scripts.${script} expected none, since it would run where the package is installed`);
  const { type, sideEffects, publishConfig } = manifest;
  if (type !== "module") wrong.push(`type expected "module", got ${type}`);
  // Old entries warn.
  const warning = OLD.map(({ name }) => `./dist/${name}.js`).join();
  if (sideEffects?.join() !== warning) wrong.push(`sideEffects expected ${warning}, got ${sideEffects}`);
  if (!publishConfig.provenance) wrong.push("publishConfig.provenance expected true");
  const entries = entriesOf(manifest);
  for (const { subpath, types, files } of entries) {
    if (types === "") wrong.push(`exports["${subpath}"] has no types`);
    if (Object.keys(files).at(-1) !== "default") wrong.push(`exports["${subpath}"] expected "default" last`);
    if (subpath !== "." && manifest.alias?.[subpath] !== files.default)
      wrong.push(`alias["${subpath}"] expected ${files.default}, got ${manifest.alias?.[subpath]}`);
  }
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  return `${entries.length} entries, no dependencies, no install scripts`;
}
