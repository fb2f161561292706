// AssemblyScript that only tests run, compiled in memory: entries of tests, and kernels with a fault put in.

import { existsSync, readFileSync } from "node:fs";
import { main } from "assemblyscript/asc";

const ROOT = new URL("../../", import.meta.url);
const FLAGS = ["-O1", "--noAssert", "--uncheckedBehavior", "always", "--runtime", "stub", "--importMemory"];

/**
 * The module of an entry, a path from the package's root, in the simd or the relaxed build. `edit` gives the text of any
 * source, from its file's where there is one. The module imports env.memory.
 */
export async function compile(
  entry: string,
  relaxed: boolean,
  edit: (path: string, text: string | null) => string | null,
): Promise<WebAssembly.Module> {
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
  return new WebAssembly.Module(binary);
}
