// Measurements that need a process of their own: the time from its start to the first answer, and the growth of memory. The
// child is bundled in advance, so that its time does not include the removal of types.

import { spawn } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { type Spread, spreadOf } from "../lib/measure.ts";
import { reasonOf } from "./measure.ts";
import type { FoundPeer } from "./peer.ts";
import type { Result } from "./result.ts";

/** Inside of this package, so that the peers' packages are found from there. */
const folder = join(import.meta.dirname, "build");

/** Bundles a child for each peer, and one for none. Returns their paths by name. */
async function bundle(peers: readonly FoundPeer[], kind: string): Promise<Record<string, string>> {
  mkdirSync(folder, { recursive: true });
  const paths: Record<string, string> = {};
  for (const name of ["none", ...peers.map((peer) => peer.name)]) {
    const peer = peers.find((one) => one.name === name);
    const load = peer ? `import { peer } from "./peers/${peer.file}";` : "const peer = undefined;";
    const contents = `${load}\nimport { ${kind} } from "./child-process.ts";\nawait ${kind}(peer);\nprocess.exit();\n`;
    const outfile = join(folder, `${kind}-${name.replaceAll(" ", "-")}.mjs`);
    await build({
      stdin: { contents, resolveDir: import.meta.dirname, loader: "ts" },
      ...{ outfile, bundle: true, format: "esm", platform: "node", packages: "external", logLevel: "error" },
    });
    paths[name] = outfile;
  }
  return paths;
}

/** Runs a child, in the way of that name, until it prints a line. Returns the line and the milliseconds until then. */
function firstLine(path: string, way = ""): Promise<{ line: string; ms: number }> {
  return new Promise((resolve, reject) => {
    const start = performance.now();
    const child = spawn(process.execPath, [path, way], { stdio: ["ignore", "pipe", "pipe"] });
    let [out, err] = ["", ""];
    let ms = 0;
    child.stdout.on("data", (chunk: Buffer) => {
      out += chunk.toString();
      if (ms === 0 && out.includes("\n")) ms = performance.now() - start;
    });
    child.stderr.on("data", (chunk: Buffer) => {
      err += chunk.toString();
    });
    child.on("error", reject);
    child.on("close", () => (ms > 0 ? resolve({ line: out.split("\n")[0]!, ms }) : reject(new Error(err.trim()))));
  });
}

/** Milliseconds from process start to the first answer, `times` processes of each, by turns. */
export async function measureStart(
  peers: readonly FoundPeer[],
  ways: Readonly<Record<string, string>>,
  times: number,
): Promise<Record<string, Spread>> {
  const paths = Object.entries(await bundle(peers, "answerOnce"));
  const samples: Record<string, number[]> = {};
  for (const [, path] of paths) await firstLine(path); // the files are in the system's cache from here on
  for (let round = 0; round < times; round++)
    for (let turn = 0; turn < paths.length; turn++) {
      const [name, path] = paths[(round + turn) % paths.length]!;
      const list = samples[name] ?? [];
      samples[name] = list;
      list.push((await firstLine(path, ways[name])).ms);
    }
  rmSync(folder, { recursive: true });
  return Object.fromEntries(Object.entries(samples).map(([name, list]) => [name, spreadOf(list)]));
}

/** Bytes of wasm memory of each peer that is wasm, in the way of that name. */
export async function measureMemory(
  peers: readonly FoundPeer[],
  ways: Readonly<Record<string, string>>,
): Promise<NonNullable<Result["memory"]>> {
  const wasm = peers.filter(({ native }) => !native);
  const paths = await bundle(wasm, "growMemory");
  const memory: Record<string, { before: number; grown: number } | string> = {};
  for (const { name } of wasm)
    try {
      memory[name] = JSON.parse((await firstLine(paths[name]!, ways[name])).line) as { before: number; grown: number };
    } catch (error) {
      memory[name] = reasonOf(error);
    }
  rmSync(folder, { recursive: true });
  return memory;
}
