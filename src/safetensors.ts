import { describe, HeadwiseError } from "./errors.ts";
import { BITS, isDtype, type StoredTensor, shapeText } from "./floats.ts";
import { readHeader } from "./header.ts";
import { sizeOf, type Tensor } from "./tensor.ts";

export { type Dtype, type StoredTensor, toFloats } from "./floats.ts";

/** A checked safetensors file, or several that an index holds together. */
export interface SafetensorsFile {
  readonly metadata: ReadonlyMap<string, string>;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
}

/** The format's own limit, in bytes: a longer header is an attack rather than a model. */
const LARGEST_HEADER = 100_000_000;
const LARGEST_U64 = 2n ** 64n - 1n;

/**
 * Reads a safetensors file. Everything the header says is checked before anything is returned, and then the bytes of
 * the tensors are borrowed: nothing is copied.
 * @param where The function that errors name.
 * @throws TypeError unless `bytes` are bytes; HeadwiseError `BAD_FILE`, with the tensor, the rule and the value, for
 * a file that breaks the format: truncation, bad JSON, duplicate names, sizes that overflow, ranges that overlap,
 * leave a hole or leave bytes over.
 * @example
 * import { readSafetensors, writeSafetensors } from "headwise";
 * const bytes = writeSafetensors({ w: { data: new Float32Array([1, 2]), shape: [1, 2] } }, { format: "pt" });
 * const { tensors, metadata } = readSafetensors(bytes);
 * console.log(tensors.get("w")?.shape, metadata.get("format")); // [ 1, 2 ] pt
 */
export function readSafetensors(bytes: Uint8Array | ArrayBuffer, where = "readSafetensors"): SafetensorsFile {
  const file = expectBytes(where, "bytes", bytes);
  const fail = (rule: string, got: string): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${rule}, got ${got}`);
  };
  if (file.length < 8) fail("bytes expected an 8-byte header length", `${file.length} bytes`);
  const view = new DataView(file.buffer, file.byteOffset, 8);
  const length = view.getBigUint64(0, true);
  if (length > LARGEST_HEADER) fail(`header length expected <= ${LARGEST_HEADER} bytes`, String(length));
  if (length > file.length - 8) fail(`header length expected <= ${file.length - 8}, the bytes after it`, `${length}`);

  // A copy, since a TextDecoder may refuse shared memory.
  const headerBytes = file.slice(8, 8 + Number(length));
  let text = "";
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(headerBytes);
  } catch (cause) {
    throw new HeadwiseError("BAD_FILE", `${where}: header expected valid UTF-8, got other bytes`, { cause });
  }
  const { metadata, entries } = readHeader(text, where);

  const data = file.subarray(8 + headerBytes.length);
  const tensors = new Map<string, StoredTensor>();
  for (const [name, { dtype, shape, begin, end }] of entries) {
    const refuse = (rule: string, got: string): never => fail(`tensor ${describe(name)} ${rule}`, got);
    if (!isDtype(dtype)) return refuse(`dtype expected ${Object.keys(BITS).join(", ")}`, describe(dtype));
    const bits = bitsOf(shape, BITS[dtype]);
    if (bits === undefined) return refuse("expected a size below 2^64 bits", `${dtype} ${shapeText(shape)}`);
    if (bits % 8n !== 0n) refuse("expected to end on a whole byte", `${dtype} ${shapeText(shape)}`);
    if (end > data.length) refuse(`data_offsets expected to end within ${data.length} bytes`, `[${begin}, ${end}]`);
    if (BigInt(end - begin) !== bits / 8n)
      refuse(`expected ${bits / 8n} bytes for ${dtype} ${shapeText(shape)}`, `data_offsets [${begin}, ${end}]`);
    tensors.set(name, { name, dtype, shape, bytes: data.subarray(begin, end) });
  }

  // Ranges in order of their offsets must follow on each other without overlap or hole, and use up the data.
  let covered = 0;
  for (const [name, { begin, end }] of [...entries].sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end)) {
    if (begin !== covered)
      fail(`tensor ${describe(name)} data_offsets expected to begin at ${covered}`, `[${begin}, ${end}]`);
    covered = end;
  }
  if (covered !== data.length) fail(`data expected ${covered} bytes, as the tensors cover`, `${data.length}`);
  return { metadata, tensors };
}

/** A plain file name: letters, digits and ._+- and spaces, not starting with a dot. No folders, no URL syntax. */
const FILE_NAME = /^[\p{L}\p{N}_][\p{L}\p{N}._+ -]*$/u;

/**
 * Reads the index of a model that is stored in several safetensors files (`model.safetensors.index.json`). A shard is
 * opened when a property of one of its tensors is first read, and once: reading one layer opens the shards that layer
 * lies in. The shards that were opened stay in memory as long as the result does.
 * @param shard Gives the bytes of a file, by its plain name from the index; called at most once for each name.
 * @throws HeadwiseError `BAD_FILE` for an index that is not JSON, has no `weight_map`, or names a file that is not a
 * plain file name; and, when a tensor is read, for a shard that breaks the format or lacks the tensor.
 * @example
 * import { readSafetensorsIndex, writeSafetensors } from "headwise";
 * const shards = new Map([["a.safetensors", writeSafetensors({ w: { data: new Float32Array(2), shape: [2] } })]]);
 * const file = readSafetensorsIndex('{"weight_map":{"w":"a.safetensors"}}', (name) => shards.get(name)!);
 * console.log(file.tensors.get("w")?.dtype); // F32
 */
export function readSafetensorsIndex(
  indexJson: string | object,
  shard: (fileName: string) => Uint8Array | ArrayBuffer,
): SafetensorsFile {
  const where = "readSafetensorsIndex";
  if (typeof shard !== "function") throw new TypeError(`${where}: shard expected a function, got ${describe(shard)}`);
  const index = members(where, "index", parseJson(where, "index", indexJson));
  const metadata = new Map<string, string>();
  // Real indexes hold numbers here (total_size), which the metadata of one file cannot.
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

/** What `writeSafetensors` takes: float32 tensors, or bytes of any dtype. */
export type WritableTensor = Tensor | Omit<StoredTensor, "name">;

/**
 * Writes a safetensors file. Wide elements come first and the header is padded, so that every tensor lies aligned;
 * the same tensors give the same bytes in whatever order they are given.
 * @param tensors A Map or an object, name -> tensor.
 * @throws TypeError or RangeError for a tensor whose data does not fit its shape, or a name the format cannot hold.
 * @example
 * import { writeSafetensors } from "headwise";
 * const bytes = writeSafetensors({ "q_proj.weight": { data: new Float32Array(6), shape: [3, 2] } });
 * console.log(bytes.length % 8); // 0
 */
export function writeSafetensors(
  tensors: ReadonlyMap<string, WritableTensor> | Readonly<Record<string, WritableTensor>>,
  metadata: ReadonlyMap<string, string> | Readonly<Record<string, string>> = {},
): Uint8Array {
  const where = "writeSafetensors";
  const stored = pairs(where, "tensors", tensors).map(([name, tensor]) => toStored(where, name, tensor));
  // Not localeCompare: the order must not depend on the host's language.
  stored.sort((a, b) => BITS[b.dtype] - BITS[a.dtype] || (a.name < b.name ? -1 : 1));

  const members: string[] = [];
  const notes = pairs(where, "metadata", metadata).map(([key, value]) => {
    if (typeof value !== "string")
      throw new TypeError(`${where}: metadata ${describe(key)} expected a string, got ${describe(value)}`);
    return `${quote(where, key)}:${quote(where, value)}`;
  });
  if (notes.length > 0) members.push(`"__metadata__":{${notes.join(",")}}`);
  let end = 0;
  for (const { name, dtype, shape, bytes } of stored) {
    const begin = end;
    end += bytes.length;
    members.push(
      `${quote(where, name)}:{"dtype":"${dtype}","shape":[${shape.join(",")}],"data_offsets":[${begin},${end}]}`,
    );
  }
  const header = new TextEncoder().encode(`{${members.join(",")}}`);
  const start = 8 + Math.ceil(header.length / 8) * 8;
  if (start - 8 > LARGEST_HEADER)
    throw new RangeError(`${where}: header expected <= ${LARGEST_HEADER} bytes, got ${start - 8}`);
  const file = new Uint8Array(start + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(start - 8), true);
  file.fill(0x20, 8, start);
  file.set(header, 8);
  let at = start;
  for (const { bytes } of stored) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}

/** Bits of a tensor; undefined where the product leaves 64 bits on the way, even if a later zero would bring it back. */
function bitsOf(shape: readonly number[], elementBits: number): bigint | undefined {
  let bits = 1n;
  for (const length of [...shape, elementBits]) {
    bits *= BigInt(length);
    if (bits > LARGEST_U64) return undefined;
  }
  return bits;
}

function pairs<T>(
  where: string,
  name: string,
  source: ReadonlyMap<string, T> | Readonly<Record<string, T>>,
): [string, T][] {
  if (source === null || typeof source !== "object" || Array.isArray(source))
    throw new TypeError(`${where}: ${name} expected a Map or an object, got ${describe(source)}`);
  return Object.prototype.toString.call(source) === "[object Map]"
    ? [...(source as ReadonlyMap<string, T>)]
    : Object.entries(source);
}

function quote(where: string, word: string): string {
  if (typeof word !== "string") throw new TypeError(`${where}: name expected a string, got ${describe(word)}`);
  if (/\p{Cs}/u.test(word)) throw new RangeError(`${where}: name expected no lone surrogate, got ${describe(word)}`);
  return JSON.stringify(word);
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
    if (Object.prototype.toString.call(tensor.data) !== "[object Float32Array]")
      throw new TypeError(`${where}: ${what} data expected Float32Array, got ${describe(tensor.data)}`);
    if (tensor.data.length !== size)
      throw new RangeError(`${where}: ${what} expected ${size} floats, got ${tensor.data.length}`);
    const { buffer, byteOffset, byteLength } = tensor.data;
    return { name, dtype: "F32", shape: tensor.shape, bytes: new Uint8Array(buffer, byteOffset, byteLength) };
  }
  const { dtype, shape } = tensor;
  if (!isDtype(dtype))
    throw new RangeError(`${where}: ${what} dtype expected ${Object.keys(BITS).join(", ")}, got ${describe(dtype)}`);
  const bytes = expectBytes(where, `${what} bytes`, tensor.bytes);
  if (bytes.length * 8 !== size * BITS[dtype])
    throw new RangeError(`${where}: ${what} expected ${(size * BITS[dtype]) / 8} bytes, got ${bytes.length}`);
  return { name, dtype, shape, bytes };
}

/** Throws `TypeError` unless `value` is bytes (of any realm). Returns a plain view: a Buffer's `slice` would share. */
function expectBytes(where: string, name: string, value: unknown): Uint8Array {
  const kind = Object.prototype.toString.call(value);
  if (kind === "[object ArrayBuffer]" || kind === "[object SharedArrayBuffer]")
    return new Uint8Array(value as ArrayBuffer);
  if (ArrayBuffer.isView(value) && kind === "[object Uint8Array]")
    return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  throw new TypeError(`${where}: ${name} expected Uint8Array or ArrayBuffer, got ${describe(value)}`);
}

/** The value of a JSON text, or `json` itself where it is an object already. */
export function parseJson(where: string, name: string, json: string | object): unknown {
  if (typeof json === "object" && json !== null && !ArrayBuffer.isView(json)) return json;
  if (typeof json !== "string")
    throw new TypeError(`${where}: ${name} expected JSON text or an object, got ${describe(json)}`);
  try {
    return JSON.parse(json);
  } catch (cause) {
    throw new HeadwiseError("BAD_FILE", `${where}: ${name} expected valid JSON, got ${describe(json)}`, { cause });
  }
}

/** The own members of an object: what a file calls `__proto__` stays a name. */
function members(where: string, name: string, value: unknown): Map<string, unknown> {
  if (value === null || typeof value !== "object" || Array.isArray(value))
    throw new HeadwiseError("BAD_FILE", `${where}: ${name} expected an object, got ${describe(value)}`);
  return new Map(Object.entries(value));
}
