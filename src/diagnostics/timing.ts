/** Something to time: `run` does `flops` floating-point operations. */
export interface Load {
  readonly flops: number;
  run(): void;
}

/** How long to take. */
export interface Effort {
  /** Engines compile what they run with their best compiler a while after it was first run. */
  readonly warmupMs: number;
  /** The least length of a sample; it is longer where the clock is coarse. */
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
/** With its pause each takes a millisecond or more: a clock that does not move must not warm up for ever. */
const MOST_WARM_UPS = 128;
/** A sample of so many ticks of the clock is right to a fifth. */
const LEAST_TICKS = 5;
/** How often the clock is read for two ticks: 100 ms and more, which is the coarsest of browsers. */
const MOST_READS = 2 ** 22;
/** A clock that has not moved after so many operations stands still: some hosts stop it while code runs. */
const STILL_FLOPS = 2 ** 33;
/** The most operations of a sample, whatever the clock says. */
const MOST_FLOPS = 2 ** 37;

/** The middle one of the values, or the upper one of two. */
export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] as number;
}

/** Leaves the thread to others, among them the compiler and a page that wants to be drawn. */
function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Milliseconds of `repeats` runs. */
export function time(load: Pick<Load, "run">, repeats: number): number {
  const start = performance.now();
  for (let i = 0; i < repeats; i++) load.run();
  return performance.now() - start;
}

async function warmUp(load: Load, ms: number): Promise<void> {
  const end = performance.now() + ms;
  let runs = 0;
  do {
    load.run();
    await pause();
  } while (++runs < MOST_WARM_UPS && performance.now() < end);
}

/** Milliseconds of a step of the clock, the lesser of two; 0 if it stands still. */
function findTick(): number {
  const steps: number[] = [];
  let last = performance.now();
  for (let read = 0; read < MOST_READS && steps.length < 2; read++) {
    const now = performance.now();
    if (now > last) steps.push(now - last);
    last = now;
  }
  return steps.length > 0 ? Math.min(...steps) : 0;
}

/** How many runs take long enough for a sample; 0 if the clock stands still meanwhile. */
function repeatsFor(load: Load, sampleMs: number): number {
  // The lesser of two, since one may be interrupted.
  const least = (repeats: number) => {
    const ms = time(load, repeats);
    return ms > 0 ? Math.min(ms, time(load, repeats)) : 0;
  };
  let repeats = 1;
  let ms = least(1);
  while (ms < sampleMs && load.flops * repeats < (ms > 0 ? MOST_FLOPS : STILL_FLOPS)) {
    repeats *= ms > sampleMs / 8 ? 2 : 8;
    ms = least(repeats);
  }
  return ms > 0 ? repeats : 0;
}

/**
 * Times loads in rounds, each of which begins with another load: a shared machine changes its speed by the second, so
 * that only neighbours can be compared. Undefined where the clock stands still while loads run, each of which has run.
 */
export async function timeLoads(
  loads: readonly Load[],
  { warmupMs, sampleMs, rounds, mostMs }: Effort,
): Promise<Rate[] | undefined> {
  for (const load of loads) await warmUp(load, warmupMs);
  const longMs = Math.max(sampleMs, LEAST_TICKS * findTick());
  const repeats: number[] = [];
  for (const load of loads) {
    const needed = repeatsFor(load, longMs);
    if (needed === 0) return undefined;
    repeats.push(needed);
  }
  const times: number[][] = loads.map(() => []);
  const end = performance.now() + mostMs;
  for (let round = 0; round < rounds && (round < LEAST_ROUNDS || performance.now() < end); round++) {
    for (let turn = 0; turn < loads.length; turn++) {
      const i = (round + turn) % loads.length;
      times[i]!.push(time(loads[i]!, repeats[i]!) / repeats[i]!);
    }
    await pause();
  }
  if (times.flat().includes(0)) return undefined;
  const rate = (i: number, ms: number) => loads[i]!.flops / ms / 1e6;
  return times.map((own, i) => ({
    ms: median(own),
    bestMs: Math.min(...own),
    gflops: rate(i, median(own)),
    bestGflops: rate(i, Math.min(...own)),
    ratio: median(own.map((ms, round) => rate(i, ms) / rate(0, times[0]![round]!))),
  }));
}
