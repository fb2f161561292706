import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build, type Metafile } from "esbuild";
import type { Peer, Shipped } from "./peer.ts";

const gzipped = (bytes: Uint8Array) => gzipSync(bytes, { level: 9 }).length;

/** Outputs that a page loads with the first one, without those that are imported on demand. */
function loadedAtOnce(outputs: Metafile["outputs"], first: string): Set<string> {
  const loaded = new Set([first]);
  for (const path of loaded)
    for (const { path: imported, kind } of outputs[path]!.imports)
      if (kind === "import-statement" && outputs[imported]) loaded.add(imported);
  return loaded;
}

async function shippedBytes({ source, assets }: Shipped): Promise<number> {
  const { outputFiles, metafile } = await build({
    stdin: { contents: source, resolveDir: import.meta.dirname },
    ...{ bundle: true, minify: true, splitting: true, format: "esm", platform: "browser", outdir: "size" },
    ...{ write: false, metafile: true, logLevel: "error", legalComments: "none" },
    external: [
      "node:*",
      "fs",
      "path",
      "util",
      "crypto",
      "string_decoder",
      "worker_threads",
      "module",
      "url",
      "os",
      "perf_hooks",
    ],
  });
  const loaded = loadedAtOnce(metafile.outputs, "size/stdin.js");
  const code = outputFiles.filter(({ path }) => [...loaded].some((name) => path.endsWith(name)));
  return [...code.map(({ contents }) => contents), ...assets.map((path) => readFileSync(path))]
    .map(gzipped)
    .reduce((sum, bytes) => sum + bytes, 0);
}

/** Gzipped bytes that a page loads to use each peer. */
export async function measureSizes(peers: readonly Peer[]): Promise<Record<string, number>> {
  const sizes: Record<string, number> = {};
  for (const { name, shipped } of peers) if (shipped) sizes[name] = await shippedBytes(shipped);
  return sizes;
}
