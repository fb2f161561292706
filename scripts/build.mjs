// Builds everything the package ships: assembly/ -> build/*.wasm and src/abi.ts, then src/ -> dist/.
// `--wasm` stops after the first half; `--if-stale` does nothing when dist/ is newer than everything it is made from.

import { execFileSync } from "node:child_process";
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
const bin = (name, path) => join(dirname(require.resolve(`${name}/package.json`)), path);

const asc = bin("assemblyscript", "bin/asc.js");
const shipped = ["simd", "relaxed", "simd-threads", "relaxed-threads"];
for (const target of [...shipped, "debug"]) run(asc, "--target", target, "--transform", "./scripts/abi.mjs");

const { build } = await import("esbuild");

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
if (process.argv.includes("--wasm")) process.exit();

/** Leaves `.wasm` imports to the host: they lie beside the bundle in dist/. `suffix` is what the host wants behind. */
const hostLoadsWasm = (suffix) => ({
  name: "host-loads-wasm",
  setup({ onResolve }) {
    onResolve({ filter: /\.wasm$/ }, ({ path }) => ({ path: `./${path.split("/").at(-1)}${suffix}`, external: true }));
  },
});

/** Leaves entries to their own files in dist/, for commands and pages that need all of one. */
const entriesBeside = {
  name: "entries-beside",
  setup({ onResolve }) {
    onResolve({ filter: /^\.\/(core|threads|doctor)\.ts$/ }, ({ path, kind }) =>
      kind === "entry-point" ? undefined : { path: path.replace(".ts", ".js"), external: true },
    );
  },
};

rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");
await Promise.all([
  build({ ...common, entryPoints: ["src/index.ts"], outfile: "dist/index.js", loader: { ".wasm": "base64" } }),
  ...["threads", "shards"].map((entry) =>
    build({
      ...common,
      entryPoints: [`src/${entry}.ts`],
      outfile: `dist/${entry}.js`,
      loader: { ".wasm": "base64", ".txt": "text" },
    }),
  ),
  ...Object.entries({ workerd: "", "edge-light": "?module" }).flatMap(([host, suffix]) =>
    Object.entries({ index: "index", threads: "threadless", shards: "shards" }).map(([entry, source]) =>
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
  build({ ...common, platform: "node", entryPoints: ["src/cli.ts"], outfile: "dist/cli.js", plugins: [entriesBeside] }),
  build({ ...common, entryPoints: ["src/doctor.ts"], outfile: "dist/doctor.js" }),
  build({ ...common, entryPoints: ["src/doctorpage.ts"], outfile: "dist/doctor-page.js", plugins: [entriesBeside] }),
]);
const { version } = JSON.parse(readFileSync("package.json", "utf8"));
writeFileSync("dist/doctor.html", readFileSync("src/doctor.html", "utf8").replace("{version}", version));
for (const name of shipped) copyFileSync(`build/${name}.wasm`, `dist/${name}.wasm`);
copyFileSync("build/worker.txt", "dist/worker.js");
copyFileSync("build/shard.txt", "dist/shards-worker.js");
chmodSync("dist/cli.js", 0o755);
run(bin("typescript", "bin/tsc"), "-p", "tsconfig.build.json");
