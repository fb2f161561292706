// A part of the benchmark made of cases: each is checked, then timed relative to the peak loop that limits it.

import { type Build, type BuildName, loadBuild } from "./builds.ts";
import type { Case } from "./case.ts";
import { arithmeticPeak, readingPeak, totalBytes } from "./limits.ts";
import { type Effort, measure } from "./measure.ts";
import { type Column, type Part, part } from "./part.ts";

/** A row of the JSON file. */
export interface CaseRow {
  readonly kernel: string;
  readonly shape: string;
  readonly build: BuildName;
  readonly ms: number;
  readonly gflops: number;
  /** The same of the fastest sample. */
  readonly bestGflops: number;
  readonly gbytes: number;
  /** Floating-point operations per byte that must be read. */
  readonly intensity: number;
  /** A peak loop, or the name of what does the same in another way. */
  readonly peak: string;
  /** Percent of the peak: median, range of the middle 80 %, and fastest sample over fastest sample. */
  readonly percent: number;
  readonly low: number;
  readonly high: number;
  readonly best: number;
}

async function runCase(item: Case, build: Build, effort: Effort): Promise<CaseRow> {
  const prepared = item.prepare(build);
  const beside = item.beside?.prepare(build);
  try {
    const { reads, run } = prepared;
    run();
    prepared.check();
    const reading = item.limit === "reading";
    const bytes = totalBytes(reads);
    const work = reading ? bytes : item.flops;
    const limit = () => (reading ? readingPeak(build, reads, effort) : arithmeticPeak(build));
    const peak = beside ? { work, run: () => beside.run() } : await limit();
    const { rate, bestRate, ratio, low, high, best } = await measure({ work, run }, peak, effort);
    const seconds = work / rate;
    return {
      kernel: item.kernel,
      shape: item.shape,
      build: build.name,
      ms: 1000 * seconds,
      gflops: item.flops / seconds / 1e9,
      bestGflops: (item.flops * bestRate) / work / 1e9,
      gbytes: bytes / seconds / 1e9,
      intensity: item.flops / bytes,
      peak: item.beside?.name ?? (reading ? "stream" : build.name === "relaxed" ? "fma" : "mul+add"),
      percent: 100 * ratio,
      low: 100 * low,
      high: 100 * high,
      best: 100 * best,
    };
  } finally {
    beside?.release();
    prepared.release();
  }
}

const columns: readonly Column<CaseRow>[] = [
  ["kernel", 18, (row) => row.kernel],
  ["shape", 26, (row) => row.shape],
  ["build", 7, (row) => row.build],
  ["ms", 8, ({ ms }) => (ms < 100 ? ms.toPrecision(3) : ms.toFixed(0))],
  ["GFLOP/s", 7, (row) => row.gflops.toFixed(1)],
  ["GB/s", 5, (row) => row.gbytes.toFixed(1)],
  ["peak", 7, (row) => row.peak],
  ["% of peak", 9, (row) => row.percent.toFixed(1)],
  ["spread", 7, (row) => `${row.low.toFixed(0)}-${row.high.toFixed(0)}`],
  ["best", 5, (row) => row.best.toFixed(1)],
];

/** Both builds of each case, as a part. */
export function casePart(name: string, cases: readonly Case[]): Part {
  return part(name, columns, async function* rows({ quick, effort, builds, wants }) {
    const chosen = cases.filter((item) => (item.quick || !quick) && wants(`${item.kernel} ${item.shape}`));
    for (const buildName of chosen.length > 0 ? builds : []) {
      const build = await loadBuild(buildName);
      for (const item of chosen) yield await runCase(item, build, effort);
      build.host.release();
    }
  });
}
