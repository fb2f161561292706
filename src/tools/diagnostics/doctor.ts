// What an engine can do, and whether headwise is correct and fast in it: one diagnosis for the command line and for pages.

import { memorySharing } from "../../base/platform/workers.ts";
import type { Tensor } from "../../base/tensor/tensor.ts";
import { expectFunction, expectRecord } from "../../base/util/arguments.ts";
import { describe, type HeadwiseErrorCode, tagOf } from "../../base/util/errors.ts";
import { exp } from "../../base/util/math.ts";
import type { scaledDotProductAttention } from "../../layers/api/sdpa.ts";
import { packedFloats, panelsOf } from "../../layers/linear/formats.ts";
import { type F32Ptr, LinearShape } from "../../wasm/abi.ts";
import { type DotProduct, dotProductOf } from "../../wasm/int-dot.ts";
import type { Kernels, Threads } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import type { Build, LoadOptions } from "../../wasm/modules.ts";
import { type Deviation, DeviationSum } from "./quantize-report.ts";
import { createRandom } from "./random.ts";
import { expectTested, type SelfTest, type SelfTested, selfTest } from "./self-test.ts";
import { allowsWasm, type Effort, type Load, peakModule, startPeak, timeLoads } from "./timing.ts";

/** The functions of `headwise` or `headwise/threads` that are examined. */
export interface Headwise extends SelfTested {
  /** Loads the kernels. */
  loadKernels(options?: LoadOptions): Promise<Kernels>;
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
  /** For fast activations, of 7 or 8 bits. */
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
 * const report = await diagnose(headwise, { version: "0.5.0", engine: "this one" }, { threads: 1 });
 * console.log(report.ok, report.works?.length); // true 2
 */
export async function diagnose(
  headwise: Headwise,
  surroundings: Surroundings,
  options: Pick<LoadOptions, "threads" | "deterministic" | "quantized"> = {},
): Promise<Diagnosis> {
  expectFunction("diagnose", "headwise.loadKernels", Object(headwise).loadKernels);
  expectTested("diagnose", headwise);
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

function testSelf(headwise: Headwise, kernels: Kernels): NonNullable<Diagnosis["selfTest"]> {
  const begin = performance.now();
  const result = selfTest(headwise, kernels);
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

/** The types of a field, the shape of the elements of an array, or the fields of an object: those with ? may be absent. */
type Shape = string | readonly [Shape] | { readonly [field: string]: Shape };

const RATE = { gflops: "number", bestGflops: "number" };

/** What the text of a diagnosis is made of. JSON has null for a number that is not finite; reports of 0.4.0 have no variation. */
const DIAGNOSIS: Shape = {
  ok: "boolean",
  version: "string",
  engine: "string",
  "system?": "string",
  "processor?": "string",
  "processors?": "number",
  "memory?": "number",
  "problem?": { message: "string" },
  features: {
    codegen: "boolean",
    simd: "boolean",
    relaxedSimd: "boolean",
    threads: "boolean",
    sharedMemory: "boolean",
    isolated: "boolean or null",
  },
  "kernels?": {
    build: "string",
    reason: "string",
    threads: { requested: "number or string", used: "number", reason: "string" },
    startMs: "number",
    memoryBytes: "number",
    "dotProducts?": { exact: "string", fast: "string", ms: "number" },
  },
  "selfTest?": { ok: "boolean", digest: "string", expected: "string", outputs: "number", ms: "number" },
  "peak?": { ...RATE, arithmetic: "string", "variation?": "number" },
  "works?": [
    {
      work: "string",
      shape: "string",
      "gflops?": "number",
      "bestGflops?": "number",
      "ofPeak?": "number",
      relativeError: "number or null",
    },
  ],
};

/** Throws `TypeError`, which names the wrong field, unless `value` is a diagnosis. */
function expectDiagnosis(where: string, value: unknown): void {
  if (tagOf(value) === "Promise")
    throw new TypeError(`${where}: diagnosis expected what diagnose resolves with, got ${describe(value)}`);
  expectShape(where, "diagnosis", value, DIAGNOSIS);
}

function expectShape(where: string, name: string, value: unknown, shape: Shape): void {
  if (typeof shape === "string") {
    const type = value === null ? "null" : typeof value;
    if (!shape.split(" or ").includes(type))
      throw new TypeError(`${where}: ${name} expected ${shape}, got ${describe(value)}`);
  } else if (isList(shape)) {
    if (!Array.isArray(value)) throw new TypeError(`${where}: ${name} expected an array, got ${describe(value)}`);
    for (const [i, element] of value.entries()) expectShape(where, `${name}[${i}]`, element, shape[0]);
  } else {
    expectRecord(where, name, value);
    for (const [key, inner] of Object.entries(shape)) {
      const field = key.replace("?", "");
      const content = (value as Readonly<Record<string, unknown>>)[field];
      if (content !== undefined || field === key) expectShape(where, `${name}.${field}`, content, inner);
    }
  }
}

/** `Array.isArray` does not narrow readonly arrays. */
function isList(shape: Exclude<Shape, string>): shape is readonly [Shape] {
  return Array.isArray(shape);
}

/**
 * Formats a diagnosis as lines of text for people. For programs, use `JSON.stringify`.
 * @throws TypeError unless `diagnosis` is one that `diagnose` gave, or the same read from JSON.
 * @example
 * import * as headwise from "headwise";
 * import { diagnose, diagnosisText } from "headwise/doctor";
 * const report = await diagnose(headwise, { version: "0.5.0", engine: "this one" }, { deterministic: true });
 * console.log(diagnosisText(report).split("\n")[0]); // headwise 0.5.0: ok
 */
export function diagnosisText(diagnosis: Diagnosis): string {
  expectDiagnosis("diagnosisText", diagnosis);
  const { ok, version, problem, features, kernels, selfTest: tested, peak, works = [] } = diagnosis;
  const rows: [title: string, text: string | undefined][] = [
    ["engine", diagnosis.engine],
    ["system", diagnosis.system],
    ["machine", machineText(diagnosis)],
    ["features", featuresText(features)],
    ["problem", problem?.message],
    ["build", kernels && `${kernels.build}: ${kernels.reason} (started in ${kernels.startMs.toFixed(1)} ms)`],
    ["threads", kernels && threadsText(kernels.threads)],
    ["integers", kernels?.dotProducts && dotProductsText(kernels.dotProducts)],
    ["self-test", tested && selfTestText(tested)],
    ["peak", peak && `${rateText(peak)} of ${peak.arithmetic} on one thread`],
    ...works.map((report): [string, string] => [report.work, workText(report, diagnosis)]),
    ["note", noteText(diagnosis)],
    ["memory", kernels && `${(kernels.memoryBytes / 1e6).toFixed(1)} MB for the kernels`],
  ];
  const lines = rows.flatMap(([title, text]) => (text === undefined ? [] : [`${title.padEnd(11)}${text}`]));
  return [`headwise ${version}: ${ok ? "ok" : "FAILED"}`, ...lines].join("\n");
}

function noteText({ peak, works = [] }: Diagnosis): string | undefined {
  if (works.some(({ gflops }) => gflops === undefined))
    return "the clock of this engine stands still while code runs: speed cannot be measured";
  if (peak && works.some(({ ofPeak }) => ofPeak === undefined))
    return "the speed varied while it was measured: the machine is busy, and only the best figures are meaningful";
  return undefined;
}

/** The machine in words, as far as it is known. */
function machineText({ processor, processors, memory }: Surroundings): string | undefined {
  const parts = [
    processor,
    processors && `${processors} ${processors === 1 ? "processor" : "processors"}`,
    memory && `${(memory / 2 ** 30).toFixed(1)} GiB`,
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : undefined;
}

function featuresText({ codegen, simd, relaxedSimd, ...sharing }: EngineFeatures): string {
  const has = Object.entries({ codegen, SIMD: simd, "relaxed SIMD": relaxedSimd });
  return [...has.map(([name, there]) => (there ? name : `no ${name}`)), threadFeaturesText(sharing)].join(", ");
}

/** Threads need three things. If one is missing, it is named, and the text does not suggest that there are threads. */
function threadFeaturesText({
  threads,
  sharedMemory,
  isolated,
}: Pick<EngineFeatures, "threads" | "sharedMemory" | "isolated">): string {
  if (!threads) return "no threads";
  if (isolated === false) return "no threads in this page (it is not cross-origin isolated)";
  if (!sharedMemory) return "no threads (no shared memory)";
  return `threads, shared memory${isolated ? ", isolated" : ""}`;
}

function threadsText({ requested, used, reason }: Threads): string {
  return `${used} (${requested === "auto" ? "auto" : `${requested} requested`}): ${reason}`;
}

function dotProductsText({ exact, fast, ms }: DotProducts): string {
  return `${exact}, with fast activations ${fast} (chosen in ${ms.toFixed(1)} ms)`;
}

function selfTestText({ ok, digest, expected, outputs, ms }: NonNullable<Diagnosis["selfTest"]>): string {
  const verdict = ok ? `ok: ${digest} as published` : `FAILED: ${digest}, expected ${expected}`;
  return `${verdict}, ${outputs} outputs (${ms.toFixed(0)} ms)`;
}

const rateText = ({ gflops, bestGflops }: { readonly gflops: number; readonly bestGflops: number }) =>
  `${gflops.toFixed(1)} GFLOP/s (best ${bestGflops.toFixed(1)})`;

const percentText = (share: number) => `${(100 * share).toFixed(0)} %`;

function workText({ gflops, bestGflops, ofPeak, ...report }: WorkReport, { peak, kernels }: Diagnosis): string {
  const threads = kernels?.threads.used ?? 1;
  const parts = [
    gflops !== undefined && bestGflops !== undefined && rateText({ gflops, bestGflops }),
    ofPeak !== undefined && `${percentText(ofPeak)} of ${threads === 1 ? "the peak" : `${threads} x the peak`}`,
    // A report of 0.4.0, saved as JSON, has every percentage and no variation.
    ofPeak === undefined &&
      peak?.variation !== undefined &&
      `no percentage: the peak varied by ${percentText(peak.variation)}`,
    `error ${Number.isFinite(report.relativeError) ? report.relativeError.toExponential(1) : "that is not finite"}`,
  ];
  return `${parts.filter(Boolean).join(", ")}: ${report.shape}`;
}

// Calls that the diagnosis times and compares with float64.

/** Of each head, every COMPARED-th query is compared with float64. */
const COMPARED_QUERIES = 73;

/** scaledDotProductAttention on a causal prompt, including copies in and out. */
export function createAttentionWork(
  attention: typeof scaledDotProductAttention,
  kernels: Kernels,
  heads: number,
  tokens: number,
  headDim: number,
): Work {
  const { floats } = createRandom(heads);
  const tensor = (): Tensor => ({ data: floats(heads * tokens * headDim), shape: [1, heads, tokens, headDim] });
  const [q, k, v] = [tensor(), tensor(), tensor()];
  let output: Float32Array = new Float32Array(0);
  return {
    name: "attention",
    shape: `${heads} heads of ${headDim}, ${tokens} tokens, causal`,
    // A product with each key and each value that is not masked.
    flops: 4 * heads * headDim * ((tokens * (tokens + 1)) / 2),
    run() {
      output = attention(kernels, q, k, v, { causal: true }).output.data;
    },
    error() {
      const sum = new DeviationSum();
      for (let head = 0; head < heads; head++)
        for (let t = head % COMPARED_QUERIES; t < tokens; t += COMPARED_QUERIES) {
          const row = (head * tokens + t) * headDim;
          const exact = attendRow(q.data, k.data, v.data, head * tokens * headDim, t, headDim);
          sum.add(exact, output.subarray(row, row + headDim), 0, headDim);
        }
      return sum.result();
    },
    release() {},
  };
}

/** Query t of the head whose rows begin at `from`, in float64. */
function attendRow(q: Float32Array, k: Float32Array, v: Float32Array, from: number, t: number, headDim: number) {
  const scores = Array.from({ length: t + 1 }, (_, j) => {
    let dot = 0;
    for (let d = 0; d < headDim; d++) dot += q[from + t * headDim + d]! * k[from + j * headDim + d]!;
    return dot / Math.sqrt(headDim);
  });
  const largest = Math.max(...scores);
  const terms = scores.map((score) => exp(score - largest));
  const total = terms.reduce((a, b) => a + b);
  return Float64Array.from({ length: headDim }, (_, d) => {
    let sum = 0;
    for (const [j, term] of terms.entries()) sum += (term / total) * v[from + j * headDim + d]!;
    return sum;
  });
}

/** A fixed workload for kernels. */
interface Work extends Load {
  readonly name: string;
  /** Its sizes, as text. */
  readonly shape: string;
  /** The error of the last run against float64, over some of its rows. */
  error(): Deviation;
  release(): void;
}

/** Every COMPARED-th row is compared with float64, because that is slow. */
const COMPARED_ROWS = 31;

/** y[m, n] = x[m, k] · w[n, k]ᵀ + bias[n], by the kernel only. n is a multiple of 8. */
export function createLinearWork(kernels: Kernels, m: number, n: number, k: number): Work {
  const { table, memory } = kernels;
  const { floats } = createRandom(n);
  const [x, w, bias] = [floats(m * k), floats(n * k), floats(n)];
  const layout = new Layout();
  const place = {
    x: layout.floats(m * k),
    w: layout.floats(packedFloats(n, k)),
    bias: layout.floats(n),
    // Rows of w while they are packed, then y.
    y: layout.floats(Math.max(m, k) * n),
    shape: layout.take(LinearShape.bytes),
  };
  const base = memory.allocate("projection", layout.bytes);
  const at = (part: keyof typeof place): F32Ptr => pointer.f32(base + place[part]);
  memory.f32(at("x"), x.length).set(x);
  memory.f32(at("bias"), n).set(bias);
  memory.f32(at("y"), w.length).set(w);
  table.pack_rows_f32(at("w"), at("y"), n, k, 0, panelsOf(n));
  const shape = pointer.linearShape(base + place.shape);
  const integers = { bf16: 0, block: 0, mode: 0, zero: 0, type: 0 };
  LinearShape.store(memory.view(), shape, { panels: panelsOf(n), k, outStride: n, xStride: k, ...integers });
  return {
    name: "linear",
    shape: `[${m}, ${k}] x [${k}, ${n}]`,
    flops: 2 * m * n * k,
    run: () => table.linear_f32(at("y"), at("x"), at("w"), at("bias"), shape, 0, m),
    error() {
      const sum = new DeviationSum();
      const y = memory.f32(at("y"), m * n);
      for (let r = 0; r < m; r += COMPARED_ROWS) {
        const exact = Float64Array.from({ length: n }, (_, j) => {
          let dot = bias[j]!;
          for (let i = 0; i < k; i++) dot += x[r * k + i]! * w[j * k + i]!;
          return dot;
        });
        sum.add(exact, y.subarray(r * n, (r + 1) * n), 0, n);
      }
      return sum.result();
    },
    release: () => memory.free(base),
  };
}
