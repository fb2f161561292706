import { fileURLToPath } from "node:url";
import { main } from "assemblyscript/asc";

/** The exports of loops.ts: what the hardware can do in arithmetic and in reading. */
export interface PeakLoops {
  fma_peak(rounds: number, a: number, b: number): number;
  dot_peak(rounds: number, a: number, b: number): number;
  stream_1(at: number, bytes: number): number;
  stream_4(at: number, bytes: number): number;
}

const folder = fileURLToPath(new URL(".", import.meta.url));

/** Compiles loops.ts with the features of a build. With its own folder as base asc does not read the kernels' settings. */
export async function peakLoopBytes(build: "simd" | "relaxed"): Promise<Uint8Array<ArrayBuffer>> {
  const files = ["loops.ts", "--baseDir", folder, "--outFile", "loops.wasm"];
  const output = ["--runtime", "stub", "--importMemory", "--noAssert", "--uncheckedBehavior", "always"];
  const features = ["--enable", "simd", ...(build === "relaxed" ? ["--enable", "relaxed-simd"] : [])];
  let binary = new Uint8Array();
  const { error, stderr } = await main([...files, ...output, "--optimizeLevel", "3", ...features], {
    writeFile(file, contents) {
      if (file === "loops.wasm" && typeof contents !== "string") binary = Uint8Array.from(contents);
    },
  });
  if (error) throw new Error(`bench: the peak loops did not compile: ${stderr}`, { cause: error });
  return binary;
}

export async function compilePeakLoops(build: "simd" | "relaxed"): Promise<WebAssembly.Module> {
  return new WebAssembly.Module(await peakLoopBytes(build));
}

/** Starts the peak loops on a memory. */
export async function startPeakLoops(build: "simd" | "relaxed", memory: WebAssembly.Memory): Promise<PeakLoops> {
  return new WebAssembly.Instance(await compilePeakLoops(build), { env: { memory } }).exports as unknown as PeakLoops;
}
