// One file for the modules behind an entry. esbuild divides common code by which entries need it, which makes many files;
// here all of it goes into one, from which the others import.

import { basename, relative, resolve } from "node:path";
import { build } from "esbuild";

/** First in the file: its digits have nothing in common with the others, which lie closer together then: gzip takes 0.1 % less. */
const FIRST = "src/base/util/math.ts";

/**
 * The modules that `entry` is made of, besides itself, `listed` (which only export what others do, under other names too), `.wasm` and
 * `lazy` with what that imports: their paths, and a source that exports all they export.
 */
export async function readHost(entry, lazy, ...listed) {
  const options = { format: "esm", write: false, metafile: true };
  const external = ["*.wasm", `./${basename(lazy)}`];
  const graph = await build({ ...options, entryPoints: [entry], bundle: true, external });
  const inputs = Object.keys(graph.metafile.inputs).filter((file) => ![entry, ...listed, FIRST].includes(file));
  const entryPoints = [FIRST, ...inputs];
  // Not bundled, so that every export of a file is listed.
  const { metafile } = await build({ ...options, entryPoints, outdir: "." });
  const owners = new Map();
  const lines = [];
  for (const { entryPoint, exports } of Object.values(metafile.outputs)) {
    for (const name of exports) {
      const other = owners.get(name);
      if (other) throw new Error(`build: ${entryPoint} exports ${name}, and so does ${other}: one needs another name`);
      owners.set(name, entryPoint);
    }
    if (exports.length > 0) lines.push(`export { ${exports.join(", ")} } from "./${relative(".", entryPoint)}";`);
  }
  return { source: lines.join("\n"), files: new Set(entryPoints.map((file) => resolve(file))) };
}

/** An esbuild plugin: what is imported from `files` is imported from `path` instead. */
export const importHost = (files, path) => ({
  name: "import-host",
  setup({ onResolve }) {
    onResolve({ filter: /^\.\.?\/.*\.ts$/ }, ({ path: given, resolveDir, kind }) =>
      kind !== "entry-point" && files.has(resolve(resolveDir, given))
        ? { path, external: true, sideEffects: false }
        : undefined,
    );
  },
});
