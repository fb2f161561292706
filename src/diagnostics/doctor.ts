/** What an engine can do, and whether headwise is right and fast in it: one report for the command line and for pages. */

import type { scaledDotProductAttention } from "../api/sdpa.ts";
import { memorySharing } from "../platform/spawn.ts";
import type { HeadwiseErrorCode } from "../util/errors.ts";
import type { Build, Kernels, LoadOptions, Threads } from "../wasm/kernels.ts";
import { placeAttention } from "./attention-work.ts";
import { placeProjection } from "./linear-work.ts";
import { peakModule, startPeak, startsWasm } from "./peak.ts";
import type { SelfTest, selfTest } from "./self-test.ts";
import { type Effort, timeLoads } from "./timing.ts";

/** What of `headwise` or `headwise/threads` is examined. */
export interface Headwise {
  loadKernels(options?: LoadOptions): Promise<Kernels>;
  readonly selfTest: typeof selfTest;
  readonly scaledDotProductAttention: typeof scaledDotProductAttention;
}

/** What only the host knows, in its own words. */
export interface Surroundings {
  /** The version of headwise. */
  readonly version: string;
  /** Name and version, or a browser's user agent. */
  readonly engine: string;
  readonly system?: string;
  readonly processor?: string;
  readonly processors?: number;
  /** Bytes of the machine's memory. */
  readonly memory?: number;
}

/** What an engine has, whether headwise uses it or not. */
export interface EngineFeatures {
  /** Whether wasm may be compiled from bytes; a content security policy can forbid it. */
  readonly codegen: boolean;
  readonly simd: boolean;
  readonly relaxedSimd: boolean;
  /** Memory that threads share, as wasm knows it. */
  readonly threads: boolean;
  /** Memory that threads share, as JavaScript sees it: some browsers hide it from pages that are not isolated. */
  readonly sharedMemory: boolean;
  /** Cross-origin isolation of a page or worker; null where there is no such thing. */
  readonly isolated: boolean | null;
}

/** The speed and the error of a fixed piece of work. Some hosts stop their clocks while code runs: no speed there. */
export interface WorkReport {
  readonly work: string;
  readonly shape: string;
  /** Thousands of millions of operations a second: the median, and of the fastest sample. */
  readonly gflops?: number;
  readonly bestGflops?: number;
  /** Of the peak of as many threads as there are: the fastest sample of the fastest, as on a core that nobody disturbs. */
  readonly ofPeak?: number;
  /** |error| / |y|, and the largest error by the largest |y|, against float64. */
  readonly relativeError: number;
  readonly largestError: number;
}

/** What `diagnose` found. What follows `features` is there if the kernels started. */
export interface Diagnosis extends Surroundings {
  /** The kernels start, and the self-test has the published digest. */
  readonly ok: boolean;
  /** Why the kernels did not start. */
  readonly problem?: { readonly code: HeadwiseErrorCode | undefined; readonly message: string };
  readonly features: EngineFeatures;
  readonly kernels?: {
    readonly build: Build;
    readonly reason: string;
    readonly fused: boolean;
    readonly threads: Threads;
    /** Milliseconds from `loadKernels` to its answer. */
    readonly startMs: number;
    /** Bytes of linear memory when all was done. */
    readonly memoryBytes: number;
  };
  readonly selfTest?: SelfTest & { readonly ms: number };
  /**
   * What one thread can do, by the arithmetic of the build: "fma" rounds once, "mul+add" twice. Not known where wasm may
   * not be compiled from bytes, or the clock stands still.
   */
  readonly peak?: { readonly arithmetic: "fma" | "mul+add"; readonly gflops: number; readonly bestGflops: number };
  readonly works?: readonly WorkReport[];
}

const EFFORT: Effort = { warmupMs: 80, sampleMs: 8, rounds: 20, mostMs: 700 };
/** If the median is below this fraction of the best, other programs use the processor. */
const STEADY = 0.75;

/** A module with a shared memory of one page, and nothing else. */
const SHARED_MEMORY = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 5, 4, 1, 3, 1, 1);

function findFeatures(): EngineFeatures {
  return {
    codegen: startsWasm(),
    simd: WebAssembly.validate(peakModule(false)),
    relaxedSimd: WebAssembly.validate(peakModule(true)),
    threads: WebAssembly.validate(SHARED_MEMORY),
    ...memorySharing(),
  };
}

/**
 * Examines an engine: features, the build that runs and why, threads and why so many, the self-test, and the speed of a
 * product of matrices and of attention beside the peak of one core, with their errors against float64. Takes about two
 * seconds. An engine in which the kernels do not start has a report too, which says why.
 * @param headwise The library itself, as `import * as headwise from "headwise/threads"` gives it.
 * @param options What `loadKernels` is given.
 * @example
 * import * as headwise from "headwise/threads";
 * import { diagnose } from "headwise/doctor";
 * const report = await diagnose(headwise, { version: "0.4.0", engine: "this one" }, { threads: 1 });
 * console.log(report.ok, report.works?.length); // true 2
 */
export async function diagnose(
  headwise: Headwise,
  surroundings: Surroundings,
  options: Pick<LoadOptions, "threads" | "deterministic"> = {},
): Promise<Diagnosis> {
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
    const measured = await measureWorks(headwise, kernels, features);
    const { threads, memoryBytes } = kernels;
    return {
      ok: tested.ok,
      ...surroundings,
      features,
      kernels: { build, reason, fused, threads, startMs, memoryBytes },
      selfTest: tested,
      ...measured,
    };
  } finally {
    kernels.release();
  }
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
    placeProjection(kernels, 128, 768, 768),
    placeAttention(scaledDotProductAttention, kernels, 12, 512, 64),
  ];
  const { fused, threads } = kernels;
  const loads = codegen ? [startPeak(fused), ...works] : works;
  const rates = await timeLoads(loads, EFFORT);
  const peak = codegen ? rates?.[0] : undefined;
  const reports = works.map((work): WorkReport => {
    const { relative, largest } = work.error();
    work.release();
    const rate = rates?.[loads.indexOf(work)];
    return {
      work: work.name,
      shape: work.shape,
      gflops: rate?.gflops,
      bestGflops: rate?.bestGflops,
      ofPeak: rate && peak && rate.bestGflops / (peak.bestGflops * threads.used),
      relativeError: relative,
      largestError: largest,
    };
  });
  if (!peak) return { works: reports };
  const { gflops, bestGflops } = peak;
  return { peak: { arithmetic: fused ? "fma" : "mul+add", gflops, bestGflops }, works: reports };
}

/**
 * A diagnosis as lines of text for people; `JSON.stringify` gives it to programs.
 * @example
 * import * as headwise from "headwise";
 * import { diagnose, diagnosisText } from "headwise/doctor";
 * const report = await diagnose(headwise, { version: "0.4.0", engine: "this one" }, { deterministic: true });
 * console.log(diagnosisText(report).split("\n")[0]); // headwise 0.4.0: ok
 */
export function diagnosisText(diagnosis: Diagnosis): string {
  const { ok, version, problem, features, kernels, selfTest: tested, peak, works = [] } = diagnosis;
  const rows: [title: string, text: string | undefined][] = [
    ["engine", diagnosis.engine],
    ["system", diagnosis.system],
    ["machine", machineText(diagnosis)],
    ["features", featuresText(features)],
    ["problem", problem?.message],
    ["build", kernels && `${kernels.build}: ${kernels.reason} (started in ${kernels.startMs.toFixed(1)} ms)`],
    ["threads", kernels && threadsText(kernels.threads)],
    ["self-test", tested && selfTestText(tested)],
    ["peak", peak && `${rateText(peak)} of ${peak.arithmetic} on one thread`],
    ...works.map((report): [string, string] => [report.work, workText(report, kernels?.threads.used ?? 1)]),
    ["note", noteText(diagnosis)],
    ["memory", kernels && `${(kernels.memoryBytes / 1e6).toFixed(1)} MB for the kernels`],
  ];
  const lines = rows.flatMap(([title, text]) => (text === undefined ? [] : [`${title.padEnd(11)}${text}`]));
  return [`headwise ${version}: ${ok ? "ok" : "FAILED"}`, ...lines].join("\n");
}

function noteText({ peak, works = [] }: Diagnosis): string | undefined {
  if (works.some(({ gflops }) => gflops === undefined))
    return "the clock of this engine stands still while code runs: speed cannot be measured";
  if (peak && peak.gflops < STEADY * peak.bestGflops)
    return "the speed varied while it was measured: the machine is busy, and only the best figures mean something";
  return undefined;
}

function machineText({ processor, processors, memory }: Surroundings): string | undefined {
  const parts = [
    processor,
    processors && `${processors} ${processors === 1 ? "processor" : "processors"}`,
    memory && `${(memory / 2 ** 30).toFixed(1)} GiB`,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : undefined;
}

function featuresText({ codegen, simd, relaxedSimd, threads, sharedMemory, isolated }: EngineFeatures): string {
  const has = Object.entries({
    codegen,
    SIMD: simd,
    "relaxed SIMD": relaxedSimd,
    threads,
    "shared memory": sharedMemory,
  });
  const texts = has.map(([name, there]) => (there ? name : `no ${name}`));
  return [...texts, ...(isolated === null ? [] : [isolated ? "isolated" : "not isolated"])].join(", ");
}

function threadsText({ requested, used, reason }: Threads): string {
  return `${used} (${requested === "auto" ? "auto" : `${requested} requested`}): ${reason}`;
}

function selfTestText({ ok, digest, expected, outputs, ms }: NonNullable<Diagnosis["selfTest"]>): string {
  const verdict = ok ? `ok: ${digest} as published` : `FAILED: ${digest}, published is ${expected}`;
  return `${verdict}, ${outputs} outputs (${ms.toFixed(0)} ms)`;
}

const rateText = ({ gflops, bestGflops }: { readonly gflops: number; readonly bestGflops: number }) =>
  `${gflops.toFixed(1)} GFLOP/s (best ${bestGflops.toFixed(1)})`;

function workText({ gflops, bestGflops, ofPeak, ...report }: WorkReport, threads: number): string {
  const parts = [
    gflops !== undefined && bestGflops !== undefined && rateText({ gflops, bestGflops }),
    ofPeak !== undefined && `${(100 * ofPeak).toFixed(0)} % of ${threads === 1 ? "the peak" : `${threads} x the peak`}`,
    `error ${report.relativeError.toExponential(1)}`,
  ];
  return `${parts.filter(Boolean).join(", ")}: ${report.shape}`;
}
