// Timing beside a peak. A shared machine changes its speed by the minute, so a kernel is never timed alone: samples of it
// and of the peak loop alternate, and what is reported is the median of the ratios of neighbours. Samples are short, so
// that most of them fall between two interruptions.

import { setTimeout as sleep } from "node:timers/promises";
import { median, time } from "../src/diagnostics/timing.ts";

/** Something to time: `run` does `work` units of work (operations or bytes). */
export interface Load {
  readonly work: number;
  run(): void;
}

export interface Measurement {
  /** Units of work a second: the median, and the most. */
  readonly rate: number;
  readonly bestRate: number;
  /** The same of the peak beside it. */
  readonly peakRate: number;
  /** rate / peakRate of neighbours: median, and the range that holds the middle 80 %. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
  /** The fastest sample over the fastest of the peak: what a core does that nobody disturbs. */
  readonly best: number;
  readonly samples: number;
}

export interface Effort {
  readonly samples: number;
  /** A sample repeats its load until it takes about this long. */
  readonly sampleMs: number;
  readonly warmupMs: number;
  /** Samples of what takes long are fewer, so that all of them take about this long; but never fewer than five. */
  readonly mostMs: number;
}

const LEAST_SAMPLES = 5;

/** The value below which a part `q` of the sorted `values` lies. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.round(q * (sorted.length - 1))]!;
}

/** Until the engine has compiled the load with its best compiler, which it does on another thread: hence the pauses. */
async function warmUp(load: Load, ms: number): Promise<void> {
  const end = performance.now() + ms;
  do {
    time(load, 1);
    await sleep(1);
  } while (performance.now() < end);
}

/** Units of work a second over `repeats` runs. */
function rateOf(load: Load, repeats: number): number {
  return (load.work * repeats * 1000) / time(load, repeats);
}

/** How often a load runs in a sample, and how long a sample takes. */
function sizeSample(load: Load, sampleMs: number): { repeats: number; ms: number } {
  const once = Math.min(time(load, 1), time(load, 1));
  const repeats = Math.max(1, Math.round(sampleMs / Math.max(once, 0.001)));
  return { repeats, ms: repeats * once };
}

function samplesOf({ samples, mostMs }: Effort, ms: number): number {
  return Math.max(LEAST_SAMPLES, Math.min(samples, Math.floor(mostMs / ms)));
}

/** Times `load` with `peak` before and behind every sample of it. */
export async function measure(load: Load, peak: Load, effort: Effort): Promise<Measurement> {
  await warmUp(peak, effort.warmupMs);
  await warmUp(load, effort.warmupMs);
  const own = sizeSample(load, effort.sampleMs);
  const beside = sizeSample(peak, effort.sampleMs);
  const samples = samplesOf(effort, own.ms + beside.ms);

  const rates: number[] = [];
  const peakRates: number[] = [rateOf(peak, beside.repeats)];
  const ratios: number[] = [];
  for (let i = 0; i < samples; i++) {
    const before = peakRates.at(-1)!;
    const rate = rateOf(load, own.repeats);
    const after = rateOf(peak, beside.repeats);
    rates.push(rate);
    peakRates.push(after);
    ratios.push((2 * rate) / (before + after));
  }
  return {
    rate: median(rates),
    bestRate: Math.max(...rates),
    peakRate: median(peakRates),
    ratio: median(ratios),
    low: quantile(ratios, 0.1),
    high: quantile(ratios, 0.9),
    best: Math.max(...rates) / Math.max(...peakRates),
    samples,
  };
}

/** A load in comparison with the first of the list. */
export interface Comparison {
  /** Units of work a second: the median, and the most. */
  readonly rate: number;
  readonly bestRate: number;
  /** Rate over that of the first load in the same round: median, and the range that holds the middle 80 %. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
}

/** Times loads in rounds that begin with another one each time: A B C, B C A, … */
export async function compare(loads: readonly Load[], effort: Effort): Promise<Comparison[]> {
  for (const load of loads) await warmUp(load, effort.warmupMs);
  const sizes = loads.map((load) => sizeSample(load, effort.sampleMs));
  const samples = samplesOf(
    effort,
    sizes.reduce((sum, { ms }) => sum + ms, 0),
  );
  const rates: number[][] = loads.map(() => []);
  for (let round = 0; round < samples; round++)
    for (let turn = 0; turn < loads.length; turn++) {
      const i = (round + turn) % loads.length;
      rates[i]!.push(rateOf(loads[i]!, sizes[i]!.repeats));
    }
  return rates.map((own) => {
    const ratios = own.map((rate, round) => rate / rates[0]![round]!);
    return {
      rate: median(own),
      bestRate: Math.max(...own),
      ratio: median(ratios),
      low: quantile(ratios, 0.1),
      high: quantile(ratios, 0.9),
    };
  });
}
