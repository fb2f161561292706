/** Something to time: `run` does `flops` floating-point operations. */
export interface Load {
  readonly flops: number;
  run(): void;
}

/** Reads milliseconds. */
export type Clock = () => number;

/** The duration of a measurement. */
export interface Effort {
  /** Engines use their best compiler only some time after code was first run. */
  readonly warmupMs: number;
  /** The least duration of a sample, which is longer if the clock is coarse. */
  readonly sampleMs: number;
  readonly rounds: number;
  /** No round begins after this time, except the first three. */
  readonly mostMs: number;
}

/** The speed of a load. */
export interface Rate {
  /** Milliseconds of a run in the median sample. */
  readonly ms: number;
  /** The same in the fastest sample. */
  readonly bestMs: number;
  /** `flops` of a second in the median sample, in 10^9. */
  readonly gflops: number;
  /** The same in the fastest sample. */
  readonly bestGflops: number;
  /** `gflops` relative to that of the first load in the same round: the median over rounds. */
  readonly ratio: number;
}

const LEAST_ROUNDS = 3;
/** Bounds the warm-up if the clock stands still: with its pause, each run takes a millisecond or more. */
const MOST_WARM_UPS = 128;
/** With this many ticks of the clock, the error of a sample is at most a fifth. */
const LEAST_TICKS = 5;
/** The most reads of the clock for two ticks: at least 100 ms, the coarsest clock of browsers. */
const MOST_READS = 2 ** 22;
/** A clock that has not advanced after this many operations stands still: some hosts stop it while code runs. */
const STILL_FLOPS = 2 ** 33;
/** The most operations of a sample, whatever the clock says. */
const MOST_FLOPS = 2 ** 37;

/** The median, or the upper one of two middle values. */
export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] as number;
}

/** Lets other tasks run, such as those of the compiler, or rendering. */
function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

const wallClock: Clock = () => performance.now();

/** Milliseconds of `repeats` runs. */
export function time(load: Pick<Load, "run">, repeats: number, now: Clock = wallClock): number {
  const start = now();
  for (let i = 0; i < repeats; i++) load.run();
  return now() - start;
}

async function warmUp(load: Load, ms: number, now: Clock): Promise<void> {
  const end = now() + ms;
  let runs = 0;
  do {
    load.run();
    await pause();
  } while (++runs < MOST_WARM_UPS && now() < end);
}

/** Milliseconds of a tick of the clock, the lesser of two; 0 if it stands still. */
function findTick(now: Clock): number {
  const steps: number[] = [];
  let last = now();
  for (let read = 0; read < MOST_READS && steps.length < 2; read++) {
    const next = now();
    if (next > last) steps.push(next - last);
    last = next;
  }
  return steps.length > 0 ? Math.min(...steps) : 0;
}

/** The number of runs that take long enough for a sample; 0 if the clock stands still. */
function repeatsFor(load: Load, sampleMs: number, now: Clock): number {
  // The lesser of two, since a run may be interrupted.
  const least = (repeats: number) => {
    const ms = time(load, repeats, now);
    return ms > 0 ? Math.min(ms, time(load, repeats, now)) : 0;
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
 * Times loads in rounds, each of which begins with another load. The speed of a shared machine changes within seconds,
 * so only neighbouring samples can be compared. Undefined if the clock stands still while loads run; each load has run
 * at least once. All times are those of the clock `now`.
 */
export async function timeLoads(
  loads: readonly Load[],
  { warmupMs, sampleMs, rounds, mostMs }: Effort,
  now: Clock = wallClock,
): Promise<Rate[] | undefined> {
  for (const load of loads) await warmUp(load, warmupMs, now);
  const longMs = Math.max(sampleMs, LEAST_TICKS * findTick(now));
  const repeats: number[] = [];
  for (const load of loads) {
    const needed = repeatsFor(load, longMs, now);
    if (needed === 0) return undefined;
    repeats.push(needed);
  }
  const times: number[][] = loads.map(() => []);
  const end = now() + mostMs;
  for (let round = 0; round < rounds && (round < LEAST_ROUNDS || now() < end); round++) {
    for (let step = 0; step < loads.length; step++) {
      const i = (round + step) % loads.length;
      times[i]!.push(time(loads[i]!, repeats[i]!, now) / repeats[i]!);
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
