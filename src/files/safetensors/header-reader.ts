import { BITS, type PlainDtype, shapeText } from "../../tensor/dtypes.ts";
import { describe, HeadwiseError, showBytes, tagOf } from "../../util/errors.ts";
import { otherKind } from "../file-kind.ts";
import { scanHeader } from "./header-scanner.ts";

/** The limit of the format, in bytes: a longer header is an attack rather than a model. */
export const LARGEST_HEADER = 100_000_000;
const LARGEST_U64 = 2n ** 64n - 1n;

/** The names of all dtypes, each as one string, however many tensors of a header state it. */
const DTYPES: ReadonlyMap<string, PlainDtype> = new Map(
  (Object.keys(BITS) as PlainDtype[]).map((dtype) => [dtype, dtype]),
);

/** The length of the header, stated in the first 8 bytes of a file of `size` bytes; undefined if it cannot be that long. */
export function headerLength(head: Uint8Array, size: number): number | undefined {
  if (head.length < 8) return undefined;
  const length = new DataView(head.buffer, head.byteOffset, 8).getBigUint64(0, true);
  return length <= LARGEST_HEADER && length <= size - 8 ? Number(length) : undefined;
}

/**
 * Throws if the first KIND_BYTES of a file show that it is of another format, or state a length that no header can have.
 * For a file whose header does not begin with a brace; `argument` is the name of what was given.
 */
export function checkStart(where: string, argument: string, head: Uint8Array, size: number): void {
  const other = otherKind(where, argument, "a safetensors file", head);
  if (other !== undefined) throw other;
  if (head.length < 8) throw refusal(where, `${argument} expected an 8-byte header length`, `${head.length} bytes`);
  const length = new DataView(head.buffer, head.byteOffset, 8).getBigUint64(0, true);
  const got = `${length} (the file begins with ${showBytes(head.subarray(0, 8))})`;
  if (length > LARGEST_HEADER) throw refusal(where, `header length expected <= ${LARGEST_HEADER} bytes`, got);
  if (length > size - 8) throw refusal(where, `header length expected <= ${size - 8}, the bytes after it`, `${length}`);
}

/** Whether a header begins as it must. */
export function hasBrace(header: Uint8Array): boolean {
  return header[0] === 0x7b;
}

/** Makes the record of a tensor with bytes [begin, end) of the data. */
export type CreateEntry<Entry> = (
  name: string,
  dtype: PlainDtype,
  shape: readonly number[],
  begin: number,
  end: number,
) => Entry;

/**
 * Reads a header and checks it against itself and against the length of the data. A header may state a million tensors:
 * nothing is made for each but its record and the two ends of its range. `note` is why the data may be too short.
 */
export function readHeader<Entry>(
  where: string,
  bytes: Uint8Array,
  dataLength: number,
  create: CreateEntry<Entry>,
  note: string,
): { metadata: ReadonlyMap<string, string>; tensors: Map<string, Entry> } {
  const tensors = new Map<string, Entry>();
  const begins: number[] = [];
  const ends: number[] = [];
  const metadata = scanHeader(where, decode(where, bytes), (name, word, shape, begin, end) => {
    const dtype = DTYPES.get(word);
    if (dtype === undefined)
      throw refusal(where, `tensor ${describe(name)} dtype expected ${Object.keys(BITS).join(", ")}`, describe(word));
    const fault = faultOf(dtype, shape, begin, end, dataLength, note);
    if (fault !== undefined) throw refusal(where, `tensor ${describe(name)} ${fault.rule}`, fault.got);
    begins.push(begin);
    ends.push(end);
    tensors.set(name, create(name, dtype, shape, begin, end));
    // A name that was there already did not make the map larger. Looking it up first would take a second search of the map.
    return tensors.size === begins.length;
  });

  // In order of their offsets, ranges must follow each other without overlap or hole, and cover the data.
  const order = Array.from(begins.keys());
  order.sort((a, b) => begins[a]! - begins[b]! || ends[a]! - ends[b]!);
  let covered = 0;
  for (const index of order) {
    if (begins[index] !== covered) {
      const name = describe(Array.from(tensors.keys())[index]);
      const got = `[${begins[index]}, ${ends[index]}]`;
      throw refusal(where, `tensor ${name} data_offsets expected to begin at ${covered}`, got);
    }
    covered = ends[index]!;
  }
  if (covered !== dataLength)
    throw refusal(where, `data expected ${covered} bytes, as the tensors cover`, `${dataLength}`);
  return { metadata, tensors };
}

/** What is wrong with a tensor whose entry gives bytes [begin, end) of the data; undefined if nothing is. */
function faultOf(
  dtype: PlainDtype,
  shape: readonly number[],
  begin: number,
  end: number,
  dataLength: number,
  note: string,
): { readonly rule: string; readonly got: string } | undefined {
  const bits = bitsOf(shape, BITS[dtype]);
  const bytes = typeof bits === "bigint" ? bits / 8n : (bits ?? 0) / 8;
  // A size that takes a bigint is larger than any range.
  if (end <= dataLength && end - begin === bytes && bits !== undefined) return undefined;
  const tensor = `${dtype} ${shapeText(shape)}`;
  if (bits === undefined) return { rule: "expected a size below 2^64 bits", got: tensor };
  if (typeof bytes === "number" && !Number.isInteger(bytes))
    return { rule: "expected to end on a whole byte", got: tensor };
  const range = `[${begin}, ${end}]`;
  if (end > dataLength) return { rule: `data_offsets expected to end within ${dataLength} bytes${note}`, got: range };
  return { rule: `expected ${bytes} bytes for ${tensor}`, got: `data_offsets ${range}` };
}

/**
 * Bits of a tensor, as a bigint if a number does not hold them exactly; undefined if a partial product exceeds 64 bits, even
 * if a later dimension is 0.
 */
function bitsOf(shape: readonly number[], elementBits: number): number | bigint | undefined {
  let bits = 1;
  for (const length of shape) {
    bits *= length;
    if (bits > Number.MAX_SAFE_INTEGER) return exactBitsOf(shape, elementBits);
  }
  bits *= elementBits;
  return bits > Number.MAX_SAFE_INTEGER ? exactBitsOf(shape, elementBits) : bits;
}

function exactBitsOf(shape: readonly number[], elementBits: number): number | bigint | undefined {
  let bits = 1n;
  for (const length of [...shape, elementBits]) {
    bits *= BigInt(length);
    if (bits > LARGEST_U64) return undefined;
  }
  return bits > Number.MAX_SAFE_INTEGER ? bits : Number(bits);
}

function decode(where: string, bytes: Uint8Array): string {
  const { buffer } = bytes;
  // A TextDecoder may refuse memory that is shared or that can be resized. Other headers are not copied.
  const isPlain = tagOf(buffer) === "ArrayBuffer" && !(buffer as { readonly resizable?: boolean }).resizable;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(isPlain ? bytes : bytes.slice());
  } catch (cause) {
    throw new HeadwiseError("BAD_FILE", `${where}: header expected valid UTF-8, got other bytes`, { cause });
  }
}

function refusal(where: string, rule: string, got: string): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${where}: ${rule}, got ${got}`);
}
