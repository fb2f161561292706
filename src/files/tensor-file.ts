import type { Dtype, StoredTensor } from "../tensor/dtypes.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { type ByteSource, readRanges } from "./byte-source.ts";

/** A tensor of an opened file. Its elements are not read yet. */
export interface TensorEntry {
  readonly name: string;
  /** In the words of the file's format; Q8_0 or Q4_0 also where a safetensors file keeps such blocks. */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Where it lies in the file, and how many bytes it has. */
  readonly offset: number;
  readonly bytes: number;
}

/** A file whose header is read and checked, and whose tensors are read when they are asked for. */
export interface TensorFile<Value> {
  readonly metadata: ReadonlyMap<string, Value>;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /**
   * Reads one tensor. Throws RangeError for a name that the file has not, `BAD_FILE` for a dtype that cannot be read
   * and where the bytes cannot be had; `where` is the function that errors name.
   */
  read(name: string, where?: string): Promise<StoredTensor>;
  /** Reads several tensors, those that lie close together in one go. */
  readAll(names: Iterable<string>, where?: string): Promise<ReadonlyMap<string, StoredTensor>>;
}

/** Reading a tensor of a dtype other than the `readable` ones throws. */
export function createTensorFile<Value>(
  source: ByteSource,
  metadata: ReadonlyMap<string, Value>,
  tensors: ReadonlyMap<string, TensorEntry>,
  readable: readonly Dtype[],
): TensorFile<Value> {
  const readAll = async (where: string, names: Iterable<string>) => {
    const entries = Array.from(new Set(names), (name) => {
      const entry = tensors.get(name);
      if (entry === undefined)
        throw new RangeError(
          `${where}: name expected one of the file's ${tensors.size} tensors, got ${describe(name)}`,
        );
      const dtype = readable.find((each) => each === entry.dtype);
      if (dtype !== undefined) return { ...entry, dtype };
      const known = `${readable.slice(0, -1).join(", ")} or ${readable.at(-1)}`;
      throw new HeadwiseError("BAD_FILE", `${where}: tensor ${describe(name)} expected ${known}, got ${entry.dtype}`);
    });
    const ranges = entries.map(({ offset, bytes }) => ({ begin: offset, end: offset + bytes }));
    const read = await readRanges(where, source, ranges);
    return new Map<string, StoredTensor>(
      entries.map(({ name, dtype, shape }, i) => [name, { name, dtype, shape, bytes: read[i]! }]),
    );
  };
  return {
    metadata,
    tensors,
    read: async (name, where = "read") => (await readAll(where, [name])).get(name)!,
    async readAll(names, where = "readAll") {
      if (typeof names === "string" || typeof Object(names)[Symbol.iterator] !== "function")
        throw new TypeError(`${where}: names expected a list of names, got ${describe(names)}`);
      return readAll(where, names);
    },
  };
}
