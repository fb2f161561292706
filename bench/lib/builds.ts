// The builds under test, each with its peak loops on the same memory, so that a loop reads the very bytes a kernel reads.

import type { KernelTable } from "../../src/wasm/abi.ts";
import { type Kernels, wrapKernels } from "../../src/wasm/kernels.ts";
import type { LinearMemory } from "../../src/wasm/memory.ts";
import { startOwn } from "../../src/wasm/modules.ts";
import { modulesOf } from "../../test/support/modules.ts";
import { type PeakLoops, startPeakLoops } from "./peak-loops.ts";

export const buildNames = ["simd", "relaxed"] as const;
export type BuildName = (typeof buildNames)[number];

export interface Build {
  readonly name: BuildName;
  /** What the public functions take. */
  readonly host: Kernels;
  readonly kernels: KernelTable;
  readonly memory: LinearMemory;
  readonly peaks: PeakLoops;
}

/** Loads a build, all of its modules, and its peak loops. */
export async function loadBuild(name: BuildName): Promise<Build> {
  const started = await startOwn(modulesOf(name));
  const { kernels, memory, wasmMemory } = started.instance;
  const threads = { requested: 1, used: 1, reason: "a benchmark of one thread" };
  const host = wrapKernels(started, { threads, table: kernels, release: () => {} });
  return { name, host, kernels, memory, peaks: await startPeakLoops(name, wasmMemory) };
}
