import { pointer } from "./memory.ts";
import type { Instance } from "./modules.ts";

/** The `mode` of linear_q8 on the fastest dot-product path, for activations of 14 bits ("exact") and of 7 or 8 ("fast"). */
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
/** Added to them for activations of 7 or 8 bits. */
const FAST = 1;

/** Whether a mode is of activations of 7 or 8 bits, which changes results. */
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
/** A sample takes at least this long and one step of the clock: so short that the system interrupts few of them. */
const SAMPLE_MS = 0.05;
/** A clock that does not move in so many calls stands still. */
const MOST_CALLS = 1000;
/** Samples are taken until one way is faster by this factor, but not much longer than this. */
const DECISIVE = 1.25;
const LONGEST_MS = 150;
/** Code that becomes this much faster was optimised: mostly before so many pairs of samples were taken. */
const OPTIMISED = 8 / 7;
const SETTLED = 12;
/** Where no way is that much faster, so many loads look again. */
const MOST_PROBES = 4;

/**
 * Returns what finds the fastest paths by timing: WebAssembly does not reveal whether the CPU multiplies four bytes in one
 * instruction. Where it does, that is the fastest way for activations of 14 bits, too. Takes a few milliseconds, and up to
 * 150 where the clock is coarse or other programs use the CPU. Where neither way is decisively faster, the paths of other CPUs are
 * taken, and the next calls time again, three at most. So they are where the clock stands still during a task, as on Cloudflare
 * Workers, where nothing is timed again.
 */
export function createDotModes(): (instance: Instance) => DotModes {
  let ratio = 1;
  let probes = 0;
  return (instance) => {
    if (instance.relaxed && ratio === 1 && probes++ < MOST_PROBES) ratio = compareDots(instance);
    const exact = ratio > 1 ? I8 : I16_PAIRS;
    const fast = ratio > 1 || !instance.relaxed ? exact : I8_EMULATED;
    return { exact, fast: fast + FAST };
  };
}

/**
 * How many times as fast as three instructions the engine's product of bytes is: by the fastest samples, because interruptions only
 * make samples slower. 1 if that is not decisive, 0 where the clock stands still.
 */
function compareDots({ kernels, memory }: Instance): number {
  const zeros = pointer.u8(memory.allocate("kernels", 8 * 16));
  memory.u8(zeros, 8 * 16).fill(0);
  /** Counts calls from one step of the clock to another; 0 where the clock stands still. Sums of zeros are zeros again. */
  const callsPerMs = (rounds: number) => {
    const begin = performance.now();
    let start = begin;
    let first = 0;
    for (let i = 0; i < MOST_CALLS || start !== begin; i++) {
      kernels.repeat_dots(zeros, zeros, zeros, rounds, 0, ROUNDS);
      const now = performance.now();
      if (start === begin) {
        start = now;
        first = i;
      } else if (now - start >= SAMPLE_MS) return (i - first) / (now - start);
    }
    return 0;
  };
  let direct = 0;
  let emulated = 0;
  let settled = 0;
  let ratio = 1;
  const start = performance.now();
  while (ratio === 1 && performance.now() < start + LONGEST_MS) {
    const one = callsPerMs(ROUNDS);
    // Where the clock stands still, one look is enough.
    const three = one && callsPerMs(0);
    // What was measured of the other before is of slower code.
    if (one > OPTIMISED * direct || three > OPTIMISED * emulated) direct = emulated = settled = 0;
    else settled++;
    direct = Math.max(direct, one);
    emulated = Math.max(emulated, three);
    if (three === 0) ratio = 0;
    else if (settled >= SETTLED && (direct > DECISIVE * emulated || emulated > DECISIVE * direct))
      ratio = direct / emulated;
  }
  memory.free(zeros);
  return ratio;
}
