import { expectInt, expectOneOf, readList } from "../../base/util/arguments.ts";
import type { CheckedRules } from "./config.ts";

/** The positions of queries relative to the keys, where neither a cache nor a past determines them. */
export interface PlacementOptions {
  /**
   * "start": query 0 is at the position of key 0. "end": the last query is at the position of the last key. Required where
   * the rules depend on positions (causal, window, ALiBi), qLen differs from kvLen, and there is no past.
   */
  readonly align?: "start" | "end";
  /**
   * How many keys of each sequence are real, [batch]. Those after them are padding, which no query attends. Where `attend` takes
   * queries and keys from the same rows, padding is not computed, and its rows of y are zeros. Default all.
   */
  readonly kvLengths?: ArrayLike<number>;
}

/** Whether the position of a query affects which keys it attends, or how. */
export function isPositional({ causal, window, slopes }: CheckedRules): boolean {
  return causal || Number.isFinite(window.left) || Number.isFinite(window.right) || slopes !== undefined;
}

/** Whether a query may attend keys after its own position. */
export function seesLater({ causal, window }: Pick<CheckedRules, "causal" | "window">): boolean {
  return !causal && window.right > 0;
}

/** The position of a batch row's first query, and its number of keys. */
export interface Placement {
  readonly position: number;
  readonly kvLen: number;
}

/**
 * The positions of the queries of each batch row. With a past, they follow it. Without one, they begin at the first
 * key, unless the numbers of queries and keys differ and the rules depend on positions: then `align` is required.
 */
export function placeQueries(
  where: string,
  { align, kvLengths }: PlacementOptions,
  sizes: { readonly batch: number; readonly qLen: number; readonly kvLen: number; readonly past: number | undefined },
  positional: boolean,
): Placement[] {
  const { batch, qLen, kvLen, past } = sizes;
  const lengths = kvLengths === undefined ? undefined : expectLengths(where, kvLengths, batch, kvLen);
  if (align !== undefined) expectOneOf(where, "align", align, ["start", "end"]);
  if (past !== undefined && align !== undefined)
    throw new RangeError(`${where}: align expected none after a past of ${past} keys, got "${align}"`);
  if (past === undefined && positional && align === undefined && qLen !== kvLen)
    throw new RangeError(
      `${where}: align expected "start" or "end" because qLen (${qLen}) and kvLen (${kvLen}) differ, got undefined`,
    );
  return Array.from({ length: batch }, (_, b) => {
    const length = lengths?.[b] ?? kvLen;
    return { position: past ?? (align === "end" ? length - qLen : 0), kvLen: length };
  });
}

/** Throws unless every row has all kvLen keys: padding that was appended to a cache would be attended by later calls. */
export function refuseRagged(where: string, kvLengths: ArrayLike<number>, batch: number, kvLen: number): void {
  if (expectLengths(where, kvLengths, batch, kvLen).every((length) => length === kvLen)) return;
  throw new RangeError(`${where}: kvLengths expected none with a cache that this call appends to: use keep`);
}

function expectLengths(where: string, kvLengths: ArrayLike<number>, batch: number, kvLen: number): number[] {
  const lengths = readList(where, "kvLengths", kvLengths, batch);
  if (lengths.length !== batch)
    throw new RangeError(`${where}: kvLengths expected one length per sequence (${batch}), got ${lengths.length}`);
  return Array.from(lengths, (length, b) => expectInt(where, `kvLengths[${b}]`, length, 0, kvLen));
}

/**
 * RoPE positions [batch·len] from those of a call ([len] or [batch, len]); by default start..start+len-1 for each row.
 */
export function expectPositions(
  where: string,
  positions: ArrayLike<number> | undefined,
  batch: number,
  len: number,
  start: number,
): Int32Array {
  const all = new Int32Array(batch * len);
  if (positions === undefined) return all.map((_, i) => start + (i % len));
  const list = readList(where, "positions", positions, all.length);
  const { length } = list;
  if (length !== len && length !== batch * len)
    throw new RangeError(
      `${where}: positions expected ${batch === 1 ? len : `${len} or ${batch * len}`} integers, got ${length}`,
    );
  for (let i = 0; i < all.length; i++) {
    const from = length === len ? i % len : i;
    all[i] = expectInt(where, `positions[${from}]`, list[from], 0);
  }
  return all;
}
