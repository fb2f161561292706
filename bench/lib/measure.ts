// Timing relative to a peak loop. A shared machine changes its speed by the minute, so a kernel is never timed alone:
// samples of it and of the peak loop alternate, and the median of the ratios of neighbouring samples is reported. Samples
// are short, so that most of them fall between two interruptions.

import { setTimeout as sleep } from "node:timers/promises";
import { type Clock, median, time } from "../../src/tools/diagnostics/timing.ts";

/** Something to time: `run` does `work` units of work (operations or bytes). */
export interface Load {
  readonly work: number;
  run(): void;
}

interface Measurement {
  /** Units of work a second: the median, and the most. */
  readonly rate: number;
  readonly bestRate: number;
  /** The rate over that of the peak in neighbouring samples: median, and the range of the middle 80 %. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
  /** The fastest sample over the fastest of the peak: close to what an idle machine does. */
  readonly best: number;
}

export interface Effort {
  readonly samples: number;
  /** A sample repeats its load until it takes about this long. */
  readonly sampleMs: number;
  readonly warmupMs: number;
  /** Long loads get fewer samples, so that all samples together take about this long; but never fewer than five. */
  readonly mostMs: number;
  /** What takes the time of samples. Default the clock on the wall. */
  readonly clock?: Clock;
}

const LEAST_SAMPLES = 5;

/** Median, and the range of the middle 80 %. */
export interface Spread {
  readonly median: number;
  readonly low: number;
  readonly high: number;
}

export function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (part: number) => sorted[Math.round(part * (sorted.length - 1))]!;
  return { median: at(0.5), low: at(0.1), high: at(0.9) };
}

/** Until the engine has compiled the load with its best compiler, which runs on another thread: hence the pauses. */
async function warmUp(load: Load, ms: number): Promise<void> {
  const end = performance.now() + ms;
  do {
    time(load, 1);
    await sleep(1);
  } while (performance.now() < end);
}

/** Units of work a second over `repeats` runs. */
function rateOf(load: Load, repeats: number, { clock }: Effort): number {
  return (load.work * repeats * 1000) / time(load, repeats, clock);
}

/** How often a load runs in a sample, and how long a sample takes. */
function sizeSample(load: Load, { sampleMs, clock }: Effort): { repeats: number; ms: number } {
  const once = Math.min(time(load, 1, clock), time(load, 1, clock));
  const repeats = Math.max(1, Math.round(sampleMs / Math.max(once, 0.001)));
  return { repeats, ms: repeats * once };
}

function samplesOf({ samples, mostMs }: Effort, ms: number): number {
  return Math.max(LEAST_SAMPLES, Math.min(samples, Math.floor(mostMs / ms)));
}

/** Times `load`, with a sample of `peak` before and after each of its samples. */
export async function measure(load: Load, peak: Load, effort: Effort): Promise<Measurement> {
  await warmUp(peak, effort.warmupMs);
  await warmUp(load, effort.warmupMs);
  const loadSize = sizeSample(load, effort);
  const peakSize = sizeSample(peak, effort);
  const samples = samplesOf(effort, loadSize.ms + peakSize.ms);

  const rates: number[] = [];
  const peakRates: number[] = [rateOf(peak, peakSize.repeats, effort)];
  const ratios: number[] = [];
  for (let i = 0; i < samples; i++) {
    const before = peakRates.at(-1)!;
    const rate = rateOf(load, loadSize.repeats, effort);
    const after = rateOf(peak, peakSize.repeats, effort);
    rates.push(rate);
    peakRates.push(after);
    ratios.push((2 * rate) / (before + after));
  }
  const { median: ratio, low, high } = spreadOf(ratios);
  const bestRate = Math.max(...rates);
  return { rate: median(rates), bestRate, ratio, low, high, best: bestRate / Math.max(...peakRates) };
}

/** A load compared with the first of the list. */
export interface Comparison {
  /** Units of work a second: the median, and the most. */
  readonly rate: number;
  readonly bestRate: number;
  /** The rate over that of the first load in the same round: median, and the range of the middle 80 %. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
  /** The rate in each round. */
  readonly rates: readonly number[];
}

/** Times loads in rounds, each of which begins with another load: A B C, B C A, … */
export async function compare(loads: readonly Load[], effort: Effort): Promise<Comparison[]> {
  for (const load of loads) await warmUp(load, effort.warmupMs);
  const sizes = loads.map((load) => sizeSample(load, effort));
  const samples = samplesOf(
    effort,
    sizes.reduce((sum, { ms }) => sum + ms, 0),
  );
  const rates: number[][] = loads.map(() => []);
  for (let round = 0; round < samples; round++)
    for (let turn = 0; turn < loads.length; turn++) {
      const i = (round + turn) % loads.length;
      rates[i]!.push(rateOf(loads[i]!, sizes[i]!.repeats, effort));
    }
  return rates.map((own) => {
    const { median: ratio, low, high } = spreadOf(own.map((rate, round) => rate / rates[0]![round]!));
    return { rate: median(own), bestRate: Math.max(...own), ratio, low, high, rates: own };
  });
}
