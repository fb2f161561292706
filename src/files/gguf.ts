// GGUF files: their header, and their tensors.

import { type BlockTensor, FILE_BLOCKS, shapeText } from "../base/tensor/dtypes.ts";
import { GGML_FORMATS, type GgmlDtype, ggmlBlocks, isGgmlDtype, widenGgml } from "../base/tensor/ggml-blocks.ts";
import { describe, HeadwiseError, showBytes } from "../base/util/errors.ts";
import {
  type ByteSource,
  type BytesOrSource,
  createArray,
  type OpenSource,
  readRange,
  toSource,
} from "./byte-source.ts";
import { createTensorFile, joinFiles, otherKind, type TensorEntry, type TensorFile } from "./tensor-file.ts";

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
function readGgufHeader<Entry>(
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

// A model in GGUF: one file, or several that are numbered.

/** An opened GGUF file. Shapes have the outermost dimension first, so a matrix is [outputs, inputs]. */
export type GgufFile = TensorFile<GgufValue>;

/**
 * The types of tensors by number: name, elements of a block and bytes of a block. Missing numbers are retired types. I2_S is that of
 * bitnet.cpp.
 */
const TYPES: ReadonlyMap<number, readonly [name: string, length: number, bytes: number]> = new Map([
  [0, ["F32", 1, 4]],
  [1, ["F16", 1, 2]],
  [2, ["Q4_0", 32, 18]],
  [3, ["Q4_1", 32, 20]],
  [6, ["Q5_0", 32, 22]],
  [7, ["Q5_1", 32, 24]],
  [8, ["Q8_0", 32, 34]],
  [9, ["Q8_1", 32, 36]],
  [10, ["Q2_K", 256, 84]],
  [11, ["Q3_K", 256, 110]],
  [12, ["Q4_K", 256, 144]],
  [13, ["Q5_K", 256, 176]],
  [14, ["Q6_K", 256, 210]],
  [15, ["Q8_K", 256, 292]],
  [16, ["IQ2_XXS", 256, 66]],
  [17, ["IQ2_XS", 256, 74]],
  [18, ["IQ3_XXS", 256, 98]],
  [19, ["IQ1_S", 256, 50]],
  [20, ["IQ4_NL", 32, 18]],
  [21, ["IQ3_S", 256, 110]],
  [22, ["IQ2_S", 256, 82]],
  [23, ["IQ4_XS", 256, 136]],
  [24, ["I8", 1, 1]],
  [25, ["I16", 1, 2]],
  [26, ["I32", 1, 4]],
  [27, ["I64", 1, 8]],
  [28, ["F64", 1, 8]],
  [29, ["IQ1_M", 256, 56]],
  [30, ["BF16", 1, 2]],
  [34, ["TQ1_0", 256, 54]],
  [35, ["TQ2_0", 256, 66]],
  [36, ["I2_S", 128, 32]],
  [39, ["MXFP4", 32, 17]],
  [40, ["NVFP4", 64, 36]],
  [41, ["Q1_0", 128, 18]],
  [42, ["Q2_0", 64, 18]],
]);

const WHERE = "openGguf";

/** Bytes of the first read; longer headers are read in several steps, each as long as what was read before. */
const FIRST = 2 ** 16;

/**
 * Opens a GGUF file (version 2 or 3) of any size: reads and checks its header. Tensors of F32, F16, BF16, Q8_0 and Q4_0 can
 * then be read as they are stored. Those of Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ1_S to IQ4_XS, Q1_0, Q2_0, TQ1_0, TQ2_0, I2_S, MXFP4 and
 * NVFP4 are
 * widened to F32 as they are read, to the values that ggml gives them; those of other types are only listed. In text that is not
 * valid UTF-8, U+FFFD replaces the wrong bytes.
 * @throws TypeError for a `source` of another type. HeadwiseError `BAD_FILE` for bytes that cannot be read and for a file
 * that breaks the format, with the key or tensor, the rule and the value: a truncated file, counts and lengths beyond the
 * file, duplicates, unknown types, and tensors that overlap, are misaligned, exceed the file or have incomplete blocks. For
 * a file of another format, it says what the file looks like and what to do.
 * @example
 * import { openGguf, toFloats } from "headwise/weights";
 * // A header of no keys and one tensor "w" of two F32, then its bytes at a multiple of 32.
 * const bytes = new Uint8Array(96);
 * bytes.set(new TextEncoder().encode("GGUF"));
 * const view = new DataView(bytes.buffer);
 * const longs = [[8, 1], [16, 0], [24, 1], [37, 2], [49, 0]] as const; // tensors, keys, a name's length, 2 elements, offset
 * for (const [at, value] of longs) view.setBigUint64(at, BigInt(value), true);
 * for (const [at, value] of [[4, 3], [33, 1], [45, 0]] as const) view.setUint32(at, value, true); // version, rank, F32
 * bytes[32] = "w".charCodeAt(0);
 * view.setFloat32(64, 1.5, true);
 * const file = await openGguf(bytes.subarray(0, 72));
 * console.log(file.tensors.get("w")?.shape, toFloats(await file.read("w")).join(" ")); // [ 2 ] 1.5 0
 */
export async function openGguf(source: BytesOrSource): Promise<GgufFile> {
  return openConverted(source, (where, dtype, bytes, tail) => {
    const format = GGML_FORMATS[dtype];
    const widened = createArray(where, 4 * (bytes.length / format.bytes) * format.length, "readRows");
    widenGgml(dtype, bytes, tail, new Float32Array(widened.buffer));
    return { dtype: "F32", bytes: widened };
  });
}

/** Opens a file whose tensors are read as they are stored, those of other blocks than Q8_0 and Q4_0 with their coded dtypes. */
export function openCodedGguf(source: BytesOrSource): Promise<GgufFile> {
  // Tensors of a type have one object, except where each has a tail of its own.
  const known = new Map<GgmlDtype, ReturnType<typeof ggmlBlocks>>();
  return openConverted(source, (_where, dtype, bytes, tail) => {
    // The next read may overwrite the tail.
    const blocks = known.get(dtype) ?? ggmlBlocks(dtype, tail.slice());
    if (tail.length === 0) known.set(dtype, blocks);
    return { dtype: GGML_FORMATS[dtype].coded, bytes, [FILE_BLOCKS]: blocks };
  });
}

async function openConverted(
  source: BytesOrSource,
  convert: (
    where: string,
    dtype: GgmlDtype,
    bytes: Uint8Array,
    tail: Uint8Array,
  ) => Pick<BlockTensor, "dtype" | "bytes" | typeof FILE_BLOCKS>,
): Promise<GgufFile> {
  const from = toSource(WHERE, source);
  const { metadata, tensors, alignment, start } = await readHeader(from);
  placeTensors(tensors, alignment, start, from);
  return createTensorFile(from, metadata, tensors, ["F32", "F16", "BF16", "Q8_0", "Q4_0"], {
    dtypes: Object.keys(GGML_FORMATS),
    tailOf: (dtype) => (isGgmlDtype(dtype) ? (GGML_FORMATS[dtype].tail ?? 0) : 0),
    convert: (where, dtype, bytes, tail) => convert(where, dtype as GgmlDtype, bytes, tail),
  });
}

/** Reads the metadata of a file alone. */
export async function readGgufMetadata(source: BytesOrSource): Promise<Pick<GgufFile, "metadata">> {
  const { metadata } = await readHeader(toSource(WHERE, source));
  return { metadata };
}

/** Reads until the header is complete. What was read doubles, so that a byte is scanned twice on average. */
async function readHeader(source: ByteSource) {
  let bytes = await readRange(WHERE, source, 0, Math.min(FIRST, source.size));
  for (;;) {
    const header = readGgufHeader(WHERE, bytes, source.size, createEntry);
    if (typeof header !== "number") return header;
    const length = Math.min(Math.max(header, 2 * bytes.length), source.size);
    const grown = new Uint8Array(length);
    grown.set(bytes);
    grown.set(await readRange(WHERE, source, bytes.length, length - bytes.length), bytes.length);
    bytes = grown;
  }
}

/** An entry whose offset is one in the data until it is placed in the file. */
type Entry = Omit<TensorEntry, "offset"> & { offset: number };

function createEntry(name: string, shape: readonly number[], type: number, offset: number): Entry {
  const [dtype, length, blockBytes] = TYPES.get(type) ?? fail(name, "a known type", `type ${type}`);
  if ((shape.at(-1) ?? 1) % length !== 0) fail(name, `rows of whole blocks (${length}) for ${dtype}`, shapeText(shape));
  let elements = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    elements *= shape[axis] as number;
    if (elements > Number.MAX_SAFE_INTEGER) fail(name, "fewer than 2^53 elements", shapeText(shape));
  }
  const tail = isGgmlDtype(dtype) ? (GGML_FORMATS[dtype].tail ?? 0) : 0;
  return { name, dtype, shape, offset, bytes: (elements / length) * blockBytes + tail };
}

/** Places the tensors in the file, after they are compared with each other and with the file's size. */
function placeTensors(
  tensors: ReadonlyMap<string, Entry>,
  alignment: number,
  start: number,
  { size, note = "" }: OpenSource,
): void {
  const laid: Entry[] = [];
  for (const entry of tensors.values()) {
    const { name, offset, bytes } = entry;
    if (offset % alignment !== 0) fail(name, `an offset that is a multiple of ${alignment}`, offset);
    entry.offset = start + offset;
    if (entry.offset + bytes > size)
      fail(name, `to end within the file (${size} bytes)${note}`, `${bytes} bytes at ${entry.offset}`);
    if (bytes > 0) laid.push(entry);
  }
  let covered: Entry | undefined;
  for (const entry of laid.sort((a, b) => a.offset - b.offset)) {
    const end = covered === undefined ? 0 : covered.offset + covered.bytes;
    if (entry.offset < end)
      fail(entry.name, `to begin after ${describe(covered?.name)}, which ends at ${end}`, entry.offset);
    covered = entry;
  }
}

function fail(name: string, rule: string, got: string | number): never {
  throw new HeadwiseError("BAD_FILE", `${WHERE}: tensor ${describe(name)} expected ${rule}, got ${got}`);
}

/** The opened files of a model. */
interface GgufParts {
  /** The first file, with the tensors of all. */
  readonly description: GgufFile;
  readonly file: Pick<GgufFile, "readAll" | "readRows">;
  /** Those whose blocks are coded as they are read have that dtype. */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
}

/** Throws if what a file says of itself is not that it is part `part`, from 0, of as many parts and tensors as the first one. */
function expectPart(
  where: string,
  name: string,
  part: number,
  file: Pick<GgufFile, "metadata">,
  first: Pick<GgufFile, "metadata">,
): void {
  for (const key of ["split.no", "split.count", "split.tensors.count"]) {
    const stated = file.metadata.get(key);
    const expected = key === "split.no" ? part : first.metadata.get(key);
    if (stated === undefined || expected === undefined || Number(stated) === Number(expected)) continue;
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: key "${key}" of ${describe(name)} expected ${describe(expected)}, got ${describe(stated)}`,
    );
  }
}

/** Opens the file `name`, and the other parts of the model if it is one of several. */
export async function openGgufParts(
  where: string,
  name: string,
  open: (name: string) => Promise<ByteSource>,
): Promise<GgufParts> {
  const [, digits] = PART.exec(name) ?? [];
  const count = Number(digits ?? 1);
  const nameOf = (part: number) =>
    digits === undefined ? name : name.replace(PART, `-${`${part}`.padStart(5, "0")}-of-${digits}.gguf`);
  const files = new Map<string, TensorFile<GgufFile["metadata"] extends ReadonlyMap<string, infer V> ? V : never>>();
  for (let part = 1; part <= count; part++) files.set(nameOf(part), await openCodedGguf(await open(nameOf(part))));
  const first = files.get(nameOf(1)) as GgufFile;
  const stated = Number(first.metadata.get("split.count") ?? 1);
  if (Math.max(stated, 1) !== count)
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: source expected ${stated} files named ${describe(`NAME-00001-of-${`${stated}`.padStart(5, "0")}.gguf`)}, ` +
        `got ${describe(name)}`,
    );
  for (const [i, [own, file]] of [...files].entries()) expectPart(where, own, i, file, first);
  const owners = new Map<string, string>();
  const tensors = new Map<string, TensorEntry>();
  for (const [owner, file] of files)
    for (const [tensor, entry] of file.tensors) {
      if (owners.has(tensor))
        throw new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(tensor)} expected in one file, got it in two`);
      owners.set(tensor, owner);
      tensors.set(tensor, isGgmlDtype(entry.dtype) ? { ...entry, dtype: GGML_FORMATS[entry.dtype].coded } : entry);
    }
  const all = joinFiles(owners, files);
  const read: GgufFile["read"] = async (tensor, from) => (await all.readAll([tensor], from)).get(tensor)!;
  return { description: { metadata: first.metadata, tensors, read, ...all }, file: all, tensors };
}

/** Names of parts: NAME-00001-of-00003.gguf. */
export const PART: RegExp = /-\d{5}-of-(?!00000)(\d{5})\.gguf$/i;
