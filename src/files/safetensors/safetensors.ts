import { BITS, BLOCKS, type Dtype, isBlockDtype, isDtype, type StoredTensor } from "../../tensor/dtypes.ts";
import { expectMatrix } from "../../tensor/matrix.ts";
import { sizeOf, type Tensor } from "../../tensor/tensor.ts";
import { describe, expectBytes, expectFunction, HeadwiseError, tagOf } from "../../util/errors.ts";
import { parseJson } from "../../util/json.ts";
import { type BytesOrSource, readRange, toSource } from "../byte-source.ts";
import { createTensorFile, type TensorEntry, type TensorFile } from "../tensor-file.ts";
import { checkHeader, headerLength } from "./header-reader.ts";
import { compareLines, headerText } from "./header-writer.ts";
import { asBytes, noteQuantized, QUANTIZED, quantizedIn } from "./quantization.ts";

/** A checked safetensors file, or the files of an index taken together. */
export interface SafetensorsFile {
  /** Metadata of the header or of the index. */
  readonly metadata: ReadonlyMap<string, string>;
  /** All tensors by name. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
}

/**
 * Reads a safetensors file that is in memory. The whole header is checked first. The tensors are views of `bytes`: nothing is
 * copied. Q8_0 and Q4_0 that `writeSafetensors` stored as U8 get their dtype and shape back, and the metadata entry
 * "headwise.quantized" that describes them is left out.
 * @param where Name of the function in error messages.
 * @throws TypeError unless `bytes` is a Uint8Array or ArrayBuffer. HeadwiseError `BAD_FILE` for a file that breaks the format,
 * with the tensor, the rule and the value: a truncated file, invalid JSON, duplicate names, sizes that overflow, ranges that
 * overlap or do not cover the file, and blocks that differ from their metadata.
 * @example
 * import { readSafetensors, writeSafetensors } from "headwise/weights";
 * const bytes = writeSafetensors({ w: { data: new Float32Array([1, 2]), shape: [1, 2] } }, { format: "pt" });
 * const { tensors, metadata } = readSafetensors(bytes);
 * console.log(tensors.get("w")?.shape, metadata.get("format")); // [ 1, 2 ] pt
 */
export function readSafetensors(bytes: Uint8Array | ArrayBuffer, where = "readSafetensors"): SafetensorsFile {
  const file = expectBytes(where, "bytes", bytes);
  const start = 8 + headerLength(where, file.subarray(0, 8), file.length);
  const data = file.subarray(start);
  const { metadata, entries } = describeTensors(where, file.subarray(8, start), data.length);
  const tensors = new Map<string, StoredTensor>();
  for (const { begin, end, ...tensor } of entries)
    tensors.set(tensor.name, { ...tensor, bytes: data.subarray(begin, end) });
  return { metadata, tensors };
}

/**
 * The content of a header, in which the U8 tensors that its metadata declares as blocks are described as such, and that
 * metadata entry is removed.
 */
function describeTensors(where: string, header: Uint8Array, dataLength: number) {
  const { metadata, entries } = checkHeader(where, header, dataLength);
  const quantized = quantizedIn(where, metadata);
  return {
    metadata: new Map([...metadata].filter(([key]) => key !== QUANTIZED)),
    entries: Array.from(entries, ([name, { dtype, shape, begin, end }]) => ({
      ...quantized({ name, dtype, shape }, end - begin),
      begin,
      end,
    })),
  };
}

/**
 * Opens a safetensors file of any size: reads its header and checks it as `readSafetensors` does. Tensors are then read on
 * request. `readAttentionWeights` takes `{ metadata, tensors }`, with the tensors that `readAll` resolves with.
 * @throws TypeError for a `source` of another type. HeadwiseError `BAD_FILE` for bytes that cannot be read and for a file
 * that breaks the format.
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
  const where = "openSafetensors";
  const from = toSource(where, source);
  const length = headerLength(where, await readRange(where, from, 0, Math.min(8, from.size)), from.size);
  const start = 8 + length;
  const { metadata, entries } = describeTensors(where, await readRange(where, from, 8, length), from.size - start);
  const tensors = new Map<string, TensorEntry>();
  for (const { begin, end, ...tensor } of entries)
    tensors.set(tensor.name, { ...tensor, offset: start + begin, bytes: end - begin });
  return createTensorFile(from, metadata, tensors, Object.keys({ ...BITS, ...BLOCKS }) as Dtype[]);
}

/** A plain file name: letters, digits and ._+- and spaces, not starting with a dot. No folders, no URL syntax. */
const FILE_NAME = /^[\p{L}\p{N}_][\p{L}\p{N}._+ -]*$/u;

/**
 * Reads the index of a model that is stored in several safetensors files, `model.safetensors.index.json`. A file is read when
 * a property of one of its tensors is first used, so that reading one layer reads only the files with that layer. Files that
 * were read stay in memory as long as the result does.
 * @param indexJson The text of the index, or the object it parses to.
 * @param shard Returns the bytes of a file by its name in the index, a plain name without folders. It is called at most once
 * for each name.
 * @throws HeadwiseError `BAD_FILE` for an index that is not JSON, has no `weight_map`, or has names that are not plain file
 * names; and, when a tensor is used, for a file that breaks the format or does not have the tensor.
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
  const index = members(where, "index", parseJson(where, "index", indexJson));
  const metadata = new Map<string, string>();
  // Indexes in use contain numbers here (total_size), which the metadata of a file cannot.
  for (const [key, value] of index.has("metadata") ? members(where, "metadata", index.get("metadata")) : [])
    metadata.set(key, typeof value === "string" ? value : JSON.stringify(value));

  const opened = new Map<string, SafetensorsFile>();
  const open = (fileName: string): SafetensorsFile => {
    const known = opened.get(fileName);
    if (known !== undefined) return known;
    const file = readSafetensors(
      expectBytes(where, `shard(${describe(fileName)})`, shard(fileName)),
      `${where}: shard ${describe(fileName)}`,
    );
    opened.set(fileName, file);
    return file;
  };

  const tensors = new Map<string, StoredTensor>();
  for (const [name, fileName] of members(where, "weight_map", index.get("weight_map"))) {
    if (typeof fileName !== "string" || !FILE_NAME.test(fileName))
      throw new HeadwiseError(
        "BAD_FILE",
        `${where}: weight_map of ${describe(name)} expected a plain file name, got ${describe(fileName)}`,
      );
    const find = (): StoredTensor => {
      const found = open(fileName).tensors.get(name);
      if (found !== undefined) return found;
      throw new HeadwiseError(
        "BAD_FILE",
        `${where}: shard ${describe(fileName)} expected tensor ${describe(name)}, as weight_map says, got none`,
      );
    };
    tensors.set(name, {
      name,
      get dtype() {
        return find().dtype;
      },
      get shape() {
        return find().shape;
      },
      get bytes() {
        return find().bytes;
      },
    });
  }
  return { metadata, tensors };
}

/** A tensor to write: float32, or in any encoding. Tensors of Q8_0 and Q4_0 must be matrices. */
export type WritableTensor = Tensor | Omit<StoredTensor, "name">;

/**
 * Writes a safetensors file. All tensors are aligned to their element size. The bytes do not depend on the order in which
 * tensors are given. Safetensors has no dtype for Q8_0 and Q4_0: they are written as U8, and a metadata entry
 * "headwise.quantized" tells `readSafetensors` and `openSafetensors` to decode them.
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
  const given = pairs(where, "tensors", tensors).map(([name, tensor]) => toStored(where, name, tensor));
  const stored = given.map(asBytes).sort(compareLines);
  const notes = pairs(where, "metadata", metadata);
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

function toStored(where: string, name: string, tensor: WritableTensor): StoredTensor {
  const what = `tensor ${describe(name)}`;
  if (name === "__metadata__") throw new RangeError(`${where}: name expected other than "__metadata__", got it`);
  if (tensor === null || typeof tensor !== "object")
    throw new TypeError(
      `${where}: ${what} expected { data, shape } or { dtype, shape, bytes }, got ${describe(tensor)}`,
    );
  const size = sizeOf(where, what, tensor.shape);
  if ("data" in tensor) {
    if (tagOf(tensor.data) !== "Float32Array")
      throw new TypeError(`${where}: ${what} data expected Float32Array, got ${describe(tensor.data)}`);
    if (tensor.data.length !== size)
      throw new RangeError(`${where}: ${what} expected ${size} floats, got ${tensor.data.length}`);
    const { buffer, byteOffset, byteLength } = tensor.data;
    return { name, dtype: "F32", shape: tensor.shape, bytes: new Uint8Array(buffer, byteOffset, byteLength) };
  }
  const { dtype, shape } = tensor;
  if (isBlockDtype(dtype)) {
    const { bytes } = expectMatrix(where, what, tensor, "out-in");
    return { name, dtype, shape, bytes };
  }
  if (!isDtype(dtype))
    throw new RangeError(`${where}: ${what} dtype expected ${Object.keys(BITS).join(", ")}, got ${describe(dtype)}`);
  const bytes = expectBytes(where, `${what} bytes`, tensor.bytes);
  if (bytes.length * 8 !== size * BITS[dtype])
    throw new RangeError(`${where}: ${what} expected ${(size * BITS[dtype]) / 8} bytes, got ${bytes.length}`);
  return { name, dtype, shape, bytes };
}

/** The own properties of an object, as a Map: `__proto__` in a file is a name like any other. */
function members(where: string, name: string, value: unknown): Map<string, unknown> {
  if (value === null || typeof value !== "object" || Array.isArray(value))
    throw new HeadwiseError("BAD_FILE", `${where}: ${name} expected an object, got ${describe(value)}`);
  return new Map(Object.entries(value));
}
