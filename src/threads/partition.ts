// How a range is cut into tiles: they shrink towards its end, so that threads of any speed end together.

import { TILES } from "./work-queue.ts";

/** A product of fewer rows takes as long as reading its other factor, like one of so many. */
export const STREAM_ROWS = 3;

/** A range of rows, of tokens or of panels. */
export type Span = readonly [from: number, to: number];

/** A call's work, the least work of its tiles, and the threads to share it. */
export interface Load {
  readonly work: number;
  readonly least: number;
  readonly threads: number;
}

/** The least units of a tile, of `units` in all; half of the tiles there is room for are left to other cuts. */
export function fewest(units: number, { work, least }: Load): number {
  return Math.max(1, Math.ceil((units * least) / work), Math.ceil((2 * units) / TILES));
}

/** The units of the next tile when `left` are left: half of a thread's share. */
export function share(left: number, least: number, threads: number): number {
  return Math.min(left, Math.max(least, Math.ceil(left / (2 * threads))));
}

/** Ranges that make up begin..end, cut at multiples of `unit` that are counted from -offset. */
export function rangesOf(begin: number, end: number, unit: number, offset: number, load: Load): Span[] {
  const first = Math.floor((begin + offset) / unit);
  const last = Math.ceil((end + offset) / unit);
  const least = fewest(last - first, load);
  const ranges: Span[] = [];
  for (let at = first; at < last; ) {
    const next = at + share(last - at, least, load.threads);
    ranges.push([Math.max(begin, at * unit - offset), Math.min(end, next * unit - offset)]);
    at = next;
  }
  return ranges;
}

/** How a call of a kernel with these arguments, which end in begin and end, is shared among threads. */
export interface Parallel<A extends readonly number[]> {
  /** What the call takes, in operations of a matrix product. Small calls ask too, so it reads little. */
  cost(view: DataView, ...args: A): number;
  /** The calls that make it up, one a tile; shapeOf(i) is where tile i may have a shape of its own. */
  cut(args: A, view: DataView, load: Load, shapeOf: (tile: number) => number): readonly (readonly number[])[];
}

/** The same for a kernel that works in scratch: bytes that each thread needs for itself. */
export interface ParallelScratch<A extends readonly number[]> extends Parallel<A> {
  scratch(view: DataView, ...args: A): number;
}
