import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import { expectBytes, expectFunction } from "../../base/util/arguments.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { parseJson, reasonOf } from "../../base/util/strings.ts";
import type { BytesOrSource } from "../byte-source.ts";
import { expectNames, type TensorFile } from "../tensor-file.ts";
import { openFile, readSafetensors, type SafetensorsFile } from "./safetensors.ts";

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
