// npm run bench [-- --quick] [--only NAME] [--build simd|relaxed] [--json FILE]
// NAME is part of "kernel shape". Every row is checked against float64 before it is timed.

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { attentionCases } from "./attention.ts";
import { type Build, buildNames, loadBuild } from "./builds.ts";
import type { Case, Prepared } from "./case.ts";
import { linearCases } from "./linear.ts";
import { type Effort, type Load, measure } from "./measure.ts";
import { smallCases } from "./small.ts";

const full: Effort = { samples: 101, sampleMs: 4, warmupMs: 200 };
const quick: Effort = { samples: 21, sampleMs: 3, warmupMs: 80 };
/** Of a case that takes most of a second. */
const LONG_FLOPS = 1e10;
const LONG_SAMPLES = 9;

const PEAK_ROUNDS = 10_000;
const PEAK_FLOPS_A_ROUND = 96;

interface Row {
  readonly kernel: string;
  readonly shape: string;
  readonly build: string;
  readonly gflops: number;
  readonly gbytes: number;
  readonly peak: string;
  readonly percent: number;
  readonly low: number;
  readonly high: number;
  readonly best: number;
}

function arithmeticPeak({ peaks }: Build): Load {
  return { work: PEAK_ROUNDS * PEAK_FLOPS_A_ROUND, run: () => void peaks.fma_peak(PEAK_ROUNDS, 0.5, 1) };
}

/** Reading the same bytes in the faster of two ways. */
async function readingPeak({ peaks }: Build, { at, length }: Prepared["bytes"], effort: Effort): Promise<Load> {
  const one: Load = { work: length, run: () => void peaks.stream_1(at, length) };
  const four: Load = { work: length, run: () => void peaks.stream_4(at, length) };
  return (await measure(one, four, effort)).ratio > 1 ? one : four;
}

async function runCase(item: Case, build: Build, effort: Effort): Promise<Row> {
  const prepared = item.prepare(build);
  const { bytes, run } = prepared;
  run();
  prepared.check();
  const reading = item.limit === "reading";
  const peak = reading ? await readingPeak(build, bytes, effort) : arithmeticPeak(build);
  const work = reading ? bytes.length : item.flops;
  const long = item.flops > LONG_FLOPS ? { ...effort, samples: LONG_SAMPLES } : effort;
  const { rate, ratio, low, high, best } = await measure({ work, run }, peak, long);
  prepared.release();
  const seconds = work / rate;
  return {
    kernel: item.kernel,
    shape: item.shape,
    build: build.name,
    gflops: item.flops / seconds / 1e9,
    gbytes: bytes.length / seconds / 1e9,
    peak: reading ? "stream" : build.name === "relaxed" ? "fma" : "mul+add",
    percent: 100 * ratio,
    low: 100 * low,
    high: 100 * high,
    best: 100 * best,
  };
}

const columns = ["kernel", "shape", "build", "GFLOP/s", "GB/s", "peak", "% of peak", "spread", "best"];
const widths = [18, 20, 8, 8, 7, 8, 9, 7, 5];
const line = (cells: readonly string[]) => console.log(cells.map((cell, i) => cell.padEnd(widths[i]!)).join(" | "));

function printRow(row: Row): void {
  const { kernel, shape, build, gflops, gbytes, peak, percent, low, high, best } = row;
  const spread = `${low.toFixed(0)}-${high.toFixed(0)}`;
  const speed = [gflops.toFixed(1), gbytes.toFixed(1)];
  line([kernel, shape, build, ...speed, peak, percent.toFixed(1), spread, best.toFixed(1)]);
}

function commit(): string | null {
  try {
    return execFileSync("git", ["rev-parse", "HEAD"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return null;
  }
}

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    build: { type: "string", default: "" },
    json: { type: "string" },
  },
});
const effort = options.quick ? quick : full;
const machine = { cpu: cpus()[0]?.model.trim() ?? "unknown", cores: cpus().length };
const engine = { node: process.versions.node, v8: process.versions.v8 };
console.log(`${machine.cpu}, ${machine.cores} cores, Node ${engine.node} (V8 ${engine.v8})`);
line(columns);

const rows: Row[] = [];
for (const name of buildNames) {
  if (!name.includes(options.build)) continue;
  const build = await loadBuild(name);
  for (const item of [...linearCases, ...attentionCases, ...smallCases]) {
    if (options.quick && !item.quick) continue;
    if (!`${item.kernel} ${item.shape}`.includes(options.only)) continue;
    const row = await runCase(item, build, effort);
    rows.push(row);
    printRow(row);
  }
}
if (options.json !== undefined) {
  const result = { date: new Date().toISOString(), commit: commit(), machine, engine, quick: options.quick, rows };
  writeFileSync(options.json, `${JSON.stringify(result, null, 2)}\n`);
}
