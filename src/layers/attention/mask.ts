// Which keys a query may attend: by its position, and by masks.

import { shapeText } from "../../base/tensor/dtypes.ts";
import { expectElements, readShape, readTensor, type Tensor } from "../../base/tensor/tensor.ts";
import {
  expectEach,
  expectInt,
  expectOneOf,
  expectRecord,
  expectUint8Array,
  readList,
  wrongType,
  wrongValue,
} from "../../base/util/arguments.ts";
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
    throw wrongValue(where, "align", `none after a past of ${past} keys`, align, "string");
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
  expectEach(where, "kvLengths", lengths, batch, "one length per sequence");
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
    throw wrongValue(where, "positions", `${batch === 1 ? len : `${len} or ${batch * len}`} integers`, length);
  for (let i = 0; i < all.length; i++) {
    const from = length === len ? i % len : i;
    all[i] = expectInt(where, `positions[${from}]`, list[from], 0);
  }
  return all;
}

// Masks.

/**
 * One boolean for each pair of a query and a key: rank 1 to 4, broadcast from the right to [batch, numHeads, qLen, kvLen]. A
 * last dimension longer than 1 but shorter than kvLen covers the first keys, and excludes all others.
 */
export interface Mask {
  /** 0 is false, any other number is true. */
  readonly data: Uint8Array | readonly boolean[];
  /**
   * Up to four dimensions, each 1 or that of the target. Rank 2 is refused where its first dimension could be the queries or
   * the sequences, and rank 3 where it could be the heads or the sequences, because there is more than one of both and as many:
   * then all four are needed.
   */
  readonly shape: readonly number[];
}

/** Masks of a call. A key is attended where every condition allows it, those of the configuration included. */
export interface MaskOptions {
  /** True where the query may attend the key. */
  readonly keep?: Mask;
  /** True where the query may not attend the key. */
  readonly drop?: Mask;
  /** Floats that are added to the scores, broadcast like a Mask. -Infinity excludes the key. */
  readonly bias?: Tensor;
}

/** The sizes that masks are broadcast to. */
export interface MaskTarget {
  readonly batch: number;
  readonly numHeads: number;
  readonly qLen: number;
  readonly kvLen: number;
}

/** A checked mask: its four dimensions, each 1 or that of the target (the last may be shorter), and its elements. */
interface Plane<Data = Float32Array> {
  readonly shape: readonly [number, number, number, number];
  readonly data: Data;
}

/** A boolean mask: the keys that it names are those that may be attended, or those that may not. */
interface BooleanPlane extends Plane<Uint8Array> {
  readonly drops: boolean;
}

/** Checked masks of a call, and what their size in linear memory depends on. */
export interface CheckedMasks {
  readonly keep: readonly BooleanPlane[];
  readonly bias: Plane | undefined;
  /** Whether any mask differs between heads, or between query rows. If not, one row is written for all. */
  readonly perHead: boolean;
  readonly perRow: boolean;
}

/** Masks as `readMasks` gives them. */
export interface GivenMasks {
  readonly keep?: BooleanMask;
  readonly drop?: BooleanMask;
  readonly bias?: Tensor;
}

interface BooleanMask {
  readonly data: Uint8Array;
  readonly shape: readonly number[];
}

/** Reads masks, each field once, because reading may run code of the caller's. Arrays become views, booleans copies. */
export function readMasks(where: string, { keep, drop, bias }: MaskOptions): GivenMasks {
  return {
    keep: keep === undefined ? undefined : readBooleans(where, "keep", keep),
    drop: drop === undefined ? undefined : readBooleans(where, "drop", drop),
    bias: bias === undefined ? undefined : readTensor(where, "bias", bias),
  };
}

/** Checks masks that were read: their lengths, and their shapes against the target. */
export function checkMasks(where: string, { keep, drop, bias }: GivenMasks, target: MaskTarget): CheckedMasks {
  const allowed: BooleanPlane[] = [];
  if (keep) allowed.push({ shape: broadcast(where, "keep", keep, target), data: keep.data, drops: false });
  if (drop) allowed.push({ shape: broadcast(where, "drop", drop, target), data: drop.data, drops: true });
  const added = bias && { shape: broadcast(where, "bias", bias, target), data: bias.data };
  const planes: readonly Plane<unknown>[] = added ? [...allowed, added] : allowed;
  return {
    keep: allowed,
    bias: added,
    perHead: planes.some(({ shape }) => shape[1] > 1),
    perRow: planes.some(({ shape }) => shape[2] > 1),
  };
}

function readBooleans(where: string, name: string, mask: Mask): BooleanMask {
  expectRecord(where, name, mask);
  const { data, shape: given } = mask;
  const rule = "Uint8Array or an array of booleans";
  const bytes = Array.isArray(data) ? undefined : expectUint8Array(where, `${name}.data`, data, rule);
  const shape = readShape(where, name, given);
  if (bytes) return { data: bytes, shape };
  const { length } = data;
  expectElements(where, name, "elements", shape, length);
  const copy = new Uint8Array(length);
  for (let i = 0; i < length; i++) {
    const allowed = data[i];
    if (typeof allowed !== "boolean") throw wrongType(where, `${name}.data[${i}]`, "true or false", allowed);
    copy[i] = allowed ? 1 : 0;
  }
  return { data: copy, shape };
}

type Dimensions = Plane["shape"];

/** The four dimensions of a mask. Throws unless it has as many elements, and these broadcast to the target in one way. */
function broadcast(where: string, name: string, { data, shape }: BooleanMask | Tensor, target: MaskTarget): Dimensions {
  const rank = shape.length;
  const fail = (rule: string): never => {
    throw new RangeError(`${where}: ${name} expected ${rule}, got ${shapeText(shape)}`);
  };
  if (rank < 1 || rank > 4) fail("rank 1 to 4");
  expectElements(where, name, "elements", shape, data.length);
  const { batch, numHeads, qLen, kvLen } = target;
  const most = [batch, numHeads, qLen, kvLen];
  const fits = (full: Dimensions) =>
    full.every((length, axis) => length === 1 || length === most[axis] || (axis === 3 && length < kvLen));
  const [keys = 1, rows = 1, heads = 1, sequences = 1] = [...shape].reverse();
  const full: Dimensions = [sequences, heads, rows, keys];
  // In other libraries the first dimension counts sequences: [batch, kvLen] is padding, [batch, qLen, kvLen] and
  // [batch·numHeads, qLen, kvLen] are a mask of each sequence.
  const bySequence: Dimensions = rank === 2 ? [rows, 1, 1, keys] : [batch, heads / batch, rows, keys];
  const alsoFits = (rank === 2 || rank === 3) && fits(bySequence);
  const other = shapeText(bySequence);
  if (!fits(full)) fail(`a shape that broadcasts to ${shapeText(most)}${alsoFits ? `, such as ${other}` : ""}`);
  // With one sequence, both readings are the same.
  if (alsoFits && bySequence[0] > 1)
    fail(`${shapeText(full)} (by ${rank === 2 ? "query" : "head"}) or ${other} (by sequence)`);
  return full;
}

/** Elements that `writeKeep` and `writeBias` write for a segment of `rows` query rows. */
export function maskElements(masks: CheckedMasks, target: MaskTarget, rows: number): number {
  return (masks.perHead ? target.numHeads : 1) * (masks.perRow ? rows : 1) * target.kvLen;
}

/**
 * Writes [heads or 1][rows or 1][kvLen] bytes for query rows begin..end of one batch row: not 0 if all masks allow the key
 * and it is among the first `length`, else 0.
 */
export function writeKeep(
  into: Uint8Array,
  masks: CheckedMasks,
  target: MaskTarget,
  batch: number,
  begin: number,
  end: number,
  length: number,
): void {
  into.fill(1);
  for (const [i, plane] of masks.keep.entries())
    writePlane(into, masks, target, plane, batch, begin, end, 0, (part, to) => {
      if (i === 0 && !plane.drops) into.set(part, to);
      else exclude(into.subarray(to, to + part.length), part, plane.drops);
    });
  const { kvLen } = target;
  if (length < kvLen) for (let row = 0; row < into.length; row += kvLen) into.fill(0, row + length, row + kvLen);
}

/** into[j] = 0 where data[j] is 0, or with `drops` where it is not: by arithmetic, because branches would be mispredicted. */
function exclude(into: Uint8Array, data: Uint8Array, drops: boolean): void {
  const kept = Number(!drops);
  for (let j = 0; j < data.length; j++) into[j]! &= -((((data[j] as number) - 1) >>> 31) ^ kept);
}

/** Writes the bias in the same way, as floats; -Infinity beyond a short last dimension. */
export function writeBias(
  into: Float32Array,
  masks: CheckedMasks,
  target: MaskTarget,
  batch: number,
  begin: number,
  end: number,
): void {
  const { bias } = masks;
  if (bias) writePlane(into, masks, target, bias, batch, begin, end, -Infinity, (part, to) => into.set(part, to));
}

/**
 * Calls `put` for the rows of the written block, with the elements of the mask and the place in `into`, and writes `rest` beyond
 * a short last dimension. Rows of whole length that lie behind each other in both are put at once.
 */
function writePlane<Data extends Uint8Array | Float32Array>(
  into: Data,
  masks: CheckedMasks,
  target: MaskTarget,
  { shape, data }: Plane<Data>,
  batch: number,
  begin: number,
  end: number,
  rest: number,
  put: (part: Data, to: number) => void,
): void {
  const { numHeads, kvLen } = target;
  const [planeBatch, planeHeads, planeRows, length] = shape;
  const heads = masks.perHead ? numHeads : 1;
  const rows = masks.perRow ? end - begin : 1;
  const step = planeRows > 1 && length === kvLen ? rows : 1;
  for (let h = 0; h < heads; h++)
    for (let r = 0; r < rows; r += step) {
      const row = planeRows === 1 ? 0 : begin + r;
      const head = planeHeads === 1 ? 0 : h;
      const from = (((planeBatch === 1 ? 0 : batch) * planeHeads + head) * planeRows + row) * length;
      const to = (h * rows + r) * kvLen;
      let part = data.subarray(from, from + step * length) as Data;
      // One element for all keys.
      if (part.length === 1) part = into.slice(0, kvLen).fill(part[0] as number) as Data;
      put(part, to);
      into.fill(rest, to + part.length, to + kvLen);
    }
}
