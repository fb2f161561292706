import type { Threads } from "../wasm/kernels.ts";
import { expectDiagnosis } from "./check-diagnosis.ts";
import type { Diagnosis, DotProducts, EngineFeatures, Surroundings, WorkReport } from "./doctor.ts";

/**
 * Formats a diagnosis as lines of text for people. For programs, use `JSON.stringify`.
 * @throws TypeError unless `diagnosis` is one that `diagnose` gave, or the same read from JSON.
 * @example
 * import * as headwise from "headwise";
 * import { diagnose, diagnosisText } from "headwise/doctor";
 * const report = await diagnose(headwise, { version: "0.4.0", engine: "this one" }, { deterministic: true });
 * console.log(diagnosisText(report).split("\n")[0]); // headwise 0.4.0: ok
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
export function machineText({ processor, processors, memory }: Surroundings): string | undefined {
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
