// The arrays of a call: how many rows they hold, and that `out` shares no memory with what is read.

import type { GivenMasks } from "../attention/mask.ts";
import { expectFloats } from "../util/arguments.ts";

/** The number of rows in each sequence of `data`, [batch, rows, width]. Throws unless it is an integer. */
export function countRows(
  where: string,
  name: string,
  data: unknown,
  batch: number,
  dim: string,
  width: number,
): number {
  const { length } = expectFloats(where, name, data);
  const rows = length / (batch * width);
  if (Number.isInteger(rows)) return rows;
  const rule = batch === 1 ? `${dim} (${width})` : `batch (${batch}) x ${dim} (${width})`;
  throw new RangeError(`${where}: ${name} expected a multiple of ${rule} floats, got ${length}`);
}

/** The arrays that a call reads while it writes `out`, by name. */
export function readsOf(
  x: Float32Array,
  { keep, drop, bias }: GivenMasks,
): Record<string, ArrayLike<unknown> | undefined> {
  return { x, keep: keep?.data, drop: drop?.data, bias: bias?.data };
}

/**
 * Throws unless `out` has `length` floats and shares no memory with what the call reads, because rows of y are written before
 * later rows are read. It may be x itself if `inPlace`.
 */
export function expectOut(
  where: string,
  out: Float32Array,
  length: number,
  reads: Record<string, ArrayLike<unknown> | undefined>,
  inPlace: boolean,
): void {
  if (out.length !== length) throw new RangeError(`${where}: out expected ${length} floats, got ${out.length}`);
  for (const [name, data] of Object.entries(reads)) {
    const mayBeSame = inPlace && name === "x";
    if (mayBeSame ? isApart(out, data as Float32Array) : !overlaps(out, data)) continue;
    throw new RangeError(
      `${where}: out expected ${mayBeSame ? "x itself or " : ""}memory apart from ${name}, got one that overlaps it`,
    );
  }
}

/** Whether `out` begins where x does, or shares no byte with it. */
export function isApart(out: Float32Array, x: Float32Array): boolean {
  return !overlaps(out, x) || x.byteOffset === out.byteOffset;
}

/** Whether two arrays share a byte. */
function overlaps(a: Float32Array, b: unknown): boolean {
  return (
    ArrayBuffer.isView(b) &&
    a.buffer === b.buffer &&
    a.byteOffset < b.byteOffset + b.byteLength &&
    b.byteOffset < a.byteOffset + a.byteLength
  );
}
