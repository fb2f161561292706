import { warnOnce } from "../platform/console.ts";
import { describe, expectFields, HeadwiseError } from "../util/errors.ts";
import { DISPOSE, expectMade, type Releasable } from "../util/lifetime.ts";
import type { KernelTable } from "./abi.ts";
import type { ModuleSource } from "./compile.ts";
import type { Instance } from "./instantiate.ts";
import { type DotPaths, findDotPaths } from "./int-dot.ts";
import type { LinearMemory } from "./memory.ts";
import { type Build, type Builds, type QuantizedKernels, type Started, startChosen, startOwn } from "./select-build.ts";

export type { ModuleSource, WasmSource } from "./compile.ts";
export type { Build, QuantizedKernels, QuantizedModules } from "./select-build.ts";

/** How many threads work, the calling one among them. */
export interface Threads {
  /** What `loadKernels` was asked for, or would have been by default. */
  readonly requested: number | "auto";
  /** How many there are now: fewer than at first when workers were lost. */
  readonly used: number;
  /** Why so many, in words. */
  readonly reason: string;
}

/**
 * The kernels and the memory they work on. Two never share anything.
 * @example
 * import { loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * console.log(kernels.build, kernels.reason);
 * kernels.release();
 */
export interface Kernels extends Releasable {
  readonly build: Build;
  /** Why this build runs here, in words. */
  readonly reason: string;
  /** Whether a·b + c rounds once. One of the two published digests belongs to each answer. */
  readonly fused: boolean;
  readonly threads: Threads;
  /** Whether they know weights and caches that are not float32: whether `quantized` was given. */
  readonly quantized: boolean;
  /** Bytes of linear memory in blocks that are in use now: weights, caches and scratch. */
  readonly usedBytes: number;
  /** Bytes of linear memory as it stands; it never shrinks while the kernels live. */
  readonly memoryBytes: number;
  readonly released: boolean;
  /** @internal The fastest dot-product paths of this engine, timed when first read. */
  readonly dotPaths: DotPaths;
  /** @internal */
  readonly table: KernelTable;
  /** @internal */
  readonly memory: LinearMemory;
}

/** What `loadKernels` takes. */
export interface LoadOptions {
  /**
   * A module of your own, such as `headwise/simd.wasm` where a host imports that as a module; its bytes; or a Response or
   * URL that brings them (`file:` on hosts that have files). Its build is used as it is.
   */
  readonly module?: ModuleSource;
  /** Use the `simd` build: the same bits on every engine. Default false: whichever build is faster here. */
  readonly deterministic?: boolean;
  /** How many threads to use, 1 to 64, or "auto"; `headwise/threads` has more than one. The bits stay the same. */
  readonly threads?: number | "auto";
  /** The kernels of weights and caches in fewer bits: `quantized` of `headwise/quantized`, or modules of your own. */
  readonly quantized?: QuantizedKernels;
}

/** Throws unless `kernels` came from loadKernels and was not released. */
export function expectKernels(where: string, kernels: Kernels, name = "kernels"): void {
  expectMade(where, name, kernels, "table", "loadKernels");
}

/** Fields of LoadOptions. */
export const LOAD_OPTIONS: readonly string[] = ["module", "deterministic", "threads", "quantized"];

/** Throws unless `threads` is "auto" or an integer from 1 to 64. Returns it. */
export function expectThreads(threads: unknown): number | "auto" {
  if (threads === "auto" || (typeof threads === "number" && Number.isInteger(threads) && threads >= 1 && threads <= 64))
    return threads;
  const text = `loadKernels: threads expected "auto" or an integer from 1 to 64, got ${describe(threads)}`;
  throw ["number", "string"].includes(typeof threads) ? new RangeError(text) : new TypeError(text);
}

/** The reason of entries without threads. */
const ONE_THREAD = "this entry has one thread: import headwise/threads";

/** Starts the caller's own module. */
export async function ownKernels(options: LoadOptions): Promise<Kernels> {
  expectFields("loadKernels", "options", options, LOAD_OPTIONS);
  const threads = oneThread(options.threads, ONE_THREAD);
  return singleThreaded(await startOwn(options), threads);
}

/**
 * Starts the caller's module, or the faster of two builds. `why` is the reason for one thread where more are requested.
 */
export async function chooseKernels(
  builds: Builds,
  options: LoadOptions = {},
  why: string = ONE_THREAD,
): Promise<Kernels> {
  expectFields("loadKernels", "options", options, LOAD_OPTIONS);
  const threads = oneThread(options.threads, why);
  return singleThreaded(await startChosen(builds, options), threads);
}

function oneThread(threads: unknown, why: string): Threads {
  const requested = threads === undefined ? 1 : expectThreads(threads);
  return { requested, used: 1, reason: threads === 1 ? "one thread was asked for" : why };
}

function singleThreaded(started: Started, threads: Threads): Kernels {
  const { requested, reason } = threads;
  if (typeof requested === "number" && requested > 1) warnOnce(`one thread instead of ${requested}: ${reason}`);
  return wrapKernels(started, { threads, table: started.instance.kernels, release: () => {} });
}

/** What runs the kernels: the calling thread, or a thread pool. */
export interface KernelRunner {
  readonly threads: Threads;
  readonly table: KernelTable;
  release(): void;
}

/** The public handle of a started instance. */
export function wrapKernels({ instance: started, reason, fused }: Started, runner: KernelRunner): Kernels {
  let instance: Instance | undefined = started;
  let dotPaths: DotPaths | undefined;
  const alive = () => {
    if (!instance) throw new HeadwiseError("RELEASED", "kernels: used after release");
    return instance;
  };
  const release = () => {
    if (instance) runner.release();
    instance = undefined;
  };
  return {
    build: started.relaxed ? "relaxed" : "simd",
    reason,
    fused,
    quantized: started.quantized,
    get threads() {
      return runner.threads;
    },
    get usedBytes() {
      return alive().memory.used;
    },
    get memoryBytes() {
      return alive().memory.byteLength;
    },
    get released() {
      return instance === undefined;
    },
    get dotPaths() {
      dotPaths ??= findDotPaths(alive());
      return dotPaths;
    },
    get table() {
      alive();
      return runner.table;
    },
    get memory() {
      return alive().memory;
    },
    release,
    [DISPOSE]: release,
  };
}
