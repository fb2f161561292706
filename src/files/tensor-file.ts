import { type Dtype, type StoredTensor, shapeText } from "../tensor/dtypes.ts";
import { expectInt } from "../util/arguments.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { type ByteSource, readRanges } from "./byte-source.ts";

/** The description of a tensor in an opened file. */
export interface TensorEntry {
  /** Name in the file. */
  readonly name: string;
  /** Name of the dtype in the file's format. Q8_0 and Q4_0 also for blocks that `writeSafetensors` stored as U8. */
  readonly dtype: string;
  /** Dimensions, the outermost first. */
  readonly shape: readonly number[];
  /** Where the tensor begins, in bytes from the beginning of the file. */
  readonly offset: number;
  /** How many bytes the tensor takes. */
  readonly bytes: number;
}

/** An opened file: its header is read and checked, and tensors are read on request. */
export interface TensorFile<Value> {
  /** Metadata of the file. */
  readonly metadata: ReadonlyMap<string, Value>;
  /** All tensors by name. */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /**
   * Reads one tensor, as it is stored, or as F32 where its dtype is one that is widened.
   * @param where Name of the function in error messages.
   * @throws RangeError for a name that the file does not have. HeadwiseError `BAD_FILE` for a dtype that cannot be read and
   * for bytes that cannot be read, `OUT_OF_MEMORY` where they do not fit into memory.
   */
  read(name: string, where?: string): Promise<StoredTensor>;
  /**
   * Reads rows begin..end of a matrix, or of a tensor of more dimensions along the first one: its part of that many rows. Throws
   * as `read` does, and a RangeError for rows that it does not have.
   */
  readRows(name: string, begin: number, end: number, where?: string): Promise<StoredTensor>;
  /** Reads several tensors; those that are close to each other in the file in one request. Throws as `read` does. */
  readAll(names: Iterable<string>, where?: string): Promise<ReadonlyMap<string, StoredTensor>>;
}

/** The names to read, each once. Throws unless they are a list of names of `tensors`. */
export function expectNames(where: string, names: unknown, tensors: ReadonlyMap<string, unknown>): ReadonlySet<string> {
  if (typeof names === "string" || typeof Object(names)[Symbol.iterator] !== "function")
    throw new TypeError(`${where}: names expected a list of names, got ${describe(names)}`);
  const unique = new Set(names as Iterable<string>);
  for (const name of unique)
    if (!tensors.has(name))
      throw new RangeError(`${where}: name expected one of the file's ${tensors.size} tensors, got ${describe(name)}`);
  return unique;
}

/** Dtypes whose tensors become those of another one as they are read. */
export interface Conversion {
  readonly dtypes: readonly string[];
  convert(where: string, dtype: string, bytes: Uint8Array): Pick<StoredTensor, "dtype" | "bytes">;
}

/** Reading a tensor of a dtype other than the `readable` ones and those of `conversion` throws. */
export function createTensorFile<Value>(
  source: ByteSource,
  metadata: ReadonlyMap<string, Value>,
  tensors: ReadonlyMap<string, TensorEntry>,
  readable: readonly Dtype[],
  conversion?: Conversion,
): TensorFile<Value> {
  const expectReadable = (where: string, name: string): TensorEntry => {
    const entry = tensors.get(name) as TensorEntry;
    const all = [...readable, ...(conversion?.dtypes ?? [])];
    if (all.includes(entry.dtype)) return entry;
    const known = `${all.slice(0, -1).join(", ")} or ${all.at(-1)}`;
    throw new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(name)} expected ${known}, got ${entry.dtype}`);
  };
  const asStored = (where: string, { name, dtype }: TensorEntry, shape: readonly number[], bytes: Uint8Array) => ({
    ...{ name, dtype: dtype as Dtype, shape, bytes },
    ...(conversion?.dtypes.includes(dtype) && conversion.convert(where, dtype, bytes)),
  });
  const readAll = async (where: string, names: Iterable<string>) => {
    const entries = Array.from(expectNames(where, names, tensors), (name) => expectReadable(where, name));
    const ranges = entries.map(({ offset, bytes }) => ({ begin: offset, end: offset + bytes }));
    const read = await readRanges(where, source, ranges);
    return new Map<string, StoredTensor>(
      entries.map((entry, i) => [entry.name, asStored(where, entry, entry.shape, read[i]!)]),
    );
  };
  return {
    metadata,
    tensors,
    read: async (name, where = "read") => (await readAll(where, [name])).get(name)!,
    async readRows(name, begin, end, where = "readRows") {
      expectNames(where, [name], tensors);
      const entry = expectReadable(where, name);
      const { shape, offset, bytes } = entry;
      const [rows = 0, ...row] = shape;
      if (row.length === 0)
        throw new RangeError(`${where}: name expected a tensor of 2 or more dimensions, got shape ${shapeText(shape)}`);
      expectInt(where, "begin", begin, 0, rows);
      expectInt(where, "end", end, begin, rows);
      const width = bytes / (rows || 1);
      const [read] = await readRanges(where, source, [{ begin: offset + begin * width, end: offset + end * width }]);
      return asStored(where, entry, [end - begin, ...row], read as Uint8Array);
    },
    readAll: (names, where = "readAll") => readAll(where, names),
  };
}
