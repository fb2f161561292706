/** Something to time: `run` does `flops` floating-point operations. */
export interface Load {
  readonly flops: number;
  run(): void;
}

/** How long to take. */
export interface Effort {
  /** Engines compile what they run with their best compiler a while after it was first run. */
  readonly warmupMs: number;
  /** The least length of a sample: several ticks of a browser's clock. */
  readonly sampleMs: number;
  readonly rounds: number;
  /** No further round begins after so long, but three there are. */
  readonly mostMs: number;
}

/** What a load did. */
export interface Rate {
  /** Milliseconds of a run: the median, and of the fastest sample. */
  readonly ms: number;
  readonly bestMs: number;
  /** The same as operations a second, in thousands of millions. */
  readonly gflops: number;
  readonly bestGflops: number;
  /** Of the rate of the first load in the same round: the median. */
  readonly ratio: number;
}

const LEAST_ROUNDS = 3;

/** The middle one of the values, or the upper one of two. */
export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] as number;
}

/** Leaves the thread to others, among them the compiler and a page that wants to be drawn. */
function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Milliseconds of `repeats` runs. */
function time(load: Load, repeats: number): number {
  const start = performance.now();
  for (let i = 0; i < repeats; i++) load.run();
  return performance.now() - start;
}

async function warmUp(load: Load, ms: number): Promise<void> {
  const end = performance.now() + ms;
  do {
    load.run();
    await pause();
  } while (performance.now() < end);
}

/** Runs until a sample takes long enough: clocks may stand still for a millisecond. */
function repeatsFor(load: Load, sampleMs: number): number {
  let repeats = 1;
  for (let ms = time(load, 1); ms < sampleMs; ms = time(load, repeats)) repeats *= ms > sampleMs / 8 ? 2 : 8;
  return repeats;
}

/**
 * Times loads in rounds, each of which begins with another load: a shared machine changes its speed by the second, so
 * that only neighbours can be compared.
 */
export async function timeLoads(
  loads: readonly Load[],
  { warmupMs, sampleMs, rounds, mostMs }: Effort,
): Promise<Rate[]> {
  for (const load of loads) await warmUp(load, warmupMs);
  const repeats = loads.map((load) => repeatsFor(load, sampleMs));
  const times: number[][] = loads.map(() => []);
  const end = performance.now() + mostMs;
  for (let round = 0; round < rounds && (round < LEAST_ROUNDS || performance.now() < end); round++) {
    for (let turn = 0; turn < loads.length; turn++) {
      const i = (round + turn) % loads.length;
      times[i]!.push(time(loads[i]!, repeats[i]!) / repeats[i]!);
    }
    await pause();
  }
  const rate = (i: number, ms: number) => loads[i]!.flops / ms / 1e6;
  return times.map((own, i) => ({
    ms: median(own),
    bestMs: Math.min(...own),
    gflops: rate(i, median(own)),
    bestGflops: rate(i, Math.min(...own)),
    ratio: median(own.map((ms, round) => rate(i, ms) / rate(0, times[0]![round]!))),
  }));
}
