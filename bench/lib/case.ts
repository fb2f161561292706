import type { Build } from "./builds.ts";

/** Bytes in linear memory. */
export interface Region {
  readonly at: number;
  readonly length: number;
}

/** A kernel or a layer with its arguments in memory. */
export interface Prepared {
  run(): void;
  /** The bytes that it must read at least: weights, keys and values, or its one large input. */
  readonly reads: readonly Region[];
  /** Throws unless the output of `run` agrees with float64. */
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
  /** What it is compared with instead: the same work in another way, by turns. */
  readonly beside?: { readonly name: string; prepare(build: Build): Prepared };
  prepare(build: Build): Prepared;
}

/** Throws if an element differs from `want` by more than `relative` · max(1, the largest |want|). */
export function expectNear(kernel: string, got: Float32Array, want: ArrayLike<number>, relative: number): void {
  let largest = 1;
  for (let i = 0; i < want.length; i++) largest = Math.max(largest, Math.abs(want[i]!));
  for (let i = 0; i < got.length; i++)
    if (!(Math.abs(got[i]! - want[i]!) <= relative * largest))
      throw new Error(`bench: ${kernel} gave ${got[i]} for ${want[i]} at ${i}; no time is measured for a wrong result`);
}
