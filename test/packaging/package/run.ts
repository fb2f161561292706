// Checks the packed package as npm, compilers, browsers and JSR see it. `--only types,jsr` takes some checks;
// `--project <folder>` keeps the project there and uses its tools again.

import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { OLD } from "../../../scripts/entries.mjs";
import { run } from "../children.ts";
import { makeProject, versionOf } from "../project.ts";
import { checkCode, readCode } from "./code.ts";
import { checkContents, checkManifest, filesOf } from "./contents.ts";
import { checkJsr } from "./jsr.ts";
import { entriesOf, readManifest } from "./manifest.ts";
import { checkTypes } from "./types.ts";

const { values } = parseArgs({ options: { only: { type: "string" }, project: { type: "string" } } });
const folder = values.project ? resolve(values.project) : mkdtempSync(join(tmpdir(), "headwise-package-"));
process.on("exit", () => {
  if (!values.project) rmSync(folder, { recursive: true, force: true });
});

const project = await makeProject(join(import.meta.dirname, "project"), folder);
const unpacked = join(folder, "unpacked");
rmSync(unpacked, { recursive: true, force: true });
mkdirSync(unpacked);
await run("tar", ["-xzf", project.tarball, "--strip-components=1", "-C", unpacked], { folder, limit: 60 });

const manifest = readManifest(unpacked);
const files = filesOf(unpacked);
const code = readCode(
  folder,
  unpacked,
  files.filter((file) => file.endsWith(".js")),
);
const tool = (name: string, ...args: string[]) => run(join("node_modules", ".bin", name), args, { folder, limit: 120 });

/** What the consumer of project/ prints: each entry did its work. */
const CONSUMED = "true true 51 q8 10 32 3 true true 16 1 12 headwise 0: ok 32 4 function NOT_WASM BAD_FILE";

const CHECKS: Readonly<Record<string, () => string | Promise<string>>> = {
  manifest: () => checkManifest(manifest),
  contents: () => checkContents({ files, folder: unpacked, tarball: project.tarball }, manifest, code),
  code: () =>
    checkCode(
      code,
      entriesOf(manifest).flatMap((entry) => Object.values(entry.files)),
    ),
  publint: async () => {
    const printed = await tool("publint", "run", project.tarball, "--strict");
    if (!printed.includes("All good!")) throw new Error(printed);
    return `publint ${versionOf(project, "publint")}`;
  },
  attw: async () => {
    const raw = Object.keys(manifest.exports).filter((subpath) => /\.(wasm|html)$/.test(subpath));
    const options = ["--profile", "esm-only", "--exclude-entrypoints", ...raw.map((subpath) => subpath.slice(2))];
    await tool("attw", project.tarball, ...options);
    return `attw ${versionOf(project, "@arethetypeswrong/cli")}, without ${raw.length} files that are no modules`;
  },
  types: () => checkTypes(project),
  consumer: async () => {
    const printed = (await run(process.execPath, ["consumer.ts"], { folder, limit: 60 })).trim();
    if (printed !== CONSUMED) throw new Error(`expected ${CONSUMED}\ngot ${printed}`);
    const text = readFileSync(join(folder, "consumer.ts"), "utf8");
    const old = OLD.map(({ subpath }) => subpath);
    const unused = entriesOf(manifest)
      .filter(({ subpath }) => !old.includes(subpath))
      .map(({ subpath }) => join(manifest.name, subpath))
      .filter((entry) => !text.includes(`"${entry}"`));
    if (unused.length > 0) throw new Error(`consumer.ts expected to import ${unused.join(", ")}`);
    return `all ${entriesOf(manifest).length} entries under Node ${process.version}: ${printed}`;
  },
  command: async () => {
    const headwise = (...args: string[]) => tool("headwise", ...args);
    const names = Array.from((await headwise("--help")).matchAll(/^headwise ([a-z]+) /gm), ([, name = ""]) => name);
    const helps = await Promise.all([...new Set(names)].map((name) => headwise(name, "--help")));
    const { version, ok } = JSON.parse(await headwise("info", "--json"));
    if (version !== manifest.version || !ok)
      throw new Error(`info expected ${manifest.version}, got ${version}, ${ok}`);
    return `headwise info, and the help of ${helps.length} commands`;
  },
  jsr: () => checkJsr(project, unpacked, manifest),
};

const names = values.only?.split(",") ?? Object.keys(CHECKS);
let failures = 0;
for (const name of names) {
  const start = performance.now();
  try {
    const check = CHECKS[name];
    if (!check) throw new RangeError(`--only expected ${Object.keys(CHECKS).join(", ")}, got ${name}`);
    const found = await check();
    console.log(`ok    ${name.padEnd(9)} ${((performance.now() - start) / 1000).toFixed(1).padStart(5)} s   ${found}`);
  } catch (error) {
    failures++;
    console.log(`FAIL  ${name.padEnd(9)} ${error instanceof Error ? error.message : error}`);
  }
}
console.log(`${names.length - failures} of ${names.length} checks of the package passed`);
process.exit(failures === 0 ? 0 : 1);
