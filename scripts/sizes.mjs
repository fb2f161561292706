// What a user of the built package downloads, and whether it is within budget: `npm run sizes`. Bytes are those of gzip
// level 9, after esbuild has bundled and minified an import, without code that it can prove to be unused.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { FILES } from "./entries.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

/** Bytes of an import of `names`, or of all of an entry, once bundled. */
async function bundled(entry, names) {
  const kept = names ? `import { ${names} } from "${entry}";` : `import * as all from "${entry}";`;
  const { outputFiles } = await build({
    stdin: { contents: `${kept} globalThis.kept = [${names ?? "all"}];`, resolveDir: root },
    bundle: true,
    format: "esm",
    minify: true,
    write: false,
    tsconfigRaw: {}, // the paths of the repository's own lead to the sources
  });
  return outputFiles[0].contents;
}

const [whole, ...others] = FILES.filter(({ worker }) => !worker);
const imports = [
  { what: "headwise, all of it with both builds", entry: "headwise", budget: whole.budget },
  { what: "scaledDotProductAttention alone", entry: "headwise", names: "scaledDotProductAttention", budget: 25 },
  {
    what: "loadKernels, scaledDotProductAttention",
    entry: "headwise",
    names: "loadKernels, scaledDotProductAttention",
  },
  ...others.map(({ name, budget }) => ({ what: `headwise/${name}`, entry: `headwise/${name}`, budget })),
];
const modules = readdirSync(join(root, "dist")).filter((file) => file.endsWith(".wasm"));

const rows = [];
for (const { what, entry, names, budget } of imports) rows.push({ what, bytes: await bundled(entry, names), budget });
// The kernels of cache formats have tiles for each of the four; they are loaded with quantized caches only.
for (const file of modules)
  rows.push({ what: file, bytes: readFileSync(join(root, "dist", file)), budget: file.startsWith("caches") ? 18 : 16 });

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
if (over > 0) {
  console.error(`sizes: expected every download within its budget, got ${over} over it`);
  process.exit(1);
}
