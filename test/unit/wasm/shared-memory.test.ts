// A module for one thread, patched, is the module that asc makes for threads.

import { main } from "assemblyscript/asc";
import { expect, test } from "vitest";
import { SHARING } from "../../../src/wasm/rewrite.ts";
import { wasmOf } from "../../support/modules.ts";
import { calls } from "../../support/sampled.ts";

const { shareMemory } = SHARING;

/** The smallest first: it takes two seconds, the others ten. */
const MODULES = [
  ["decoders", "decoders-relaxed"],
  ["index", "relaxed"],
  ["caches", "caches-relaxed"],
] as const;

test.each(MODULES.slice(0, calls(3, 1)))(
  "assembly/%s.ts, patched as %s, is byte for byte what asc makes with sharedMemory",
  async (entry, target) => {
    let made: Uint8Array | undefined;
    const flags = ["--sharedMemory", "--maximumMemory", "65536", "--enable", "threads"];
    const { error, stderr } = await main([`assembly/${entry}.ts`, "--target", target, ...flags], {
      writeFile: (file, contents) => {
        if (file.endsWith(".wasm") && typeof contents !== "string") made = Uint8Array.from(contents);
      },
    });
    expect(error, stderr.toString()).toBeNull();
    expect(Buffer.from(shareMemory(wasmOf(target))).equals(made as Uint8Array)).toBe(true);
  },
);

test.each(["simd", "relaxed", "weights-simd", "weights-relaxed", "caches-simd", "caches-relaxed"])(
  "%s starts on its own memory as it is and on shared memory when patched, and not the other way round",
  (name) => {
    const own = new WebAssembly.Memory({ initial: 1 });
    const shared = new WebAssembly.Memory({ initial: 1, maximum: 65_536, shared: true });
    const starts = (bytes: Buffer | Uint8Array, memory: WebAssembly.Memory) => {
      const module = new WebAssembly.Module(bytes as Uint8Array<ArrayBuffer>);
      return () => new WebAssembly.Instance(module, { env: { memory } });
    };
    const [plain, patched] = [wasmOf(name), shareMemory(wasmOf(name))];
    for (const fits of [starts(plain, own), starts(patched, shared)]) expect(fits).not.toThrow();
    for (const misfits of [starts(plain, shared), starts(patched, own)]) expect(misfits).toThrow(WebAssembly.LinkError);
  },
);

test("what is shared already, and what imports something else, stays as it is", () => {
  const shared = shareMemory(wasmOf("simd"));
  expect(shareMemory(shared)).toBe(shared);
  const header = [0, 97, 115, 109, 1, 0, 0, 0];
  const memory = [1, 97, 1, 98, 2, 0, 1];
  for (const section of [
    [],
    // A function; two memories; a memory and bytes that belong to nothing.
    [1, 4, 1, 96, 0, 0, 2, 7, 1, 1, 97, 1, 98, 0, 0],
    [2, 1 + 2 * memory.length, 2, ...memory, ...memory],
    [2, 2 + memory.length, 1, ...memory, 0],
  ]) {
    const bytes = Uint8Array.from([...header, ...section]);
    expect(shareMemory(bytes)).toBe(bytes);
  }
  const patched = shareMemory(Uint8Array.from([...header, 2, 1 + memory.length, 1, ...memory]));
  expect(Array.from(patched)).toEqual([...header, 2, 11, 1, 1, 97, 1, 98, 2, 3, 1, 128, 128, 4]);
  expect(WebAssembly.validate(patched)).toBe(true);
});
