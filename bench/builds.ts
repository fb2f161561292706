// The builds under test, each beside its peak loops on one memory, so that a stream reads the very bytes a kernel reads.

import { fileURLToPath } from "node:url";
import { main } from "assemblyscript/asc";
import type { KernelTable } from "../src/wasm/abi.ts";
import { type Kernels, wrapKernels } from "../src/wasm/kernels.ts";
import type { LinearMemory } from "../src/wasm/memory.ts";
import { startOwn } from "../src/wasm/select-build.ts";
import { modulesOf } from "../test/support/modules.ts";

export const buildNames = ["simd", "relaxed"] as const;
export type BuildName = (typeof buildNames)[number];

/** What the hardware can do: arithmetic (fused in the relaxed build, mul + add in the simd build) and reading. */
export interface Peaks {
  fma_peak(rounds: number, a: number, b: number): number;
  dot_peak(rounds: number, a: number, b: number): number;
  stream_1(at: number, bytes: number): number;
  stream_4(at: number, bytes: number): number;
}

export interface Build {
  readonly name: BuildName;
  readonly host: Kernels;
  readonly kernels: KernelTable;
  readonly memory: LinearMemory;
  readonly peaks: Peaks;
}

const root = fileURLToPath(new URL("..", import.meta.url));

/** Compiles bench/peaks/peaks.ts with the features of a build. In its own folder asc does not see the kernels' settings. */
export async function compilePeaks(name: BuildName): Promise<WebAssembly.Module> {
  const files = ["peaks.ts", "--baseDir", `${root}/bench/peaks`, "--outFile", "peaks.wasm"];
  const output = ["--runtime", "stub", "--importMemory", "--noAssert", "--uncheckedBehavior", "always"];
  const features = ["--enable", "simd", ...(name === "relaxed" ? ["--enable", "relaxed-simd"] : [])];
  let binary = new Uint8Array();
  const { error, stderr } = await main([...files, ...output, "--optimizeLevel", "3", ...features], {
    writeFile(file, contents) {
      if (file === "peaks.wasm" && typeof contents !== "string") binary = Uint8Array.from(contents);
    },
  });
  if (error) throw new Error(`bench: the peak loops did not compile: ${stderr}`, { cause: error });
  return new WebAssembly.Module(binary);
}

/** Starts the peak loops on a memory. */
export async function startPeaks(name: BuildName, memory: WebAssembly.Memory): Promise<Peaks> {
  return new WebAssembly.Instance(await compilePeaks(name), { env: { memory } }).exports as unknown as Peaks;
}

/** Loads a build, all of its modules, and its peaks. */
export async function loadBuild(name: BuildName): Promise<Build> {
  const started = await startOwn(modulesOf(name));
  const { kernels, memory, wasmMemory } = started.instance;
  const threads = { requested: 1, used: 1, reason: "a benchmark of one thread" };
  const host = wrapKernels(started, { threads, table: kernels, release: () => {} });
  return { name, host, kernels, memory, peaks: await startPeaks(name, wasmMemory) };
}
