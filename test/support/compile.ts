// AssemblyScript that only tests run, compiled in memory: entries of tests, and kernels with a fault put in.

import { existsSync, readFileSync } from "node:fs";
import { main } from "assemblyscript/asc";

const ROOT = new URL("../../", import.meta.url);
const FLAGS = ["-O1", "--noAssert", "--uncheckedBehavior", "always", "--runtime", "stub", "--importMemory"];

/** The text of any source, from its file's where there is one. */
type Edit = (path: string, text: string | null) => string | null;

/** The module of an entry, a path from the package's root, in the simd or the relaxed build. It imports env.memory. */
export async function compile(entry: string, relaxed: boolean, edit: Edit): Promise<WebAssembly.Module> {
  return new WebAssembly.Module(await compileBytes(entry, relaxed, edit));
}

/** The bytes of that module. */
export async function compileBytes(entry: string, relaxed: boolean, edit: Edit): Promise<Uint8Array<ArrayBuffer>> {
  let binary: Uint8Array<ArrayBuffer> | undefined;
  const features = relaxed ? "simd,relaxed-simd" : "simd";
  const { error, stderr } = await main([entry, ...FLAGS, "--use", "abort=", "--enable", features, "-o", "out.wasm"], {
    readFile: (path) => {
      const file = new URL(path, ROOT);
      return edit(path, existsSync(file) ? readFileSync(file, "utf8") : null);
    },
    writeFile: (_, contents) => {
      if (typeof contents !== "string") binary = Uint8Array.from(contents);
    },
    listFiles: () => [],
  });
  if (error || !binary) throw new Error(`${entry}: ${stderr.toString()}`);
  return binary;
}
