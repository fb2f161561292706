// Calls that are timed, and what an engine can do at most.

import { leb } from "../../base/util/bytes.ts";

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

// What an engine can do at most, by modules of one function that are assembled here byte by byte: the peak rate of a core with the
// instructions of the kernels, and how fast it reads memory.

/** Independent chains: enough to hide the latency of an instruction, few enough to stay in registers. */
const CHAINS = 12;
const LANES = 4;

/** Parameters and locals of the function: rounds, a, b, then the chains, then a and b in all lanes. */
const [ROUNDS, A, B, CHAIN] = [0, 1, 2, 3];
const [A4, B4] = [CHAIN + CHAINS, CHAIN + CHAINS + 1];

const [I32, F32, V128] = [0x7f, 0x7d, 0x7b];
const get = (local: number) => [0x20, local];
const set = (local: number) => [0x21, local];
const simd = (...code: number[]) => [0xfd, ...code];
const SPLAT = simd(0x13);
const LANE_0 = simd(0x1f, 0);
const ADD = simd(0xe4, 1);
const MUL = simd(0xe6, 1);
const RELAXED_MADD = simd(0x85, 2);

/** A module with `peak(rounds, a, b)`: chains of acc = acc · a + b, in one instruction (`fused`) or two. */
export function peakModule(fused: boolean): Uint8Array<ArrayBuffer> {
  const chains = Array.from({ length: CHAINS }, (_, i) => CHAIN + i);
  const step = fused ? [...get(A4), ...get(B4), ...RELAXED_MADD] : [...get(A4), ...MUL, ...get(B4), ...ADD];
  const body = [
    ...[1, CHAINS + 2, V128],
    ...[...get(A), ...SPLAT, ...set(A4), ...get(B), ...SPLAT, ...set(B4)],
    ...chains.flatMap((chain) => [...get(B4), ...set(chain)]),
    ...[0x03, 0x40], // loop
    ...chains.flatMap((chain) => [...get(chain), ...step, ...set(chain)]),
    ...[...get(ROUNDS), 0x41, 1, 0x6b, 0x22, ROUNDS, 0x0d, 0], // rounds - 1, again unless 0
    0x0b,
    ...get(CHAIN),
    ...chains.slice(1).flatMap((chain) => [...get(chain), ...ADD]),
    ...[...LANE_0, 0x0b],
  ];
  return moduleBytes("peak", [3, I32, F32, F32, 1, F32], [], body);
}

/** A module that exports one function. `type` is its parameters and results, each after their number. */
function moduleBytes(
  name: string,
  type: readonly number[],
  memory: readonly number[],
  body: readonly number[],
): Uint8Array<ArrayBuffer> {
  const letters = Array.from(name, (letter) => letter.charCodeAt(0));
  return Uint8Array.of(
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, ...type]),
    ...section(3, [1, 0]),
    ...memory,
    ...section(7, [1, letters.length, ...letters, 0, 0]),
    ...section(10, [1, ...leb(body.length), ...body]),
  );
}

/** The exports of a module, compiled here and now. */
function startModule(bytes: Uint8Array<ArrayBuffer>): WebAssembly.Exports {
  return new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
}

/** A section of a module. */
function section(id: number, content: readonly number[]): number[] {
  return [id, ...leb(content.length), ...content];
}

/** Some 50 microseconds of work. Throws if its result is wrong, which proves that the engine did not skip any of it. */
export function startPeak(fused: boolean): Load {
  const peak = startModule(peakModule(fused)).peak as (rounds: number, a: number, b: number) => number;
  // acc · 1/2 + 1 tends to 2.
  const sum = peak(64, 0.5, 1);
  if (sum !== 2 * CHAINS) throw new Error(`peak: expected ${2 * CHAINS}, got ${sum}`);
  const rounds = 50_000;
  return { flops: 2 * CHAINS * LANES * rounds, run: () => void peak(rounds, 0.5, 1) };
}

/**
 * Whether wasm may be compiled from bytes here. If a content security policy forbids it, WebKit compiles, but refuses
 * to instantiate.
 */
export function allowsWasm(): boolean {
  try {
    return Boolean(startModule(peakModule(false)));
  } catch {
    return false;
  }
}

// How fast a core reads memory.

const WASM_PAGE = 2 ** 16;
/** The most bytes of its memory: more than any cache holds. */
const MOST_BYTES = 2 ** 28;
/** Independent sums, and the bytes that a round reads. */
const STREAMS = 4;
const ROUND_BYTES = 16 * STREAMS;

/** Parameters and locals of the function: where the unread bytes end, whether they are written first, then the sums. */
const [END, WRITE, SUM] = [0, 1, 2];

const LOAD = (offset: number) => [0xfd, 0x00, 4, ...leb(offset)];
const XOR = [0xfd, 0x51];
const FIRST_WORD = [0xfd, 0x1b, 0];
const FILL = [0xfc, 0x0b, 0];

/** A module with `stream(end, write)`: reads the bytes before `end`, a multiple of 64, from the last to the first. */
function streamModule(pages: number): Uint8Array<ArrayBuffer> {
  const sums = Array.from({ length: STREAMS }, (_, i) => SUM + i);
  const body = [
    ...[1, STREAMS, V128],
    ...[...get(WRITE), 0x04, 0x40, 0x41, 0, 0x41, 1, ...get(END), ...FILL, 0x0b], // if WRITE: ones up to END
    ...[0x03, 0x40], // loop
    ...[...get(END), 0x41, ROUND_BYTES | 0x80, 0, 0x6b, 0x21, END], // end - ROUND_BYTES, a signed LEB128
    ...sums.flatMap((sum, i) => [...get(sum), ...get(END), ...LOAD(16 * i), ...XOR, 0x21, sum]),
    ...[...get(END), 0x0d, 0], // again unless 0
    0x0b,
    ...get(SUM),
    ...sums.slice(1).flatMap((sum) => [...get(sum), ...XOR]),
    ...[...FIRST_WORD, 0x0b],
  ];
  return moduleBytes("stream", [2, I32, I32, 1, I32], section(5, [1, 0, ...leb(pages)]), body);
}

/** Reads `bytes` once per run; if they are more than 256 MB, those several times. */
export function startStream(bytes: number): Load {
  const size = Math.min(MOST_BYTES, ROUND_BYTES * Math.ceil(bytes / ROUND_BYTES));
  const exports = startModule(streamModule(Math.ceil(size / WASM_PAGE)));
  const stream = exports.stream as (end: number, write: number) => number;
  // Pages that were never written are one page of zeros for the system, which stays in the nearest cache.
  stream(size, 1);
  return {
    flops: bytes,
    run() {
      for (let left = bytes; left > 0; left -= size)
        stream(Math.min(size, ROUND_BYTES * Math.ceil(left / ROUND_BYTES)), 0);
    },
  };
}
