// Timing beside a peak. A shared machine changes its speed by the minute, so a kernel is never timed alone: samples of it
// and of the peak loop alternate, and what is reported is the median of the ratios of neighbours. Samples are short, so
// that most of them fall between two interruptions.

import { setTimeout as sleep } from "node:timers/promises";

/** Something to time: `run` does `work` units of work (operations or bytes). */
export interface Load {
  readonly work: number;
  run(): void;
}

export interface Measurement {
  /** Units of work a second, the median. */
  readonly rate: number;
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
}

/** The value below which a part `q` of the sorted `values` lies. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.round(q * (sorted.length - 1))]!;
}

/** Runs a load `repeats` times. Returns milliseconds. */
function time(load: Load, repeats: number): number {
  const start = performance.now();
  for (let i = 0; i < repeats; i++) load.run();
  return performance.now() - start;
}

/** Until the engine has compiled the load with its best compiler, which it does on another thread: hence the pauses. */
async function warmUp(load: Load, ms: number): Promise<void> {
  const end = performance.now() + ms;
  do {
    time(load, 1);
    await sleep(1);
  } while (performance.now() < end);
}

/** How often a load runs in a sample. */
function repeatsOf(load: Load, sampleMs: number): number {
  const once = Math.min(time(load, 1), time(load, 1));
  return Math.max(1, Math.round(sampleMs / Math.max(once, 0.001)));
}

/** Times `load` with `peak` before and behind every sample of it. */
export async function measure(load: Load, peak: Load, effort: Effort): Promise<Measurement> {
  await warmUp(peak, effort.warmupMs);
  await warmUp(load, effort.warmupMs);
  const repeats = repeatsOf(load, effort.sampleMs);
  const peakRepeats = repeatsOf(peak, effort.sampleMs);
  const rate = (one: Load, times: number) => (one.work * times * 1000) / time(one, times);

  const rates: number[] = [];
  const peakRates: number[] = [rate(peak, peakRepeats)];
  const ratios: number[] = [];
  for (let i = 0; i < effort.samples; i++) {
    const before = peakRates.at(-1)!;
    const own = rate(load, repeats);
    const after = rate(peak, peakRepeats);
    rates.push(own);
    peakRates.push(after);
    ratios.push((2 * own) / (before + after));
  }
  return {
    rate: quantile(rates, 0.5),
    peakRate: quantile(peakRates, 0.5),
    ratio: quantile(ratios, 0.5),
    low: quantile(ratios, 0.1),
    high: quantile(ratios, 0.9),
    best: Math.max(...rates) / Math.max(...peakRates),
    samples: effort.samples,
  };
}
