// The builds under test, each beside its peak loops on one memory, so that a stream reads the very bytes a kernel reads.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { main } from "assemblyscript/asc";
import type { KernelTable } from "../src/abi.ts";
import { LinearMemory } from "../src/memory.ts";

export const buildNames = ["simd", "relaxed"] as const;
export type BuildName = (typeof buildNames)[number];

/** What the hardware can do: arithmetic (fused in the relaxed build, mul + add in the simd build) and reading. */
export interface Peaks {
  fma_peak(rounds: number, a: number, b: number): number;
  stream_1(at: number, bytes: number): number;
  stream_4(at: number, bytes: number): number;
}

export interface Build {
  readonly name: BuildName;
  readonly kernels: KernelTable;
  readonly memory: LinearMemory;
  readonly peaks: Peaks;
}

const root = fileURLToPath(new URL("..", import.meta.url));

/** Compiles bench/peaks/peaks.ts with the features of a build. In its own folder asc does not see the kernels' settings. */
async function compilePeaks(name: BuildName): Promise<WebAssembly.Module> {
  const features = name === "relaxed" ? ["--enable", "relaxed-simd"] : [];
  let binary = new Uint8Array();
  const { error, stderr } = await main(
    [
      ...[
        "peaks.ts",
        "--baseDir",
        `${root}/bench/peaks`,
        "--outFile",
        "peaks.wasm",
        "--runtime",
        "stub",
        "--importMemory",
      ],
      ...["--optimizeLevel", "3", "--noAssert", "--uncheckedBehavior", "always", "--enable", "simd", ...features],
    ],
    {
      writeFile(file, contents) {
        if (file === "peaks.wasm" && typeof contents !== "string") binary = Uint8Array.from(contents);
      },
    },
  );
  if (error) throw new Error(`bench: the peak loops did not compile: ${stderr}`, { cause: error });
  return new WebAssembly.Module(binary);
}

/** Loads build/<name>.wasm and its peaks. */
export async function loadBuild(name: BuildName): Promise<Build> {
  const memory = new WebAssembly.Memory({ initial: 1 });
  const imports = { env: { memory } };
  const kernels = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(`${root}/build/${name}.wasm`)), imports);
  const peaks = new WebAssembly.Instance(await compilePeaks(name), imports);
  const table = kernels.exports as unknown as KernelTable & { readonly HEAP_BASE: WebAssembly.Global };
  return {
    name,
    kernels: table,
    memory: new LinearMemory(memory, Number(table.HEAP_BASE.value)),
    peaks: peaks.exports as unknown as Peaks,
  };
}
