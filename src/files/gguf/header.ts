import { describe, HeadwiseError, showBytes } from "../../base/util/errors.ts";
import { otherKind } from "../tensor-file.ts";

/** An array in GGUF metadata. Booleans are bytes, 0 or 1. */
export type GgufArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array
  | BigUint64Array
  | BigInt64Array
  | readonly string[]
  | readonly GgufArray[];

/** A value in GGUF metadata. Integers of 64 bits are bigints. */
export type GgufValue = number | bigint | boolean | string | GgufArray;

/**
 * Makes the record of a tensor from what the header states of it: its dimensions, the outermost first, the number of its
 * type, and the byte offset in the data.
 */
type CreateEntry<Entry> = (name: string, shape: readonly number[], type: number, offset: number) => Entry;

/** The content of the header, before its tensors are compared with each other and with the data. */
interface GgufHeader<Entry> {
  readonly metadata: ReadonlyMap<string, GgufValue>;
  /** By name. */
  readonly tensors: ReadonlyMap<string, Entry>;
  readonly alignment: number;
  /** The offset of the data in the file. */
  readonly start: number;
}

/** The most bytes of a header; the format has no limit. Vocabularies of 256 thousand tokens take some 20 MB. */
const LARGEST_HEADER = 100_000_000;
/** The most tensors, and the most keys. */
const MOST_ENTRIES = 2 ** 20;
const MOST_DIMENSIONS = 4;
/** Limits of nested arrays: their depth and their number. No known file nests arrays. */
const MOST_DEPTH = 4;
const MOST_NESTED = 2 ** 16;
const LONGEST_KEY = 2 ** 16 - 1;
const LARGEST_ALIGNMENT = 2 ** 20;

const STRING = 8;
const ARRAY = 9;
const BOOL = 7;

/** Numeric types by number: bytes, how one is read, and the typed array for many. */
const NUMBERS = new Map<
  number,
  {
    readonly width: number;
    readonly one: (view: DataView, at: number) => number | bigint;
    readonly all: new (bytes: ArrayBuffer) => Exclude<GgufArray, readonly unknown[]>;
  }
>([
  [0, { width: 1, one: (view, at) => view.getUint8(at), all: Uint8Array }],
  [1, { width: 1, one: (view, at) => view.getInt8(at), all: Int8Array }],
  [2, { width: 2, one: (view, at) => view.getUint16(at, true), all: Uint16Array }],
  [3, { width: 2, one: (view, at) => view.getInt16(at, true), all: Int16Array }],
  [4, { width: 4, one: (view, at) => view.getUint32(at, true), all: Uint32Array }],
  [5, { width: 4, one: (view, at) => view.getInt32(at, true), all: Int32Array }],
  [6, { width: 4, one: (view, at) => view.getFloat32(at, true), all: Float32Array }],
  [BOOL, { width: 1, one: (view, at) => view.getUint8(at), all: Uint8Array }],
  [10, { width: 8, one: (view, at) => view.getBigUint64(at, true), all: BigUint64Array }],
  [11, { width: 8, one: (view, at) => view.getBigInt64(at, true), all: BigInt64Array }],
  [12, { width: 8, one: (view, at) => view.getFloat64(at, true), all: Float64Array }],
]);

/** Thrown if the bytes end before the file does: the bytes up to `end`, at least, are needed. */
class MoreNeeded {
  readonly end: number;
  constructor(end: number) {
    this.end = end;
  }
}

/**
 * Reads a header from the first `bytes` of a file of `size` bytes. If they do not suffice, returns how many it needs at
 * least. Lengths and counts are compared with the file's size before anything of that size is allocated.
 */
export function readGgufHeader<Entry>(
  where: string,
  bytes: Uint8Array,
  size: number,
  create: CreateEntry<Entry>,
): GgufHeader<Entry> | number {
  try {
    // The first scan decodes and keeps nothing; the second one runs on a complete header.
    scan(where, bytes, size, undefined);
    return scan(where, bytes, size, create);
  } catch (error) {
    if (error instanceof MoreNeeded) return error.end;
    throw error;
  }
}

/** Text of up to this many bytes is decoded here: calling a decoder for each word of a vocabulary takes a second. */
const SHORT_TEXT = 64;

/**
 * Decodes UTF-8 with characters below U+0800; undefined if there are others, or errors. `codes` is a buffer for them.
 */
function decodeShort(bytes: Uint8Array, begin: number, end: number, codes: Uint16Array): string | undefined {
  let count = 0;
  for (let at = begin; at < end; at++) {
    const byte = bytes[at]!;
    if (byte < 0x80) codes[count++] = byte;
    else {
      at++;
      const next = at < end ? bytes[at]! : 0;
      if (byte < 0xc2 || byte > 0xdf || (next & 0xc0) !== 0x80) return undefined;
      codes[count++] = ((byte & 0x1f) << 6) | (next & 0x3f);
    }
  }
  return String.fromCharCode.apply(undefined, codes.subarray(0, count) as unknown as number[]);
}

/**
 * Scans a header, which may have a million keys and a million tensors. Without `create` it checks where everything lies, and
 * nothing else: what it returns is empty.
 */
function scan<Entry>(
  where: string,
  bytes: Uint8Array,
  size: number,
  create: CreateEntry<Entry> | undefined,
): GgufHeader<Entry> {
  const whole = create !== undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const lossy = new TextDecoder("utf-8", { ignoreBOM: true });
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const codes = new Uint16Array(SHORT_TEXT);
  let at = 0;
  let nested = 0;
  /** What is being read, for messages: its kind, its index, and where its name lies if that is known. */
  let item: "header" | "key" | "tensor" = "header";
  let index = 0;
  let nameBegin = 0;
  let nameEnd = 0;

  const place = (): string => {
    if (item === "header") return item;
    return `${item} ${nameEnd === 0 ? index : describe(lossy.decode(bytes.slice(nameBegin, nameEnd)))}`;
  };
  const fail = (rule: string, got: string | number | bigint, what = place()): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${what} expected ${rule}, got ${got}`);
  };
  /** Skips `length` bytes and returns where they begin. */
  const take = (length: number, what: string): number => {
    const begin = at;
    const end = at + length;
    if (end > size) fail(`${what} within the file (${size} bytes)`, `${length} bytes at ${begin}`);
    if (end > LARGEST_HEADER) fail(`${what} within ${LARGEST_HEADER} bytes of header`, `${length} bytes at ${begin}`);
    if (end > bytes.length) throw new MoreNeeded(end);
    at = end;
    return begin;
  };
  const takeU32 = (what: string): number => view.getUint32(take(4, what), true);
  const takeU64 = (what: string): number => {
    const begin = take(8, what);
    const high = view.getUint32(begin + 4, true);
    if (high >= 2 ** 21) fail(`${what} below 2^53`, view.getBigUint64(begin, true));
    return high * 2 ** 32 + view.getUint32(begin, true);
  };
  /** A count of items of at least `least` bytes each, which must fit in the file. */
  const takeCount = (what: string, least: number, most = Number.POSITIVE_INFINITY): number => {
    const count = takeU64(what);
    if (count > most) fail(`${what} <= ${most}`, count);
    return count * least <= size - at ? count : fail(`${what} that the file (${size} bytes) has room for`, count);
  };
  /** The text of bytes begin..end, decoded here if it is short, or else by `decoder`. */
  const textOf = (begin: number, end: number, decoder: TextDecoder): string => {
    const short = end - begin <= SHORT_TEXT ? decodeShort(bytes, begin, end, codes) : undefined;
    // A copy, since a TextDecoder may refuse shared memory.
    return short ?? decoder.decode(bytes.slice(begin, end));
  };
  const takeText = (): string => {
    const begin = take(takeU64("length of a string"), "a string");
    return whole ? textOf(begin, at, lossy) : "";
  };
  const takeName = (kind: typeof item, i: number): string => {
    item = kind;
    index = i;
    nameEnd = 0;
    const length = takeU64("length of its name");
    if (length > LONGEST_KEY) fail(`its name of at most ${LONGEST_KEY} bytes`, length);
    const begin = take(length, "its name");
    let name = "";
    try {
      if (whole) name = textOf(begin, at, strict);
    } catch {
      fail("its name in valid UTF-8", "other bytes");
    }
    nameBegin = begin;
    nameEnd = at;
    return name;
  };
  const takeType = (): number => {
    const type = takeU32("type of a value");
    return type <= 12 ? type : fail("a type of value from 0 to 12", type);
  };
  const takeArray = (depth: number): GgufArray => {
    const type = takeType();
    const number = NUMBERS.get(type);
    const count = takeCount("length of an array", number?.width ?? (type === STRING ? 8 : 12));
    const items: (string | GgufArray)[] = [];
    if (number !== undefined) {
      const begin = take(count * number.width, "an array");
      if (!whole) return items as GgufArray;
      const all = new number.all(bytes.slice(begin, at).buffer as ArrayBuffer);
      if (type === BOOL && all.some((flag: number | bigint) => flag > 1)) fail("booleans of 0 or 1", "another");
      return all;
    }
    if (type === ARRAY) {
      if (depth === MOST_DEPTH) fail(`arrays at most ${MOST_DEPTH} deep`, "a deeper one");
      nested += count;
      if (nested > MOST_NESTED) fail(`at most ${MOST_NESTED} arrays within arrays`, nested);
    }
    for (let i = 0; i < count; i++) {
      const one = type === STRING ? takeText() : takeArray(depth + 1);
      if (whole) items.push(one);
    }
    return items as GgufArray;
  };
  const takeValue = (): GgufValue => {
    const type = takeType();
    if (type === STRING) return takeText();
    if (type === ARRAY) return takeArray(1);
    const { width, one } = NUMBERS.get(type)!;
    const value = one(view, take(width, "a value"));
    if (type !== BOOL) return value;
    return value === 0 || value === 1 ? value === 1 : fail("a boolean of 0 or 1", value);
  };

  const magic = bytes.subarray(0, Math.min(4, bytes.length));
  if (String.fromCharCode(...magic) !== "GGUF")
    throw otherKind(where, "source", "a GGUF file", bytes) ?? fail("to begin with GGUF", showBytes(magic));
  at = 4;
  const version = takeU32("version");
  if (version === 1) fail("version 2 or 3", "1, whose counts have 32 bits");
  if (version % 2 ** 16 === 0 && version > 0) fail("little-endian numbers", "a big-endian file");
  if (version !== 2 && version !== 3) fail("version 2 or 3", version);
  // A tensor takes at least 24 bytes and a key at least 13.
  const tensorCount = takeCount("tensor count", 24, MOST_ENTRIES);
  const keyCount = takeCount("key count", 13, MOST_ENTRIES);

  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < keyCount; i++) {
    const key = takeName("key", i);
    if (metadata.has(key)) fail("to be there once", "it again");
    const value = takeValue();
    if (whole) metadata.set(key, value);
  }
  const alignment = metadata.get("general.alignment") ?? 32;
  if (typeof alignment !== "number" || alignment < 1 || alignment > LARGEST_ALIGNMENT || !isPowerOfTwo(alignment))
    return fail(`a power of two up to ${LARGEST_ALIGNMENT}`, describe(alignment), 'key "general.alignment"');

  const tensors = new Map<string, Entry>();
  for (let i = 0; i < tensorCount; i++) {
    const name = takeName("tensor", i);
    const dimensions = takeU32("its dimensions");
    if (dimensions > MOST_DIMENSIONS) fail(`at most ${MOST_DIMENSIONS} dimensions`, dimensions);
    const shape = new Array<number>(dimensions);
    // The file has the innermost dimension first.
    for (let axis = dimensions - 1; axis >= 0; axis--) shape[axis] = takeU64("the length of a dimension");
    const type = takeU32("its type");
    const offset = takeU64("its offset");
    if (create === undefined) continue;
    tensors.set(name, create(name, shape, type, offset));
    if (tensors.size === i) fail("to be there once", "it again");
  }
  return { metadata, tensors, alignment, start: Math.ceil(at / alignment) * alignment };
}

function isPowerOfTwo(value: number): boolean {
  return Number.isInteger(value) && (value & (value - 1)) === 0;
}
