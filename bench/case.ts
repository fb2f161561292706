import type { Build } from "./builds.ts";

/** Bytes in linear memory. */
export interface Region {
  readonly at: number;
  readonly length: number;
}

/** A kernel with its arguments in memory. */
export interface Prepared {
  run(): void;
  /** What it must read at least: weights, keys and values, or the one input that it passes over. */
  readonly reads: readonly Region[];
  /** Throws unless what `run` left agrees with float64. */
  check(): void;
  release(): void;
}

/** One row of the table, for each build. */
export interface Case {
  readonly kernel: string;
  readonly shape: string;
  /** Also run by --quick. */
  readonly quick: boolean;
  /** Useful floating-point operations of one run. */
  readonly flops: number;
  /** Which peak it is compared with. */
  readonly limit: "arithmetic" | "reading";
  prepare(build: Build): Prepared;
}

/** Floats in [-1, 1) from a seed, the same on every machine. */
export function fill(data: Float32Array, seed: number): void {
  let state = Math.imul(seed, 0x9e3779b1) | 1;
  for (let i = 0; i < data.length; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    data[i] = state / 2 ** 31;
  }
}

/** Throws when an element is further than `relative` · (1 + the largest |want|) from what it should be. */
export function expectNear(kernel: string, got: Float32Array, want: ArrayLike<number>, relative: number): void {
  let largest = 1;
  for (let i = 0; i < want.length; i++) largest = Math.max(largest, Math.abs(want[i]!));
  for (let i = 0; i < got.length; i++)
    if (!(Math.abs(got[i]! - want[i]!) <= relative * largest))
      throw new Error(`bench: ${kernel} gave ${got[i]} for ${want[i]} at ${i}; its speed means nothing`);
}
