// Builds everything the package ships: assembly/ -> build/*.wasm and src/wasm/abi.ts, then src/ -> dist/.
// `--wasm` stops after the first half; `--if-stale` does nothing when dist/ is newer than everything it is made from.

import { execFileSync } from "node:child_process";
import { once } from "node:events";
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
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { ENTRIES, HOSTS, importName, jsrManifest, LAZY, LIBRARIES, OLD, PEERS } from "./entries.mjs";
import { writeStamp } from "./stamp.mjs";
import { flattenTypes } from "./types.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
process.chdir(root);

const require = createRequire(import.meta.url);
/** The path of a file in a package of devDependencies. Ends the build if the package is not installed. */
function installed(name, path) {
  try {
    return join(dirname(require.resolve(`${name}/package.json`)), path);
  } catch {
    console.error(`build: node_modules expected ${name}, got none. Run \`npm install\` first.`);
    process.exit(1);
  }
}

const modified = (file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
const newest = (folder) =>
  Math.max(
    ...readdirSync(folder, { recursive: true }).map((file) =>
      file === "wasm/abi.ts" ? 0 : modified(join(folder, file)),
    ),
  );
/** Written last, so that a failed build does not count as one. */
const BUILT = "build/built";
function isFresh() {
  const settings = ["package.json", "package-lock.json", "asconfig.json", "tsconfig.json"];
  const changed = Math.max(...["assembly", "src", "scripts"].map(newest), ...settings.map(modified));
  return modified(BUILT) > changed && modified("dist/index.js") > 0;
}
if (process.argv.includes("--if-stale") && isFresh()) process.exit();

installed("assemblyscript", "");
const tsc = installed("typescript", "bin/tsc");
installed("esbuild", "");

writeStamp();
/** The modules, by their entries in assembly/: floats are what every instance has, the others join them. */
const others = ["weights", "caches", "latents", "decoders", "statistics"];
const modules = [
  { target: "relaxed", entries: ["index"] },
  ...others.map((part) => ({ target: `${part}-relaxed`, entries: [part] })),
];
const debug = {
  target: "debug",
  entries: ["index", ...others],
  flags: ["--transform", "./scripts/abi.mjs"],
};
/** What bundles contain of each relaxed module, by its path. */
const inlined = new Map();
const waiting = [debug, ...modules];
/** Compiles in a thread until nothing waits. */
async function compileWaiting() {
  const thread = new Worker(new URL("compile-modules.mjs", import.meta.url));
  const ended = once(thread, "exit");
  for (let module = waiting.shift(); module; module = waiting.shift()) {
    const { target, entries, flags = [] } = module;
    const file = module === debug ? undefined : resolve(`build/${target}.wasm`);
    const args = [...entries.map((entry) => `assembly/${entry}.ts`), "--target", target, ...flags];
    thread.postMessage({ args, inlined: file });
    // A compiler that crashes ends its thread without a word.
    const [answer] = await Promise.race([once(thread, "message"), ended]);
    if (typeof answer === "number") throw new Error(`asc ${args.join(" ")} ended with ${answer}`);
    const { failed, printed, text } = answer;
    process.stderr.write(printed);
    if (failed) throw new Error(`asc ${args.join(" ")} failed`);
    if (file) inlined.set(file, text);
  }
  await thread.terminate();
}
await Promise.all(Array.from({ length: Math.min(4, availableParallelism()) }, compileWaiting));

const { build } = await import("esbuild");
const { importHost, readHost } = await import("./host-file.mjs");
const { inlineWasmPlugin } = await import("./inline-wasm.mjs");
const inlineWasm = inlineWasmPlugin(inlined);

const common = {
  bundle: true,
  format: "esm",
  target: "es2022",
  external: PEERS,
  legalComments: "none",
  // An engine prints the line that threw.
  lineLimit: 160,
};
/** Scripts of one expression, so that they run as modules and as none; as files of dist/, one of them is a module. */
const workers = ENTRIES.filter(({ worker }) => worker);
// Those that bundles contain as text are minified here, because bundlers do not minify what is in strings.
for (const { name, source } of workers)
  await build({
    ...common,
    format: "iife",
    minify: true,
    lineLimit: 500,
    loader: { ".txt": "text" },
    plugins: [inlineWasm],
    entryPoints: [source],
    outfile: `build/${name}.txt`,
  });
await build({ ...common, entryPoints: ["src/wasm/rewrite.ts"], outdir: "build" });
// Each module of the simd build is the relaxed one with products that are rounded.
const { SHARING, unfuse } = await import("../build/rewrite.js");
const builds = modules.flatMap(({ target: relaxed }) => {
  const simd = relaxed.replace("relaxed", "simd");
  writeFileSync(`build/${simd}.wasm`, unfuse(readFileSync(`build/${relaxed}.wasm`)));
  return [simd, relaxed];
});
if (process.argv.includes("--wasm")) process.exit();

const [whole] = ENTRIES;
const [lazy] = LAZY;
/** Files of dist/ that hosts have versions of, by what they are made from. */
const nameOf = new Map(
  [...ENTRIES, ...LAZY].flatMap(({ source, name, hosted }) => (hosted ? [[resolve(source), name]] : [])),
);

/** What imports the optional packages is a file of its own. */
const importLibraries = {
  name: "import-libraries",
  setup: ({ onResolve }) =>
    onResolve({ filter: /\/libraries\.ts$/ }, ({ kind }) =>
      kind === "entry-point" ? undefined : { path: `./${LIBRARIES.name}.js`, external: true, sideEffects: false },
    ),
};

/**
 * `src/x.ts?HOST` is the source `src/x.ts` with its `.wasm` imports left to a host that hands those out as compiled modules.
 * They lie beside the entry in dist/; `suffixes` are what each host wants behind their names. Entries import each other as files of
 * dist/, those of the same host.
 */
const hostLoadsWasm = (suffixes) => ({
  name: "host-loads-wasm",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /\?[a-z-]+$/ }, ({ path, kind }) => {
      const [file, host] = path.split("?");
      return kind === "entry-point" ? { path: join(root, file), suffix: `?${host}`, pluginData: { host } } : undefined;
    });
    onLoad({ filter: /\.ts$/ }, ({ path, pluginData }) =>
      pluginData?.host
        ? { contents: readFileSync(path), loader: "ts", resolveDir: dirname(path), pluginData }
        : undefined,
    );
    // Of what others import, such as `quantized`, nothing moves to shared files when openModel imports it too.
    onResolve({ filter: /^\.\/[a-z-]+\.ts$/ }, ({ path, resolveDir, pluginData, kind }) => {
      const name = kind === "entry-point" ? undefined : nameOf.get(resolve(resolveDir, path));
      const host = pluginData?.host ? `.${pluginData.host}` : "";
      return name && { path: `./${name}${host}.js`, external: true, sideEffects: false };
    });
    onResolve({ filter: /\.wasm$/ }, ({ path, pluginData }) =>
      pluginData?.host
        ? { path: `./${path.split("/").at(-1)}${suffixes[pluginData.host]}`, external: true }
        : undefined,
    );
  },
});

/** The command line imports the entries as its users do: the files beside it. */
const importEntries = {
  name: "import-entries",
  setup: ({ onResolve }) =>
    onResolve({ filter: /\/entries\/[a-z-]+\.ts$/ }, ({ path, resolveDir }) => {
      const source = resolve(resolveDir, path);
      const { name } = [...ENTRIES, ...LAZY].find((entry) => resolve(entry.source) === source);
      return { path: `./${name}.js`, external: true, sideEffects: false };
    }),
};

const bundles = ENTRIES.filter(({ worker }) => !worker);
/** What has nothing in common with the others but constants, which would become a file that every import loads. */
const isAlone = ({ name }) => name === "reference";
/** What each file of dist/ is made from; what several need becomes files of its own in dist/shared/. */
const sourcesOf = {
  ...Object.fromEntries(bundles.filter((entry) => !isAlone(entry)).map(({ name, source }) => [name, source])),
  "doctor-page": "src/entries/doctor-page.ts",
};
for (const { name, source } of [LIBRARIES, ...LAZY, ...workers.filter(({ isModule }) => isModule)])
  sourcesOf[name] = source;
for (const host of Object.keys(HOSTS))
  for (const { name, hosted } of [...bundles, ...LAZY]) if (hosted) sourcesOf[`${name}.${host}`] = `${hosted}?${host}`;

/**
 * What the default entry is made of, besides the entry itself, is one file that all entries import from. Cut by who needs
 * what, it would be some twenty files, and importing them takes Node twice as long.
 */
const HOST = "./shared/host.js";
const host = await readHost(whole.source, lazy.source, "src/entries/api.ts", "src/entries/old-names.ts");

// The cache of compiled code belongs to tests, which run what is built.
for (const old of ["dist", "build/compile-cache"]) rmSync(old, { recursive: true, force: true });
// Nothing in dist/ is minified: stack traces name functions, and bundlers minify.
const inDist = { ...common, outdir: "dist", loader: { ".txt": "text" }, write: false };
const entryPoints = (sources) => Object.entries(sources).map(([out, source]) => ({ in: source, out }));
const parts = await Promise.all([
  build({
    ...inDist,
    entryPoints: entryPoints(sourcesOf),
    splitting: true,
    chunkNames: "shared/[hash]",
    plugins: [hostLoadsWasm(HOSTS), importLibraries, importHost(host.files, HOST), inlineWasm],
  }),
  build({ ...inDist, stdin: { contents: host.source, resolveDir: root }, outfile: `dist/${HOST}`, outdir: undefined }),
  ...bundles
    .filter(isAlone)
    .map(({ name, source }) => build({ ...inDist, entryPoints: entryPoints({ [name]: source }) })),
  ...workers
    .filter(({ isModule }) => !isModule)
    .map(({ name, source }) => build({ ...inDist, format: "iife", entryPoints: entryPoints({ [name]: source }) })),
  // By itself: split with the others, it would cut them into many more pieces. A command is a file, read when it runs.
  build({
    ...inDist,
    platform: "node",
    splitting: true,
    chunkNames: "cli-[name]-[hash]",
    entryPoints: entryPoints({ cli: "src/cli/main.ts" }),
    plugins: [importEntries],
  }),
]);
// esbuild imports each shared file that an entry reaches, for its effects too. There are none, and other bundlers say so.
const BARE_IMPORT = /^import "\.\/(?:shared\/|cli-[a-z]+-)?[A-Z0-9]{8}\.js";\n/gm;
/** Modules and workers that are contained as text: engines read a string faster if it is one line. */
const CONTINUED = /_default = .*\\\n(?:.*\\\n)*/g;
mkdirSync("dist/shared", { recursive: true });
for (const { path, text } of parts.flatMap(({ outputFiles }) => outputFiles))
  writeFileSync(
    path,
    text
      .replaceAll(BARE_IMPORT, "")
      .replaceAll(CONTINUED, (lines) => lines.replaceAll("\\\n", ""))
      .replaceAll(`"${HOST}"`, basename(dirname(path)) === "shared" ? '"./host.js"' : `"${HOST}"`)
      .replaceAll(
        `"./${LIBRARIES.name}.js"`,
        `"${basename(dirname(path)) === "shared" ? ".." : "."}/${LIBRARIES.name}.js"`,
      ),
  );
const libraries = readFileSync(`dist/${LIBRARIES.name}.js`, "utf8");
writeFileSync(`dist/${LIBRARIES.parcel}.js`, libraries.replaceAll("await import(", "require("));
for (const name of builds) copyFileSync(`build/${name}.wasm`, `dist/${name}.wasm`);
// The same code on memory that threads share.
for (const name of ["simd", "relaxed"])
  writeFileSync(`dist/${name}-threads.wasm`, SHARING.shareMemory(readFileSync(`build/${name}.wasm`)));
const manifest = JSON.parse(readFileSync("package.json", "utf8"));
writeFileSync("jsr.json", `${JSON.stringify(jsrManifest(manifest), null, 2)}\n`);
const page = readFileSync("src/entries/doctor.html", "utf8");
writeFileSync("dist/doctor.html", page.replaceAll("{version}", manifest.version));
copyFileSync("src/entries/style.css", "dist/doctor.css");
chmodSync("dist/cli.js", 0o755);

execFileSync(process.execPath, [tsc, "-p", "scripts/tsconfig.build.json"], { stdio: "inherit" });
flattenTypes("build/types", "dist", Object.fromEntries(ENTRIES.map(({ name, source }) => [name, source])));
for (const { subpath, name, now } of OLD) {
  const [before, today] = [subpath, now].map(importName);
  const { name: target } = ENTRIES.find((entry) => entry.subpath === now);
  writeFileSync(
    `dist/${name}.js`,
    `import { warnOld } from "${HOST}";\nwarnOld("${before}", "${today}");\nexport * from "./${target}.js";\n`,
  );
  const title = `/**\n * The old name of \`${today}\`, which the next version does not have.\n * @packageDocumentation\n */\n`;
  writeFileSync(`dist/${name}.d.ts`, `${title}export * from "./${target}.js";\n`);
}
// Deno and JSR do not look for declarations beside a file: it has to name them.
for (const { name } of [...ENTRIES, ...OLD]) {
  const file = `dist/${name}.js`;
  writeFileSync(file, `/* @ts-self-types="./${name}.d.ts" */\n${readFileSync(file, "utf8")}`);
}
writeFileSync(BUILT, "");
