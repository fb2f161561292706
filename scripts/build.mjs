// Builds everything the package ships: assembly/ -> build/*.wasm and src/abi.ts, then src/ -> dist/.
// `--wasm` stops after the first half; `--if-stale` does nothing when dist/ is newer than everything it is made from.

import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
process.chdir(root);

const modified = (file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
const newest = (folder) =>
  Math.max(
    ...readdirSync(folder, { recursive: true }).map((file) => (file === "abi.ts" ? 0 : modified(join(folder, file)))),
  );
const sources = [
  ...["assembly", "src", "scripts"].map(newest),
  ...["package.json", "package-lock.json", "asconfig.json", "tsconfig.json", "tsconfig.build.json"].map(modified),
];
if (process.argv.includes("--if-stale") && modified("dist/types/src/index.d.ts") > Math.max(...sources)) process.exit();

const require = createRequire(import.meta.url);
const run = (script, ...args) => execFileSync(process.execPath, [script, ...args], { stdio: "inherit" });
const start = (script, ...args) =>
  new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [script, ...args], { stdio: "inherit" });
    child.on("error", reject);
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`${args.join(" ")} ended with ${code}`))));
  });
const bin = (name, path) => join(dirname(require.resolve(`${name}/package.json`)), path);

const asc = bin("assemblyscript", "bin/asc.js");
/** The modules, by their entries in assembly/: floats are what every instance has, the others join them. */
const modules = ["simd", "relaxed"].flatMap((name) => [
  { target: name, entries: ["index"] },
  { target: `weights-${name}`, entries: ["weights"] },
  { target: `caches-${name}`, entries: ["caches"] },
]);
const compile = ({ target, entries, flags = [] }) =>
  start(asc, ...entries.map((entry) => `assembly/${entry}.ts`), "--target", target, ...flags);
const debug = { target: "debug", entries: ["index", "weights", "caches"], flags: ["--transform", "./scripts/abi.mjs"] };
const waiting = [debug, ...modules];
const compileWaiting = async () => {
  for (let module = waiting.shift(); module; module = waiting.shift()) await compile(module);
};
await Promise.all(Array.from({ length: Math.min(4, availableParallelism()) }, compileWaiting));

const { build } = await import("esbuild");
const { carriesWasm } = await import("./carry.mjs");

const common = {
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  minify: true,
};
// Scripts of one expression, so that they run as modules and as none.
await build({ ...common, format: "iife", entryPoints: ["src/worker.ts"], outfile: "build/worker.txt" });
await build({ ...common, format: "iife", entryPoints: ["src/shardworker.ts"], outfile: "build/shard.txt" });
await build({ ...common, entryPoints: ["src/sharememory.ts"], outfile: "build/sharememory.js" });
if (process.argv.includes("--wasm")) process.exit();

/** Leaves `.wasm` imports to the host: they lie beside the bundle in dist/. `suffix` is what the host wants behind. */
const hostLoadsWasm = (suffix) => ({
  name: "host-loads-wasm",
  setup({ onResolve }) {
    onResolve({ filter: /\.wasm$/ }, ({ path }) => ({ path: `./${path.split("/").at(-1)}${suffix}`, external: true }));
  },
});

/** Leaves the library to dist/core.js, for commands that need all of it. */
const coreBeside = {
  name: "core-beside",
  setup({ onResolve }) {
    onResolve({ filter: /^\.\/core\.ts$/ }, () => ({ path: "./core.js", external: true }));
  },
};

rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");
await Promise.all([
  ...["index", "quantized", "threads", "shards"].map((entry) =>
    build({
      ...common,
      entryPoints: [`src/${entry}.ts`],
      outfile: `dist/${entry}.js`,
      plugins: [carriesWasm],
      loader: { ".txt": "text" },
    }),
  ),
  ...Object.entries({ workerd: "", "edge-light": "?module" }).flatMap(([host, suffix]) =>
    Object.entries({ index: "index", quantized: "quantized", threads: "threadless", shards: "shards" }).map(
      ([entry, source]) =>
        build({
          ...common,
          entryPoints: [`src/${source}.ts`],
          outfile: `dist/${entry}.${host}.js`,
          plugins: [hostLoadsWasm(suffix)],
          loader: { ".txt": "text" },
        }),
    ),
  ),
  build({ ...common, entryPoints: ["src/core.ts"], outfile: "dist/core.js" }),
  build({ ...common, entryPoints: ["src/reference/index.ts"], outfile: "dist/reference.js" }),
  build({ ...common, platform: "node", entryPoints: ["src/cli.ts"], outfile: "dist/cli.js", plugins: [coreBeside] }),
]);
for (const { target } of modules) copyFileSync(`build/${target}.wasm`, `dist/${target}.wasm`);
// The same code on memory that threads share.
const { shareMemory } = await import("../build/sharememory.js");
for (const name of ["simd", "relaxed"])
  writeFileSync(`dist/${name}-threads.wasm`, shareMemory(readFileSync(`build/${name}.wasm`)));
copyFileSync("build/worker.txt", "dist/worker.js");
copyFileSync("build/shard.txt", "dist/shards-worker.js");
chmodSync("dist/cli.js", 0o755);
run(bin("typescript", "bin/tsc"), "-p", "tsconfig.build.json");
