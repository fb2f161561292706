// One file for the modules behind an entry. esbuild divides common code by which entries need it, which makes many files;
// here all of it goes into one, from which the others import.

import { basename, relative, resolve } from "node:path";
import { build } from "esbuild";

/** The name that the file exports an inlined module by. */
const nameOf = (wasm) => `inlined_${basename(wasm, ".wasm")}`;

/**
 * The modules that `entry` is made of, besides itself, `listed` (which only exports what others do) and `.wasm`: their paths,
 * and a source that exports all they export, and the module `wasm` as text.
 */
export async function readHost(entry, listed, wasm) {
  const options = { format: "esm", write: false, metafile: true };
  const graph = await build({ ...options, entryPoints: [entry], bundle: true, external: ["*.wasm"] });
  const entryPoints = Object.keys(graph.metafile.inputs).filter((file) => file !== entry && file !== listed);
  // Not bundled, so that every export of a file is listed.
  const { metafile } = await build({ ...options, entryPoints, outdir: "." });
  const owners = new Map();
  const lines = [`export { default as ${nameOf(wasm)} } from "./${wasm}";`];
  for (const { entryPoint, exports } of Object.values(metafile.outputs)) {
    for (const name of exports) {
      const other = owners.get(name);
      if (other) throw new Error(`build: ${entryPoint} exports ${name}, and so does ${other}: one needs another name`);
      owners.set(name, entryPoint);
    }
    if (exports.length > 0) lines.push(`export { ${exports.join(", ")} } from "./${relative(".", entryPoint)}";`);
  }
  return { source: lines.join("\n"), files: new Set([wasm, ...entryPoints].map((file) => resolve(file))) };
}

/** An esbuild plugin: what is imported from `files` is imported from `path` instead. */
export const importHost = (files, path) => ({
  name: "import-host",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^\.\.?\/.*\.(ts|wasm)$/ }, ({ path: given, resolveDir, kind, pluginData }) => {
      const file = resolve(resolveDir, given);
      if (kind === "entry-point" || !files.has(file)) return undefined;
      if (file.endsWith(".ts")) return { path, external: true, sideEffects: false };
      // A host that hands out modules has its own.
      return pluginData?.host ? undefined : { path: basename(file), namespace: "inlined", sideEffects: false };
    });
    onLoad({ filter: /./, namespace: "inlined" }, ({ path: file }) => ({
      contents: `export { ${nameOf(file)} as default } from ${JSON.stringify(path)};`,
    }));
    onResolve({ filter: /./, namespace: "inlined" }, () => ({ path, external: true, sideEffects: false }));
  },
});
