// What a user of the built package downloads, and what a reader of src/ meets, and whether both are within budget:
// `npm run sizes`. Bytes are those of gzip level 9, after esbuild has bundled and minified an import, without code that it
// can prove to be unused.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { ENTRIES, LAZY_NAMES, OLD_NAMES, PEERS } from "./entries.mjs";
import { roomsOf } from "./rooms.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

/**
 * All names of an entry but the old ones, which the next version does not have and bundles only have if they are imported, and
 * those whose code is imported when they are called.
 */
async function namesOf(entry) {
  const names = Object.keys(await import(entry));
  return names.filter((name) => ![...OLD_NAMES, ...LAZY_NAMES].includes(name));
}

/**
 * Bytes of an import of several entries, once bundled: of the names that are listed for each, or of all they have. `openModel` is not
 * among them, and what it would import is left out, as by bundlers that follow imports of what is used alone. esbuild prepares for
 * it, unless it `isFollowed`.
 */
async function bundled(entries, names, isFollowed = false) {
  const kept = [];
  const used = [];
  for (const [i, entry] of entries.entries()) {
    const taken = names?.[i]?.split(", ") ?? (await namesOf(entry));
    kept.push(`import { ${taken.map((name) => `${name} as ${name}${i}`)} } from "${entry}";`);
    used.push(...taken.map((name) => name + i));
  }
  const { outputFiles } = await build({
    stdin: { contents: `${kept.join("\n")} globalThis.kept = [${used}];`, resolveDir: root },
    bundle: true,
    format: "esm",
    minify: true,
    write: false,
    external: isFollowed ? PEERS : [...PEERS, "./open.js"],
    tsconfigRaw: {}, // the paths of the repository's own lead to the sources
  });
  return outputFiles[0].contents;
}

/** What `headwise/models` has for decoders. */
const DECODERS =
  "models, loadModel, gguf, planModel, planModelFiles, createSession, forward, forwardAsync, generate, generateMany, createStore, createBrowserStore, createFolderStore, selfTestModels";
/** The same for encoders and models with two halves. */
const ENCODERS =
  "loadEncoder, loadSeq2Seq, planEncoder, embed, embedAsync, encode, encodeAsync, maskedLogits, readSource, logMel, logMelAsync";

/** Bytes of what a call of `openModel` imports at once, without what only some models and options need. */
async function bundledLazily() {
  const { metafile, outputFiles } = await build({
    ...{ stdin: { contents: 'import { openModel } from "headwise"; globalThis.kept = openModel;', resolveDir: root } },
    ...{ bundle: true, splitting: true, outdir: "out", format: "esm", minify: true, write: false, metafile: true },
    ...{ external: PEERS, tsconfigRaw: {} },
  });
  const reached = new Set();
  const reach = (path) => {
    if (reached.has(path)) return;
    reached.add(path);
    for (const { kind, path: next, external } of metafile.outputs[path].imports)
      if (kind === "import-statement" && !external) reach(next);
  };
  reach(Object.entries(metafile.outputs).find(([, { entryPoint }]) => entryPoint === "dist/open.js")[0]);
  return Buffer.concat(
    outputFiles.flatMap(({ path, contents }) => (reached.has(relative(root, path)) ? [contents] : [])),
  );
}

const [whole, ...others] = ENTRIES.filter(({ worker }) => !worker);
const imports = [
  { what: "headwise, all of it with both builds", entries: ["headwise"], budget: whole.budget },
  {
    what: "scaledDotProductAttention alone",
    entries: ["headwise"],
    names: ["scaledDotProductAttention"],
    budget: 12.5,
  },
  {
    what: "loadKernels, scaledDotProductAttention",
    entries: ["headwise"],
    names: ["loadKernels, scaledDotProductAttention"],
  },
  { what: "headwise/models, decoders alone", entries: ["headwise/models"], names: [DECODERS], budget: 155 },
  { what: "headwise/models, encoders alone", entries: ["headwise/models"], names: [ENCODERS], budget: 133.5 },
  ...others.map(({ name, budget }) => ({ what: `headwise/${name}`, entries: [`headwise/${name}`], budget })),
  {
    what: "headwise + models, without gguf",
    entries: ["headwise", "headwise/models"],
    names: [
      undefined,
      "models, loadModel, planModel, createSession, forward, forwardAsync, generate, generateMany, selfTestModels",
    ],
    budget: 161.5,
  },
  {
    what: "headwise + models, decoders alone",
    entries: ["headwise", "headwise/models"],
    names: [undefined, DECODERS],
    budget: 182,
  },
  { what: "headwise + models", entries: ["headwise", "headwise/models"], budget: 200.5 },
  {
    what: "headwise + quantized + models",
    entries: ["headwise", "headwise/quantized", "headwise/models"],
    budget: 252,
  },
  // The example of docs/guide/decoders.md: loadModel with formats "q4".
  {
    what: "a decoder app with q4",
    entries: ["headwise", "headwise/models", "headwise/quantized"],
    names: ["loadKernels", "models, loadModel, createSession, generate", "quantized"],
    budget: 195,
  },
  {
    what: "an encoder app",
    entries: ["headwise", "headwise/models"],
    names: ["loadKernels", "models, loadEncoder, embed"],
    budget: 152.5,
  },
];
const modules = readdirSync(join(root, "dist")).filter((file) => file.endsWith(".wasm"));

const rows = [];
for (const { what, entries, names, budget } of imports)
  rows.push({ what, bytes: await bundled(entries, names), budget });
rows.push(
  { what: "headwise, by esbuild alone", bytes: await bundled(["headwise"], undefined, true), budget: 51.5 },
  { what: "openModel, what the call imports", bytes: await bundledLazily(), budget: 288 },
);
/** The kernels of cache formats have tiles for each of the four, those of statistics have all of attention's, and sums besides. */
const BUDGETS = { caches: 19, statistics: 17, weights: 32.5 };
for (const file of modules)
  rows.push({ what: file, bytes: readFileSync(join(root, "dist", file)), budget: BUDGETS[file.split("-")[0]] ?? 16 });

const kb = (bytes) => (bytes / 1000).toFixed(1).padStart(7);
console.log(`${"".padEnd(42)}     kB    gzip  budget`);
let over = 0;
for (const { what, bytes, budget } of rows) {
  const size = gzipSync(bytes, { level: 9 }).length;
  const exceeds = budget !== undefined && size > 1000 * budget;
  if (exceeds) over++;
  console.log(
    `${what.padEnd(42)}${kb(bytes.length)} ${kb(size)} ${String(budget ?? "").padStart(7)}${exceeds ? "  over" : ""}`,
  );
}

/** What all of src/ may have. The goal is 1,500 exports. */
const READER = { files: 299, lines: 68_700, exports: 2_060 };
const rooms = roomsOf();
const counts = Object.keys(READER);
const total = {
  room: "src",
  ...Object.fromEntries(counts.map((key) => [key, rooms.reduce((n, { [key]: x }) => n + x, 0)])),
};
const row = (name, of) => name.padEnd(22) + counts.map((key) => String(of(key)).padStart(9)).join("");
console.log(`\n${row("room of src/", (key) => key)}`);
for (const each of [...rooms, total]) console.log(row(each.room, (key) => each[key]));
console.log(row("budget", (key) => READER[key]));
over += counts.filter((key) => total[key] > READER[key]).length;

if (over > 0) {
  console.error(`sizes: expected every download and src/ within their budgets, got ${over} over them`);
  process.exit(1);
}
