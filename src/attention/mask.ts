import { expectElements, readShape, readTensor, type Tensor } from "../tensor/tensor.ts";
import { expectRecord, expectUint8Array } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";

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
  const isList = Array.isArray(data);
  if (!isList && !ArrayBuffer.isView(data))
    throw new TypeError(`${where}: ${name}.data expected Uint8Array or an array of booleans, got ${describe(data)}`);
  const shape = readShape(where, name, given);
  if (!isList) {
    const rule = "Uint8Array or an array of booleans";
    return { data: expectUint8Array(where, `${name}.data`, data, rule), shape };
  }
  const { length } = data;
  expectElements(where, name, "elements", shape, length);
  const copy = new Uint8Array(length);
  for (let i = 0; i < length; i++) {
    const allowed = data[i];
    if (typeof allowed !== "boolean")
      throw new TypeError(`${where}: ${name}.data[${i}] expected true or false, got ${describe(allowed)}`);
    copy[i] = allowed ? 1 : 0;
  }
  return { data: copy, shape };
}

type Dimensions = Plane["shape"];

/** The four dimensions of a mask. Throws unless it has as many elements, and these broadcast to the target in one way. */
function broadcast(where: string, name: string, { data, shape }: BooleanMask | Tensor, target: MaskTarget): Dimensions {
  if (shape.length < 1 || shape.length > 4)
    throw new RangeError(`${where}: ${name} expected rank 1 to 4, got shape [${shape.join(", ")}]`);
  expectElements(where, name, name === "bias" ? "floats" : "elements", shape, data.length);
  const full = [...Array<number>(4 - shape.length).fill(1), ...shape] as unknown as Dimensions;
  const other = ofSequences(shape, target);
  const otherFits = other !== undefined && fits(other, target);
  const got = `got [${shape.join(", ")}]`;
  if (!fits(full, target)) {
    const { batch, numHeads, qLen, kvLen } = target;
    const hint = otherFits ? `, as its elements do in shape [${other.join(", ")}]` : "";
    throw new RangeError(
      `${where}: ${name} expected a shape that broadcasts to [${batch}, ${numHeads}, ${qLen}, ${kvLen}]${hint}, ${got}`,
    );
  }
  // With one sequence, or one query or head, both readings are the same.
  if (otherFits && other[0] > 1) {
    const [one, second] = shape.length === 2 ? ["query", "sequence, such as padding"] : ["head", "sequence"];
    throw new RangeError(
      `${where}: ${name} expected shape [${full.join(", ")}] (for each ${one}) or [${other.join(", ")}] (for each ${second}), ` +
        `since this call has ${other[0]} of both, ${got}`,
    );
  }
  return full;
}

function fits(full: Dimensions, { batch, numHeads, qLen, kvLen }: MaskTarget): boolean {
  const most = [batch, numHeads, qLen];
  return most.every((length, axis) => full[axis] === 1 || full[axis] === length) && (full[3] === 1 || full[3] <= kvLen);
}

/**
 * The dimensions of a mask of rank 2 or 3 whose first one counts sequences, as in other libraries: [batch, kvLen] is padding,
 * [batch, qLen, kvLen] or [batch·numHeads, qLen, kvLen] a mask of each sequence.
 */
function ofSequences(shape: readonly number[], { batch }: MaskTarget): Dimensions | undefined {
  const [first = 0, second = 0, third = 0] = shape;
  if (shape.length === 2) return [first, 1, 1, second];
  if (shape.length !== 3) return undefined;
  return first === batch ? [first, 1, second, third] : [batch, first / batch, second, third];
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
