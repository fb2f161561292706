import { type Origin, originOf } from "../lib/machine.ts";
import type { Spread } from "../lib/measure.ts";
import type { Measured } from "./measure.ts";

export interface Row extends Measured {
  readonly work: string;
  readonly flops: number;
}

/** A prompt of `tokens` tokens: its time and memory, or its error. */
export interface Long {
  readonly peer: string;
  readonly tokens: number;
  readonly outcome: string;
}

/** The file of --json. */
export interface Result extends Origin {
  /** By the name of the peer. */
  readonly versions: Readonly<Record<string, string>>;
  readonly rows: readonly Row[];
  /** Milliseconds from process start to the first answer, by peer; an empty process is `none`. */
  readonly start?: Readonly<Record<string, Spread>>;
  /** Bytes of all wasm memories after loading, and what a large block adds, by peer; or an error. */
  readonly memory?: Readonly<Record<string, { readonly before: number; readonly grown: number } | string>>;
  /** Gzipped bytes, by peer. */
  readonly sizes?: Readonly<Record<string, number>>;
  readonly long?: readonly Long[];
}

export const emptyResult: Result = { ...originOf(), versions: {}, rows: [] };
