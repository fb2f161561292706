// What an engine can do, and whether headwise is correct and fast in it: one diagnosis for the command line and for pages.

import type { scaledDotProductAttention } from "../api/sdpa.ts";
import { memorySharing } from "../platform/spawn.ts";
import { expectFunction } from "../util/arguments.ts";
import { describe, type HeadwiseErrorCode } from "../util/errors.ts";
import { type DotProduct, dotProductOf } from "../wasm/int-dot.ts";
import type { Kernels, LoadOptions, Threads } from "../wasm/kernels.ts";
import type { Build } from "../wasm/select-build.ts";
import { createAttentionWork } from "./attention-work.ts";
import { createLinearWork } from "./linear-work.ts";
import { allowsWasm, peakModule, startPeak } from "./peak.ts";
import type { SelfTest, selfTest } from "./self-test.ts";
import { type Effort, timeLoads } from "./timing.ts";

/** The functions of `headwise` or `headwise/threads` that are examined. */
export interface Headwise {
  /** Loads the kernels. */
  loadKernels(options?: LoadOptions): Promise<Kernels>;
  /** Compares the bits of results with the published ones. */
  readonly selfTest: typeof selfTest;
  /** Attention, one of the two workloads whose speed is measured. */
  readonly scaledDotProductAttention: typeof scaledDotProductAttention;
}

/** What only the caller knows about the environment. */
export interface Surroundings {
  /** Version of headwise. */
  readonly version: string;
  /** Name and version of the engine, or a browser's user agent. */
  readonly engine: string;
  /** Operating system. */
  readonly system?: string;
  /** Name of the processor. */
  readonly processor?: string;
  /** Number of logical processors. */
  readonly processors?: number;
  /** Memory of the machine in bytes. */
  readonly memory?: number;
}

/** Features of an engine, whether headwise uses them or not. */
export interface EngineFeatures {
  /** WebAssembly can be compiled from bytes. A content security policy can forbid it. */
  readonly codegen: boolean;
  /** WebAssembly SIMD. */
  readonly simd: boolean;
  /** WebAssembly relaxed SIMD. */
  readonly relaxedSimd: boolean;
  /** WebAssembly threads: shared memory and atomics. */
  readonly threads: boolean;
  /** Shared memory can be made. Some browsers allow it only in pages that are cross-origin isolated. */
  readonly sharedMemory: boolean;
  /** The page or worker is cross-origin isolated; null on hosts without that notion. */
  readonly isolated: boolean | null;
}

/** Speed and error of one workload. There is no speed on hosts whose clock stands still while code runs. */
export interface WorkReport {
  /** Name of the workload. */
  readonly work: string;
  /** Its sizes, in words. */
  readonly shape: string;
  /** Median speed in 10^9 floating-point operations per second. */
  readonly gflops?: number;
  /** Speed of the fastest sample, in the same unit. */
  readonly bestGflops?: number;
  /** bestGflops divided by the best peak of one thread times the number of threads. Unknown if the peak varied too much. */
  readonly ofPeak?: number;
  /** Norm of the error against float64, divided by the norm of the output. */
  readonly relativeError: number;
  /** Largest error against float64, divided by the largest output. */
  readonly largestError: number;
}

/** Result of `diagnose`. `kernels` and the fields after it are undefined if the kernels did not start. */
export interface Diagnosis extends Surroundings {
  /** Whether the kernels started and the self-test passed. */
  readonly ok: boolean;
  /** Why the kernels did not start. */
  readonly problem?: {
    /** The code of a HeadwiseError. */
    readonly code: HeadwiseErrorCode | undefined;
    /** The message of the error. */
    readonly message: string;
  };
  /** Features of the engine. */
  readonly features: EngineFeatures;
  /** The kernels, and how they started. */
  readonly kernels?: {
    /** The build that runs. */
    readonly build: Build;
    /** Why this build runs, in words. */
    readonly reason: string;
    /** Whether a·b + c is rounded once instead of twice. */
    readonly fused: boolean;
    /** The threads that run the kernels. */
    readonly threads: Threads;
    /** Milliseconds that `loadKernels` took. */
    readonly startMs: number;
    /** Size of the linear memory in bytes, at the end. */
    readonly memoryBytes: number;
    /** The dot products of integers that were the fastest, where `options.quantized` was given. */
    readonly dotProducts?: DotProducts;
  };
  /** Result of the self-test. */
  readonly selfTest?: SelfTest & {
    /** Milliseconds that the self-test took. */
    readonly ms: number;
  };
  /** Peak speed of one thread. Unknown where WebAssembly cannot be compiled from bytes and where the clock stands still. */
  readonly peak?: {
    /** The operations of the build: "fma" is fused and rounds once, "mul+add" rounds twice. */
    readonly arithmetic: "fma" | "mul+add";
    /** Median speed in 10^9 floating-point operations per second. */
    readonly gflops: number;
    /** Speed of the fastest sample, in the same unit. */
    readonly bestGflops: number;
    /** How far the median is below the highest speed of a thread that was measured, in any workload: 0 to 1. */
    readonly variation: number;
  };
  /** The workloads: a linear layer of GPT-2 small for 128 tokens, and its attention for 512. */
  readonly works?: readonly WorkReport[];
}

/** The dot products that were chosen by their speed, which WebAssembly does not reveal otherwise. */
export interface DotProducts {
  /** For activations of 14 bits. */
  readonly exact: DotProduct;
  /** For activations of 7 bits. */
  readonly fast: DotProduct;
  /** Milliseconds that the choice took. */
  readonly ms: number;
}

/** A peak that varied by more says little: other programs use the processor, or its frequency changes. */
const MOST_VARIATION = 0.25;

const EFFORT: Effort = { warmupMs: 80, sampleMs: 8, rounds: 20, mostMs: 700 };

/** A module with a shared memory of one page, and nothing else. */
const SHARED_MEMORY = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 5, 4, 1, 3, 1, 1);

function findFeatures(): EngineFeatures {
  return {
    codegen: allowsWasm(),
    simd: WebAssembly.validate(peakModule(false)),
    relaxedSimd: WebAssembly.validate(peakModule(true)),
    threads: WebAssembly.validate(SHARED_MEMORY),
    ...memorySharing(),
  };
}

/**
 * Examines an engine in about two seconds: its features, the build and the threads that run and why, the self-test, and the
 * speed and error of a matrix product and of attention, next to the peak speed of one thread. If the kernels do not start,
 * the result is not an error but a diagnosis with the reason.
 * @throws TypeError if `headwise` or `surroundings` is something else.
 * @param headwise The module `headwise` or `headwise/threads`.
 * @param surroundings What only the caller knows. It becomes part of the result.
 * @param options Options of `loadKernels`. With `quantized`, the dot products of integers are examined, too.
 * @example
 * import * as headwise from "headwise/threads";
 * import { diagnose } from "headwise/doctor";
 * const report = await diagnose(headwise, { version: "0.4.0", engine: "this one" }, { threads: 1 });
 * console.log(report.ok, report.works?.length); // true 2
 */
export async function diagnose(
  headwise: Headwise,
  surroundings: Surroundings,
  options: Pick<LoadOptions, "threads" | "deterministic" | "quantized"> = {},
): Promise<Diagnosis> {
  for (const name of ["loadKernels", "selfTest", "scaledDotProductAttention"] as const)
    expectFunction("diagnose", `headwise.${name}`, Object(headwise)[name]);
  for (const name of ["version", "engine"] as const) {
    const text: unknown = Object(surroundings)[name];
    if (typeof text !== "string")
      throw new TypeError(`diagnose: surroundings.${name} expected a string, got ${describe(text)}`);
  }
  const features = findFeatures();
  const begin = performance.now();
  let kernels: Kernels;
  try {
    kernels = await headwise.loadKernels(options);
  } catch (error) {
    const { code, message } = error as { readonly code?: HeadwiseErrorCode; readonly message: string };
    return { ok: false, ...surroundings, problem: { code, message }, features };
  }
  try {
    const startMs = performance.now() - begin;
    const { build, reason, fused } = kernels;
    const tested = testSelf(headwise, kernels);
    const dotProducts = kernels.quantized && { dotProducts: chooseDotProducts(kernels) };
    const measured = await measureWorks(headwise, kernels, features);
    const { threads, memoryBytes } = kernels;
    return {
      ok: tested.ok,
      ...surroundings,
      features,
      kernels: { build, reason, fused, threads, startMs, memoryBytes, ...dotProducts },
      selfTest: tested,
      ...measured,
    };
  } finally {
    kernels.release();
  }
}

function chooseDotProducts(kernels: Kernels): DotProducts {
  const begin = performance.now();
  const { exact, fast } = kernels.dotModes;
  return { exact: dotProductOf(exact), fast: dotProductOf(fast), ms: performance.now() - begin };
}

function testSelf({ selfTest }: Headwise, kernels: Kernels): NonNullable<Diagnosis["selfTest"]> {
  const begin = performance.now();
  const result = selfTest(kernels);
  return { ...result, ms: performance.now() - begin };
}

/** Measures a projection of GPT-2 small for 128 tokens, and its attention heads for 512. */
async function measureWorks(
  { scaledDotProductAttention }: Headwise,
  kernels: Kernels,
  { codegen }: EngineFeatures,
): Promise<Pick<Diagnosis, "peak" | "works">> {
  const works = [
    createLinearWork(kernels, 128, 768, 768),
    createAttentionWork(scaledDotProductAttention, kernels, 12, 512, 64),
  ];
  const { fused, threads } = kernels;
  const loads = codegen ? [startPeak(fused), ...works] : works;
  const rates = await timeLoads(loads, EFFORT);
  const [peakRate, ...workRates] = codegen ? (rates ?? []) : [undefined, ...(rates ?? [])];
  const peak =
    peakRate &&
    steadiness(
      peakRate,
      workRates.map((rate) => (rate?.bestGflops ?? 0) / threads.used),
    );
  const reports = works.map((work, i): WorkReport => {
    const { relative, largest } = work.error();
    work.release();
    const rate = workRates[i];
    return {
      work: work.name,
      shape: work.shape,
      gflops: rate?.gflops,
      bestGflops: rate?.bestGflops,
      ofPeak: rate && peakRate && peak?.steady ? rate.bestGflops / (peakRate.bestGflops * threads.used) : undefined,
      relativeError: relative,
      largestError: largest,
    };
  });
  if (!peakRate || !peak) return { works: reports };
  const { gflops, bestGflops } = peakRate;
  const { variation } = peak;
  return { peak: { arithmetic: fused ? "fma" : "mul+add", gflops, bestGflops, variation }, works: reports };
}

/**
 * How much a measured peak varied, and whether it may be compared with: a workload that is faster than the peak, in
 * GFLOP/s of one thread, shows that the peak was measured while the machine was slow.
 */
export function steadiness(
  { gflops, bestGflops }: { readonly gflops: number; readonly bestGflops: number },
  works: readonly number[],
): { readonly variation: number; readonly steady: boolean } {
  const highest = Math.max(bestGflops, ...works);
  const variation = 1 - gflops / highest;
  return { variation, steady: variation <= MOST_VARIATION && highest === bestGflops };
}
