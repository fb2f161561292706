import type { Instance } from "./instantiate.ts";
import { pointer } from "./memory.ts";

/** The `mode` of linear_q8 on the fastest dot-product path, for activations of 14 bits ("exact") and of 7 ("fast"). */
export interface DotModes {
  readonly exact: number;
  readonly fast: number;
}

/**
 * Modes by dot-product path (assembly/linear/int_dot.ts): pairs of 16-bit integers, four bytes in one instruction, or in three.
 * Sums are exact on every path, so the choice affects speed only.
 */
const I16_PAIRS = 0;
const I8 = 2;
const I8_EMULATED = 4;
/** Added to them for activations of 7 bits. */
const FAST = 1;

/** Whether a mode is of activations of 7 bits, which changes results. */
export const isFast = (mode: number): boolean => (mode & FAST) !== 0;

/**
 * How integers are multiplied: by instructions for pairs of 16 bits ("i16 pairs"), or for fours of bytes, which are one
 * instruction of the CPU ("i8") or three ("i8 emulated"). The results are the same.
 */
export type DotProduct = "i16 pairs" | "i8" | "i8 emulated";

/** The dot product of a mode. */
export function dotProductOf(mode: number): DotProduct {
  const path = mode & ~FAST;
  return path === I8 ? "i8" : path === I8_EMULATED ? "i8 emulated" : "i16 pairs";
}

/** Rounds of a call of repeat_dots, which takes some microseconds. */
const ROUNDS = 2000;
/** A sample takes at least this long and one step of the clock. */
const SAMPLE_MS = 0.25;
/** A clock that does not move in so many calls stands still. */
const MOST_CALLS = 1000;
/** So many pairs of samples are taken, in which engines optimise so small a function; fewer where they take longer. */
const PAIRS = 8;
const LONGEST_MS = 10;

/**
 * Finds the fastest paths by timing: WebAssembly does not reveal whether the CPU multiplies four bytes in one
 * instruction. Where it does, that is the fastest way for activations of 14 bits, too. Takes four to five milliseconds, more
 * where the clock is coarse. Where it stands still during a task, as on Cloudflare Workers, the paths of other CPUs are
 * taken.
 */
export function findDotModes({ kernels, memory, relaxed }: Instance): DotModes {
  if (!relaxed) return { exact: I16_PAIRS, fast: I16_PAIRS + FAST };
  const at = memory.allocate("kernels", 9 * 16);
  memory.u8(at, 9 * 16).fill(0);
  const [out, zeros] = [pointer.u8(at), pointer.u8(at + 16)];
  const rate = (rounds: number) => callsPerMs(() => kernels.repeat_dots(out, zeros, zeros, rounds, 0, ROUNDS));
  let [direct, emulated] = [0, 0];
  const start = performance.now();
  for (let i = 0; i < PAIRS && performance.now() - start < LONGEST_MS; i++) {
    const one = rate(ROUNDS);
    // Where the clock stands still, one look is enough.
    const three = one && rate(0);
    if (three === 0) break;
    direct = Math.max(direct, one);
    emulated = Math.max(emulated, three);
  }
  memory.free(at);
  return direct > emulated ? { exact: I8, fast: I8 + FAST } : { exact: I16_PAIRS, fast: I8_EMULATED + FAST };
}

/** Counts calls from one step of the clock to another; 0 where the clock stands still. */
function callsPerMs(call: () => void): number {
  const begin = performance.now();
  let start = begin;
  for (let i = 0, first = 0; i < MOST_CALLS || start !== begin; i++) {
    call();
    const now = performance.now();
    if (start === begin) [start, first] = [now, i];
    else if (now - start >= SAMPLE_MS) return (i - first) / (now - start);
  }
  return 0;
}
