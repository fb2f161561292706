// What one core can do: the loops that everything else is compared with, and others that show how the machine is made.

import { type Build, buildNames, loadBuild } from "../lib/builds.ts";
import { arithmeticPeak, readingPeak } from "../lib/limits.ts";
import { compare, type Effort, type Load } from "../lib/measure.ts";
import { type Column, part } from "../lib/part.ts";

const ROUNDS = 10_000;
/** Products and additions per round of dot_peak: 12 instructions of 32 operations, or of 16. */
const DOT_OPS = { relaxed: 12 * 32, simd: 12 * 16 };
const DOT_NAMES = { relaxed: "dot of i8 and i7", simd: "dot of i16" };

const KIB = 2 ** 10;
const MIB = 2 ** 20;
/** Working sets, from one that fits any first-level cache to one that fits no cache. */
const sets = [
  { name: "16 KiB", bytes: 16 * KIB, quick: true },
  { name: "1 MiB", bytes: MIB, quick: true },
  { name: "16 MiB", bytes: 16 * MIB, quick: false },
  { name: "64 MiB", bytes: 64 * MIB, quick: true },
  { name: "256 MiB", bytes: 256 * MIB, quick: false },
];

export interface PeakRow {
  readonly loop: string;
  readonly unit: "GFLOP/s" | "GOP/s" | "GB/s";
  readonly rate: number;
  readonly bestRate: number;
  /** The rate over that of fused multiply-adds in the same round: operations, or bytes, per floating-point operation. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
}

const columns: readonly Column<PeakRow>[] = [
  ["loop", 18, (row) => row.loop],
  ["rate", 6, (row) => row.rate.toFixed(1)],
  ["best", 6, (row) => row.bestRate.toFixed(1)],
  ["unit", 7, (row) => row.unit],
  ["to fma", 6, (row) => row.ratio.toFixed(2)],
  ["spread", 11, (row) => `${row.low.toFixed(2)}-${row.high.toFixed(2)}`],
];

type Builds = Record<Build["name"], Build>;

/** Throws unless the loops compute their result, which shows that the compiler has removed no part of them. */
function checkArithmetic({ simd, relaxed }: Builds): void {
  const [bytes, halves] = [0x01010101, 0x00010001];
  const got = [
    ...[simd, relaxed].map(({ peaks }) => peaks.fma_peak(64, 0.5, 1)),
    relaxed.peaks.dot_peak(2, bytes, bytes),
    simd.peaks.dot_peak(2, halves, halves),
  ];
  // acc · 1/2 + 1 tends to 2; four products of ones per round; the sum of both halves plus the addend.
  const next = (acc: number) => (acc & 0xffff) + (acc >>> 16) + halves;
  const want = [2, 2, bytes + 2 * 4, next(next(halves))].map((chain) => 12 * chain);
  if (got.some((value, i) => value !== want[i])) throw new Error(`bench: the peak loops gave ${got} for ${want}`);
}

async function* measureLoads(fma: Load, named: readonly (Load & Pick<PeakRow, "loop" | "unit">)[], effort: Effort) {
  for (const load of named) {
    const [own, other] = await compare([fma, load], effort);
    const { rate, bestRate, ratio, low, high } = load.run === fma.run ? own! : other!;
    yield { loop: load.loop, unit: load.unit, rate: rate / 1e9, bestRate: bestRate / 1e9, ratio, low, high };
  }
}

/** Memory to read: zeros but for one bit at each end. It is written so that the system maps every page of it. */
function placeStream({ memory, peaks }: Build, bytes: number): number {
  const at = memory.allocate("bench", bytes);
  const words = memory.u32(at, bytes / 4).fill(0);
  words[0] = 1;
  words[bytes / 4 - 4] = 2;
  for (const stream of [peaks.stream_1, peaks.stream_4])
    if (stream(at, bytes) !== 3) throw new Error(`bench: a streaming loop did not read all of ${bytes} bytes`);
  return at;
}

export const peaks = part("peaks", columns, async function* rows({ quick, effort, wants }): AsyncGenerator<PeakRow> {
  const builds = Object.fromEntries(
    await Promise.all(buildNames.map(async (name) => [name, await loadBuild(name)])),
  ) as Builds;
  checkArithmetic(builds);
  const { simd, relaxed } = builds;
  const fma = arithmeticPeak(relaxed);
  const dot = ({ name, peaks }: Build) => ({
    loop: DOT_NAMES[name],
    unit: "GOP/s" as const,
    work: ROUNDS * DOT_OPS[name],
    run: () => void peaks.dot_peak(ROUNDS, 0x01010101, 0x01010101),
  });
  const arithmetic = [
    { ...fma, loop: "fma", unit: "GFLOP/s" as const },
    { ...arithmeticPeak(simd), loop: "mul+add", unit: "GFLOP/s" as const },
    dot(relaxed),
    dot(simd),
  ];
  yield* measureLoads(
    fma,
    arithmetic.filter(({ loop }) => wants(loop)),
    effort,
  );

  for (const { name, bytes, quick: quickly } of sets) {
    const loop = `read ${name}`;
    if ((quick && !quickly) || !wants(loop)) continue;
    const at = placeStream(relaxed, bytes);
    const stream = await readingPeak(relaxed, [{ at, length: bytes }], effort);
    yield* measureLoads(fma, [{ ...stream, loop, unit: "GB/s" }], effort);
    relaxed.memory.free(at);
  }
  for (const { host } of [simd, relaxed]) host.release();
});
