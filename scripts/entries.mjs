// The entries of the package, once: what can be imported, and what each import is made from. The build, the size budgets
// and vitest read this list; package.json and tsconfig.json repeat it for tools that only read JSON.
// `node scripts/entries.mjs` writes those two, and `--check` fails if one of them differs. It also writes the fields of
// package.json that hold the repository's address. The build writes jsr.json.

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The address of the repository, a placeholder until it has one. npm resolves the relative links of the README by it. */
const REPOSITORY = "https://github.com/headwise/headwise";

/**
 * `subpath` is what users import, `name` the file in dist/, `source` what it is made from. `hosted` is the source for
 * hosts that hand out `.wasm` imports as compiled modules; an entry without it is the same everywhere. `worker` entries are
 * scripts, which nobody imports; the build writes them by themselves, unless they are modules of what the others are made of. `budget` is the kB, gzip, that the whole entry may take.
 */
export const ENTRIES = [
  {
    subpath: ".",
    name: "index",
    source: "src/entries/index.ts",
    hosted: "src/entries/index.ts",
    budget: 50.8,
  },
  { subpath: "./core", name: "core", source: "src/entries/core.ts" },
  { subpath: "./weights", name: "weights", source: "src/entries/weights.ts" },
  {
    subpath: "./quantized",
    name: "quantized",
    source: "src/entries/quantized.ts",
    hosted: "src/entries/quantized.ts",
  },
  { subpath: "./latent", name: "latent", source: "src/entries/latent.ts", hosted: "src/entries/latent.ts" },
  { subpath: "./models", name: "models", source: "src/entries/models.ts", hosted: "src/entries/models.ts" },
  { subpath: "./retrieval", name: "retrieval", source: "src/entries/retrieval.ts" },
  { subpath: "./text", name: "text", source: "src/entries/text.ts" },
  { subpath: "./inspect", name: "inspect", source: "src/entries/inspect.ts", hosted: "src/entries/inspect.ts" },
  { subpath: "./configure", name: "configure", source: "src/entries/configure.ts" },
  {
    subpath: "./threads",
    name: "threads",
    source: "src/entries/threads.ts",
    hosted: "src/entries/threads-single.ts",
  },
  { subpath: "./worker", name: "worker", source: "src/entries/worker.ts", worker: true },
  { subpath: "./open-worker", name: "open-worker", source: "src/entries/open-worker.ts", worker: true, isModule: true },
  { subpath: "./shards", name: "shards", source: "src/entries/shards.ts", hosted: "src/entries/shards.ts" },
  { subpath: "./shards-worker", name: "shards-worker", source: "src/entries/shards-worker.ts", worker: true },
  { subpath: "./reference", name: "reference", source: "src/reference/index.ts" },
  { subpath: "./doctor", name: "doctor", source: "src/entries/doctor.ts" },
];

/**
 * Files that the default entry refers to and users do not import by themselves: `openModel`, and what that imports when it is called.
 * The first is a file of its own because bundlers leave out a file that nothing is used of, and with it what the file imports.
 */
export const LAZY = [
  { name: "open-model", source: "src/entries/open-model.ts", hosted: "src/entries/open-model.ts" },
  { name: "open", source: "src/entries/open.ts", hosted: "src/entries/open.ts" },
  { name: "reading", source: "src/entries/reading.ts" },
  {
    name: "open-worker-text",
    source: "src/entries/open-worker-text.ts",
    hosted: "src/entries/open-worker-none.ts",
  },
];

/**
 * Entries of the version before, which this one still has: each warns once, and is what the entry `now` is. The build writes them.
 */
export const OLD = [
  { subpath: "./inline", name: "inline", now: "." },
  { subpath: "./heads", name: "heads", now: "." },
  { subpath: "./sessions", name: "sessions", now: "./models" },
  { subpath: "./encoders", name: "encoders", now: "./models" },
];

/** Functions that moved to another entry and still work where they were, with a warning. */
export const OLD_NAMES = ["selfTest"];

/** Functions of the default entry whose code is imported when they are called. */
export const LAZY_NAMES = ["openModel"];

/** Optional packages, which users install for what needs them: bundles import them. */
export const PEERS = ["@huggingface/jinja", "@huggingface/tokenizers"];

/**
 * What imports them, a file by itself. Parcel stops where a package is missing that is imported, also within `try`, but not one that
 * is required: it is given a file that does.
 */
export const LIBRARIES = { name: "libraries", source: "src/text/libraries.ts", parcel: "libraries.parcel" };

/** Hosts with entries of their own: the export condition, and what they want behind the name of a `.wasm` import. */
export const HOSTS = { workerd: "", "edge-light": "?module" };

/** Modules for whoever loads them by themselves. */
const MODULES = [
  ...["simd", "relaxed"],
  ...["weights", "caches", "latents", "decoders", "statistics"].flatMap((part) => [`${part}-simd`, `${part}-relaxed`]),
  ...["simd-threads", "relaxed-threads"],
];

/** What users import an entry by. */
export const importName = (subpath) => subpath.replace(".", "headwise");

const script = (name) => `./dist/${name}.js`;

/** `exports` of package.json. */
const exportsMap = () =>
  Object.fromEntries([
    ...[...ENTRIES, ...OLD].map(({ subpath, name, hosted }) => [
      subpath,
      {
        types: `./dist/${name}.d.ts`,
        ...(hosted && Object.fromEntries(Object.keys(HOSTS).map((host) => [host, script(`${name}.${host}`)]))),
        default: script(name),
      },
    ]),
    ["./doctor.html", "./dist/doctor.html"],
    ...MODULES.map((name) => [`./${name}.wasm`, `./dist/${name}.wasm`]),
    ["./package.json", "./package.json"],
  ]);

/** `exports` of jsr.json, and with `alias` what Parcel resolves subpaths by. */
const plainExports = () => Object.fromEntries([...ENTRIES, ...OLD].map(({ subpath, name }) => [subpath, script(name)]));
const aliases = () => ({
  ...Object.fromEntries(Object.entries(plainExports()).filter(([subpath]) => subpath !== ".")),
  [script(LIBRARIES.name)]: script(LIBRARIES.parcel),
});

/** jsr.json, what JSR takes instead of package.json: the same files. */
export const jsrManifest = ({ name, version, license }) => ({
  name: `@${name}/${name}`,
  version,
  license,
  exports: plainExports(),
  publish: {
    include: [
      ...["dist/**/*.js", "dist/*.d.ts", "dist/*.wasm", "dist/*.html", "dist/*.css"],
      ...["README.md", "LICENSE", "CHANGELOG.md"],
    ],
    exclude: ["!dist"], // which .gitignore leaves out
  },
});

/** Where the sources of each import are: `paths` of tsconfig.json. The workers have nothing to import. */
const paths = () =>
  Object.fromEntries(
    ENTRIES.filter(({ worker }) => !worker).map(({ subpath, source }) => [importName(subpath), [`./${source}`]]),
  );

/** The same as one path each, from the root: what scripts/source-hooks.mjs resolves. */
export const sourceFiles = () => Object.fromEntries(Object.entries(paths()).map(([name, [source]]) => [name, source]));

/** The fields of JSON files that repeat this list: their holder, name and value. */
const COPIES = [
  ["package.json", (json) => [json, "repository", { type: "git", url: `git+${REPOSITORY}.git` }]],
  ["package.json", (json) => [json, "homepage", `${REPOSITORY}#readme`]],
  ["package.json", (json) => [json, "bugs", `${REPOSITORY}/issues`]],
  ["package.json", (json) => [json, "sideEffects", OLD.map(({ name }) => script(name))]],
  ["package.json", (json) => [json, "exports", exportsMap()]],
  ["package.json", (json) => [json, "alias", aliases()]],
  ["tsconfig.json", (json) => [json.compilerOptions, "paths", paths()]],
];

/** The fields that differ from this list. With `write`, they are corrected. */
export function staleCopies(write) {
  const stale = [];
  for (const [file, copyOf] of COPIES) {
    const path = new URL(`../${file}`, import.meta.url);
    const json = JSON.parse(readFileSync(path, "utf8"));
    const [holder, field, value] = copyOf(json);
    if (JSON.stringify(holder[field]) === JSON.stringify(value)) continue;
    stale.push(`${file}: ${field}`);
    holder[field] = value;
    if (write) writeFileSync(path, `${JSON.stringify(json, null, 2)}\n`);
  }
  return stale;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const check = process.argv.includes("--check");
  const stale = staleCopies(!check);
  if (check && stale.length > 0) {
    console.error(
      `entries: expected the values of scripts/entries.mjs (run it), got something else in ${stale.join(", ")}`,
    );
    process.exit(1);
  }
}
