/**
 * The suite that every runtime runs on the installed package. It asks nothing of its host but JavaScript and WebAssembly:
 * no files, no network, no test runner. `bundle.ts` makes one module of it and its fixtures.
 */

import type { Kernels } from "../../src/wasm/kernels.ts";
import { checkCalls } from "./checks/calls.ts";
import { checkConfigure } from "./checks/configure.ts";
import { checkConformance } from "./checks/conformance.ts";
import { checkDecoders } from "./checks/decoders.ts";
import { checkEncoders } from "./checks/encoders.ts";
import { checkErrors } from "./checks/errors.ts";
import { checkFiles } from "./checks/files.ts";
import { checkInspect } from "./checks/inspect.ts";
import { checkModel } from "./checks/model.ts";
import { checkOpened } from "./checks/opened.ts";
import { checkQuantised } from "./checks/quantised.ts";
import { checkRelease } from "./checks/release.ts";
import { checkSelfTest } from "./checks/selftest.ts";
import { runWorkload } from "./checks/workload.ts";
import {
  type ConfigureEntry,
  type DoctorEntry,
  type Entry,
  give,
  type InspectEntry,
  type LatentEntry,
  type ModelsEntry,
  type TextEntry,
  type WeightsEntry,
} from "./given.ts";

/** One check: its name, and what was wrong. */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  readonly error?: string;
}

/** What the checks read, by path from the root of the repository. */
export interface Fixtures {
  readonly files: Readonly<Record<string, Uint8Array>>;
  readonly texts: Readonly<Record<string, string>>;
}

/** What a host hands in. */
export interface SuiteOptions {
  /** `import * as headwise from "headwise"`, or from another entry with the same functions. */
  readonly headwise: Entry;
  /** `import * as weights from "headwise/weights"`. */
  readonly weights: WeightsEntry;
  /** `import * as latents from "headwise/latent"`, whose kernels every `loadKernels` takes. */
  readonly latents: LatentEntry;
  /** The same of `headwise/models`, `headwise/text`, `headwise/inspect`, `headwise/configure` and `headwise/doctor`. */
  readonly models: ModelsEntry;
  readonly text: TextEntry;
  readonly inspect: InspectEntry;
  readonly configure: ConfigureEntry;
  readonly doctor: DoctorEntry;
  /** What every `loadKernels` takes besides the options of a check: `quantized`, and `threads`, `createWorker`, `module`. */
  readonly load: Readonly<Record<string, unknown>>;
  readonly fixtures: Fixtures;
}

/** What became of it. Plain data: it goes through JSON and `postMessage`. */
export interface Report {
  readonly checks: readonly Check[];
  readonly build: string;
  readonly reason: string;
  readonly fused: boolean;
  readonly threads: { readonly requested: number | "auto"; readonly used: number; readonly reason: string };
  /** Of output bits. All but `default` belong to the simd build: they are the same on every engine. */
  readonly digests: {
    readonly default: string;
    readonly simd: string;
    readonly model: string;
    readonly decoders: string;
    readonly encoders: string;
    readonly inspect: string;
    readonly formats: string;
  };
  /** Milliseconds of one fixed workload, the best of several; for people to look at. */
  readonly workloadMs: number;
  /** The arguments of `console.warn` meanwhile. */
  readonly warnings: readonly string[];
  /** The most linear memory that one `Kernels` came to hold. */
  readonly memoryBytes: number;
}

/** What a group of checks works with. */
export interface Context extends SuiteOptions {
  /** The build that the engine gets by default, and the one whose bits are the same everywhere. */
  readonly kernels: Kernels;
  readonly exact: Kernels;
  /** Fresh kernels. */
  start(options?: Readonly<Record<string, unknown>>): Promise<Kernels>;
  /** Runs a check and keeps what it throws. */
  check(name: string, body: () => unknown): Promise<void>;
}

/** Runs all checks. One at a time in a realm: the package is given to all of it. */
export async function runSuite(options: SuiteOptions): Promise<Report> {
  const warnings: string[] = [];
  const { warn } = console;
  console.warn = (...words: unknown[]) => {
    warnings.push(words.join(" "));
    warn.apply(console, words);
  };
  try {
    return { ...(await runChecks(options)), warnings };
  } finally {
    console.warn = warn;
  }
}

async function runChecks(options: SuiteOptions): Promise<Omit<Report, "warnings">> {
  give(options);
  const checks: Check[] = [];
  const start: Context["start"] = (more) =>
    options.headwise.loadKernels({
      ...options.load,
      latent: options.latents.latent,
      models: options.models.models,
      ...more,
    });
  const kernels = await start();
  const exact = await start({ deterministic: true });
  const context: Context = {
    ...options,
    kernels,
    exact,
    start,
    async check(name, body) {
      try {
        await body();
        checks.push({ name, ok: true });
      } catch (error) {
        checks.push({ name, ok: false, error: textOf(error) });
      }
    },
  };
  try {
    const digests = await checkSelfTest(context);
    await checkConformance(context);
    const model = await checkModel(context);
    const decoders = await checkDecoders(context);
    await checkOpened(context);
    const encoders = await checkEncoders(context);
    const inspect = await checkInspect(context);
    await checkConfigure(context);
    await checkFiles(context);
    await checkErrors(context);
    const formats = await checkQuantised(context);
    await checkCalls(context);
    const workloadMs = runWorkload(context);
    const { build, reason, fused, threads } = kernels;
    const memoryBytes = Math.max(kernels.memoryBytes, exact.memoryBytes);
    await checkRelease(context);
    return {
      checks,
      build,
      reason,
      fused,
      threads: { ...threads },
      digests: { ...digests, model, decoders, encoders, inspect, formats },
      workloadMs,
      memoryBytes,
    };
  } finally {
    kernels.release();
    exact.release();
  }
}

function textOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
