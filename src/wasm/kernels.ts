import { warnOnce } from "../base/platform/host.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { expectMade, type Handle, makeHandle, type Releasable } from "../base/util/lifetime.ts";
import type { KernelTable } from "./abi.ts";
import { createDotModes, type DotModes } from "./int-dot.ts";
import type { LinearMemory } from "./memory.ts";
import {
  type Build,
  type Builds,
  hasPart,
  type Instance,
  type LoadOptions,
  type Started,
  startChosen,
  startOwn,
} from "./modules.ts";

/** The threads that run the kernels, including the calling one. */
export interface Threads {
  /** The option `threads` of `loadKernels`, or its default. */
  readonly requested: number | "auto";
  /** Threads in use now: fewer than at the start if workers were lost. */
  readonly used: number;
  /** Why this many, in words. */
  readonly reason: string;
}

/**
 * Compiled kernels and the linear memory they work on, up to 4 GiB. Two of them share nothing.
 * @example
 * import { loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * console.log(kernels.build, kernels.reason);
 * kernels.release();
 */
export interface Kernels extends Releasable, Handle {
  /** The build that runs. */
  readonly build: Build;
  /** Why this build runs, in words. */
  readonly reason: string;
  /** Whether a·b + c is rounded once instead of twice. The self-test has one published digest for each. */
  readonly fused: boolean;
  /** The threads that run the kernels. */
  readonly threads: Threads;
  /** Whether weights and caches may have formats other than float32: whether `quantized` was given. */
  readonly quantized: boolean;
  /** Whether there are kernels for latent attention: whether `latent` was given. */
  readonly latent: boolean;
  /** Whether there are kernels for whole decoders: whether `models` was given. */
  readonly models: boolean;
  /** Whether there are kernels for statistics of attention: whether `statistics` was given. */
  readonly statistics: boolean;
  /** Bytes of linear memory that weights, caches and scratch use now. */
  readonly usedBytes: number;
  /** Size of the linear memory in bytes. It does not shrink before `release()`. */
  readonly memoryBytes: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal The modes of the fastest integer products of this engine, timed when read, until that was decisive, four times at most. */
  readonly dotModes: DotModes;
  /** @internal */
  readonly table: KernelTable;
  /** @internal */
  readonly memory: LinearMemory;
}

/** Throws unless `kernels` came from loadKernels and was not released. */
export function expectKernels(where: string, kernels: Kernels, name = "kernels"): void {
  expectMade(where, name, kernels, "loadKernels");
}

/** Fields of LoadOptions. */
export const LOAD_OPTIONS = [
  "module",
  "deterministic",
  "threads",
  "quantized",
  "latent",
  "models",
  "statistics",
] as const;

/** Throws unless `threads` is "auto" or an integer from 1 to 64. Returns it. */
export function expectThreads(threads: unknown): number | "auto" {
  if (threads === "auto" || (typeof threads === "number" && Number.isInteger(threads) && threads >= 1 && threads <= 64))
    return threads;
  const text = `loadKernels: threads expected "auto" or an integer from 1 to 64, got ${describe(threads)}`;
  throw ["number", "string"].includes(typeof threads) ? new RangeError(text) : new TypeError(text);
}

/** The reason of entries without threads. */
const ONE_THREAD = "this entry has one thread: import headwise/threads";

/** Starts the caller's own module. The options were read. */
export async function ownKernels(options: LoadOptions): Promise<Kernels> {
  const threads = oneThread(options.threads, ONE_THREAD);
  return singleThreaded(await startOwn(options), threads);
}

/**
 * Starts the caller's module, or the faster of two builds. The options were read. `why` is the reason for one thread where
 * more are requested.
 */
export async function chooseKernels(builds: Builds, options: LoadOptions, why: string = ONE_THREAD): Promise<Kernels> {
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
interface KernelRunner {
  readonly threads: Threads;
  readonly table: KernelTable;
  release(): void;
}

/** The public handle of a started instance. */
export function wrapKernels({ instance: started, reason, fused }: Started, given: KernelRunner): Kernels {
  // Both are undefined once released: a handle that lives on must not keep the linear memory, which the table refers to.
  let instance: Instance | undefined = started;
  let runner: KernelRunner | undefined = given;
  let { threads } = given;
  const findDotModes = createDotModes();
  const alive = () => {
    if (!instance) throw new HeadwiseError("RELEASED", "kernels: used after release");
    return instance;
  };
  const readThreads = () => {
    if (runner) threads = runner.threads;
    return Object.freeze(threads);
  };
  const free = () => {
    runner?.release();
    readThreads();
    instance = runner = undefined;
  };
  const parts = {
    build: started.relaxed ? "relaxed" : "simd",
    reason,
    fused,
    quantized: hasPart(started, "caches"),
    latent: hasPart(started, "latents"),
    models: hasPart(started, "decoders"),
    statistics: hasPart(started, "statistics"),
    get threads() {
      return readThreads();
    },
    get usedBytes() {
      return alive().memory.used;
    },
    get memoryBytes() {
      return alive().memory.byteLength;
    },
    get dotModes() {
      return findDotModes(alive());
    },
    get table() {
      alive();
      return (runner as KernelRunner).table;
    },
    get memory() {
      return alive().memory;
    },
  } as const;
  // Workers of dropped kernels are ended: layers, caches and running calls refer to their kernels, so nothing needs them any
  // more. Without workers there is nothing but memory, which the engine frees by itself, and sooner.
  const hasWorkers = threads.used > 1;
  return makeHandle<Kernels>("Kernels", "loadKernels", parts, ["dotModes", "table", "memory"], free, hasWorkers);
}

/** Frees a block of these kernels' memory. The function refers to nothing else. */
export function freeing(kernels: Kernels, at: number): () => void {
  return () => {
    if (!kernels.released) kernels.memory.free(at);
  };
}
