import {
  BITS,
  BLOCKS,
  type Dtype,
  isBlockDtype,
  isDtype,
  type PlainDtype,
  type StoredTensor,
  shapeText,
} from "../../base/tensor/dtypes.ts";
import { expectMatrix } from "../../base/tensor/matrix.ts";
import { elementsIn, LARGEST_LENGTH, readShape, type Tensor } from "../../base/tensor/tensor.ts";
import { expectBytes, expectFloats, expectFunction } from "../../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../../base/util/errors.ts";
import { parseJson, reasonOf } from "../../base/util/strings.ts";
import { type BytesOrSource, readRange, toSource } from "../byte-source.ts";
import { createTensorFile, expectNames, KIND_BYTES, type TensorEntry, type TensorFile } from "../tensor-file.ts";
import {
  type CreateEntry,
  checkStart,
  compareLines,
  hasBrace,
  headerLength,
  headerText,
  readHeader,
} from "./header.ts";

/** A checked safetensors file, or the files of an index taken together. */
export interface SafetensorsFile {
  /** Metadata of the header or of the index. */
  readonly metadata: ReadonlyMap<string, string>;
  /** All tensors by name. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
}

/**
 * Reads a safetensors file that is in memory; `openSafetensors` reads parts of files of any size. The whole header is checked
 * first. The tensors are views of `bytes`: nothing is copied. Q8_0 and Q4_0 that `writeSafetensors` stored as U8 get their
 * dtype and shape back, and the metadata entry "headwise.quantized" that describes them is left out.
 * @param where Name of the function in error messages.
 * @throws TypeError unless `bytes` is a Uint8Array or ArrayBuffer. HeadwiseError `BAD_FILE` for a file that breaks the format,
 * with the tensor, the rule and the value: a truncated file, invalid JSON, duplicate names, sizes that overflow, ranges that
 * overlap or do not cover the file, and blocks that differ from their metadata. For a file of another format, such as a
 * pickle of PyTorch, it says what the file looks like and what to do.
 * @example
 * import { readSafetensors, writeSafetensors } from "headwise/weights";
 * const bytes = writeSafetensors({ w: { data: new Float32Array([1, 2]), shape: [1, 2] } }, { format: "pt" });
 * const { tensors, metadata } = readSafetensors(bytes);
 * console.log(tensors.get("w")?.shape, metadata.get("format")); // [ 1, 2 ] pt
 */
export function readSafetensors(bytes: Uint8Array | ArrayBuffer, where = "readSafetensors"): SafetensorsFile {
  const file = expectBytes(where, "bytes", bytes);
  const header = file.subarray(8, 8 + (headerLength(file, file.length) ?? 0));
  if (!hasBrace(header)) checkStart(where, "bytes", file.subarray(0, KIND_BYTES), file.length);
  const data = file.subarray(8 + header.length);
  return readTensors<StoredTensor>(
    where,
    header,
    data.length,
    (name, dtype, shape, begin, end) => ({ name, dtype, shape, bytes: data.subarray(begin, end) }),
    ({ bytes }) => bytes.length,
  );
}

/**
 * The content of a header, in which the U8 tensors that its metadata declares as blocks are described as such, and that
 * metadata entry is removed.
 */
function readTensors<Entry extends StoredTensor | TensorEntry>(
  where: string,
  header: Uint8Array,
  dataLength: number,
  create: CreateEntry<Entry>,
  bytesOf: (entry: Entry) => number,
  note = "",
): { metadata: ReadonlyMap<string, string>; tensors: ReadonlyMap<string, Entry> } {
  const { metadata, tensors } = readHeader(where, header, dataLength, create, note);
  if (!metadata.has(QUANTIZED)) return { metadata, tensors };
  const quantized = quantizedIn(where, metadata);
  for (const [name, entry] of tensors)
    tensors.set(name, { ...entry, ...quantized({ ...entry, dtype: entry.dtype as Dtype }, bytesOf(entry)) });
  return { metadata: new Map([...metadata].filter(([key]) => key !== QUANTIZED)), tensors };
}

/**
 * Opens a safetensors file of any size: reads its header and checks it as `readSafetensors` does. Tensors are then read on
 * request. `readAttentionWeights` takes `{ metadata, tensors }`, with the tensors that `readAll` resolves with.
 * @throws TypeError for a `source` of another type. HeadwiseError `BAD_FILE` for bytes that cannot be read and for a file
 * that breaks the format or is of another one.
 * @example
 * import { openSafetensors, readAttentionWeights, writeSafetensors } from "headwise/weights";
 * const square = { data: new Float32Array(16), shape: [4, 4] };
 * const names = ["q", "k", "v", "o"].map((part) => `layers.0.${part}_proj.weight`);
 * const bytes = writeSafetensors(Object.fromEntries(names.map((name) => [name, square])));
 * const { metadata, readAll } = await openSafetensors(new Blob([bytes.slice()]));
 * const layer = { metadata, tensors: await readAll(names) };
 * console.log(readAttentionWeights(layer, "layers.0.").wq?.shape); // [ 4, 4 ]
 */
export async function openSafetensors(source: BytesOrSource): Promise<TensorFile<string>> {
  return openFile("openSafetensors", source);
}

/** Opens a file for the function `where`. */
export async function openFile(where: string, source: BytesOrSource): Promise<TensorFile<string>> {
  const from = toSource(where, source);
  const readHead = (most: number) => readRange(where, from, 0, Math.min(most, from.size));
  const length = headerLength(await readHead(8), from.size);
  const header = length === undefined ? new Uint8Array() : await readRange(where, from, 8, length);
  if (!hasBrace(header)) checkStart(where, "source", await readHead(KIND_BYTES), from.size);
  const start = 8 + header.length;
  const { metadata, tensors } = readTensors<TensorEntry>(
    where,
    header,
    from.size - start,
    (name, dtype, shape, begin, end) => ({ name, dtype, shape, offset: start + begin, bytes: end - begin }),
    ({ bytes }) => bytes,
    from.note,
  );
  return createTensorFile(from, metadata, tensors, Object.keys({ ...BITS, ...BLOCKS }) as Dtype[]);
}

/** A tensor to write: float32, or in any encoding. Tensors of Q8_0 and Q4_0 must be matrices. */
export type WritableTensor = Tensor | Omit<StoredTensor, "name">;

/**
 * Writes a safetensors file. All tensors are aligned to their element size. The bytes do not depend on the order in which
 * tensors are given. Safetensors has no dtype for Q8_0 and Q4_0: they are written as U8, and a metadata entry
 * "headwise.quantized" describes them, so that `readSafetensors` and `openSafetensors` decode them.
 * @param tensors Tensors by name.
 * @returns The bytes of the file.
 * @throws TypeError or RangeError for data that does not fit its shape, and for names and metadata that JSON cannot hold.
 * @example
 * import { writeSafetensors } from "headwise/weights";
 * const bytes = writeSafetensors({ "q_proj.weight": { data: new Float32Array(6), shape: [3, 2] } });
 * console.log(bytes.length % 8); // 0
 */
export function writeSafetensors(
  tensors: ReadonlyMap<string, WritableTensor> | Readonly<Record<string, WritableTensor>>,
  metadata: ReadonlyMap<string, string> | Readonly<Record<string, string>> = {},
): Uint8Array {
  const where = "writeSafetensors";
  const checks = pairs(where, "tensors", tensors).map(([name, tensor]) => readWritable(where, name, tensor));
  const notes = pairs(where, "metadata", metadata);
  const given = checks.map((check) => check());
  const stored = given.map(asBytes).sort(compareLines);
  const quantized = noteQuantized(given);
  if (quantized !== undefined) {
    if (notes.some(([key]) => key === QUANTIZED))
      throw new RangeError(`${where}: metadata ${describe(QUANTIZED)} expected none beside tensors of blocks, got one`);
    notes.push([QUANTIZED, quantized]);
  }
  const lines = stored.map(({ name, dtype, shape, bytes }) => ({ name, dtype, shape, size: bytes.length }));
  const header = headerText(where, lines, notes);
  const file = new Uint8Array(header.length + lines.reduce((sum, { size }) => sum + size, 0));
  file.set(header);
  let at = header.length;
  for (const { bytes } of stored) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}

function pairs<T>(
  where: string,
  name: string,
  source: ReadonlyMap<string, T> | Readonly<Record<string, T>>,
): [string, T][] {
  if (source === null || typeof source !== "object" || Array.isArray(source))
    throw new TypeError(`${where}: ${name} expected a Map or an object, got ${describe(source)}`);
  return tagOf(source) === "Map" ? [...(source as ReadonlyMap<string, T>)] : Object.entries(source);
}

/**
 * Reads the fields of a tensor, each once, because reading may run code of the caller's. The result checks them, and gives the
 * tensor as it is stored.
 */
function readWritable(where: string, name: string, tensor: WritableTensor): () => StoredTensor {
  const what = `tensor ${describe(name)}`;
  if (name === "__metadata__") throw new RangeError(`${where}: name expected other than "__metadata__", got it`);
  if (tensor === null || typeof tensor !== "object")
    throw new TypeError(
      `${where}: ${what} expected { data, shape } or { dtype, shape, bytes }, got ${describe(tensor)}`,
    );
  const hasData = "data" in tensor;
  const { dtype, shape: given, bytes, data } = tensor as StoredTensor & Tensor;
  const shape = readShape(where, what, given, LARGEST_LENGTH);
  return hasData
    ? () => asStored(where, what, name, shape, data)
    : () => checkStored(where, what, { name, dtype, shape, bytes });
}

function asStored(where: string, what: string, name: string, shape: readonly number[], data: unknown): StoredTensor {
  const { buffer, byteOffset, byteLength, length } = expectFloats(where, `${what} data`, data);
  const size = elementsIn(shape);
  if (length !== size) throw new RangeError(`${where}: ${what} expected ${size} floats, got ${length}`);
  return { name, dtype: "F32", shape, bytes: new Uint8Array(buffer, byteOffset, byteLength) };
}

function checkStored(where: string, what: string, tensor: StoredTensor): StoredTensor {
  const { name, dtype, shape } = tensor;
  if (isBlockDtype(dtype)) return { ...expectMatrix(where, what, tensor, "out-in"), name };
  if (!isDtype(dtype))
    throw new RangeError(`${where}: ${what} dtype expected ${Object.keys(BITS).join(", ")}, got ${describe(dtype)}`);
  const bytes = expectBytes(where, `${what} bytes`, tensor.bytes);
  const bits = elementsIn(shape) * BITS[dtype];
  if (bytes.length * 8 !== bits)
    throw new RangeError(`${where}: ${what} expected ${bits / 8} bytes, got ${bytes.length}`);
  return { name, dtype, shape, bytes };
}

// Quantised blocks in safetensors files: the file holds them as bytes (U8), and its metadata states their format.

/** The key of the metadata entry: JSON { "<tensor>": { "format": "Q8_0" or "Q4_0", "shape": [n, k] } }. */
export const QUANTIZED = "headwise.quantized";

/** A tensor of a dtype that safetensors defines. */
interface PlainTensor extends StoredTensor {
  readonly dtype: PlainDtype;
}

/** The entry for one tensor. */
interface Note {
  readonly format: keyof typeof BLOCKS;
  readonly shape: readonly [n: number, k: number];
}

/** A tensor without its bytes. */
type Description = Pick<StoredTensor, "name" | "dtype" | "shape">;

/**
 * Reads the entry and returns a function that, given a tensor and its number of bytes, describes it: as blocks if the
 * entry contains it, else unchanged. Throws BAD_FILE for an entry that breaks its form, and for a tensor that does not
 * fit its entry.
 */
export function quantizedIn(
  where: string,
  metadata: ReadonlyMap<string, string>,
): (tensor: Description, bytes: number) => Description {
  const notes = readNotes(where, metadata.get(QUANTIZED));
  return ({ name, dtype, shape }, bytes) => {
    const note = notes.get(name);
    if (note === undefined || isBlockDtype(dtype)) return { name, dtype, shape };
    const [n, width] = asPlain(note.format, note.shape).shape as [number, number];
    const size = n * width;
    if (dtype !== "U8" || bytes !== size)
      refuse(
        where,
        `tensor ${describe(name)} expected ${size} bytes of U8 for ${note.format} ${shapeText(note.shape)}`,
        `${bytes} of ${dtype}`,
      );
    return { name, dtype: note.format, shape: note.shape };
  };
}

/** The dtype and shape that a file states: bytes for a matrix of blocks, anything else unchanged. */
export function asPlain(dtype: Dtype, shape: readonly number[]): Pick<PlainTensor, "dtype" | "shape"> {
  if (!isBlockDtype(dtype)) return { dtype: dtype as PlainDtype, shape };
  const [n, k] = shape as [number, number];
  const { length, bytes } = BLOCKS[dtype];
  return { dtype: "U8", shape: [n, (k / length) * bytes] };
}

/** A tensor of blocks as the U8 that a file stores; any other tensor unchanged. */
export function asBytes({ name, dtype, shape, bytes }: StoredTensor): PlainTensor {
  return { name, ...asPlain(dtype, shape), bytes };
}

/** The entry for the blocks among `tensors`; undefined if there are none. */
export function noteQuantized(tensors: readonly Description[]): string | undefined {
  const notes = tensors
    .filter(({ dtype }) => isBlockDtype(dtype))
    .map(({ name, dtype, shape }) => [name, { format: dtype, shape }] as const);
  // Sorted, so that the bytes do not depend on the order of the tensors.
  notes.sort(([a], [b]) => (a < b ? -1 : 1));
  return notes.length === 0 ? undefined : JSON.stringify(Object.fromEntries(notes));
}

function refuse(where: string, rule: string, got: string, cause?: unknown): never {
  throw new HeadwiseError("BAD_FILE", `${where}: ${rule}, got ${got}`, { cause });
}

/** The entry by names of tensors; empty if it is absent. Throws BAD_FILE if it has another form. */
function readNotes(where: string, text: string | undefined): ReadonlyMap<string, Note> {
  if (text === undefined) return new Map();
  const what = `metadata ${describe(QUANTIZED)}`;
  let entry: unknown;
  try {
    entry = JSON.parse(text);
  } catch (cause) {
    return refuse(where, `${what} expected valid JSON`, describe(text), cause);
  }
  if (!isObject(entry)) return refuse(where, `${what} expected an object`, describe(entry));
  return new Map(Object.entries(entry).map(([name, note]) => [name, readNote(where, name, note)]));
}

function readNote(where: string, name: string, note: unknown): Note {
  const fail = (rule: string, got: string) =>
    refuse(where, `metadata ${describe(QUANTIZED)} of ${describe(name)} expected ${rule}`, got);
  if (!isObject(note)) return fail("{ format, shape }", describe(note));
  const { format, shape } = note;
  if (!isBlockDtype(format)) return fail("format Q8_0 or Q4_0", describe(format));
  const { length } = BLOCKS[format];
  const isLength = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
  if (!Array.isArray(shape) || shape.length !== 2 || !shape.every(isLength) || shape[1] % length !== 0)
    return fail(`shape [n, k], k a multiple of ${length}`, JSON.stringify(shape));
  return { format, shape: shape as [number, number] };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** An opened index of a model in several safetensors files: files are opened, and tensors read, on request. */
export interface SafetensorsIndex extends Omit<TensorFile<string>, "tensors"> {
  /** For each tensor, by name, the name of the file that it lies in. */
  readonly tensors: ReadonlyMap<string, string>;
}

/**
 * Opens a model that is stored in several safetensors files of any size, by its index, `model.safetensors.index.json`. A file
 * is opened when one of its tensors is first read: its header is checked, and then only requested tensors are read.
 * @param indexJson The text of the index, or the object it parses to.
 * @param shard Opens a file by its name in the index, a plain name without folders. It returns what `openSafetensors` takes,
 * or a promise of it, and is called once for each name, and again only if it failed.
 * @throws TypeError naming the argument. HeadwiseError `BAD_FILE` for an index that is not JSON, has no `weight_map`, or has
 * names that are not plain file names; and, when a tensor is read, for a file that cannot be opened, breaks the format or
 * does not have the tensor.
 * @example
 * import { openSafetensorsIndex, writeSafetensors } from "headwise/weights";
 * const shards = new Map([["a.safetensors", writeSafetensors({ w: { data: new Float32Array(2), shape: [2] } })]]);
 * const { read } = await openSafetensorsIndex('{"weight_map":{"w":"a.safetensors"}}', (name) => shards.get(name)!);
 * console.log((await read("w")).shape); // [ 2 ]
 */
export async function openSafetensorsIndex(
  indexJson: string | object,
  shard: (fileName: string) => BytesOrSource | Promise<BytesOrSource>,
): Promise<SafetensorsIndex> {
  const where = "openSafetensorsIndex";
  expectFunction(where, "shard", shard);
  const { metadata, files } = readIndex(where, indexJson);
  const opened = new Map<string, Promise<TensorFile<string>>>();
  const openShard = (where: string, fileName: string): Promise<TensorFile<string>> => {
    const known = opened.get(fileName);
    if (known !== undefined) return known;
    const opening = Promise.resolve(fileName)
      .then(shard)
      .catch((cause) => failShard(where, "bytes, a Blob or a source", cause))
      .then((source) => openFile(where, source));
    opened.set(fileName, opening);
    opening.catch(() => opened.delete(fileName));
    return opening;
  };
  const readAll = async (where: string, names: Iterable<string>): Promise<Map<string, StoredTensor>> => {
    const wanted = new Map<string, string[]>();
    const found = new Map<string, StoredTensor | undefined>();
    for (const name of expectNames(where, names, files)) {
      const fileName = files.get(name) as string;
      const others = wanted.get(fileName);
      if (others === undefined) wanted.set(fileName, [name]);
      else others.push(name);
      // In the order of the names, whichever file is read first.
      found.set(name, undefined);
    }
    const readShard = async ([fileName, own]: [string, string[]]) => {
      const place = `${where}: shard ${describe(fileName)}`;
      const file = await openShard(place, fileName);
      for (const name of own) if (!file.tensors.has(name)) throw missing(place, name);
      for (const [name, tensor] of await file.readAll(own, place)) found.set(name, tensor);
    };
    await Promise.all(Array.from(wanted, readShard));
    return found as Map<string, StoredTensor>;
  };
  return {
    metadata,
    tensors: files,
    read: async (name, where = "read") => (await readAll(where, [name])).get(name)!,
    async readRows(name, begin, end, where = "readRows") {
      expectNames(where, [name], files);
      const place = `${where}: shard ${describe(files.get(name))}`;
      const file = await openShard(place, files.get(name) as string);
      if (!file.tensors.has(name)) throw missing(place, name);
      return file.readRows(name, begin, end, place);
    },
    readAll: (names, where = "readAll") => readAll(where, names),
  };
}

/**
 * Reads the index of a model that is stored in several safetensors files, `model.safetensors.index.json`, with each file as a
 * whole; `openSafetensorsIndex` reads parts of files of any size. A file is read when a property of one of its tensors is
 * first used, so that reading one layer reads only the files with that layer. Files that were read stay in memory as long as
 * the result does.
 * @param indexJson The text of the index, or the object it parses to.
 * @param shard Returns the bytes of a file by its name in the index, a plain name without folders. It is called at most once
 * for each name, unless it failed.
 * @throws HeadwiseError `BAD_FILE` for an index that is not JSON, has no `weight_map`, or has names that are not plain file
 * names; and, when a tensor is used, for a file that cannot be read, breaks the format or does not have the tensor.
 * @example
 * import { readSafetensorsIndex, writeSafetensors } from "headwise/weights";
 * const shards = new Map([["a.safetensors", writeSafetensors({ w: { data: new Float32Array(2), shape: [2] } })]]);
 * const file = readSafetensorsIndex('{"weight_map":{"w":"a.safetensors"}}', (name) => shards.get(name)!);
 * console.log(file.tensors.get("w")?.dtype); // F32
 */
export function readSafetensorsIndex(
  indexJson: string | object,
  shard: (fileName: string) => Uint8Array | ArrayBuffer,
): SafetensorsFile {
  const where = "readSafetensorsIndex";
  expectFunction(where, "shard", shard);
  const { metadata, files } = readIndex(where, indexJson);
  const opened = new Map<string, SafetensorsFile>();
  const open = (place: string, fileName: string): SafetensorsFile => {
    let bytes: unknown;
    try {
      bytes = shard(fileName);
    } catch (cause) {
      failShard(place, "bytes", cause);
    }
    return readSafetensors(expectBytes(where, `shard(${describe(fileName)})`, bytes), place);
  };
  const find = (name: string): StoredTensor => {
    const fileName = files.get(name) as string;
    const place = `${where}: shard ${describe(fileName)}`;
    const file = opened.get(fileName) ?? open(place, fileName);
    opened.set(fileName, file);
    const found = file.tensors.get(name);
    if (found === undefined) throw missing(place, name);
    return found;
  };
  // An index may list a million tensors: all have the same three functions.
  const property = (field: keyof StoredTensor) => ({
    enumerable: true,
    get(this: { readonly name: string }) {
      return find(this.name)[field];
    },
  });
  const properties = { dtype: property("dtype"), shape: property("shape"), bytes: property("bytes") };
  const tensors = new Map<string, StoredTensor>();
  for (const name of files.keys()) tensors.set(name, Object.defineProperties({ name }, properties) as StoredTensor);
  return { metadata, tensors };
}

/** A plain file name: letters, digits and ._+- and spaces, not starting with a dot. No folders, no URL syntax. */
const FILE_NAME = /^[\p{L}\p{N}_][\p{L}\p{N}._+ -]*$/u;

/** The metadata of an index, and the names of the files by those of their tensors. */
function readIndex(where: string, indexJson: string | object) {
  const index = members(where, "index", parseJson(where, "index", indexJson));
  const metadata = new Map<string, string>();
  // Indexes in use contain numbers here (total_size), which the metadata of a file cannot.
  for (const [key, value] of index.has("metadata") ? members(where, "metadata", index.get("metadata")) : [])
    metadata.set(key, typeof value === "string" ? value : JSON.stringify(value));
  const files = new Map<string, string>();
  for (const [name, fileName] of members(where, "weight_map", index.get("weight_map"))) {
    if (typeof fileName !== "string" || !FILE_NAME.test(fileName))
      throw new HeadwiseError(
        "BAD_FILE",
        `${where}: weight_map of ${describe(name)} expected a plain file name, got ${describe(fileName)}`,
      );
    files.set(name, fileName);
  }
  return { metadata, files };
}

function missing(place: string, name: string): HeadwiseError {
  return new HeadwiseError("BAD_FILE", `${place} expected tensor ${describe(name)}, as weight_map says, got none`);
}

/** Throws BAD_FILE for what `shard` threw. Errors of the package are thrown as they are. */
function failShard(place: string, rule: string, cause: unknown): never {
  if (cause instanceof HeadwiseError) throw cause;
  // Node's error for files that are too large for one Buffer.
  const isTooLarge = (Object(cause) as { code?: unknown }).code === "ERR_FS_FILE_TOO_LARGE";
  const remedy = isTooLarge ? ": openSafetensorsIndex reads files of any size in parts" : "";
  throw new HeadwiseError("BAD_FILE", `${place} expected ${rule}, got ${reasonOf(cause)}${remedy}`, { cause });
}

/** The own properties of an object, as a Map: `__proto__` in a file is a name like any other. */
function members(where: string, name: string, value: unknown): Map<string, unknown> {
  if (value === null || typeof value !== "object" || Array.isArray(value))
    throw new HeadwiseError("BAD_FILE", `${where}: ${name} expected an object, got ${describe(value)}`);
  return new Map(Object.entries(value));
}
