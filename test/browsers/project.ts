import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { OLD } from "../../scripts/entries.mjs";

/** A user's project: a folder with the package installed from its tarball. */
export interface Project {
  readonly folder: string;
  /** What the package exports, `"."` and `"./simd.wasm"` for example: paths from `folder`. */
  readonly files: ReadonlyMap<string, string>;
}

type Target = string | { readonly [condition: string]: Target };

/** Conditions of a browser that imports files as they are. */
const CONDITIONS = ["import", "default"];

function resolve(target: Target): string | undefined {
  if (typeof target === "string") return target;
  for (const [condition, inner] of Object.entries(target)) {
    const found = CONDITIONS.includes(condition) ? resolve(inner) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

export function installProject(folder: string, tarball: string): Project {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "private": true, "type": "module" }\n');
  execFileSync("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", tarball], {
    cwd: folder,
    stdio: ["ignore", "ignore", "inherit"],
    timeout: 120_000,
  });
  const root = "node_modules/headwise";
  const { exports } = JSON.parse(readFileSync(join(folder, root, "package.json"), "utf8")) as {
    exports: Record<string, Target>;
  };
  const files = Object.entries(exports).flatMap(([name, target]) => {
    const file = resolve(target);
    return file === undefined ? [] : [[name, join(root, file)] as const];
  });
  return { folder, files: new Map(files) };
}

/** Entries that are scripts for workers, which a page must not import. */
const SCRIPTS = ["./worker", "./shards-worker", "./open-worker"];

/** They warn. */
const OLD_ENTRIES = OLD.map(({ subpath }) => subpath);

/** The entries that a page imports. */
function entriesOf({ files }: Project): readonly (readonly [name: string, file: string])[] {
  return [...files].filter(([name, file]) => file.endsWith(".js") && ![...SCRIPTS, ...OLD_ENTRIES].includes(name));
}

/** The import map that a page needs to import the package by its name, with files that lie at `base`. */
export function importMapOf(project: Project, base: string): string {
  const imports = entriesOf(project).map(([name, file]) => [join("headwise", name), `${base}${file}`]);
  return JSON.stringify({ imports: Object.fromEntries(imports) });
}

/**
 * A module that exports each entry of the package under a name of its own, imported by the package's name or as the file
 * that it is, and `files`, the addresses of what the package exports.
 */
export function entriesModule(project: Project, by: "name" | "file"): string {
  const lines = entriesOf(project).map(([name, file]) => {
    const from = by === "name" ? join("headwise", name) : `./${file}`;
    return `export * as ${name === "." ? "headwise" : name.slice(2)} from ${JSON.stringify(from)};`;
  });
  const files = Object.fromEntries([...project.files].map(([name, file]) => [name.slice(2), `./${file}`]));
  return `${lines.join("\n")}\nexport const files = ${JSON.stringify(files)};\n`;
}
